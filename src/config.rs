//! The configuration: one table of environment variables, which parses them and prints their documentation.
//!
//! All ranks run with the configuration of rank 0: it broadcasts its [`RawEnvironment`], the others compare theirs
//! ([`RawEnvironment::differs_from`]) and parse what they received. Parsing never fails: a wrong value is one
//! [`Complaint`], and the default holds.

#![forbid(unsafe_code)]

use crate::sync::Passed;
use crate::topo::{Caches, Crowding};
use crate::types::{Bytes, Collective, FirstLook, SlotReads, SlotStores};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod documentation;
mod environment;
mod nodes;
mod options;
mod selection;
mod value;

pub use documentation::documentation;
pub use environment::RawEnvironment;
pub use nodes::NodeOrder;
pub use options::{Complaint, OPTIONS, Opt, Takes, prefix_of, variable_of};
pub use selection::{Pick, Selection, Setting};

/// What the user asked for, the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Everything is left to the native library.
    pub is_disabled: bool,
    /// One line at start says what huddle found and does.
    pub is_verbose: bool,
    /// The `PMPI_X` names are served like `MPI_X`.
    pub serves_pmpi: bool,
    /// Where the report goes at `MPI_Finalize`.
    pub report: Option<PathBuf>,
    /// A wait that takes longer is diagnosed; `None` for never.
    pub stall: Option<Duration>,
    /// Sizes of the virtual nodes into which a node is cut; empty for the real nodes. See [`Config::virtual_nodes`].
    pub node_ranks: Vec<u32>,
    /// How ranks are dealt to virtual nodes.
    pub node_order: NodeOrder,
    /// The ordinal, on its communicator, of the blocking collective that builds the context; at least 1.
    pub warmup: u32,
    /// Slots in each rank's ring; a power of two; see [`Config::ring`].
    pub slots: Option<usize>,
    /// Length of a slot's cell, a multiple of a cache line; see [`Config::ring`].
    pub slot_bytes: Option<Bytes>,
    /// How this process writes its slots.
    pub slot_stores: SlotStores,
    /// How this process reads its peers' slots.
    pub slot_reads: SlotReads,
    /// When ranks of a pair take the first look of a wait.
    pub first_look: FirstLook,
    /// Calls may try ways, to find out which is faster.
    pub holds_trials: bool,
    /// Ranks of a node may read each other's memory.
    pub may_copy_singly: bool,
    /// The most communicators between nodes that huddle makes.
    pub bridges: u32,
    /// Where measurements of the machine are kept.
    pub cache: Cache,
    /// Leaders of each node, unless an algorithm is forced with more; see [`Config::leaders`].
    leaders: u32,
    /// The machine to assume: a synthetic description for hwloc.
    pub topology: Option<String>,
    /// What the user forced, by [`Collective`].
    selections: [Selection; Collective::ALL.len()],
}

/// The ring of a rank in the memory of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// A power of two.
    pub slots: usize,
    /// Length of a slot's cell, a multiple of a cache line.
    pub cell: Bytes,
    /// Bytes at the start of each cell in which pieces that are many times shorter go round.
    pub round: Bytes,
}

/// Where measurements of the machine are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cache {
    /// In the user's own directory for such files.
    Home,
    /// In this directory.
    Directory(PathBuf),
    /// Nowhere.
    Off,
}

impl Cache {
    /// The directory in the environment of this process; `None` where nothing is kept, or where the user has no home.
    /// Accounts of services often name a home that does not exist, and huddle must not make it.
    pub fn directory(&self) -> Option<PathBuf> {
        self.directory_by(|name| std::env::var_os(name))
    }

    fn directory_by(&self, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        match self {
            Self::Home => {
                let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
                cache.parent().is_some_and(Path::is_dir).then(|| cache.join("huddle"))
            }
            Self::Directory(path) => Some(path.clone()),
            Self::Off => None,
        }
    }
}

impl Default for Config {
    /// The configuration without any variable. The texts in [`OPTIONS`] say the same; a test compares them.
    fn default() -> Self {
        Self {
            is_disabled: false,
            is_verbose: false,
            serves_pmpi: true,
            report: None,
            stall: Some(Duration::from_secs(60)),
            node_ranks: Vec::new(),
            node_order: NodeOrder::Block,
            warmup: 3,
            slots: None,
            slot_bytes: None,
            slot_stores: SlotStores::Auto,
            slot_reads: SlotReads::Auto,
            first_look: FirstLook::Auto,
            holds_trials: true,
            may_copy_singly: true,
            bridges: 64,
            cache: Cache::Home,
            leaders: 1,
            topology: None,
            selections: Default::default(),
        }
    }
}

/// Lines of each kind in a rank's ring of `slots` slots, on a communicator of a process that has `others` other
/// communicators. The root of short messages runs ahead of the other ranks as far as its lines reach. Where ranks share
/// cores, the other ranks get its core once for that many calls. But calls go round in all lines: with each doubling of
/// the communicators from four on, later ones have half as many, so that caches hold the lines of all.
pub fn lines_of(slots: usize, crowding: Crowding, others: usize) -> usize {
    const USUAL: usize = 32;
    const WHERE_CORES_ARE_SHARED: usize = 256;
    /// 256 lines of a few communicators are some 100 KiB of a core's cache (docs/PERFORMANCE.md, "Tried").
    const FEW: usize = 4;
    let most = if crowding.is_shared() { WHERE_CORES_ARE_SHARED } else { USUAL };
    slots.max((most / (others / FEW + 1).next_power_of_two()).max(USUAL))
}

impl Config {
    /// The ring of each rank if the largest node has `ranks` ranks and the smallest caches of the job are `caches`. It
    /// is as long as [`Caches::ring`], unless the node has so many ranks that this would take too much memory: then its
    /// cells are shorter. They are also shorter where two ranks could have 4 MiB each: a part of that is for the cells
    /// that the two pass to each other, and the rest is rounded down.
    ///
    /// Where ranks share cores a ring has few cells, as long as they may be. Each cell is a step for all ranks, which
    /// costs a switch, and that counts for more than a ring that fits the second-level cache. Shorter pieces go round
    /// in a part of that cache, which holds what all ranks of the core write (measured by `bench/collectives.c` with
    /// `HUDDLE_SLOTS` and `HUDDLE_SLOT_BYTES`: docs/PERFORMANCE.md, "Tried").
    pub fn ring(&self, ranks: usize, caches: Caches, crowding: Crowding) -> Ring {
        const SLOTS: usize = 16;
        const SLOTS_WHERE_CORES_ARE_SHARED: usize = 4;
        const LONGEST: usize = 256 << 10;
        const SHORTEST: usize = 8 << 10;
        const MEMORY: usize = 8 << 20;
        /// At least twice any second-level cache.
        const ROUND: usize = 4 << 20;
        let (slots, length, round) = match crowding.is_shared() {
            true => {
                let cache = caches.ring().0 / 2;
                // A longer cache makes cells longer only with more slots than usual.
                let length = cache.max(SLOTS_WHERE_CORES_ARE_SHARED * LONGEST);
                (SLOTS_WHERE_CORES_ARE_SHARED, length, cache / 2 / crowding.ranks_per_core().ceil() as usize)
            }
            false => (SLOTS, caches.ring().0, ROUND),
        };
        let slots = self.slots.unwrap_or(slots);
        let power_of_two = |bytes: usize| 1 << bytes.max(1).ilog2();
        let memory = MEMORY / ranks.max(1) - if Passed::is_for(ranks) { Passed::BYTES } else { 0 };
        let wanted = power_of_two(length.min(memory) / slots.max(1));
        let cell = self.slot_bytes.unwrap_or(Bytes(wanted.clamp(SHORTEST, LONGEST)));
        Ring { slots, cell, round: Bytes(power_of_two(round / slots.max(1)).max(SHORTEST)).min(cell) }
    }

    /// Parses the variables of rank 0. Every wrong value and every unknown name is one complaint, for one rank to
    /// print.
    pub fn parse(raw: &RawEnvironment) -> (Self, Vec<Complaint>) {
        let mut config = Self::default();
        let mut complaints = Vec::new();
        for (name, value) in raw.variables() {
            complaints.extend(options::apply(&mut config, name, value).err());
        }
        (config, complaints)
    }

    /// What the user wants for a collective.
    #[inline]
    pub fn selection(&self, collective: Collective) -> &Selection {
        &self.selections[collective as usize]
    }

    /// Leaders of each node of a communicator that spans several nodes.
    pub fn leaders(&self) -> usize {
        self.selections.iter().map(Selection::leaders).fold(self.leaders, u32::max) as usize
    }

    /// The virtual node of each rank of a node that has `ranks` ranks; `None` if nodes are not cut.
    pub fn virtual_nodes(&self, ranks: usize) -> Option<Vec<u32>> {
        (!self.node_ranks.is_empty()).then(|| nodes::deal(&self.node_ranks, self.node_order, ranks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coll;
    use std::ffi::OsStr;

    fn parse(variables: &[(&str, &str)]) -> (Config, Vec<String>) {
        let (config, complaints) = Config::parse(&RawEnvironment::new(variables.iter().copied()));
        (config, complaints.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn nothing_set_is_the_default() {
        assert_eq!(parse(&[]), (Config::default(), vec![]));
    }

    #[test]
    fn rings_are_twice_the_cache_where_memory_permits() {
        let ring_of = |config: &Config, ranks, l2: u32, cores| {
            let caches = Caches { l2: l2 << 10, ..Caches::default() };
            let Ring { slots, cell, round } = config.ring(ranks, caches, Crowding::new(ranks, cores));
            assert!(round <= cell && (round == cell || round.0.is_power_of_two()));
            (slots, cell.0 >> 10)
        };
        let ring = |ranks, l2| ring_of(&Config::default(), ranks, l2, 1024.0);
        assert_eq!(
            [ring(2, 0), ring(2, 1024), ring(2, 512), ring(2, 2048), ring(3, 2048)].map(|(_, cell)| cell),
            [128, 128, 64, 128, 128]
        );
        assert_eq!(
            [ring(8, 1024), ring(16, 1024), ring(1000, 1024), ring(8, 4096)].map(|(_, cell)| cell),
            [64, 32, 8, 64]
        );
        assert!([2, 8, 1000].iter().all(|ranks| ring(*ranks, 1024).0 == 16));
        let shared = |ranks, l2| ring_of(&Config::default(), ranks, l2, 2.0);
        assert_eq!([shared(3, 1024), shared(8, 1024), shared(16, 1024)], [(4, 256), (4, 256), (4, 128)]);
        assert_eq!([shared(1000, 1024), shared(4, 512), shared(4, 2048)], [(4, 8), (4, 256), (4, 256)]);
        let two = Config { slots: Some(2), ..Config::default() };
        assert_eq!(ring_of(&two, 2, 1024, 2.0), (2, 256));
        assert_eq!(ring_of(&two, 8, 1024, 2.0), (2, 256));
        let many = Config { slots: Some(128), ..Config::default() };
        assert_eq!([ring_of(&many, 2, 8192, 1.0), ring_of(&many, 5, 8192, 1.0)], [(128, 16), (128, 8)]);
        let cell = Config { slot_bytes: Some(Bytes(4096)), ..Config::default() };
        assert_eq!(ring_of(&cell, 8, 1024, 2.0), (4, 4));
        let round = |ranks, cores| {
            let caches = Caches { l2: 1 << 20, ..Caches::default() };
            Config::default().ring(ranks, caches, Crowding::new(ranks, cores)).round.0 >> 10
        };
        assert_eq!([round(2, 2.0), round(3, 2.0), round(4, 2.0), round(8, 2.0)], [128, 64, 64, 32]);
    }

    #[test]
    fn later_ones_of_many_communicators_have_fewer_lines() {
        let (shared, own) = (Crowding::new(4, 2.0), Crowding::new(2, 2.0));
        let of = [0, 3, 4, 7, 8, 15, 16, 31, 1000].map(|others| lines_of(4, shared, others));
        assert_eq!(of, [256, 256, 128, 128, 64, 64, 32, 32, 32]);
        assert_eq!([lines_of(16, own, 0), lines_of(16, own, 9), lines_of(1024, shared, 9)], [32, 32, 1024]);
    }

    #[test]
    fn there_are_as_many_leaders_as_an_algorithm_is_forced_with() {
        let leaders = |variables: &[(&str, &str)]| parse(variables).0.leaders();
        assert_eq!(leaders(&[]), 1);
        assert_eq!(leaders(&[("HUDDLE_LEADERS", "4"), ("HUDDLE_BCAST", "flat:leaders=2")]), 4);
        assert_eq!(leaders(&[("HUDDLE_BCAST", "<=8K:flat,tiled:leaders=3")]), 3);
    }

    #[test]
    fn every_option_is_read() {
        let (config, complaints) = parse(&[
            ("HUDDLE_DISABLE", "1"),
            ("HUDDLE_VERBOSE", "1"),
            ("HUDDLE_PMPI", "0"),
            ("HUDDLE_REPORT", "out/report.json"),
            ("HUDDLE_STALL_SECONDS", "0"),
            ("HUDDLE_NODE_RANKS", "3,1"),
            ("HUDDLE_NODE_ORDER", "cyclic"),
            ("HUDDLE_WARMUP", "1"),
            ("HUDDLE_SLOTS", "2"),
            ("HUDDLE_SLOT_BYTES", "64K"),
            ("HUDDLE_SLOT_STORES", "streaming"),
            ("HUDDLE_SLOT_READS", "sharing"),
            ("HUDDLE_FIRST_LOOK", "late"),
            ("HUDDLE_BRIDGES", "0"),
            ("HUDDLE_TRIALS", "0"),
            ("HUDDLE_SINGLE_COPY", "0"),
            ("HUDDLE_CACHE", "/some/where"),
            ("HUDDLE_LEADERS", "2"),
            ("HUDDLE_TOPOLOGY", "package:2 core:4 pu:1"),
            ("HUDDLE_SCATTER", "native"),
        ]);
        assert_eq!(complaints, [""; 0]);
        assert!(config.is_disabled && config.is_verbose && !config.serves_pmpi);
        assert!(!config.holds_trials && !config.may_copy_singly);
        assert_eq!(config.report, Some(PathBuf::from("out/report.json")));
        assert_eq!(config.stall, None);
        assert_eq!(config.node_ranks, [3, 1]);
        assert_eq!(config.node_order, NodeOrder::Cyclic);
        assert_eq!(
            (config.warmup, config.slots, config.slot_bytes, config.bridges),
            (1, Some(2), Some(Bytes(65536)), 0)
        );
        assert_eq!((config.slot_stores, config.slot_reads), (SlotStores::Streaming, SlotReads::Sharing));
        assert_eq!(config.first_look, FirstLook::Late);
        assert_eq!(config.cache, Cache::Directory(PathBuf::from("/some/where")));
        assert_eq!(config.cache.directory(), Some(PathBuf::from("/some/where")));
        assert_eq!(parse(&[("HUDDLE_CACHE", "off")]).0.cache.directory(), None);
        assert_eq!(config.topology.as_deref(), Some("package:2 core:4 pu:1"));
        assert_eq!(config.selection(Collective::Scatter).pick(Bytes(8)), Pick::Native);
        assert_eq!(config.selection(Collective::Reduce).pick(Bytes(8)), Pick::Auto);
    }

    #[test]
    fn paths_may_have_any_bytes() {
        use std::os::unix::ffi::OsStrExt;
        let parse = |name: &str, value: &[u8]| {
            let (config, complaints) = Config::parse(&RawEnvironment::new([(name, OsStr::from_bytes(value))]));
            (config, complaints.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let (config, complaints) = parse("HUDDLE_CACHE", b"/caf\xe9");
        assert_eq!((config.cache, complaints), (Cache::Directory(path(b"/caf\xe9")), vec![]));
        let (config, complaints) = parse("HUDDLE_REPORT", b"\xff.json");
        assert_eq!((config.report, complaints), (Some(path(b"\xff.json")), vec![]));
        let (config, complaints) = parse("HUDDLE_WARMUP", b"\xff");
        assert_eq!(config, Config::default());
        assert_eq!(complaints, [r#"HUDDLE_WARMUP="\xFF": not UTF-8; valid: a number, at least 1; using 3"#]);
    }

    #[test]
    fn nothing_is_kept_where_there_is_no_home() {
        let home = std::env::temp_dir().join(format!("huddle-home-{}", std::process::id()));
        std::fs::create_dir(&home).unwrap();
        let directory = |name: &'static str, value: PathBuf| {
            Cache::Home.directory_by(|asked| (asked == name).then(|| value.clone().into_os_string()))
        };
        assert_eq!(directory("HOME", home.clone()), Some(home.join(".cache/huddle")));
        assert_eq!(directory("HOME", home.join("nobody")), None);
        assert_eq!(directory("HOME", PathBuf::from("relative")), None);
        assert_eq!(directory("XDG_CACHE_HOME", home.join("cache")), Some(home.join("cache/huddle")));
        assert_eq!(directory("XDG_CACHE_HOME", home.join("nobody/cache")), None);
        std::fs::remove_dir(&home).unwrap();
    }

    #[test]
    fn a_wrong_value_is_one_line_and_the_default_holds() {
        let wrong = [
            ("HUDDLE_DISABLE", "yes"),
            ("HUDDLE_VERBOSE", "2"),
            ("HUDDLE_STALL_SECONDS", "-1"),
            ("HUDDLE_NODE_RANKS", "3,0"),
            ("HUDDLE_NODE_ORDER", "random"),
            ("HUDDLE_WARMUP", "0"),
            ("HUDDLE_SLOTS", "3"),
            ("HUDDLE_SLOTS", "512"),
            ("HUDDLE_SLOT_BYTES", "1000"),
            ("HUDDLE_SLOT_BYTES", "512"),
            ("HUDDLE_SLOT_BYTES", "99999999999999999999G"),
            ("HUDDLE_BRIDGES", "many"),
            ("HUDDLE_TRIALS", "off"),
            ("HUDDLE_SINGLE_COPY", "yes"),
            ("HUDDLE_CACHE", "relative/path"),
            ("HUDDLE_BCAST", "fastest"),
            ("HUDDLE_BARRIER", "flat:radix=2"),
        ];
        for (name, value) in wrong {
            let (config, complaints) = parse(&[(name, value)]);
            assert_eq!(config, Config::default(), "{name}={value}");
            assert_eq!(complaints.len(), 1, "{name}={value}");
            assert!(complaints[0].starts_with(&format!("{name}={value:?}: ")), "{}", complaints[0]);
            let says_what_is_valid = ["valid: ", "it has no knobs"].iter().any(|text| complaints[0].contains(text));
            assert!(
                says_what_is_valid
                    && ["; using ", "; as if it were not set"].iter().any(|text| complaints[0].contains(text)),
                "{}",
                complaints[0]
            );
        }
        let (_, complaints) = parse(&[("HUDDLE_DISABLE", "yes")]);
        assert_eq!(complaints, [r#"HUDDLE_DISABLE="yes": valid: 0 or 1; using 0"#]);
    }

    #[test]
    fn what_is_wrong_with_an_algorithm_is_a_short_line() {
        let (_, complaints) = parse(&[("HUDDLE_SCATTER", "<=8K:flat,tee")]);
        let valid = "valid: auto, native, flat, tree, tiled, single; using auto; see share/doc/huddle/ENVIRONMENT.md";
        assert_eq!(complaints, [format!(r#"HUDDLE_SCATTER="<=8K:flat,tee": no algorithm "tee"; {valid}"#)]);
        for collective in Collective::ALL {
            let name = format!("HUDDLE_{}", collective.name().to_uppercase());
            for (_, row) in coll::rows_of(collective) {
                for value in ["nonsense".to_owned(), format!("{}:nonsense=1", row.name)] {
                    let (_, complaints) = parse(&[(&name, &value)]);
                    assert!(complaints.len() == 1 && complaints[0].len() <= 200, "{complaints:?}");
                }
            }
        }
    }

    #[test]
    fn an_unknown_variable_is_one_line_with_the_closest_name() {
        let (config, complaints) = parse(&[("HUDDLE_ALREDUCE", "tree")]);
        assert_eq!(config, Config::default());
        assert_eq!(complaints, ["HUDDLE_ALREDUCE is not known; did you mean HUDDLE_ALLREDUCE?"]);
        let (_, complaints) = parse(&[("HUDDLE_GATHER", "flat")]);
        assert_eq!(complaints, ["HUDDLE_GATHER is not known; huddle does not serve MPI_Gather"]);
    }

    #[test]
    fn empty_values_are_as_good_as_unset() {
        assert_eq!(parse(&[("HUDDLE_WARMUP", " "), ("HUDDLE_ALLREDUCE", "")]), (Config::default(), vec![]));
    }

    #[test]
    fn the_defaults_of_the_table_are_the_defaults() {
        for option in OPTIONS.iter().filter(|option| option.default != options::UNSET) {
            let (config, complaints) = parse(&[(option.name, option.default)]);
            assert_eq!((config, complaints), (Config::default(), vec![]), "{}", option.name);
        }
    }
}
