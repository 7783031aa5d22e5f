//! The fabric of short calls: each step is a plain function, and is over when the function returns.
//!
//! It offers the operations of [`Fabric`](crate::fabric::Fabric) that [`coll::phase::short`](crate::coll::phase::short)
//! uses, as plain functions in place of futures. A future keeps in memory what it needs after a wait, and each poll
//! enters it anew; for calls that move a few bytes that is half of the work (`bench/limits.c overhead`). A wait that
//! lasts continues as a wait of a [`Call`].

use super::call::{Buffer, Buffers, Call};
use super::context::Context;
use super::drive::Waiting;
use super::lines::Lines;
use super::turns::Piece;
use crate::codegen::elsewhere;
use crate::fabric::words::{Awaited, Entered, Fault, Words};
use crate::fabric::{INLINE, Line, Place, Room, Source, Span};
use crate::kernel::{self, Combine, Destination};
use crate::sync::{Descriptor, Payload};
use crate::topo::Layout;
use crate::types::{Bytes, CommRank, Epoch, NodeRank, Ticket};
use known::Known;
use std::marker::PhantomData;

/// The program's buffers in a call, which hold packed bytes without holes; null where not significant at this rank.
#[derive(Clone, Copy)]
pub struct Ends {
    /// The input.
    pub send: *mut u8,
    /// The output.
    pub recv: *mut u8,
    /// Whether the call is in place, so that this rank's own data need no copy.
    pub is_in_place: bool,
}

impl Ends {
    /// These buffers for a call whose steps are futures, with the operation of a reduction.
    pub fn buffers<'a>(self, combine: Option<&'a dyn Combine>) -> Buffers<'a> {
        let buffer = |end: *mut u8| if end.is_null() { Buffer::Absent } else { Buffer::Contiguous(end) };
        let (send, recv) = (buffer(self.send), buffer(self.recv));
        Buffers { send, recv, is_in_place: self.is_in_place, combine, ..Buffers::NONE }
    }
}

/// An address in a slot or a buffer of a call.
#[derive(Clone, Copy)]
pub struct At {
    address: *mut u8,
    destination: Destination,
}

/// What a step needs to know of its call when it takes long or fails. It is small, since it is copied then
/// (`codegen::elsewhere`).
#[derive(Clone, Copy)]
struct Base<'a> {
    context: &'a Context,
    waiting: &'a Waiting,
    /// A call that equals this one in all but epoch and root.
    like: &'a Entered,
    epoch: Epoch,
    descriptor: Descriptor,
}

impl Base<'_> {
    #[inline(always)]
    fn entered(&self) -> Entered {
        Entered { epoch: self.epoch, descriptor: self.descriptor, ..*self.like }
    }

    /// Waits until `look` returns true.
    #[cold]
    #[inline(never)]
    fn outlast(&self, awaited: Awaited, look: &dyn Fn() -> Result<bool, Fault>) -> Result<(), Fault> {
        Call::entered(self.context, self.waiting, self.entered()).outlast(awaited, look)
    }

    #[cold]
    fn fail(&self, fault: Fault) -> Fault {
        self.context.give_up(self.epoch, fault, self.waiting);
        fault
    }
}

/// What is known of short calls when compiled, as [`Short`](crate::coll::Short) found: what only longer data need is
/// left out.
pub mod known {
    use crate::fabric::INLINE;
    use crate::fabric::shm::ROTATED;
    use crate::types::Bytes;

    /// Where the data are, and how long they are at most.
    pub trait Known: Copy {
        /// Whether all data fit lines.
        const IN_LINES: bool;
        /// The greatest length of a piece, and how far calls reach into cells at most.
        const LONGEST: Bytes;

        /// Returns `n`, the length of a piece, or how far the call reaches into cells. Tells the compiler too that it
        /// is at most `LONGEST`.
        ///
        /// # Panics
        /// If it is not: then the call was taken for one of another kind.
        #[inline(always)]
        fn checked(n: Bytes) -> Bytes {
            assert!(n <= Self::LONGEST);
            n
        }
    }

    /// All data fit lines.
    #[derive(Clone, Copy)]
    pub enum InLines {}

    /// Data are pieces in cells that are too short to rotate.
    #[derive(Clone, Copy)]
    pub enum InShortPieces {}

    /// Data are in cells.
    #[derive(Clone, Copy)]
    pub enum InCells {}

    impl Known for InLines {
        const IN_LINES: bool = true;
        const LONGEST: Bytes = INLINE;
    }

    impl Known for InShortPieces {
        const IN_LINES: bool = false;
        const LONGEST: Bytes = Bytes(ROTATED.0 - 1);
    }

    impl Known for InCells {
        const IN_LINES: bool = false;
        const LONGEST: Bytes = Bytes(usize::MAX);
    }
}

/// One short collective call of one rank, whose steps end with a fault if a peer failed or contradicts.
#[derive(Clone, Copy)]
pub struct ShortCall<'a, K> {
    base: Base<'a>,
    /// Looked up once: the compiler would read the context again after each store to shared memory.
    lines: Lines<'a>,
    me: NodeRank,
    ranks: usize,
    ends: Ends,
    granule: Bytes,
    combine: Option<&'a dyn Combine>,
    payload: Payload,
    known: PhantomData<K>,
}

impl<'a, K: Known> ShortCall<'a, K> {
    /// Enters a call that is like another one; peers can see it from here on. `payload` says how far the payload
    /// reaches; only hints depend on it.
    ///
    /// # Safety
    /// The buffers are valid for the packed lengths that the call's plan gives them at this rank, until
    /// [`finish`](Self::finish) returns or the call made of this one is dropped. The caller takes the steps of the
    /// function that [`Short`](crate::coll::Short) found for that plan, so data are as `K` says; or, after
    /// [`into_call`](ShortCall::into_call), those of the plan's row.
    /// No other call of this rank is under way on `context`.
    #[inline(always)]
    pub unsafe fn enter(
        context: &'a Context,
        waiting: &'a Waiting,
        (like, epoch, root): (&'a Entered, Epoch, CommRank),
        granule: Bytes,
        ends: Ends,
        combine: Option<&'a dyn Combine>,
        payload: Payload,
    ) -> Self {
        let base = Base { context, waiting, like, epoch, descriptor: like.descriptor.again(epoch, root.0) };
        context.enter(&base.entered());
        let (lines, me, ranks) = (context.lines(), context.rank(), context.geometry().ranks);
        Self { base, lines, me, ranks, ends, granule, combine, payload, known: PhantomData }
    }

    /// Leaves the call, whose steps ended with `result`.
    ///
    /// # Errors
    /// If a peer contradicts, or has failed: in the latter case this rank has failed the call too, as its peers can
    /// see.
    #[inline(always)]
    pub fn finish(&self, result: Result<(), Fault>) -> Result<(), Fault> {
        match result {
            Ok(()) => {
                self.leave();
                Ok(())
            }
            Err(fault) => Err(elsewhere(self.base).fail(fault)),
        }
    }

    #[inline(always)]
    fn leave(&self) {
        let last = Ticket::last_of(self.base.epoch);
        match K::IN_LINES {
            true => self.base.context.release_lines(last),
            false => self.base.context.release(last),
        }
        self.base.context.nudge_sleepers(self.base.waiting);
        // Data that fit lines are never lent.
        if !K::IN_LINES {
            self.base.context.note_leave(self.base.waiting);
        }
    }

    /// The source out of which peers copy this rank's `n` bytes; see [`Context::choose_source`].
    #[inline]
    pub fn choose_source(&self, n: Bytes, first: Source) -> Source {
        self.base.context.choose_source(self.base.waiting, self.base.like.collective, n, first)
    }

    /// Where `span` lies.
    #[inline(always)]
    pub fn at(&self, span: Span) -> At {
        let base = match span.place {
            Place::SendBuf => self.ends.send,
            Place::RecvBuf => self.ends.recv,
            Place::Cell { rank, line, ticket } if !K::IN_LINES => {
                self.base.context.cell(rank, line, ticket, K::checked(self.base.like.reach))
            }
            // Where all data fit lines no cell arrives here. Cells share this arm, so that `Place::stage` need not look
            // at lengths.
            Place::Cell { rank, line, ticket } | Place::Payload { rank, line, ticket } => {
                debug_assert!(!matches!(span.place, Place::Cell { .. }), "these data fit lines");
                self.lines.at(rank, line, ticket).payload()
            }
            Place::Scratch => unreachable!("short calls are on one node"),
        };
        At { address: base.wrapping_add(span.offset.0), destination: span.place.destination() }
    }
}

impl<'a> ShortCall<'a, known::InCells> {
    /// Turns this call, before it has claimed or published anything, into one whose steps are futures. `source` was
    /// [chosen](Self::choose_source) for it.
    pub fn into_call(self, source: Source) -> Call<'a> {
        let (Base { context, waiting, .. }, buffers) = (self.base, self.ends.buffers(self.combine));
        Call::entered(context, waiting, self.base.entered()).with_buffers(buffers, self.granule).chosen(source)
    }
}

/// Waits until `$look` is true, then returns from the surrounding function, whose last expression it is. It is a macro,
/// since the compiler would not inline a closure that is also called through a pointer.
macro_rules! block {
    ($base:expr, $awaited:expr, |$on:ident| $look:expr) => {{
        let $on = &$base;
        let mut looks = 0;
        loop {
            if $look? {
                return Ok(());
            }
            looks += 1;
            if looks > $on.waiting.looks_in_line() {
                let $on = &elsewhere(*$on);
                return $on.outlast($awaited, &|| $look);
            }
            std::hint::spin_loop();
        }
    }};
}

/// These do what the functions of [`Fabric`](crate::fabric::Fabric) with the same names do.
#[allow(missing_docs, clippy::missing_errors_doc)]
impl<K: Known> ShortCall<'_, K> {
    #[inline(always)]
    pub fn rank(&self) -> NodeRank {
        self.me
    }

    #[inline(always)]
    pub fn size(&self) -> usize {
        self.ranks
    }

    #[inline(always)]
    pub fn layout(&self) -> &Layout {
        self.base.context.layout()
    }

    #[inline(always)]
    pub fn is_in_place(&self) -> bool {
        self.ends.is_in_place
    }

    #[inline(always)]
    pub fn claim(&self, ticket: Ticket, room: Room) -> Result<(), Fault> {
        // Lines suffice whatever the call's length, which then need not be looked at.
        let room = if K::IN_LINES { Room::Lines } else { room };
        block!(self.base, Awaited::Slot { ticket, room }, |call| {
            Ok::<_, Fault>(match K::IN_LINES {
                true => call.context.claim_lines(ticket, call.descriptor),
                false => call.context.take_in_line(ticket, room, K::checked(call.like.reach), call.descriptor),
            })
        })
    }

    #[inline(always)]
    pub fn publish(&self, line: Line, ticket: Ticket) -> Result<(), Fault> {
        match K::IN_LINES {
            true => self.lines.mine(line, ticket).publish(ticket, self.base.descriptor.word()),
            false => self.base.context.publish(line, ticket, self.base.descriptor),
        }
        self.base.context.nudge_sleepers(self.base.waiting);
        Ok(())
    }

    #[inline(always)]
    pub fn wait(&self, rank: NodeRank, line: Line, ticket: Ticket) -> Result<(), Fault> {
        let (flag, payload) = (self.lines.at(rank, line, ticket), self.payload);
        block!(self.base, Awaited::Flag { rank, line, ticket }, |call| {
            if K::IN_LINES {
                // So the rest of the payload is on its way when the flag comes.
                if payload == Payload::BeyondFlag {
                    kernel::copy::expect_read(flag.beyond_flag());
                }
                call.context.has_line_come(&call.entered(), rank, flag, ticket)
            } else {
                call.context.has_come_of(&call.entered(), rank, flag, ticket)
            }
        })
    }

    #[inline(always)]
    pub fn is_exposed(&self, rank: NodeRank, line: Line, ticket: Ticket) -> Result<bool, Fault> {
        Ok(self.lines.at(rank, line, ticket).tells_of_memory(ticket))
    }

    #[inline(always)]
    pub fn copy(&self, to: At, from: At, n: Bytes) -> Result<(), Fault> {
        let touches_slot = [to.destination, from.destination].contains(&Destination::Slot);
        debug_assert!(!(K::IN_LINES && touches_slot && n > INLINE), "longer than a payload");
        if to.address != from.address {
            // SAFETY: buffers are valid for the plan's lengths (`enter`), cells and payloads for theirs; the algorithm
            // keeps within them and follows the slot protocol, which the checking scheduler verifies of the same
            // source.
            unsafe {
                match K::IN_LINES {
                    true => kernel::copy_to(to.destination, to.address, from.address, n.0),
                    false => {
                        let places = [to.destination, from.destination];
                        self.base.context.copy(self.base.like, places, to.address, from.address, K::checked(n).0);
                    }
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub fn reduce(&self, to: At, left: At, right: At, n: Bytes) -> Result<(), Fault> {
        if let Some(combine) = self.combine {
            let destination = to.destination;
            let [to, left, right] = [to, left, right].map(|at| at.address);
            // SAFETY: as in `copy`.
            unsafe {
                match K::IN_LINES {
                    true => combine.combine(to, left, right, n.0),
                    false => {
                        let (context, like) = (self.base.context, self.base.like);
                        context.combine(like, combine, destination, [to, left, right], K::checked(n).0, self.granule);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Hints about this rank's own flags, which it is to write; `Fabric::expect_flag` is about a peer's, which it is to
/// read. They change when cache lines move, not what these hold.
impl<K: Known> ShortCall<'_, K> {
    /// This rank is about to publish `line` for `ticket`: asks for the flag's line, which the peers that look at it
    /// hold, so that it arrives meanwhile. To ask sooner, in the call before, pays only where peers look late in that
    /// call ([`Self::prepare_look`], [`Self::end_exchange`]) or wait for their turn ([`Self::await_turn`]): a peer that
    /// looks takes the line back with its next look. After 4 KiB that are written in between the peer has the line
    /// again, which does no harm.
    #[inline(always)]
    pub fn expect(&self, line: Line, ticket: Ticket) {
        let (next_flags, epoch) = (&self.base.context.first_looks.next_flags, self.base.epoch);
        next_flags.note(line, epoch);
        self.expect_flag(line, ticket);
        if self.payload == Payload::BeyondFlag {
            next_flags.note_beyond(line, epoch);
            self.expect_beyond(line, ticket);
        }
    }

    #[inline(always)]
    fn expect_flag(&self, line: Line, ticket: Ticket) {
        kernel::copy::expect_write(std::ptr::from_ref(self.lines.mine(line, ticket)).cast());
    }

    #[inline(always)]
    fn expect_beyond(&self, line: Line, ticket: Ticket) {
        kernel::copy::expect_write(self.lines.mine(line, ticket).beyond_flag());
    }

    /// Does what `expect` does in a call with a root, after which it is the peer's turn.
    #[inline(always)]
    pub fn take_turn(&self, line: Line, ticket: Ticket) {
        self.base.context.first_looks.turns.note(line, self.base.epoch);
        self.expect(line, ticket);
    }

    /// This rank is about to look for a piece of `n` bytes in a call with a root. If this rank published in the call
    /// before, the peer publishes only when it has got that. Then this rank waits, if trials found a wait to be faster,
    /// and asks for the line of its own next flag meanwhile.
    #[inline(always)]
    pub fn await_turn(&self, n: Bytes) {
        let Base { context, like, epoch, .. } = self.base;
        let piece = match (K::IN_LINES, self.payload) {
            (true, Payload::BesideFlag) => Piece::BesideFlag,
            (true, Payload::BeyondFlag) => Piece::BeyondFlag,
            (false, _) if n <= Piece::LONGEST => Piece::InCell,
            _ => return,
        };
        if let Some((line, pauses)) = context.first_looks.turns.wait(epoch, like.collective, piece) {
            self.expect_next_flag(line);
            (0..pauses).for_each(|_| std::hint::spin_loop());
        }
    }

    /// This rank has published a piece of `n` bytes, and is about to look for one as long that its peers publish at the
    /// same time. If it looks late, it first waits until its own flag is in its cache. Then it asks for the peer's flag
    /// and piece, where data do not fit lines, and for the line of its own next flag, if that is likely to be a root's.
    #[inline(always)]
    pub fn prepare_look(&self, line: Line, ticket: Ticket, n: Bytes) {
        let Base { context, epoch, .. } = self.base;
        let looks = &context.first_looks;
        if looks.is_late(epoch, n) {
            kernel::copy::await_own_stores();
            if !K::IN_LINES {
                context.ask_for_piece(line, ticket, n);
            }
            if looks.next_flags.is_of_root(epoch) {
                self.expect_next_flag(Line::Down);
            }
        }
    }

    /// This rank has got the pieces of `n` bytes for which it looked. If it looks late in such calls, it asks for the
    /// line of the flag that it publishes next in one of them.
    #[inline(always)]
    pub fn end_exchange(&self, n: Bytes) {
        let (looks, epoch) = (&self.base.context.first_looks, self.base.epoch);
        looks.note(epoch, n);
        if looks.is_late(epoch, n) {
            self.expect_next_flag(Line::Up);
        }
    }

    #[inline(always)]
    fn expect_next_flag(&self, line: Line) {
        let (next_flags, Epoch(epoch)) = (&self.base.context.first_looks.next_flags, self.base.epoch);
        let next = Ticket::new(Epoch(epoch + 1), 0);
        self.expect_flag(line, next);
        if next_flags.goes_beyond(line, Epoch(epoch)) {
            self.expect_beyond(line, next);
        }
    }

    /// This rank has written `n` bytes for `ticket`, and may write as many again in a later call: asks for the lines of
    /// the next piece, where these can be foreseen (`rhythm`).
    #[inline(always)]
    pub fn expect_next(&self, ticket: Ticket, n: Bytes) {
        if !K::IN_LINES && !self.base.waiting.is_oversubscribed {
            let Entered { collective, reach, .. } = *self.base.like;
            self.base.context.expect_next(collective, ticket, n, reach);
        }
    }
}
