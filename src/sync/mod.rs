//! The words through which processes synchronise: one writer each, values that only grow.
//!
//! The same source runs on real atomics and, with `--cfg loom`, on loom's, so `tests/loom.rs` explores what is used here.

mod atomic;
mod event;
mod flag;

#[cfg(loom)]
pub use atomic::without_fences;
pub use event::Event;
pub use flag::{Flag, FlagLine};
