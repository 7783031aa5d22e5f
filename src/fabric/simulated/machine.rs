//! A communicator on a machine, and what its steps between nodes cost.

use crate::fabric::BridgeStep;
use crate::model::Between;
use crate::types::Bytes;

/// A communicator on a simulated machine.
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

/// The step between nodes as the formulas of its cost see it; `ranks` is the size of the communicator.
pub(super) fn between(step: BridgeStep, ranks: usize) -> Between {
    let bytes = |n: Bytes| n.0 as f64;
    match step {
        BridgeStep::Barrier => Between::Barrier,
        BridgeStep::Allreduce { n, .. } | BridgeStep::Reduce { n, .. } => Between::Reduce(bytes(n)),
        BridgeStep::Bcast { n, .. } => Between::Bcast(bytes(n)),
        BridgeStep::Allgather { block, .. } => Between::Allgather(bytes(block * ranks)),
        BridgeStep::Scatter { block, .. } => Between::Scatter(bytes(block * ranks)),
        BridgeStep::SendRecv { send, receive, .. } => {
            let longest = send.into_iter().chain(receive).map(|leg| leg.n).max();
            longest.map_or(Between::Nothing, |n| Between::Message(bytes(n)))
        }
    }
}
