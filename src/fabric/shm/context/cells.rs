//! The memory of the cells, which a context on one node reserves with the calls that need it.
//!
//! The depth of the cells is known in three places. What this rank has reserved stays with the context, also when
//! another communicator takes the context over ([`Context::reserve_cells`]). What each rank has told of its own cells
//! is in its control line ([`Control::tell_of_cells`](crate::sync::Control::tell_of_cells)), until the context is
//! cleared. What all ranks agreed on is kept with the communicator (`mpi::communicator::Cells`), and alone decides
//! whether a call has memory. Each rank places its pieces by what it has reserved itself.

use super::Context;
use crate::coll::Plan;
use crate::fabric::shm::call::Call;
use crate::fabric::shm::drive::Waiting;
use crate::fabric::shm::segment::check_memory;
use crate::fabric::words::{Entered, Fault, Words};
use crate::sync::Private;
use crate::types::{Bytes, Collective};
use std::io;

impl Context {
    /// Reserves as much of this rank's ring as is good for pieces of any length to go round in, if there is memory.
    pub fn widen_cells(&self) {
        // No call needs this memory, so a refusal does no harm.
        let _ = self.reserve_ring(self.geometry.good_depth());
    }

    /// Makes sure that the first `depth` bytes of each of this rank's cells are allocated, also of those that it
    /// passes. Pages that nobody has touched are placed on the memory node of this rank. The check of the memory that
    /// is left counts in the other ranks of the node, which are about to do the same.
    ///
    /// # Errors
    /// As for [`Segment::create`](crate::fabric::shm::Segment::create).
    pub fn reserve_cells(&self, depth: Bytes) -> io::Result<()> {
        self.reserve_ring(depth)?;
        let passed = self.geometry.passed();
        let start = |index| self.places.passed[0] + (self.me.index() * passed + index) * self.geometry.cell.0;
        let before = self.reserve(&self.reserved_passed, depth, (0..=passed).map(start))?;
        if before == Bytes::ZERO && depth > Bytes::ZERO && !self.segment.is_whole() {
            self.own_passed();
        }
        Ok(())
    }

    fn reserve_ring(&self, depth: Bytes) -> io::Result<()> {
        let (slots, slack) = (self.geometry.slots, self.geometry.slack());
        let start = |slot| self.geometry.cell_start(self.me.index(), slot) + if slot == slots { slack } else { 0 };
        self.reserve(&self.reserved, depth, (0..=slots).map(start)).map(|_| ())
    }

    /// Reserves the first `depth` bytes of some cells of this rank, of which `reserved` bytes are reserved already.
    /// `starts` yields where each cell begins, and then where the last one ends. Returns how many bytes were reserved
    /// before.
    fn reserve(
        &self,
        reserved: &Private<usize>,
        depth: Bytes,
        starts: impl Iterator<Item = usize>,
    ) -> io::Result<Bytes> {
        let (depth, before) = (depth.min(self.geometry.cell), Bytes(reserved.get()));
        if depth <= before || self.segment.is_whole() {
            return Ok(before);
        }
        let mut starts: Vec<usize> = starts.collect();
        let end = starts.pop().unwrap_or_default();
        check_memory((depth - before).0 * starts.len() * self.geometry.ranks)?;
        match starts.first() {
            Some(first) if depth == self.geometry.cell => self.segment.reserve(*first..end)?,
            _ => starts.iter().try_for_each(|start| self.segment.reserve(start + before.0..start + depth.0))?,
        }
        reserved.set(depth.0);
        Ok(before)
    }

    /// Gives this rank the cells that are its own to pass at first.
    pub(super) fn own_passed(&self) {
        let cells = self.geometry.passed() as u32;
        let first = cells * self.me.0;
        (first..first + cells).rev().for_each(|cell| self.passed.take(cell));
    }

    /// Agrees, before a call that needs `depth` bytes of each cell, whether all ranks of the node could [reserve
    /// theirs](Context::reserve_cells). `reserve` does so for this rank, and returns whether it succeeded. All ranks
    /// get the same answer, or none gets one.
    ///
    /// # Errors
    /// If a peer contradicts, or has failed: in the latter case this rank has failed the call too.
    pub fn agree_on_cells(
        &self,
        depth: Bytes,
        reserve: impl FnOnce() -> bool,
        waiting: &Waiting,
        (collective, row): (Collective, usize),
        plan: &Plan,
    ) -> Result<bool, Fault> {
        let entered = Entered::new(collective, row, plan);
        let call = Call::entered(self, waiting, entered);
        Words::agree_on_cells(self, &entered, depth, reserve, |awaited, look| call.outlast(awaited, look))
    }
}
