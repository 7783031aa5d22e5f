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
    /// From one rank's control lines to the next one's, in bytes.
    stride: usize,
    /// Where this rank's control lines begin.
    mine: usize,
    /// Flag lines of each kind in a rank's ring.
    length: usize,
    ranks: usize,
    context: PhantomData<&'a Context>,
}

impl<'a> Lines<'a> {
    /// The flag lines in a segment that begins at `base`. `stride` is the length of a rank's control lines, `mine` says
    /// where this rank's begin.
    #[inline(always)]
    pub(super) fn new(
        base: NonNull<u8>,
        stride: usize,
        mine: usize,
        &Geometry { lines, ranks, .. }: &Geometry,
    ) -> Self {
        Self { base, stride, mine, length: lines, ranks, context: PhantomData }
    }

    /// The flag line of `rank` and `line` for the slot that `ticket` uses.
    #[inline(always)]
    pub(super) fn at(self, rank: NodeRank, line: Line, ticket: Ticket) -> &'a FlagLine {
        debug_assert!(rank.index() < self.ranks);
        self.behind(PAGE + rank.index() * self.stride, line, ticket)
    }

    /// This rank's flag line of `line` for the slot that `ticket` uses.
    #[inline(always)]
    pub(super) fn mine(self, line: Line, ticket: Ticket) -> &'a FlagLine {
        self.behind(self.mine, line, ticket)
    }

    /// The flag line of `line` for `ticket` that belongs to the control lines at offset `control`.
    #[inline(always)]
    fn behind(self, control: usize, line: Line, ticket: Ticket) -> &'a FlagLine {
        let index = line as usize * self.length + ticket.position(self.length);
        let offset = control + FLAGS_START + index * size_of::<FlagLine>();
        // SAFETY: within the segment, whose length `Context::new` checked: the rank is one of the node's, `position`
        // below `length`. Aligned as in `Context::control`; zeroed or written through atomics only.
        unsafe { self.base.add(offset).cast::<FlagLine>().as_ref() }
    }
}
