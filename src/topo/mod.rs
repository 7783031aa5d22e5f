//! Topology: how the ranks of a communicator lie on nodes ([`Layout`]), and those of one node in its caches and memories
//! ([`Levels`]).

mod cache;
mod exchange;
#[cfg(feature = "mpi")]
pub mod hwloc;
mod layout;
mod levels;
pub mod place;
mod tree;

pub use exchange::Exchange;
pub use layout::Layout;
pub use levels::Levels;
pub use place::{Containers, CpuMask, Kind, cgroup_quota, is_oversubscribed};
pub use tree::{Child, TreeNode, TreeShape};
