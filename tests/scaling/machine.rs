//! Simulated calls on nodes of 2 to 512 ranks.

use huddle::coll::{Plan, REGISTRY};
use huddle::config::{Config, RawEnvironment, Ring};
use huddle::fabric::simulated::{Placement, simulate};
use huddle::model::{Machine, Parameters};
use huddle::topo::{Caches, Crowding, Hierarchy, Kind, Levels};
use huddle::tune::{Agreed, Choice, Map, OperatorClass, Shape, choose};
use huddle::types::{Bytes, Collective, CommRank, Epoch, NodeRank, OperandOrder};

/// At most so many cores share a cache, and so many caches a package; ranks fill the node one after the other.
const CACHE_CORES: usize = 8;
const PACKAGE_CACHES: usize = 16;
/// Ranks that are simulated.
pub const RANKS: [usize; 9] = [2, 4, 8, 16, 32, 64, 128, 256, 512];

/// Bytes of a short call: of the message, or of one rank's block.
pub fn short(collective: Collective) -> usize {
    if collective == Collective::Barrier { 0 } else { 8 }
}

/// Bytes of a long call: of the message, or of one rank's block; `None` for a barrier.
pub fn long(collective: Collective) -> Option<usize> {
    match collective {
        Collective::Barrier => None,
        _ if collective.has_blocks() => Some(4 << 10),
        _ => Some(256 << 10),
    }
}

/// Packages and caches that ranks may share, outermost first.
const KINDS: [Kind; 2] = [Kind::Package, Kind::L3];

/// The machine: a node of four packages of sixteen shared caches of eight cores, with the parameters that huddle
/// assumes for unmeasured machines.
fn machine() -> Machine {
    Parameters::default().machine([None, Some(Kind::Package), Some(Kind::L3)])
}

fn placement(ranks: usize) -> Placement {
    let path = |rank: usize| vec![(rank / CACHE_CORES / PACKAGE_CACHES) as u32, (rank / CACHE_CORES) as u32];
    let Ring { slots, cell, .. } = Config::default().ring(ranks, Caches::default(), Crowding::NONE);
    Placement { labels: vec![0; ranks], paths: (0..ranks).map(path).collect(), slots, cell }
}

fn agreed(placement: &Placement) -> Agreed {
    let ranks = placement.labels.len();
    let levels = Levels::from_paths(&placement.paths, NodeRank(0));
    let hierarchy = Hierarchy::of(&levels, &KINDS, 0);
    Agreed { cell_bytes: placement.cell, slots: placement.slots, ..Agreed::on_one_node(ranks, hierarchy) }
}

fn shape(collective: Collective, bytes: usize) -> Shape {
    let is_reduction = collective.is_reduction();
    Shape {
        collective,
        bytes: Bytes(if collective == Collective::Barrier { 0 } else { bytes }),
        granule: Bytes(if is_reduction { 8 } else { 1 }),
        root: CommRank(0),
        operator: if is_reduction { OperatorClass::Predefined } else { OperatorClass::None },
        order: OperandOrder::Any,
    }
}

/// Who decides what runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The user, by the name of an algorithm.
    User(&'static str),
    /// huddle, without settings.
    Default,
}

/// What huddle runs for a call: the row and the plan.
pub fn chosen(collective: Collective, bytes: usize, ranks: usize, by: By) -> (usize, Plan) {
    let variable = format!("HUDDLE_{}", collective.name().to_uppercase());
    let environment = match by {
        By::User(algorithm) => RawEnvironment::new([(variable.as_str(), algorithm)]),
        By::Default => RawEnvironment::default(),
    };
    let (config, _) = Config::parse(&environment);
    let agreed = agreed(&placement(ranks));
    let map = Map::new(&agreed, &Parameters::default());
    match choose(&config, &shape(collective, bytes), &agreed, &map, Epoch(1)) {
        Choice::Run { row, plan } => (row, plan),
        other => panic!("{} of {bytes} bytes on {ranks} ranks: {other:?}", collective.name()),
    }
}

/// Nanoseconds from the entry of all ranks to the exit of the last one.
pub fn time(row: usize, plan: &Plan, ranks: usize) -> f64 {
    let times = simulate(&REGISTRY[row], plan, &machine(), &placement(ranks));
    times.iter().map(|time| time.0).fold(0.0, f64::max)
}
