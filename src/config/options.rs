//! The table of environment variables.

use super::environment::PREFIX;
use super::{Cache, Config, NodeOrder, Selection, value};
use crate::types::{Bytes, Collective, FirstLook, LINE, SlotReads, SlotStores};
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Stands in place of a default that no value can express.
pub(super) const UNSET: &str = "unset";

/// How many slots a ring may have.
const SLOTS: std::ops::RangeInclusive<usize> = 2..=256;
/// The shortest cell.
const SHORTEST_CELL: Bytes = Bytes(1 << 10);
/// The longest cell.
const LONGEST_CELL: Bytes = Bytes(1 << 30);

/// Blocking collectives that huddle does not serve, so that they have no variable.
const UNSERVED: [&str; 11] = [
    "Gather",
    "Gatherv",
    "Scatterv",
    "Allgatherv",
    "Alltoall",
    "Alltoallv",
    "Alltoallw",
    "Reduce_scatter",
    "Reduce_scatter_block",
    "Scan",
    "Exscan",
];

/// One environment variable.
pub struct Opt {
    /// The variable.
    pub name: &'static str,
    /// Its valid values.
    pub takes: Takes,
    /// The value that holds if the variable is not set, or `unset`.
    pub default: &'static str,
    /// What it does, for people.
    pub meaning: &'static str,
    /// Stores a value that is not blank, or says what is wrong with it if the list of valid values does not say enough.
    parse: Parse,
}

/// Reads a value as text or as a path, which may be of any bytes.
enum Parse {
    Text(fn(&str, &mut Config) -> Result<(), String>),
    Path(fn(&Path, &mut Config) -> Result<(), String>),
}

/// The valid values of a variable, for people.
pub enum Takes {
    /// These values.
    Text(&'static str),
    /// The algorithms of a collective, as the registry has them.
    Algorithm(Collective),
}

impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Algorithm(collective) => f.write_str(&Selection::syntax(*collective)),
        }
    }
}

/// What is wrong with one variable, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    variable: String,
    text: String,
    /// The page that says more, by its path below the prefix of an installation.
    page: Option<&'static str>,
}

impl Complaint {
    /// Whether `variable` is the one that something is wrong with.
    pub fn is_about(&self, variable: &str) -> bool {
        self.variable == variable
    }

    /// The line, with the whole path of the page that it names if huddle is installed in `prefix`.
    pub fn below(&self, prefix: &Path) -> String {
        let see = self.page.map(|page| format!("; see {}", prefix.join(page).display()));
        format!("{}{}", self.text, see.unwrap_or_default())
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.below(Path::new("")))
    }
}

/// The directory that scripts/install was given, if `file` lies `depth` levels below it; empty if `file` is not
/// installed.
pub fn prefix_of(file: Option<PathBuf>, depth: usize) -> PathBuf {
    let file = file.and_then(|file| file.canonicalize().ok());
    let prefix = file.as_deref().and_then(|file| file.ancestors().nth(depth));
    prefix.filter(|prefix| prefix.join("share/doc/huddle").is_dir()).map_or_else(PathBuf::new, Path::to_owned)
}

/// The variable that forces the algorithm of `collective`.
pub fn variable_of(collective: Collective) -> &'static str {
    let is_of = |takes: &Takes| matches!(takes, Takes::Algorithm(forced) if *forced == collective);
    OPTIONS.iter().find(|option| is_of(&option.takes)).map_or("", |option| option.name)
}

/// All variables, in the order of their documentation.
pub static OPTIONS: &[Opt] = &[
    Opt {
        name: "HUDDLE_DISABLE",
        takes: Takes::Text("0 or 1"),
        default: "0",
        meaning: "1 leaves every call to the native library.",
        parse: Parse::Text(|text, config| store(value::switch(text), &mut config.is_disabled)),
    },
    Opt {
        name: "HUDDLE_VERBOSE",
        takes: Takes::Text("0 or 1"),
        default: "0",
        meaning: "1 prints one line at start: version and build, MPI, ranks, nodes, and whether huddle is active or why not.",
        parse: Parse::Text(|text, config| store(value::switch(text), &mut config.is_verbose)),
    },
    Opt {
        name: "HUDDLE_REPORT",
        takes: Takes::Text("a file name"),
        default: UNSET,
        meaning: "At MPI_Finalize rank 0 writes a report over all ranks to this file, as JSON: calls by collective, \
                  algorithm, size and reason of decline. [REPORT.md](REPORT.md) explains its fields.",
        parse: Parse::Path(|path, config| store(Some(Some(path.into())), &mut config.report)),
    },
    Opt {
        name: "HUDDLE_STALL_SECONDS",
        takes: Takes::Text("a number of seconds, 0 for never"),
        default: "60",
        meaning: "A rank that waits longer than this in a collective prints what it waits for.",
        parse: Parse::Text(|text, config| {
            let seconds = value::number::<u64>(text);
            store(seconds.map(|seconds| (seconds > 0).then(|| Duration::from_secs(seconds))), &mut config.stall)
        }),
    },
    selection("HUDDLE_ALLREDUCE", Collective::Allreduce, |text, config| select(text, config, Collective::Allreduce)),
    selection("HUDDLE_BCAST", Collective::Bcast, |text, config| select(text, config, Collective::Bcast)),
    selection("HUDDLE_REDUCE", Collective::Reduce, |text, config| select(text, config, Collective::Reduce)),
    selection("HUDDLE_ALLGATHER", Collective::Allgather, |text, config| select(text, config, Collective::Allgather)),
    selection("HUDDLE_BARRIER", Collective::Barrier, |text, config| select(text, config, Collective::Barrier)),
    selection("HUDDLE_SCATTER", Collective::Scatter, |text, config| select(text, config, Collective::Scatter)),
    Opt {
        name: "HUDDLE_WARMUP",
        takes: Takes::Text("a number, at least 1"),
        default: "3",
        meaning: "The ordinal of the blocking call of the six collectives, counted together, from which on huddle \
                  serves a communicator. The calls before it are native, so that communicators used once or twice \
                  cost nothing.",
        parse: Parse::Text(|text, config| {
            store(value::number(text).filter(|ordinal| *ordinal >= 1), &mut config.warmup)
        }),
    },
    Opt {
        name: "HUDDLE_SLOTS",
        takes: Takes::Text("auto, or a power of two from 2 to 256"),
        default: "auto",
        meaning: "Number of slots in the ring of each rank in shared memory, per communicator. `auto`: 16, or 4 if \
                  ranks share cores on some node of the job.",
        parse: Parse::Text(|text, config| {
            if text == "auto" {
                return store(Some(None), &mut config.slots);
            }
            let fits = |slots: &usize| slots.is_power_of_two() && SLOTS.contains(slots);
            store(value::number(text).filter(fits).map(Some), &mut config.slots)
        }),
    },
    Opt {
        name: "HUDDLE_SLOT_BYTES",
        takes: Takes::Text("auto, or a size such as 8K or 1M, a multiple of 64 from 1K to 1G"),
        default: "auto",
        meaning: "Bytes of data in a slot. An element of a reduction must fit into one. `auto` is at least 8K and \
                  at most 256K. Between these it is the largest power of two that keeps two bounds. First, a rank's \
                  slots together take no more than twice the second-level cache (so 128K in each of 16 slots, if \
                  that cache has 1M). If ranks share cores, this bound is 1M (256K in each of 4 slots), or as much \
                  as that cache if it is longer. Second, the slots of all ranks of a node take no more than 8M for \
                  a communicator. This includes the cells that two ranks pass to each other, so slots never have \
                  more than 128K on two ranks with a core each.",
        parse: Parse::Text(|text, config| {
            if text == "auto" {
                return store(Some(None), &mut config.slot_bytes);
            }
            let fits = |size: &Bytes| (SHORTEST_CELL..=LONGEST_CELL).contains(size) && size.0.is_multiple_of(LINE);
            store(value::size(text).filter(fits).map(Some), &mut config.slot_bytes)
        }),
    },
    Opt {
        name: "HUDDLE_SLOT_STORES",
        takes: Takes::Text("auto, cached or streaming"),
        default: "auto",
        meaning: "How a rank writes its slots. `cached`: through the caches. `streaming`: around the caches to \
                  memory, which is faster if its peers' caches are far from its own. `auto`: each rank times some \
                  of its writes and uses the faster way. Short pieces (below 1K), and data in cells that two ranks \
                  pass to each other, always go through the caches.",
        parse: Parse::Text(|text, config| {
            use SlotStores::{Auto, Cached, Streaming};
            store(
                value::word(text, &[("auto", Auto), ("cached", Cached), ("streaming", Streaming)]),
                &mut config.slot_stores,
            )
        }),
    },
    Opt {
        name: "HUDDLE_SLOT_READS",
        takes: Takes::Text("auto, sharing or taking"),
        default: "auto",
        meaning: "How a rank reads pieces of 1K and more in its peers' slots. `sharing`: it shares the cache lines \
                  with the caches that hold them. `taking`: it takes the lines over, so that their next writer \
                  finds them in one cache. Otherwise they are in several caches that all have to give them up. \
                  `auto`: taking, if the host has at most two processors, of AMD's fourth generation of Zen, and at \
                  most six ranks of the communicator; otherwise sharing. A rank whose long reads then prove slow, as \
                  where cores are far apart, shares lines for a while. Lines of cells that two ranks pass to each \
                  other are always shared.",
        parse: Parse::Text(|text, config| {
            use SlotReads::{Auto, Sharing, Taking};
            store(
                value::word(text, &[("auto", Auto), ("sharing", Sharing), ("taking", Taking)]),
                &mut config.slot_reads,
            )
        }),
    },
    Opt {
        name: "HUDDLE_FIRST_LOOK",
        takes: Takes::Text("auto, early or late"),
        default: "auto",
        meaning: "When a rank first looks for its peer's flag, in an Allreduce, Allgather or Barrier of up to 512 \
                  bytes between two ranks with a core each. `early`: at once. `late`: when its own flag is in its \
                  cache. A look at a flag that is not yet written takes the cache line from its writer. `auto` \
                  begins late on processors of Intel's and of AMD's fifth generation of Zen, and early on others. \
                  In some calls the rank tries both ways, and changes if these calls show that the other way is \
                  faster. In calls of up to 512 bytes whose roots take turns, `auto` also tries waits before the \
                  first look, and uses the fastest one.",
        parse: Parse::Text(|text, config| {
            use FirstLook::{Auto, Early, Late};
            store(value::word(text, &[("auto", Auto), ("early", Early), ("late", Late)]), &mut config.first_look)
        }),
    },
    Opt {
        name: "HUDDLE_TRIALS",
        takes: Takes::Text("0 or 1"),
        default: "1",
        meaning: "0 keeps ranks from trying anything while the program runs. With 1, a few of all calls try two ways \
                  of waiting, copying or passing data in turn, and later calls go the faster way. With 0, all calls \
                  go the way that the models, the processor or the other variables tell. That is usually slower, but a \
                  call then runs the same way each time: set it to find out whether a trial explains what calls take.",
        parse: Parse::Text(|text, config| store(value::switch(text), &mut config.holds_trials)),
    },
    Opt {
        name: "HUDDLE_SINGLE_COPY",
        takes: Takes::Text("0 or 1"),
        default: "1",
        meaning: "0 keeps ranks from reading each other's memory (process_vm_readv). With 1, `single` algorithms do \
                  so. They run in three cases ([ALGORITHMS.md](ALGORITHMS.md)): where the user forces them; in long \
                  Scatters, but not where ranks share cores and trials show that slots are faster; and in longer \
                  calls between two ranks with a core each, where trials show that they are faster. In MPI_Init \
                  each rank tries to read the memory of all others on its host. If one rank may not (seccomp, \
                  kernel.yama.ptrace_scope above 0, another user), no rank of the job does so later.",
        parse: Parse::Text(|text, config| store(value::switch(text), &mut config.may_copy_singly)),
    },
    Opt {
        name: "HUDDLE_BRIDGES",
        takes: Takes::Text("a number"),
        default: "64",
        meaning: "The most MPI communicators that huddle makes for the steps between nodes. Further communicators \
                  that span nodes stay native.",
        parse: Parse::Text(|text, config| store(value::number(text), &mut config.bridges)),
    },
    Opt {
        name: "HUDDLE_CACHE",
        takes: Takes::Text("an absolute path of a directory, or off"),
        default: UNSET,
        meaning: "The directory for what huddle found out about machines: measurements of the kernels and of the \
                  network between nodes, and how hwloc sees each machine since it started. Each measurement takes a \
                  few milliseconds once per kind of machine. `off`: huddle finds all of this out in each job. \
                  Without the variable: $XDG_CACHE_HOME/huddle or ~/.cache/huddle; without a home, huddle keeps \
                  nothing. huddle makes a missing directory. If it can't write there, it keeps nothing. \
                  Measurements stay, even if others used the machine meanwhile: `huddle probe` measures it anew.",
        parse: Parse::Path(|path, config| {
            let directory = path.is_absolute().then(|| Cache::Directory(path.into()));
            store(if path == Path::new("off") { Some(Cache::Off) } else { directory }, &mut config.cache)
        }),
    },
    Opt {
        name: "HUDDLE_LEADERS",
        takes: Takes::Text("a number from 1 to 16"),
        default: "1",
        meaning: "Number of ranks of each node that get a communicator between nodes. Several leaders take the \
                  chunks of a call in turn. If the user asks for an algorithm with more `leaders`, that number \
                  holds.",
        parse: Parse::Text(|text, config| {
            store(value::number(text).filter(|leaders| (1..=16).contains(leaders)), &mut config.leaders)
        }),
    },
    Opt {
        name: "HUDDLE_TOPOLOGY",
        takes: Takes::Text("a synthetic topology of hwloc such as \"package:2 core:4 pu:1\""),
        default: UNSET,
        meaning: "The machine to assume in place of the one found; for tests. If hwloc does not understand the \
                  text, huddle takes each node for one flat level.",
        parse: Parse::Text(|text, config| store(Some(Some(text.to_owned())), &mut config.topology)),
    },
    Opt {
        name: "HUDDLE_NODE_RANKS",
        takes: Takes::Text("a number of ranks, or several as in 3,1"),
        default: UNSET,
        meaning: "Cuts each node into virtual nodes of these sizes, repeated as often as needed; for tests.",
        parse: Parse::Text(|text, config| {
            let sizes = text.split(',').map(|size| value::number(size.trim()).filter(|size| *size >= 1u32));
            store(sizes.collect(), &mut config.node_ranks)
        }),
    },
    Opt {
        name: "HUDDLE_NODE_ORDER",
        takes: Takes::Text("block or cyclic"),
        default: "block",
        meaning: "`block`: ranks fill virtual nodes one after the other. `cyclic`: ranks go to virtual nodes in \
                  turn.",
        parse: Parse::Text(|text, config| {
            use NodeOrder::{Block, Cyclic};
            store(value::word(text, &[("block", Block), ("cyclic", Cyclic)]), &mut config.node_order)
        }),
    },
    Opt {
        name: "HUDDLE_PMPI",
        takes: Takes::Text("0 or 1"),
        default: "1",
        meaning: "0 leaves the PMPI_ names to the native library, so that a program can compare MPI_X and PMPI_X in \
                  one process. Fortran programs may call either. Each rank's loader reads this variable for itself.",
        parse: Parse::Text(|text, config| store(value::switch(text), &mut config.serves_pmpi)),
    },
];

/// The variable that forces the algorithm of a collective.
const fn selection(
    name: &'static str,
    collective: Collective,
    parse: fn(&str, &mut Config) -> Result<(), String>,
) -> Opt {
    let meaning = "Forces the algorithm, for all sizes or by size in bytes.";
    Opt { name, takes: Takes::Algorithm(collective), default: "auto", meaning, parse: Parse::Text(parse) }
}

fn select(text: &str, config: &mut Config, collective: Collective) -> Result<(), String> {
    config.selections[collective as usize] = Selection::parse(text, collective)?;
    Ok(())
}

fn store<T>(value: Option<T>, to: &mut T) -> Result<(), String> {
    *to = value.ok_or_else(String::new)?;
    Ok(())
}

/// Stores the value of one variable in `config`, which stays as it is if there is a complaint.
pub(super) fn apply(config: &mut Config, name: &str, value: &OsStr) -> Result<(), Complaint> {
    let Some(option) = OPTIONS.iter().find(|option| option.name == name) else {
        let text = format!("{name} is not known{}", hint(name));
        return Err(Complaint { variable: name.to_owned(), text, page: None });
    };
    let text = value.to_str().map(str::trim);
    if text.is_some_and(str::is_empty) {
        return Ok(());
    }
    let stored = match (&option.parse, text) {
        (Parse::Text(parse), Some(text)) => parse(text, config),
        (Parse::Text(_), None) => Err("not UTF-8".to_owned()),
        (Parse::Path(parse), text) => parse(text.map_or(Path::new(value), Path::new), config),
    };
    stored.map_err(|problem| {
        let instead = if option.default == UNSET {
            "as if it were not set".to_owned()
        } else {
            format!("using {}", option.default)
        };
        let (problem, page) = match option.takes {
            Takes::Text(valid) if problem.is_empty() => (format!("valid: {valid}"), None),
            Takes::Text(valid) => (format!("{problem}; valid: {valid}"), None),
            // With all knobs of all algorithms the line would be hard to read. The problem names the knobs that matter.
            Takes::Algorithm(_) => (problem, Some("share/doc/huddle/ENVIRONMENT.md")),
        };
        Complaint { variable: name.to_owned(), text: format!("{name}={value:?}: {problem}; {instead}"), page }
    })
}

/// What the user of an unknown variable may have meant.
fn hint(name: &str) -> String {
    let meant = name.strip_prefix(PREFIX).unwrap_or_default();
    match (UNSERVED.iter().find(|collective| collective.eq_ignore_ascii_case(meant)), closest(name)) {
        (Some(collective), _) => format!("; huddle does not serve MPI_{collective}"),
        (None, Some(known)) => format!("; did you mean {known}?"),
        (None, None) => String::new(),
    }
}

/// The known variable that takes the fewest edits from `name`, if they may be slips: no more than half of what follows
/// the prefix.
fn closest(name: &str) -> Option<&'static str> {
    let edits = |known: &str| distance(name, known);
    let known = OPTIONS.iter().map(|option| option.name).min_by_key(|known| edits(known))?;
    (edits(known) <= (known.len() - PREFIX.len()) / 2).then_some(known)
}

/// The number of characters to insert, delete or replace (Levenshtein), by rows of the usual table.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, have) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, want) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(have != want);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }

    #[test]
    fn pages_have_whole_paths_where_huddle_is_installed() {
        let complaint = apply(&mut Config::default(), "HUDDLE_BCAST", OsStr::new("tee")).unwrap_err();
        let expected = "using auto; see /opt/huddle/share/doc/huddle/ENVIRONMENT.md";
        assert!(complaint.below(Path::new("/opt/huddle")).ends_with(expected), "{complaint}");
        assert!(complaint.to_string().ends_with("; see share/doc/huddle/ENVIRONMENT.md"), "{complaint}");
    }

    #[test]
    fn slips_are_hinted_at_and_other_words_are_not() {
        let slips = [
            ("HUDDLE_ALREDUCE", "HUDDLE_ALLREDUCE"),
            ("HUDDLE_BCATS", "HUDDLE_BCAST"),
            ("HUDDLE_BCST", "HUDDLE_BCAST"),
            ("HUDDLE_SLOTBYTES", "HUDDLE_SLOT_BYTES"),
            ("HUDDLE_VERBOS", "HUDDLE_VERBOSE"),
        ];
        for (name, known) in slips {
            assert_eq!(closest(name), Some(known));
        }
        for name in ["HUDDLE_CHOICE", "HUDDLE_DEBUG", "HUDDLE_RANKS", "HUDDLE_NODES", "HUDDLE_"] {
            assert_eq!(closest(name), None);
        }
    }

    #[test]
    fn names_are_unique_and_close_to_themselves() {
        for option in OPTIONS {
            assert_eq!(OPTIONS.iter().filter(|other| other.name == option.name).count(), 1);
            assert_eq!(closest(option.name), Some(option.name));
        }
    }

    #[test]
    fn every_collective_has_its_variable() {
        for collective in Collective::ALL {
            let name = format!("HUDDLE_{}", collective.name().to_uppercase());
            let mut config = Config::default();
            apply(&mut config, &name, OsStr::new("native")).unwrap();
            for other in Collective::ALL {
                let is_native = config.selection(other).pick(Bytes(1)) == super::super::Pick::Native;
                assert_eq!(is_native, other == collective);
            }
        }
    }
}
