//! The parameters of machines, and of communicators on them.

use crate::types::Bytes;

/// Time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Nanos(pub f64);

/// An access between two ranks that part at some level of the hierarchy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// Nanoseconds until the first line is there: `a`.
    pub latency: f64,
    /// Nanoseconds per byte of one stream: `b`.
    pub stream: f64,
    /// Nanoseconds per byte of all streams from one group together: `B`.
    pub shared: f64,
}

/// LogGP parameters of the network between nodes, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Wire: L.
    pub latency: f64,
    /// Processor time per message, on each side: o.
    pub overhead: f64,
    /// Between two messages of one sender: g.
    pub gap: f64,
    /// Per byte: G.
    pub per_byte: f64,
}

/// A kind of machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Access to a rank's own first-level cache, per operand: Rl.
    pub local: f64,
    /// By the number of containers that two ranks share, from none on; the last one counts for all that share more.
    pub crossings: Vec<Crossing>,
    /// Nanoseconds per byte that is copied.
    pub copy: f64,
    /// Nanoseconds per byte that is combined.
    pub reduce: f64,
    /// Between nodes.
    pub network: Network,
}

impl Machine {
    /// What an access costs between ranks that share `common` containers.
    pub fn crossing(&self, common: usize) -> Crossing {
        let last = self.crossings.len().saturating_sub(1);
        self.crossings.get(common.min(last)).copied().unwrap_or(Crossing { latency: 0.0, stream: 0.0, shared: 0.0 })
    }
}

/// A level of a node's hierarchy, as far as costs depend on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Groups of this level in one of the level above, at least 2; of the innermost level: ranks in a group.
    pub fan: usize,
    /// An access between ranks that part here.
    pub crossing: Crossing,
}

/// A communicator on a machine: what the time of a call depends on besides its plan. The same on all its ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// Ranks of the communicator.
    pub ranks: usize,
    /// Its nodes.
    pub nodes: usize,
    /// Ranks on its largest node.
    pub local_ranks: usize,
    /// The hierarchy of a node, outermost first; the last one parts single ranks. Empty for one rank.
    pub levels: Vec<Level>,
    /// Length of a cell.
    pub cell: Bytes,
    /// Slots in each rank's ring.
    pub slots: usize,
    /// Rates that do not depend on distance, and the network; its crossings are those of `levels`.
    pub machine: Machine,
}
