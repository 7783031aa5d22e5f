//! docs/ALGORITHMS.md, printed from the registry, the models and the simulator.

use super::combining::{LIBRARY, USER};
use super::orders::{Holds, Stage, machines, verdicts};
use crate::coll::{CLASSES, Knobs, REGISTRY, Row, SIGNALS, SOURCES, Takes, rows_of};
use crate::model::Parameters;
use crate::topo::Kind;
use crate::types::Collective;
use std::fmt::{self, Write};

const INTRODUCTION: &str = "\
# Algorithms

What huddle can run for each collective: the rows of its registry. `HUDDLE_ALLREDUCE=tree:radix=4` and the like force one
([ENVIRONMENT.md](ENVIRONMENT.md)); `huddle info` shows which would be chosen on a machine, with predicted times.

`HUDDLE_WRITE_DOCS=1 cargo test --no-default-features documentation` renews this page from the sources;
`scripts/model` renews the part on measurements.

Drawings are for five ranks: `a->b` means that b reads what a has put into its slot, or, of relays, that b goes on in the same place. In costs, p ranks lie on a node, q of them
in a group; a line takes `a`, a byte of one stream `b`, of all streams over a link together `B`; m is the length, k the radix;
radix 1 makes a chain of a tree and counts as 2 in a dissemination.

Each rank has a ring of *slots*, each of a flag's line and a *cell*; only it writes them, but for cells of relays, all others read
(ARCHITECTURE.md, beside the sources, has all terms). What one step moves is a piece: at most a tile in tiled algorithms, a
segment in trees, else what a cell holds. Between nodes a message goes in chunks, each of which one of a node's leaders takes. Knobs:
`radix`, children in a tree, partners in a dissemination; `class` and `stages`, which tree; `tile`, `segment` and `chunk`,
bytes of each; `buffers`, how many pieces a broadcast's root may be ahead of its slowest reader (its whole ring, where nobody
says); `leaders`, how many ranks of a node take chunks in turn; `up` and `down`, whether a barrier's signals are on a line of
who sends or of who awaits them; `try`, that memory and slots of who has data are both tried, and which first (memory alone, where nobody
says). They are for experiments: a tile of 64 bytes is legal, and slow.
";

const MODEL: &str = "\
## Costs

Each algorithm but the `single` ones of Bcast and Allgather, and relays where each rank has a core or nodes are several, has a closed form, evaluated on the tree that it walks, for the hierarchy of the communicator's first node, with
the parameters of rank 0. It charges each flag's line, each read of a peer's slot by the level that it crosses, copies and
combinations, streams that share a link (Li et al. 2014, equations 1 to 11; between nodes LogGP, as Nishtala 2009), and huddle's
own instructions. The papers' own formulas, with their worked values as tests, are in `src/model`. What nobody forces runs with
the algorithm and knobs of the least cost, or what is tried in its place (below). That is found when the first call of a size comes, for sizes from one power of two to
the next half of it, and kept in a map of the communicator, shared by all communicators that lie alike: later calls look it up
in some nanoseconds (`cargo bench --package huddle-benches --bench choose`). Compared are radix, class and stages of trees, tiles and segments that fit
the first-level cache, one and two buffers and a ring, chunks between nodes, pulled and pushed signals, and as many leaders as
`HUDDLE_LEADERS` permits: with several of them the phases of other chunks go on while a leader's step between nodes is under
way.

Between two ranks with cores of their own Bcasts and Scatters of more than 12 KiB, and Allgathers of more than 48, run `single` with `try`, where ranks may
read each other's memory and the models choose `flat` or `tiled`, of a Scatter `flat` or `single`: no model tells whether data are better copied twice, through slots, or once, out of memory by the system, since that depends on whether the program
changes them between calls. Who has the data decides for each call, and tells with its first flag. Of each collective, and of the lengths
between two powers of two, the first calls go as the models choose, eight or, where these take slots, as many as go twice round in 2 MiB; the next 32 are tried, in blocks of eight that go one way, and after that 32 of
4096, of shorter ones than 256 KiB 32 for each gigabyte, before that also after 512 calls (1024 where ranks share cores) and four times as many each time, since first calls use new memory; what took less time from call to call is the habit for the others (`src/fabric/shm/loans.rs`, `trials.rs`).
Where ranks share cores, Scatters of blocks of up to 6 MiB for which the models choose `single` run with `try` too, as long as all that ranks send and receive
fits the last-level cache, and those for which they choose `flat` or `tiled`, where half of that cache does not hold what all ranks send, each as the
root in turn, and are sent, or where they find `single` no more than twice as long: there 64 of 4096 calls are tried, of blocks below 256 KiB 64 for each gigabyte; what counts is a rank's time within
calls, the mean of intervals of four calls without the longest one. Each rank tells what it has found, and all go by what all have. Of blocks of
256 KiB and more, on up to 8 ranks, a trial is over when it is half made if that half speaks for what is usual, by more than half of the ranks'
verdicts: what is clearly slower is tried in 16 calls in place of 32.

Where ranks share cores a phase takes the work of all ranks over the cores that they have, and what of its longest path does not
fit beside that (Graham's bound); no more ranks read at a time than have cores. Each wait that follows from another takes a turn
of all ranks of a core, a switch each; where all wait for all, half a turn more for each two ranks of a core beyond the second;
where ranks run ahead, one for as many pieces as they have slots. The root of a Scatter waits for all others where its slots do not hold
the blocks, and with single copies: that takes twelve waits. Where half of the cores have a rank more than the others, these decide how
long all are at work. A flat Allreduce takes longer there as soon as the operands of all ranks exceed
64 KiB together, as they leave a first-level cache. A tiled Allreduce waits once more than its parts do; a hierarchical one for other groups too, with each piece. In
a Reduce on one node that is not flat ranks wait that are not its root, while those of their core write their next operands.

Sums and the like of long doubles, which huddle leaves to the MPI library, are charged LIBRARY ns/byte more than others, assumed. So they
are sooner done once for all ranks than by each. A user's operations are charged USER ns/byte more, as one that adds doubles one by one is
slower: nothing tells before they are called.

On a node of two ranks Bcasts and Reduces in more pieces than a rank has cells to pass take longer by what it takes to get the lines of slots
back that the other rank has read. So messages beyond some 256 KiB move in few long pieces or, as tiled Bcasts, in tiles of
which several share a cell: the models can't tell how long these are best, so no lengths are compared. There pieces of
flat and tiled Allreduces, of flat, tiled and tree Reduces and of Allgathers by `flat`, `tiled` and `single` are about as long as each
other, in whole pages, since beside a short rest a full one overlaps with little. All others are full but for the last.

Where nobody says otherwise a tile is a quarter of the message, but no shorter than a quarter of the first-level cache and no
longer than one of the second-level cache. Of a Bcast between two ranks, whose tiles share cells, it is three quarters of the
first-level cache, all of it in messages four times as long as that or longer, or a quarter of a cell where that is less; a quarter of the first-level cache where
the message has no more than one such tile, half of the message where that has no more than two and slots and memory are tried, and longer where it has more than 32 of them. A segment is as long as a tile may be at most. Where ranks share cores
tiles and segments are as long as cells, but those of relays half of the message, no shorter than a quarter of the first-level cache and no longer than 128 KiB. A rank's slots take twice the
second-level cache together, or 1 MiB where ranks share cores (more with more slots than usual, where the cache is longer). The smallest caches of the job count, 32 KiB and 1 MiB where the machine does not tell: `huddle
info` says which.

Rates of copies and reductions come from the kernels' probe. `huddle probe` measures, on an idle machine, what moves between
its processors and what it takes two threads to give each other a core, to which 600 ns are added for what a rank misses then, for later jobs. What messages take between nodes rank 0 and a
rank of another node measure in MPI_Init, in some two milliseconds, where there are several nodes whose ranks do not share
cores; it is kept with the machine's, by library, and rank 0's is agreed. A machine that nobody has measured is taken for the
one below. So is what moves between ranks that share cores, on all machines: who is second on its core finds there what the first one has fetched,
so with what a single pair measures trees and relays would be chosen too soon:
";

const SIMULATED: &str = "\
## The papers' machines

The simulator runs the algorithms themselves on virtual time, rank by rank, where the closed forms follow one rank. Below, µs per
call simulated / by the closed form, with trees of radix 2 and cells of 64 KiB. The text of the paper gives the latencies of the
2×6 machine (§3.4; its worked 306.7 ns is a test). Those of the 4×8 one are in a picture only (figure 21): assumed ones give the
paper's sum of 608.4 ns. All bandwidths are assumed (`src/model/papers.rs`).
";

const ORDERS: &str = "\
### What the papers report

";

/// The markers around the part that measurements fill.
const MEASURED: [&str; 2] = ["<!-- measured -->", "<!-- end -->"];

/// The page; `measured` is the text between its markers.
pub fn documentation(measured: &str) -> String {
    let mut page = INTRODUCTION.to_owned();
    // Writing to a string does not fail.
    let _ = write_page(&mut page, measured);
    page
}

fn write_page(page: &mut String, measured: &str) -> fmt::Result {
    for collective in Collective::ALL {
        writeln!(page, "\n## {}", collective.name())?;
        rows_of(collective).try_for_each(|(_, row)| write_row(page, row))?;
    }
    write!(page, "\n{}", MODEL.replace("LIBRARY", &LIBRARY.to_string()).replace("USER", &USER.to_string()))?;
    write_parameters(page)?;
    write!(page, "\n{SIMULATED}")?;
    machines().iter().try_for_each(|machine| write_times(page, machine))?;
    write!(page, "\n{ORDERS}")?;
    writeln!(page, "| claim | simulated | |\n| --- | --- | --- |")?;
    for verdict in verdicts() {
        let holds = match verdict.holds {
            Holds::Yes => "holds",
            Holds::ElsewhereOnly => "holds, but at another size",
            Holds::No => "**does not hold**",
        };
        writeln!(page, "| {} | {} | {holds} |", verdict.claim, verdict.found)?;
    }
    write!(page, "\n{WHY}")?;
    write!(page, "\n## Model and measurement\n\n{}{measured}{}\n", MEASURED[0], MEASURED[1])
}

const WHY: &str = "\
Why some do not hold, or at other sizes:

- The bandwidths are not in the text. With its latencies, equations (5) and (11) cross at 16 KB only if a tree's bandwidth is
  within a percent of the tiles'; with bandwidths like those of such machines they cross below 1 KB.
- The paper's threads read each other's buffers. huddle's ranks copy into slots first, which a tree does once per level and a
  tiled reduction once.
- Dissemination has fewer steps than a tree and its broadcast, so that the paper's own equations put it first for short messages,
  as the simulator does; the paper measured otherwise and supposes redundant work and contention to be the reason (§3.3).
";

fn write_row(page: &mut String, row: &Row) -> fmt::Result {
    writeln!(page, "\n### {}: `{}`\n", row.collective.name(), row.name)?;
    writeln!(page, "{}{}. Source: {}.\n", row.summary[..1].to_uppercase(), &row.summary[1..], row.source)?;
    if !row.drawing.is_empty() {
        writeln!(page, "```\n{}\n```\n", row.drawing)?;
    }
    let needs: Vec<&str> = row.needs.iter().map(|need| need.name()).collect();
    let needs = if needs.is_empty() { "nothing".to_owned() } else { needs.join(", ") };
    let knobs: Vec<String> =
        row.knobs.iter().map(|knob| format!("`{}` ({})", knob.name(), values(knob.takes()))).collect();
    let knobs = if knobs.is_empty() { "none".to_owned() } else { knobs.join(", ") };
    writeln!(page, "- Needs: {needs}\n- Knobs: {knobs}\n- Cost: {}", row.cost_in_words)
}

fn values(takes: Takes) -> String {
    match takes {
        Takes::Number(most) => format!("1 to {most}"),
        Takes::Size(least) => format!("a size, at least {least}"),
        Takes::Word(words) => {
            debug_assert!([&CLASSES[..], &SIGNALS[..], &SOURCES[..]].contains(&words));
            words.join(" or ")
        }
    }
}

fn write_parameters(page: &mut String) -> fmt::Result {
    let parameters = Parameters::default();
    writeln!(
        page,
        "\n| ranks share | line, ns | one stream, ns/byte | all streams, ns/byte |\n| --- | --- | --- | --- |"
    )?;
    for shares in std::iter::once(None).chain(Kind::ALL.map(Some)) {
        let crossing = parameters.crossing(shares);
        let name = shares.map_or("the node", Kind::name);
        writeln!(page, "| {name} | {} | {} | {} |", crossing.latency, crossing.stream, crossing.shared)?;
    }
    let network = parameters.network;
    writeln!(
        page,
        "\nIts own cache answers in {} ns; it copies at {} and combines at {} ns/byte; between nodes L = {} ns, o = {} ns, \
         g = {} ns, G = {} ns/byte.",
        parameters.local,
        parameters.copy,
        parameters.reduce,
        network.latency,
        network.overhead,
        network.gap,
        network.per_byte
    )?;
    let (far, software) = (parameters.far, parameters.software);
    writeln!(
        page,
        "What of a call's data {} KiB do not hold it copies at {} and combines at {} ns/byte. Copies into slots, whose lines come \
         back from their readers, take {} ns/byte. Data behind a flag add {} of a line's latency: processors load ahead. \
         huddle's own instructions take {} ns in a call and {} ns for a piece in a phase, unless the call is flat and fits a slot. \
         Where a rank works on what it fetches, {} of the shorter of the two does not show of a copy, {} of a reduction. \
         It takes {} ns to give a core to another rank. A single copy takes {} ns, and {} ns/byte more than one of a rank's own memory, and nothing of it overlaps; \
         where all is copied from memory it takes the longer of the two.",
        far.beyond / 1024.0,
        far.copy,
        far.reduce,
        parameters.write,
        parameters.ahead,
        software.call,
        software.step,
        parameters.overlap.copy,
        parameters.overlap.reduce,
        parameters.switch,
        parameters.single_copy.call,
        parameters.single_copy.per_byte
    )
}

const SIZES: [usize; 3] = [8, 1 << 10, 32 << 10];

fn write_times(page: &mut String, machine: &Stage) -> fmt::Result {
    let head: Vec<String> = SIZES.iter().map(|bytes| format!("{bytes} bytes")).collect();
    writeln!(page, "\n| {} | {} |\n| --- |{}", machine.name(), head.join(" | "), " --- |".repeat(SIZES.len()))?;
    for (index, row) in REGISTRY.iter().enumerate() {
        let is_barrier = row.collective == Collective::Barrier;
        let cells = SIZES.map(|bytes| {
            if is_barrier && bytes != SIZES[0] {
                return String::new();
            }
            let times = machine.time(index, bytes, Knobs::UNSET);
            let formula = times.formula.map_or("?".to_owned(), |time| format!("{:.2}", time / 1e3));
            format!("{:.2} / {formula}", times.simulated / 1e3)
        });
        writeln!(page, "| {} `{}` | {} |", row.collective.name(), row.name, cells.join(" | "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_of_algorithms_is_committed() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ALGORITHMS.md");
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let measured = committed.split_once(MEASURED[0]).and_then(|(_, rest)| rest.split_once(MEASURED[1]));
        let page = documentation(measured.map_or("\n", |(measured, _)| measured));
        if std::env::var_os("HUDDLE_WRITE_DOCS").is_some() {
            std::fs::write(&path, &page).unwrap();
        } else {
            assert!(committed == page, "docs/ALGORITHMS.md is old: run this test with HUDDLE_WRITE_DOCS=1");
        }
    }

    #[test]
    fn every_algorithm_has_all_parts() {
        for row in REGISTRY {
            let what = format!("{} {}", row.collective.name(), row.name);
            assert!(!row.cost_in_words.is_empty() && !row.drawing.is_empty(), "{what}");
        }
    }
}
