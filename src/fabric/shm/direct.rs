//! The fabric of short calls: each step is taken at once, and is over when its function returns.
//!
//! It has the operations of [`Fabric`](crate::fabric::Fabric) that [`coll::phase::short`](crate::coll::phase::short) uses, as plain
//! functions in place of futures. A future keeps what it needs after a wait in memory and is entered anew by each poll;
//! for calls that move a few bytes that is half of the work (`bench/limits.c overhead`). A wait that lasts goes on as that of a
//! [`Call`].

use super::call::Call;
use super::context::Context;
use super::drive::Waiting;
use crate::coll::Plan;
use crate::fabric::words::{Awaited, Entered, Fault, Words};
use crate::fabric::{Line, Place, Room, Span};
use crate::kernel::{self, Combine, Destination};
use crate::topo::Layout;
use crate::types::{Bytes, Collective, Epoch, NodeRank, Ticket};

/// The program's buffers of a call, packed as they lie; null where not significant at this rank.
#[derive(Clone, Copy)]
pub struct Ends {
    /// The input.
    pub send: *mut u8,
    /// The output.
    pub recv: *mut u8,
    /// Whether both are the same memory.
    pub is_in_place: bool,
}

/// An address in a slot or a buffer of a call.
#[derive(Clone, Copy)]
pub struct At {
    address: *mut u8,
    destination: Destination,
}

/// One short collective call of one rank, whose steps end with a fault if a peer failed or contradicts.
pub struct Direct<'a> {
    context: &'a Context,
    waiting: &'a Waiting,
    entered: Entered,
    ends: Ends,
    granule: Bytes,
    combine: Option<&'a dyn Combine>,
}

impl<'a> Direct<'a> {
    /// Enters a call: peers can see it from here on.
    ///
    /// # Safety
    /// The buffers are valid for the packed lengths that `plan` gives them at this rank, until the call is dropped; no
    /// other call of this rank is under way on `context`.
    #[inline(always)]
    pub unsafe fn enter(
        context: &'a Context,
        waiting: &'a Waiting,
        (collective, row): (Collective, usize),
        plan: &Plan,
        ends: Ends,
        combine: Option<&'a dyn Combine>,
    ) -> Self {
        let entered = Entered::new(collective, row, plan);
        context.enter(&entered);
        Self { context, waiting, entered, ends, granule: plan.granule, combine }
    }

    /// Leaves the call, which ended with `result` and whose data took that much of a slot.
    ///
    /// # Errors
    /// If a peer failed or contradicts; then this rank has failed the call too, as its peers can see.
    #[inline(always)]
    pub fn finish(&self, room: Room, result: Result<(), Fault>) -> Result<(), Fault> {
        match result {
            Ok(()) => self.context.release(Ticket::last_of(self.entered.epoch)),
            Err(_) => self.context.fail(self.entered.epoch),
        }
        self.announce();
        if room == Room::Lines && !self.waiting.is_oversubscribed {
            self.expect_another();
        }
        result
    }

    /// The next call is likely to be as short, and this rank's lines for it are still with those who read them a ring ago: they may
    /// come back while the program computes. Not where data go into cells: those are written first, and a peer that looks at
    /// the line already takes it again meanwhile.
    #[inline(always)]
    fn expect_another(&self) {
        let next = Ticket::new(Epoch(self.entered.epoch.0 + 1), 0);
        for line in [Line::Up, Line::Down] {
            let line = self.context.line(self.context.rank(), line, next);
            kernel::copy::expect_write(std::ptr::from_ref(line).cast());
            kernel::copy::expect_write(line.second_line());
        }
    }

    #[inline(always)]
    fn announce(&self) {
        if self.waiting.is_oversubscribed {
            self.context.event(self.context.rank()).announce();
        }
    }

    /// Where `span` lies.
    #[inline(always)]
    pub fn at(&self, span: Span) -> At {
        let base = match span.place {
            Place::SendBuf => self.ends.send,
            Place::RecvBuf => self.ends.recv,
            Place::Cell { rank, line, ticket } => self.context.cell(rank, line, ticket, self.entered.reach),
            Place::Payload { rank, line, ticket } => self.context.line(rank, line, ticket).payload(),
            Place::Scratch => unreachable!("short calls are on one node"),
        };
        At { address: base.wrapping_add(span.offset.0), destination: span.place.destination() }
    }

    /// Returns when `look` finds what it looks for.
    #[cold]
    #[inline(never)]
    fn outlast(&self, awaited: Awaited, look: &dyn Fn() -> Result<bool, Fault>) -> Result<(), Fault> {
        Call::entered(self.context, self.waiting, self.entered).outlast(awaited, look)
    }
}

/// Returns when `$look` is true. A closure that is also called through a pointer would not become part of its caller.
macro_rules! block {
    ($self:ident, $awaited:expr, $look:expr) => {{
        let mut looks = $self.waiting.looks();
        loop {
            if $look? {
                return Ok(());
            }
            if looks == 0 {
                return $self.outlast($awaited, &|| $look);
            }
            looks -= 1;
            std::hint::spin_loop();
        }
    }};
}

/// As in [`Fabric`](crate::fabric::Fabric).
#[allow(missing_docs, clippy::missing_errors_doc)]
impl Direct<'_> {
    #[inline(always)]
    pub fn rank(&self) -> NodeRank {
        self.context.rank()
    }

    #[inline(always)]
    pub fn size(&self) -> usize {
        self.context.geometry().ranks
    }

    #[inline(always)]
    pub fn layout(&self) -> &Layout {
        self.context.layout()
    }

    #[inline(always)]
    pub fn is_in_place(&self) -> bool {
        self.ends.is_in_place
    }

    #[inline(always)]
    pub fn claim(&self, ticket: Ticket, room: Room) -> Result<(), Fault> {
        let descriptor = self.entered.descriptor;
        block!(self, Awaited::Slot { ticket, room }, {
            Ok::<_, Fault>(self.context.take(ticket, room, self.entered.reach, descriptor))
        })
    }

    #[inline(always)]
    pub fn publish(&self, line: Line, ticket: Ticket) -> Result<(), Fault> {
        self.context.publish(line, ticket, self.entered.descriptor);
        self.announce();
        Ok(())
    }

    #[inline(always)]
    pub fn wait(&self, rank: NodeRank, line: Line, ticket: Ticket) -> Result<(), Fault> {
        let flag = self.context.line(rank, line, ticket);
        block!(self, Awaited::Flag { rank, line, ticket }, {
            // The rest of a payload is on its way when the flag comes.
            kernel::copy::expect_read(flag.second_line());
            self.context.has_come_of(&self.entered, rank, flag, ticket)
        })
    }

    #[inline(always)]
    pub fn copy(&self, to: At, from: At, n: Bytes) -> Result<(), Fault> {
        if to.address != from.address {
            // SAFETY: buffers are valid for the plan's lengths (`enter`), cells and payloads for theirs; the algorithm
            // keeps within them and follows the slot protocol, which the checking scheduler verifies of the same source.
            unsafe { self.context.copy([to.destination, from.destination], to.address, from.address, n.0) };
        }
        Ok(())
    }

    #[inline(always)]
    pub fn reduce(&self, to: At, left: At, right: At, n: Bytes) -> Result<(), Fault> {
        if let Some(combine) = self.combine {
            let operands = [to, left, right].map(|at| at.address);
            // SAFETY: as in `copy`.
            unsafe { self.context.combine(combine, to.destination, operands, n.0, self.granule) };
        }
        Ok(())
    }
}
