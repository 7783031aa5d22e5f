//! The documentation of the environment, printed from the tables that are its implementation.

use super::options::OPTIONS;
use super::selection::syntax_of;
use crate::coll;
use crate::report::Reason;
use crate::types::Collective;
use std::fmt::{self, Write};

const INTRODUCTION: &str = "\
# Environment variables

huddle reads these variables once, in MPI_Init, on rank 0 of MPI_COMM_WORLD. Rank 0's values hold on all ranks. Only
HUDDLE_PMPI is read by each rank for itself. If a value is wrong, one line says what is wrong with it, huddle uses the default, and
the program runs. An empty value counts as not set.

Terms: a *slot* is a buffer in shared memory through which a rank passes data. Each rank has a *ring* of slots, which it uses in turn
([ALGORITHMS.md](ALGORITHMS.md) has more terms). Ranks *share cores* if a node has more ranks than cores for them. *Native* calls
are left to the program's MPI library.
";

const ORIGIN: &str = "\
This page is printed from the tables in the sources of huddle: `HUDDLE_WRITE_DOCS=1 cargo test --no-default-features documentation`
renews it. Variables that only huddle's own tests read are in ARCHITECTURE.md, beside the sources.
";

const ALGORITHMS: &str = "\
## Algorithms

The variable of a collective takes an algorithm with its knobs, `native` (the MPI library's own), `auto` (huddle chooses), or
a list by size. For example, `<=8K:flat,<=256K:tree:radix=4,tiled` runs `flat` up to 8 KiB, `tree` with radix 4 up to 256 KiB, and
`tiled` above. If the last entry of a list has a bound, huddle chooses above that bound. K, M and G are powers of 1024. Sizes are packed
bytes: of the whole message for Allreduce, Bcast and Reduce, of one rank's block for Allgather and Scatter, 0 for Barrier.
";

const REASONS: &str = "\
## Reasons

The report (`HUDDLE_REPORT`, [REPORT.md](REPORT.md)) and the C API name one of these reasons for each call that was not
accelerated. huddle left the call to the native library, or ended it itself if the reason is `empty`.

Reasons that hold for all calls of a communicator, or for all calls of a collective on it, come first, and huddle does not look at
arguments then. So a call without data is a `single-rank` one on a communicator of one rank, and a `warm-up` one before
`HUDDLE_WARMUP`. A list by size never makes calls without data native: only `native` for the whole collective does
(`HUDDLE_BCAST=native`).
";

/// As Markdown: `docs/ENVIRONMENT.md`.
pub fn documentation() -> String {
    let mut page = INTRODUCTION.to_owned();
    // Writing to a string does not fail.
    let _ = write_markdown(&mut page);
    page
}

fn write_markdown(page: &mut String) -> fmt::Result {
    let variables = OPTIONS.iter().map(|option| {
        [code(option.name), escape(&option.takes.to_string()), code(option.default), escape(option.meaning)]
    });
    write_table(page, ["Variable", "Takes", "Default", "Meaning"], variables)?;
    write!(page, "\n{ALGORITHMS}")?;
    let algorithms = Collective::ALL.into_iter().flat_map(|collective| {
        coll::rows_of(collective).map(move |(_, row)| {
            [collective.name().to_owned(), code(&syntax_of(row)), escape(row.summary), escape(row.source)]
        })
    });
    write_table(page, ["Collective", "Algorithm", "What it does", "Source"], algorithms)?;
    write!(page, "\n{REASONS}")?;
    write_table(
        page,
        ["Reason", "Meaning"],
        Reason::ALL.iter().map(|reason| [code(reason.name()), escape(reason.meaning())]),
    )?;
    write!(page, "\n{ORIGIN}")
}

fn write_table<const N: usize>(
    page: &mut String,
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> fmt::Result {
    writeln!(page, "\n| {} |\n|{}", head.join(" | "), " --- |".repeat(N))?;
    rows.into_iter().try_for_each(|row| writeln!(page, "| {} |", row.join(" | ")))
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// Text that Markdown shows as it is, in one cell of a table.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "\\<")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_documented() {
        let page = documentation();
        for option in OPTIONS {
            assert!(page.contains(&format!("| `{}` |", option.name)));
        }
        for row in coll::REGISTRY {
            assert!(page.contains(&format!("| {} | `{}", row.collective.name(), row.name)));
        }
    }

    #[test]
    fn tables_keep_their_columns() {
        for line in documentation().lines().filter(|line| line.starts_with('|')) {
            let bars = line.replace("\\|", "").matches('|').count();
            assert!(matches!(bars, 3 | 5), "{line}");
        }
    }

    #[test]
    fn documentation_is_committed() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ENVIRONMENT.md");
        if std::env::var_os("HUDDLE_WRITE_DOCS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, documentation()).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == documentation(), "docs/ENVIRONMENT.md is old: run this test with HUDDLE_WRITE_DOCS=1");
    }
}
