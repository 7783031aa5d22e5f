//! A communicator on a machine, and what its steps between nodes cost.

use crate::fabric::BridgeStep;
use crate::model::{Machine, Network};
use crate::types::Bytes;

/// A communicator on such a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
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
