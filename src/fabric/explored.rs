//! The fabric under loom: the ranks of one node are threads of a model, which loom runs in every order that the memory
//! model permits.
//!
//! A [`Rank`] does what the real fabric does, with the same [`Words`](super::words::Words); only the words themselves
//! and the cells are loom's. loom ends the model at an access to a cell or a payload that is not ordered with a write
//! to it. So the models show that the orderings of the words suffice for the slot protocol. The checking scheduler
//! takes that for granted, and explores longer programs of more ranks.

mod memory;
mod rank;

pub use memory::{Buffers, Node};
pub use rank::{Driver, Rank};
