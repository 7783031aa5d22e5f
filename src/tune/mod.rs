//! The choice of algorithm for each call.
//!
//! All ranks of a communicator must choose alike, so [`choose()`] sees only what MPI makes equal on all of them: the
//! [`Shape`] of the call, the facts [`Agreed`] when the context was built, and the configuration of rank 0. It cannot
//! see buffers, counts, datatypes, `MPI_IN_PLACE` or the rank.

#![forbid(unsafe_code)]

mod choose;
pub mod class;
mod combining;
#[cfg(test)]
mod documentation;
pub mod map;
pub mod measured;
pub mod network;
#[cfg(test)]
mod orders;
mod prospect;
mod tried;

pub use crate::report::Reason;
pub use choose::{LAST_EPOCH, choose, early_reason};
pub use map::Map;
pub use prospect::Prospect;

use crate::coll::{Means, Measures, Need, Plan};
use crate::topo::{Crowding, Fit, Hierarchy};
use crate::types::{Bytes, Collective, CommRank, OperandOrder};

/// The part of a call that MPI makes equal on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The collective that is called.
    pub collective: Collective,
    /// Packed bytes, as in [`Plan::bytes`].
    pub bytes: Bytes,
    /// Packed bytes of one element of a reduction, else 1.
    pub granule: Bytes,
    /// Root of the rooted collectives, else rank 0.
    pub root: CommRank,
    /// Who defined the operation, and who computes it.
    pub operator: OperatorClass,
    /// The order in which the operation allows operands to be combined.
    pub order: OperandOrder,
}

/// Who defined the operation of a call, and who computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorClass {
    /// The call has none.
    None,
    /// MPI defined it. A kernel of huddle's computes it, or the library where that takes about as long.
    Predefined,
    /// MPI defined it. The library computes it, on all ranks: its numbers have more digits than those of a kernel
    /// (`MPI_LONG_DOUBLE`).
    Library,
    /// The program defined it. Ranks may pass different functions. Their results follow rank order even where they
    /// commute.
    User,
}

/// What the ranks of a context agreed on when it was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Ranks of the communicator.
    pub ranks: usize,
    /// Its nodes.
    pub nodes: usize,
    /// Members of the largest node.
    pub largest_node: usize,
    /// Each node holds a contiguous range of ranks.
    pub is_block_placed: bool,
    /// Length of a cell.
    pub cell_bytes: Bytes,
    /// Slots in each rank's ring.
    pub slots: usize,
    /// Ranks per core, on the node of the job where most ranks share one.
    pub crowding: Crowding,
    /// Ranks of each node that may take steps between nodes.
    pub leaders: usize,
    /// Lengths that fit the smallest caches of the job.
    pub fit: Fit,
    /// How the ranks of the first node share its caches and memories.
    pub hierarchy: Hierarchy,
    /// Ranks of a node can read each other's memory.
    pub has_single_copy: bool,
}

impl Agreed {
    /// What a call whose operands may be combined in `order` offers to algorithms.
    #[inline]
    pub const fn means(&self, order: OperandOrder) -> Means {
        Means { order, has_single_copy: self.has_single_copy }
    }

    /// What an algorithm may know of these facts before a call.
    #[inline]
    pub const fn measures(&self) -> Measures {
        Measures { ranks: self.ranks, nodes: self.nodes, cell: self.cell_bytes, slots: self.slots }
    }

    /// A communicator of `ranks` ranks that have a node and its cores for themselves, with cells of 8 KiB, and may read
    /// each other's memory.
    pub const fn on_one_node(ranks: usize, hierarchy: Hierarchy) -> Self {
        Self {
            ranks,
            nodes: 1,
            largest_node: ranks,
            is_block_placed: true,
            cell_bytes: Bytes(8 << 10),
            slots: 16,
            crowding: Crowding::NONE,
            leaders: 1,
            fit: Fit::ASSUMED,
            hierarchy,
            has_single_copy: true,
        }
    }
}

/// Who serves a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// huddle serves it.
    Run {
        /// Index in [`REGISTRY`](crate::coll::REGISTRY).
        row: usize,
        /// The plan for that row.
        plan: Plan,
    },
    /// huddle serves it, but not with the algorithm that the user asked for.
    RunInstead {
        /// Index in [`REGISTRY`](crate::coll::REGISTRY).
        row: usize,
        /// The plan for that row.
        plan: Plan,
        /// The row that was asked for.
        forced: usize,
        /// What that row needs and the call does not offer.
        need: Need,
    },
    /// The native library serves it, or nobody where the call is empty.
    Decline(Reason),
}
