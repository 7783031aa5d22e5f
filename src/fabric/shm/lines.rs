//! Where the flag lines of a node's ranks lie.

use super::context::Context;
use super::geometry::{FLAGS_START, Geometry, PAGE};
use crate::fabric::Line;
use crate::sync::FlagLine;
use crate::types::{NodeRank, Ticket};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The flag lines of a node's ranks.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    base: NonNull<u8>,
    /// From those of one rank to those of the next.
    stride: usize,
    /// Where what lies there of this rank begins.
    mine: usize,
    /// Of each kind.
    length: usize,
    ranks: usize,
    context: PhantomData<&'a Context>,
}

impl<'a> Lines<'a> {
    /// Those of a segment that begins at `base`; `stride` is the length of what lies there of each rank, `mine` where that of
    /// this one begins.
    #[inline(always)]
    pub(super) fn new(
        base: NonNull<u8>,
        stride: usize,
        mine: usize,
        &Geometry { lines, ranks, .. }: &Geometry,
    ) -> Self {
        Self { base, stride, mine, length: lines, ranks, context: PhantomData }
    }

    /// That of `line` for the slot that `ticket` uses.
    #[inline(always)]
    pub(super) fn at(self, rank: NodeRank, line: Line, ticket: Ticket) -> &'a FlagLine {
        debug_assert!(rank.index() < self.ranks);
        self.behind(PAGE + rank.index() * self.stride, line, ticket)
    }

    /// The same of this rank.
    #[inline(always)]
    pub(super) fn mine(self, line: Line, ticket: Ticket) -> &'a FlagLine {
        self.behind(self.mine, line, ticket)
    }

    /// The same of the rank whose control lines begin there.
    #[inline(always)]
    fn behind(self, control: usize, line: Line, ticket: Ticket) -> &'a FlagLine {
        let index = line as usize * self.length + ticket.position(self.length);
        let offset = control + FLAGS_START + index * size_of::<FlagLine>();
        // SAFETY: within the segment, whose length `Context::new` checked: the rank is one of the node's, `position` below `length`. Aligned
        // as in `Context::control`; zeroed or written through atomics only.
        unsafe { self.base.add(offset).cast::<FlagLine>().as_ref() }
    }
}
