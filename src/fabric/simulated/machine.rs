//! What a machine costs.

use crate::fabric::BridgeStep;
use crate::types::Bytes;

/// Virtual time, in nanoseconds.
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

/// A communicator on such a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// By rank: a label of its node.
    pub labels: Vec<u32>,
    /// By rank: its path through the hierarchy of its node; see [`Levels`](crate::topo::Levels).
    pub paths: Vec<Vec<u32>>,
    /// Length of the rings.
    pub slots: usize,
    /// Length of the cells.
    pub cell: Bytes,
}

impl Machine {
    /// What an access costs between ranks that share `common` containers.
    pub(super) fn crossing(&self, common: usize) -> Crossing {
        let last = self.crossings.len().saturating_sub(1);
        self.crossings.get(common.min(last)).copied().unwrap_or(Crossing { latency: 0.0, stream: 0.0, shared: 0.0 })
    }

    /// What a step between nodes costs once all that it needs have come; `ranks` and `nodes` of the communicator.
    pub(super) fn bridge(&self, step: BridgeStep, ranks: usize, nodes: usize) -> f64 {
        let Network { latency, overhead, gap, per_byte } = self.network;
        let rounds = f64::from(nodes.next_power_of_two().trailing_zeros());
        let hop = latency + 2.0 * overhead;
        let bytes = |n: Bytes| n.0 as f64;
        match step {
            BridgeStep::Barrier => rounds * hop,
            BridgeStep::Allreduce { n, .. } | BridgeStep::Reduce { n, .. } => {
                rounds * (hop + bytes(n) * (per_byte + self.reduce))
            }
            BridgeStep::Bcast { n, .. } => rounds * (hop + bytes(n) * per_byte),
            BridgeStep::Allgather { block, .. } => {
                rounds * hop + bytes(block * ranks) * (nodes - 1) as f64 / nodes as f64 * per_byte
            }
            BridgeStep::Scatter { block, .. } => {
                let others = (nodes - 1) as f64;
                if nodes == 1 {
                    0.0
                } else {
                    hop + others * gap + bytes(block * ranks) * others / nodes as f64 * per_byte
                }
            }
        }
    }
}
