//! One collective call on a context: the fabric that algorithms run on.

use super::Bridge;
use super::context::Context;
use super::copies::in_pieces;
use super::drive::Waiting;
use crate::coll::Plan;
use crate::fabric::words::{Awaited, Entered, Fault, Words};
use crate::fabric::{BridgeStep, Exposed, Fabric, INLINE, Lending, Line, Place, Room, Source, Span};
use crate::kernel::{self, Combine, Destination, PackedBuffer, SizeClass};
use crate::sync::Private;
use crate::topo::{Layout, Levels};
use crate::types::{Bytes, Collective, NodeRank, Ticket};
use std::future::{Future, poll_fn, ready};
use std::sync::OnceLock;
use std::task::Poll;

/// A buffer of the user as packed bytes.
#[derive(Clone, Copy)]
pub enum Buffer<'a> {
    /// Not significant at this rank.
    Absent,
    /// Memory without holes, which holds the packed bytes themselves.
    Contiguous(*mut u8),
    /// Memory with holes, read and written piece by piece.
    Packed(&'a dyn PackedBuffer),
}

/// This rank's own memory for one call.
#[derive(Clone, Copy)]
pub struct Buffers<'a> {
    /// The input; for a reduction contiguous.
    pub send: Buffer<'a>,
    /// The output; for a reduction contiguous.
    pub recv: Buffer<'a>,
    /// Whether `send` and `recv` are the same memory.
    pub is_in_place: bool,
    /// Memory of [`Plan::scratch`] bytes.
    pub scratch: *mut u8,
    /// The operation of a reduction.
    pub combine: Option<&'a dyn Combine>,
    /// The bridge to the other nodes, on leaders of communicators that span several nodes.
    pub bridge: Option<&'a dyn Bridge>,
}

impl Buffers<'_> {
    /// No buffers.
    pub const NONE: Self = Self {
        send: Buffer::Absent,
        recv: Buffer::Absent,
        is_in_place: false,
        scratch: std::ptr::null_mut(),
        combine: None,
        bridge: None,
    };
}

/// One collective call of one rank.
pub struct Call<'a> {
    context: &'a Context,
    buffers: Buffers<'a>,
    /// Bytes of an element.
    granule: Bytes,
    /// What [`Context::choose_source`] returned, if it was asked before: to ask again would count the call twice.
    chosen: Option<Source>,
    pub(super) waiting: &'a Waiting,
    pub(super) entered: Entered,
    pub(super) fault: OnceLock<Fault>,
    /// How many more looks the first poll of a wait takes after its first one.
    looks: u32,
    /// What the last pending poll waited for, packed: see `note` and `awaited`.
    awaited_what: Private<u64>,
    awaited_number: Private<u64>,
}

// SAFETY: the raw pointers are the user's buffers, which MPI forbids the program to touch during the call; one thread
// at a time drives it.
unsafe impl Send for Call<'_> {}
// SAFETY: as above; shared state is atomic.
unsafe impl Sync for Call<'_> {}

impl<'a> Call<'a> {
    /// Enters a call: peers can see it from here on.
    ///
    /// # Safety
    /// The buffers are valid for the packed lengths that `plan` gives them at this rank, until the call is dropped; no
    /// other call of this rank is under way on `context`.
    #[inline(always)]
    pub unsafe fn enter(
        context: &'a Context,
        waiting: &'a Waiting,
        collective: Collective,
        row: usize,
        plan: &Plan,
        buffers: Buffers<'a>,
    ) -> Self {
        let entered = Entered::new(collective, row, plan);
        context.enter(&entered);
        Self::entered(context, waiting, entered).with_buffers(buffers, plan.granule)
    }

    /// The call `entered`, without buffers. The caller tells peers of it.
    #[inline(always)]
    pub(super) fn entered(context: &'a Context, waiting: &'a Waiting, entered: Entered) -> Self {
        Self {
            context,
            buffers: Buffers::NONE,
            granule: Bytes(1),
            chosen: None,
            waiting,
            entered,
            fault: OnceLock::new(),
            looks: waiting.looks(),
            awaited_what: Private::new(0),
            awaited_number: Private::new(0),
        }
    }

    /// This call with `buffers` and elements of `granule` bytes.
    #[inline(always)]
    pub(super) fn with_buffers(self, buffers: Buffers<'a>, granule: Bytes) -> Self {
        Self { buffers, granule, ..self }
    }

    /// This call with polls that look only once before they are pending, for a caller that drives it by polls.
    #[must_use]
    pub fn to_be_polled(self) -> Self {
        Self { looks: 0, ..self }
    }

    /// This call, for which [`Context::choose_source`] was asked before and returned `source`.
    pub(super) fn chosen(self, source: Source) -> Self {
        Self { chosen: Some(source), ..self }
    }

    #[inline]
    pub(super) fn context(&self) -> &'a Context {
        self.context
    }

    /// Returns a future that is ready when `look` finds something. Its first poll looks several times, since each
    /// further poll has to pass through all futures of the call before it looks again.
    #[inline(always)]
    fn until(&self, awaited: Awaited, look: impl Fn() -> Option<()> + Send) -> impl Future<Output = ()> + Send {
        let mut looks = self.looks;
        poll_fn(move |_| {
            if look().is_some() {
                return Poll::Ready(());
            }
            while looks > 0 {
                looks -= 1;
                std::hint::spin_loop();
                if look().is_some() {
                    return Poll::Ready(());
                }
            }
            self.note(awaited);
            Poll::Pending
        })
    }

    #[inline]
    pub(super) fn has_fault(&self) -> bool {
        self.fault.get().is_some()
    }

    pub(super) fn set_fault(&self, fault: Fault) {
        // The first fault is the cause, so later ones are dropped.
        let _ = self.fault.set(fault);
    }

    pub(super) fn note(&self, awaited: Awaited) {
        let [what, number] = awaited.to_words();
        self.awaited_what.set(what);
        self.awaited_number.set(number);
    }

    pub(super) fn awaited(&self) -> Awaited {
        Awaited::of_words([&self.awaited_what, &self.awaited_number].map(|word| word.get()))
    }

    /// What `look` found. A fault is recorded and counts as nothing found: the driver then ends the call.
    #[inline(always)]
    fn found(&self, look: Result<bool, Fault>) -> Option<()> {
        look.inspect_err(|fault| self.set_fault(*fault)).unwrap_or(false).then_some(())
    }

    #[inline(always)]
    pub(super) fn locate(&self, span: Span) -> Location<'a> {
        let memory = |base: *mut u8| Location::Memory(base.wrapping_add(span.offset.0));
        let buffer = |buffer: Buffer<'a>| match buffer {
            Buffer::Contiguous(base) => memory(base),
            Buffer::Packed(packed) => Location::Packed(packed, span.offset.0),
            Buffer::Absent => unreachable!("a buffer that is not significant at this rank"),
        };
        match span.place {
            Place::SendBuf => buffer(self.buffers.send),
            Place::RecvBuf => buffer(self.buffers.recv),
            Place::Scratch => memory(self.buffers.scratch),
            Place::Cell { rank, line, ticket } => memory(self.context().cell(rank, line, ticket, self.entered.reach)),
            Place::Payload { rank, line, ticket } => memory(self.context().line(rank, line, ticket).payload()),
        }
    }

    /// The address of `span`, an operand of a reduction or the memory of a step between nodes. These are contiguous.
    #[inline(always)]
    fn memory(&self, span: Span) -> *mut u8 {
        match self.locate(span) {
            Location::Memory(at) => at,
            Location::Packed(..) => unreachable!("operands of reductions are contiguous"),
        }
    }
}

pub(super) enum Location<'a> {
    Memory(*mut u8),
    Packed(&'a dyn PackedBuffer, usize),
}

/// Copies `n` bytes for `call`. `places` says whether destination and source are slots or private memory. A slot that
/// is written is one of this rank.
///
/// # Safety
/// Both locations are valid for `n` bytes and do not overlap unless they are equal.
#[inline(always)]
unsafe fn copy(
    context: &Context,
    call: &Entered,
    places: [Destination; 2],
    to: Location<'_>,
    from: Location<'_>,
    n: usize,
) {
    // SAFETY: the caller's promise, for all arms.
    unsafe {
        match (to, from) {
            (Location::Memory(to), Location::Memory(from)) if to == from => {}
            (Location::Memory(to), Location::Memory(from)) => context.copy(call, places, to, from, n),
            // Packing stores block by block. Into a slot, it would fetch the slot's lines, few at a time, from the
            // peers that have read them. So the data are packed into private memory first, and copied to the slot from
            // there. The second copy does not pay for short data, nor for long blocks to a cell that was passed, whose
            // lines are closer.
            (Location::Memory(to), Location::Packed(from, offset))
                if places[0] == Destination::Slot
                    && SizeClass::of(n) != SizeClass::Short
                    && !(from.fills_lines() && context.is_passed(to)) =>
            {
                in_pieces(n, Bytes(1), |at, piece, length| {
                    from.read(offset + at, piece, length);
                    context.copy(call, [Destination::Slot, Destination::Private], to.add(at), piece, length);
                });
            }
            (Location::Memory(to), Location::Packed(from, offset)) => from.read(offset, to, n),
            (Location::Packed(to, offset), Location::Memory(from)) => to.write(offset, from, n),
            (Location::Packed(to, to_offset), Location::Packed(from, from_offset)) => {
                in_pieces(n, Bytes(1), |at, piece, length| {
                    from.read(from_offset + at, piece, length);
                    to.write(to_offset + at, piece, length);
                });
            }
        }
    }
}

impl Fabric for Call<'_> {
    #[inline(always)]
    fn rank(&self) -> NodeRank {
        self.context().rank()
    }

    #[inline(always)]
    fn size(&self) -> usize {
        self.context().geometry().ranks
    }

    #[inline(always)]
    fn levels(&self) -> &Levels {
        self.context().levels()
    }

    #[inline(always)]
    fn layout(&self) -> &Layout {
        self.context().layout()
    }

    #[inline(always)]
    fn cell_bytes(&self) -> Bytes {
        self.context().geometry().cell
    }

    #[inline(always)]
    fn slots(&self) -> usize {
        self.context().geometry().slots
    }

    #[inline(always)]
    fn is_in_place(&self) -> bool {
        self.buffers.is_in_place
    }

    #[inline(always)]
    fn claim(&self, ticket: Ticket, room: Room) -> impl Future<Output = ()> + Send {
        self.until(Awaited::Slot { ticket, room }, move || {
            self.context().take(ticket, room, self.entered.reach, self.entered.descriptor).then_some(())
        })
    }

    #[inline(always)]
    fn release(&self, ticket: Ticket) -> impl Future<Output = ()> + Send {
        self.context().release(ticket);
        self.context.nudge_sleepers(self.waiting);
        ready(())
    }

    #[inline(always)]
    fn publish(&self, line: Line, ticket: Ticket) -> impl Future<Output = ()> + Send {
        self.context().publish(line, ticket, self.entered.descriptor);
        self.context.nudge_sleepers(self.waiting);
        ready(())
    }

    #[inline(always)]
    fn wait(&self, rank: NodeRank, line: Line, ticket: Ticket) -> impl Future<Output = ()> + Send {
        let flag = self.context().line(rank, line, ticket);
        self.until(Awaited::Flag { rank, line, ticket }, move || {
            self.found(self.context().has_come_of(&self.entered, rank, flag, ticket))
        })
    }

    #[inline]
    fn expect_flag(&self, rank: NodeRank, line: Line, ticket: Ticket) {
        kernel::copy::expect_read(std::ptr::from_ref(self.context().line(rank, line, ticket)).cast());
    }

    #[inline]
    fn drain(&self, cells: usize) -> impl Future<Output = ()> + Send {
        let awaited = Awaited::Release { ticket: self.context().claims().claimed_ago(cells) };
        self.until(awaited, move || self.context().is_drained(cells).then_some(()))
    }

    #[inline]
    fn post(&self, rank: NodeRank, ticket: Ticket) -> impl Future<Output = ()> + Send {
        self.context().post(rank, self.rank()).publish(ticket);
        self.context.nudge_sleepers(self.waiting);
        ready(())
    }

    #[inline]
    fn wait_post(&self, rank: NodeRank, ticket: Ticket) -> impl Future<Output = ()> + Send {
        let post = self.context().post(self.rank(), rank);
        self.until(Awaited::Post { rank, ticket }, move || {
            let value = post.reached(ticket)?;
            self.found(self.context().verify_post(&self.entered, rank, ticket, value).map(|()| true))
        })
    }

    #[inline(always)]
    fn copy(&self, to: Span, from: Span, n: Bytes) -> impl Future<Output = ()> + Send {
        debug_assert!(!matches!(to.place, Place::Payload { .. }) || to.offset + n <= INLINE);
        // SAFETY: buffers are valid for the plan's lengths (`enter`), cells and payloads for theirs; the algorithm
        // keeps within them and follows the slot protocol, which the checking scheduler verifies for every registry
        // row.
        unsafe {
            let places = [to, from].map(|span| span.place.destination());
            copy(self.context(), &self.entered, places, self.locate(to), self.locate(from), n.0);
        }
        ready(())
    }

    #[inline(always)]
    fn reduce(&self, to: Span, left: Span, right: Span, n: Bytes) -> impl Future<Output = ()> + Send {
        let (context, destination) = (self.context(), to.place.destination());
        if let Some(combine) = self.buffers.combine {
            let memory = [to, left, right].map(|span| self.memory(span));
            // SAFETY: as in `copy`.
            unsafe { context.combine(&self.entered, combine, destination, memory, n.0, self.granule) };
        }
        ready(())
    }

    fn decide_to_lend(&self, from: Option<Span>, n: Bytes, lending: Lending) -> bool {
        let (context, collective) = (self.context(), self.entered.collective);
        let source = match (self.chosen, lending) {
            (Some(chosen), _) => chosen,
            (None, Lending::Always) => Source::Memory,
            (None, Lending::Tried(first)) => context.choose_source(self.waiting, collective, n, first),
        };
        source == Source::Memory && from.is_some_and(|from| self.is_memory(from))
    }

    fn expose(&self, line: Line, ticket: Ticket, from: Span) -> impl Future<Output = ()> + Send {
        self.tell_of_memory(line, ticket, from);
        ready(())
    }

    fn is_exposed(&self, rank: NodeRank, line: Line, ticket: Ticket) -> impl Future<Output = bool> + Send {
        ready(self.context().line(rank, line, ticket).tells_of_memory(ticket))
    }

    fn fetch(&self, to: Span, from: Exposed, n: Bytes) -> impl Future<Output = bool> + Send {
        ready(self.fetch_exposed(to, from, n))
    }

    fn answer(&self, line: Line, ticket: Ticket, answer: bool) -> impl Future<Output = ()> + Send {
        self.tell_answer(line, ticket, answer);
        ready(())
    }

    fn answered(&self, rank: NodeRank, line: Line, ticket: Ticket) -> impl Future<Output = bool> + Send {
        ready(self.take_answer(rank, line, ticket))
    }

    fn bridge_begin(&self, step: BridgeStep) -> impl Future<Output = ()> + Send {
        let at = match step {
            BridgeStep::Barrier => None,
            BridgeStep::Allreduce { at, .. }
            | BridgeStep::Reduce { at, .. }
            | BridgeStep::Bcast { at, .. }
            | BridgeStep::Allgather { at, .. }
            | BridgeStep::Scatter { at, .. }
            | BridgeStep::SendRecv { at, .. } => Some(at),
        };
        if let Some(bridge) = self.buffers.bridge {
            // SAFETY: the span is in this rank's buffers, which outlive the call; leaders take one step at a time.
            unsafe { bridge.start(step, at.map_or(std::ptr::null_mut(), |at| self.memory(at))) };
        }
        ready(())
    }

    fn bridge_end(&self) -> impl Future<Output = ()> + Send {
        poll_fn(move |_| {
            if self.buffers.bridge.is_none_or(Bridge::is_done) {
                return Poll::Ready(());
            }
            self.note(Awaited::Bridge);
            Poll::Pending
        })
    }
}

#[cfg(test)]
#[path = "call_tests.rs"]
mod tests;
