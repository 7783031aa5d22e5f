//! Topology: how the ranks of a communicator lie on nodes ([`Layout`]), and those of one node in its caches and
//! memories ([`Levels`]).

mod cache;
mod cache_sizes;
mod crowding;
mod exchange;
pub mod found;
mod hierarchy;
pub mod host;
#[cfg(feature = "hwloc")]
pub mod hwloc;
mod layout;
mod levels;
pub mod place;
mod quota;
mod tree;

pub use cache_sizes::{ASSUMED_L1, ASSUMED_L2, Caches, Fit};
pub use crowding::Crowding;
pub use exchange::Exchange;
pub use hierarchy::{Hierarchy, Step};
pub use layout::Layout;
pub use levels::Levels;
pub use place::{Containers, CpuMask, Kind};
pub use quota::{cgroup_quota, free_memory};
pub use tree::{Child, TreeClass, TreeNode};
