//! The words of `huddle::sync`, and what is built on them, in every order that the memory model permits.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --no-default-features --test loom`
//!
//! From the bottom: flags and events; calls that fail or contradict; algorithms of the registry on
//! `huddle::fabric::explored`; and mistakes in all three, which must be found. Where there are too many orders, a test
//! sets a bound on the preemptions. loom then tries every order in which threads are interrupted at most that often,
//! apart from where they wait. It tries every value that the memory model lets a load see in any case.

#![cfg(loom)]

#[path = "loom/failures.rs"]
mod failures;
#[path = "loom/mutants.rs"]
mod mutants;
#[path = "loom/primitives.rs"]
mod primitives;
#[path = "loom/program.rs"]
mod program;
#[path = "loom/rows.rs"]
mod rows;
