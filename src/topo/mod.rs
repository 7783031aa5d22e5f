//! Topology: how the ranks of a communicator lie on nodes ([`Layout`]), and those of one node in its caches and memories
//! ([`Levels`]).

mod layout;
mod levels;
mod tree;

pub use layout::Layout;
pub use levels::Levels;
pub use tree::{Child, TreeNode};
