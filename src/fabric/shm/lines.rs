//! Where the flag lines of a node's ranks lie.

use super::context::{Context, Geometry, PAGE};
use crate::fabric::Line;
use crate::sync::{Control, FlagLine};
use crate::types::{NodeRank, Ticket};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The flag lines of a node's ranks.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    base: NonNull<u8>,
    /// From those of one rank to those of the next.
    stride: usize,
    /// Of each kind.
    length: usize,
    ranks: usize,
    context: PhantomData<&'a Context>,
}

impl<'a> Lines<'a> {
    /// Those of a segment that begins at `base`; `stride` is the length of what lies there of each rank.
    #[inline(always)]
    pub(super) fn new(base: NonNull<u8>, stride: usize, &Geometry { lines, ranks, .. }: &Geometry) -> Self {
        Self { base, stride, length: lines, ranks, context: PhantomData }
    }

    /// That of `line` for the slot that `ticket` uses.
    #[inline(always)]
    pub(super) fn at(self, rank: NodeRank, line: Line, ticket: Ticket) -> &'a FlagLine {
        debug_assert!(rank.index() < self.ranks);
        let index = line as usize * self.length + ticket.position(self.length);
        let offset = PAGE + rank.index() * self.stride + size_of::<Control>() + index * size_of::<FlagLine>();
        // SAFETY: within the segment, whose length `Context::new` checked: the rank is one of the node's, `position` below `length`. Aligned
        // as in `Context::control`; zeroed or written through atomics only.
        unsafe { self.base.add(offset).cast::<FlagLine>().as_ref() }
    }
}
