//! The checking scheduler: all ranks of several virtual nodes in one thread, in random turns, under rules.
//!
//! Every awaited operation of a [`Rank`] yields once before it takes effect, so a seeded scheduler may switch ranks at
//! each. The checks do not depend on the turns that it takes. Publications and releases carry vector clocks, and a wait
//! or a claim joins the *first* announcement that satisfies it. An access must have happened after those that it
//! depends on; it is not enough that it came later this time. So seeds are spent on random [`Program`]s: several calls
//! that follow each other without synchronisation, where the reuse of slots breaks. [`Breach`] lists the rules.
//!
//! This covers weak memory above the flags; `tests/loom.rs` covers the flags themselves.

mod bridge;
mod clocks;
mod machine;
mod memory;
mod mutation;
mod operation;
mod operator;
mod oracle;
mod program;
mod random;
mod ranges;
mod runner;
mod slots;
mod transfer;
mod violation;

#[cfg(loom)]
pub(super) use mutation::Mutator;
pub use mutation::{Change, Kind, Mutation};
pub use operation::Operation;
pub use program::{Call, Program, random_knobs};
pub use random::Random;
pub use runner::Stats;
pub use violation::{Breach, Violation};

use crate::fabric::{BridgeStep, Exposed, Fabric, Lending, Line, Room, Span};
use crate::topo::{Layout, Levels};
use crate::types::{Bytes, NodeRank, Ticket};
use machine::Machine;
pub(in crate::fabric) use operation::operations_by_step;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// A call of one rank, under way.
pub type Running<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Makes the random program of `seed` and runs it in the turns of the same seed.
///
/// # Errors
/// The first rule that the program broke.
pub fn run(seed: u64) -> Result<Stats, Violation> {
    Program::random(seed).run(seed)
}

/// One rank of a program.
#[derive(Debug)]
pub struct Rank {
    me: usize,
    node_rank: NodeRank,
    size: usize,
    levels: Levels,
    layout: Layout,
    cell: Bytes,
    slots: usize,
    is_in_place: AtomicBool,
    machine: Arc<Mutex<Machine>>,
}

fn lock(machine: &Mutex<Machine>) -> MutexGuard<'_, Machine> {
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rank {
    fn step(&self, operation: Operation) -> Step<'_> {
        Step { rank: self, operation, is_submitted: false }
    }
}

/// One operation: submitted when first polled, performed when polled again.
struct Step<'a> {
    rank: &'a Rank,
    operation: Operation,
    is_submitted: bool,
}

impl Future for Step<'_> {
    /// What the operation found.
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<bool> {
        let mut machine = lock(&self.rank.machine);
        if !self.is_submitted {
            machine.submit(self.rank.me, self.operation);
            drop(machine);
            self.is_submitted = true;
            return Poll::Pending;
        }
        if machine.perform(self.rank.me) { Poll::Ready(machine.found(self.rank.me)) } else { Poll::Pending }
    }
}

impl Fabric for Rank {
    fn rank(&self) -> NodeRank {
        self.node_rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn levels(&self) -> &Levels {
        &self.levels
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn cell_bytes(&self) -> Bytes {
        self.cell
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn is_in_place(&self) -> bool {
        self.is_in_place.load(Ordering::Relaxed)
    }

    fn decide_to_lend(&self, from: Option<Span>, _: Bytes, lending: Lending) -> bool {
        from.is_some() && (lending == Lending::Always || lock(&self.machine).draws_to_lend(self.me))
    }

    operations_by_step!();
}
