//! What a process holds for one communicator: its view of the segment, and its own progress there.

mod cells;
mod lending;
mod renewal;

use super::company::Company;
use super::drive::Waiting;
use super::first_looks::FirstLooks;
use super::geometry::{Geometry, PAGE, Places};
use super::givers::Givers;
use super::hopes::Hopes;
use super::lines::Lines;
use super::loans::Loans;
use super::notices::SharedNotice;
use super::presences::Presences;
use super::reads::Reads;
use super::rhythm::Rhythm;
use super::rotation::{self, ROTATED, Rotation};
use super::segment::Segment;
use super::ways::Ways;
use super::writes::Writes;
use super::yields::Yields;
use crate::codegen::opaque;
use crate::fabric::Line;
use crate::fabric::words::{Fault, Words};
use crate::kernel::Probed;
use crate::kernel::host::Design;
use crate::sync::{
    Claims, Control, Descriptor, Event, Flag, FlagLine, HOME_UNIT, LastClaim, Passed, Presence, Private, Room, Stretch,
    Teller,
};
use crate::topo::{Layout, Levels};
use crate::types::{Bytes, CommRank, Epoch, FirstLook, NodeRank, SlotReads, SlotStores, Ticket};
use std::sync::{LazyLock, OnceLock};

/// One communicator's shared memory, as one of its ranks sees it. At most one call runs on it at a time.
pub struct Context {
    segment: Segment,
    geometry: Geometry,
    places: Places,
    me: NodeRank,
    layout: Layout,
    levels: Levels,
    /// The id of this process.
    process: u32,
    claims: Claims,
    /// How many bytes of each cell of its ring this rank has reserved.
    reserved: Private<usize>,
    /// How many bytes of each of its cells to pass this rank has reserved.
    reserved_passed: Private<usize>,
    passed: Passed,
    pub(super) writes: Writes,
    pub(super) reads: Reads,
    /// For long messages. Made at its first use, since most communicators have none.
    pub(super) ways: LazyLock<Box<Ways>>,
    pub(super) rhythm: Rhythm,
    pub(super) hopes: Hopes,
    pub(super) givers: Givers,
    pub(super) first_looks: FirstLooks,
    /// Made by the first call that is decided on; see [`Self::loans`].
    loans: OnceLock<Box<Loans>>,
    company: Company,
    pub(super) yields: Yields,
    /// Where ranks that share cores tell whether they have them.
    presences: Presences,
}

fn claims_of(geometry: &Geometry) -> Claims {
    Claims::new(geometry.lines, geometry.slots, rotation::grains(geometry))
}

fn passed_of(geometry: &Geometry) -> Passed {
    Passed::new(geometry.ranks * geometry.passed(), Bytes(Probed::in_use().caches.l2))
}

/// A value that is made at its first use: it takes some KiB, and most communicators do without it.
fn when_used<T: Default>() -> LazyLock<Box<T>> {
    LazyLock::new(Box::default as fn() -> _)
}

impl Context {
    /// # Panics
    /// If the segment is shorter than the geometry asks for, or the numbers of slots and lines are not as `Geometry`
    /// says.
    pub fn new(segment: Segment, geometry: Geometry, me: NodeRank, layout: Layout, levels: Levels) -> Self {
        assert!(segment.length() >= geometry.length() && geometry.slots.is_power_of_two() && geometry.slots >= 2);
        assert!(geometry.lines.is_power_of_two() && geometry.lines >= geometry.slots);
        // Every piece has to begin within the grains of its cell, as memory behind them has none: see `Rotation::next`.
        assert!(geometry.slots <= 1024);
        assert!(me.index() < geometry.ranks && levels.size() == geometry.ranks);
        let places = Places::new(&geometry, me);
        let (claims, passed) = (claims_of(&geometry), passed_of(&geometry));
        let [reserved, reserved_passed] =
            [(); 2].map(|()| Private::new(if segment.is_whole() { geometry.cell.0 } else { 0 }));
        let process = std::process::id();
        let (writes, reads, hopes, givers, first_looks, company, yields) = Default::default();
        let (ways, loans) = (when_used(), OnceLock::new());
        let rhythm = Rhythm::of(Design::of_this_host());
        let presences = Presences::of_segment(&segment, &geometry);
        let context = Self {
            segment,
            geometry,
            places,
            me,
            layout,
            levels,
            process,
            claims,
            reserved,
            reserved_passed,
            passed,
            writes,
            reads,
            ways,
            rhythm,
            hopes,
            givers,
            first_looks,
            loans,
            company,
            yields,
            presences,
        };
        if context.reserved.get() > 0 {
            context.own_passed();
        }
        context
    }

    /// Makes the ranks tell in `presences` whether they have their cores, and look there, in place of the segment's
    /// own.
    pub fn set_presences(&mut self, presences: Presences) {
        self.presences = presences;
    }

    /// The presences in this segment, one for each of its ranks.
    pub fn own_presences(&self) -> Presences {
        Presences::of_segment(&self.segment, &self.geometry)
    }

    /// The notice in this segment, by which its processes may tell each other of one-sided calls.
    pub fn notice(&self) -> SharedNotice {
        SharedNotice::of_segment(&self.segment)
    }

    /// Where `rank` tells whether it has its core.
    #[inline]
    pub(super) fn presence(&self, rank: NodeRank) -> &Presence {
        self.presences.of(rank)
    }

    /// The dimensions of the segment.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// This rank.
    #[inline]
    pub fn rank(&self) -> NodeRank {
        self.me
    }

    /// The ranks' flag lines.
    #[inline(always)]
    pub(super) fn lines(&self) -> Lines<'_> {
        Lines::new(self.segment.base(), self.places.control, self.places.mine[0], &self.geometry)
    }

    /// The communicator's rank that is `rank` on this node.
    pub fn comm_rank(&self, rank: NodeRank) -> CommRank {
        self.layout.members(self.layout.my_node())[rank.index()]
    }

    /// This rank's own rank in the communicator.
    pub fn own_comm_rank(&self) -> CommRank {
        self.comm_rank(self.me)
    }

    /// The communicator's nodes.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The node's hierarchy.
    #[inline]
    pub fn levels(&self) -> &Levels {
        &self.levels
    }

    /// The id of this process, by which peers read its memory where they may.
    #[inline]
    pub(super) fn process(&self) -> u32 {
        self.process
    }

    /// The first byte of the piece for `ticket` in a cell of `rank`, in a call that reaches `reach` bytes into cells. A
    /// short piece whose home the owner has not told lies at the place that follows from the ticket, any other one at
    /// its told home.
    #[inline(always)]
    pub(super) fn cell(&self, rank: NodeRank, line: Line, ticket: Ticket, reach: Bytes) -> *mut u8 {
        debug_assert!(rank.index() < self.geometry.ranks);
        let told = match reach < ROTATED {
            true if self.passed.is_empty() => None,
            true => self.told_home(rank, line, ticket),
            false => Some(self.home(rank, line, ticket)),
        };
        // If both ranks write for this ticket, the processor would read the piece before the peer has written it. A
        // peer puts longer pieces elsewhere, into cells that have rested.
        if rank != self.me
            && reach < Passed::LONG
            && !self.passed.gives_for(ticket)
            && let Some(cell) = self.passed.likely(ticket)
        {
            let home = self.home_of_passed(rank, cell);
            // The processor predicts this branch. So it goes on to the likely address while the flag is still under
            // way, since that address does not depend on what comes with the flag.
            let likely = opaque(self.piece(rank, ticket, Some(home)));
            if told == Some(home) {
                return likely;
            }
        }
        self.piece(rank, ticket, told)
    }

    /// The first byte of `rank`'s piece for `ticket`, whose told home is `home`; `None` for a short piece without one.
    #[inline(always)]
    pub(super) fn piece(&self, rank: NodeRank, ticket: Ticket, home: Option<u64>) -> *mut u8 {
        let offset = match home {
            Some(home) => home as usize * HOME_UNIT,
            None => rotation::home_of_short(&self.geometry, ticket).0,
        };
        let at = self.places.cells + rank.index() * self.places.ring + offset;
        debug_assert!(at < self.geometry.length());
        // SAFETY: as in `control`; homes are within their ring, or among the cells that are passed, which lie behind
        // all rings.
        unsafe { self.segment.base().as_ptr().add(at) }
    }

    /// Claims `room` for `ticket` in a call that reaches `reach` bytes into cells. Returns whether this rank may write
    /// there; see [`Words::claim`]. A piece that rotates is counted; the first one of a call settles the length of the
    /// way round for the whole call.
    #[inline]
    pub(super) fn take(&self, ticket: Ticket, room: Room, reach: Bytes, descriptor: Descriptor) -> bool {
        self.take_in_line(ticket, room, reach, descriptor)
    }

    /// Does what `take` does, as part of the function that calls it.
    #[inline(always)]
    pub(super) fn take_in_line(&self, ticket: Ticket, room: Room, reach: Bytes, descriptor: Descriptor) -> bool {
        let counts = reach >= ROTATED && room.has_cell();
        if counts {
            self.company.enter(ticket.epoch());
        }
        let is_taken = self.claim(ticket, room, reach, descriptor, |cursor| self.stretch(ticket, room, reach, cursor));
        if counts && is_taken {
            self.company.note(reach);
        }
        is_taken
    }

    /// The stretch of this rank's ring that a piece for `ticket` takes, after the piece that left `cursor`.
    #[inline(always)]
    pub(super) fn stretch(&self, ticket: Ticket, room: Room, reach: Bytes, cursor: u64) -> Stretch {
        if reach < ROTATED {
            return rotation::stretch_of_short(&self.geometry, ticket, reach, cursor);
        }
        let reserved = Bytes(self.reserved.get());
        let rotation = Rotation::new(&self.geometry, reach, reserved, self.company.halvings());
        if room == Room::Relayed { rotation.shortest().next(cursor) } else { rotation.next(cursor) }
    }

    /// Whether an address is in a cell that is passed.
    #[inline]
    pub(super) fn is_passed(&self, at: *const u8) -> bool {
        let [start, end] = self.places.passed;
        (start..end).contains(&at.addr().wrapping_sub(self.segment.base().as_ptr().addr()))
    }

    /// Whether this rank's ring matters. Where it passes cells to its only peer, those may serve for all that it
    /// writes.
    #[inline]
    pub fn uses_ring(&self) -> bool {
        self.passed.are_missed()
    }

    /// Sets how this rank writes its slots from here on.
    pub fn set_stores(&self, stores: SlotStores) {
        self.writes.set(stores);
    }

    /// Sets how this rank reads its peers' slots from here on.
    pub fn set_reads(&self, reads: SlotReads) {
        self.reads.set(reads, self.geometry.ranks);
    }

    /// Sets when this rank takes the first look of a wait from here on, in a job whose ranks wait as `waiting` says.
    /// All but pairs with cores of their own look early: on shared cores a rank that looks gives way to the awaited
    /// one, and more ranks were not measured.
    pub fn set_first_looks(&self, look: FirstLook, waiting: &Waiting) {
        let look = if self.is_pair_with_cores(waiting) { look } else { FirstLook::Early };
        self.first_looks.set(look, Design::of_this_host());
    }

    fn is_pair_with_cores(&self, waiting: &Waiting) -> bool {
        self.geometry.ranks == 2 && !waiting.is_oversubscribed
    }

    /// Whether a copy of `n` bytes from `from`, in a slot, takes the lines over. It does not if the cell is passed,
    /// since that becomes this rank's own with the next call, nor where slots are written around the caches: there are
    /// no lines to take.
    #[inline]
    pub(super) fn takes_over(&self, from: *const u8, n: usize) -> bool {
        self.reads.may_take() && !self.writes.is_around() && !self.is_passed(from) && self.reads.take_lines(n)
    }

    /// The event with which `rank` announces its flags and releases, where ranks share cores.
    #[inline]
    pub(super) fn event(&self, rank: NodeRank) -> &Event {
        self.control(rank).event()
    }

    /// Wakes peers that sleep until this rank does something.
    #[inline(always)]
    pub(super) fn nudge_sleepers(&self, waiting: &Waiting) {
        if waiting.is_oversubscribed {
            self.event(self.rank()).nudge();
        }
    }

    /// Leaves the call of `epoch`, which has failed with `fault`.
    #[cold]
    pub(super) fn give_up(&self, epoch: Epoch, fault: Fault, waiting: &Waiting) {
        self.leave_with(epoch, fault);
        self.fail_loan();
        self.nudge_sleepers(waiting);
    }

    /// Which rank of the node reports a fault that ends the job.
    pub fn teller(&self) -> &Teller {
        // SAFETY: within the header, which is page-aligned; zeroed, or written through atomics only.
        unsafe { self.segment.base().add(Geometry::TELLER).cast::<Teller>().as_ref() }
    }

    /// Tells peers that this rank takes no part in `epoch`; see [`Control::fail`].
    pub fn fail(&self, epoch: Epoch) {
        Words::fail(self, epoch);
    }
}

impl Words for Context {
    #[inline]
    fn me(&self) -> NodeRank {
        self.me
    }

    #[inline]
    fn ranks(&self) -> usize {
        self.geometry.ranks
    }

    #[inline]
    fn claims(&self) -> &Claims {
        &self.claims
    }

    #[inline]
    fn passed(&self) -> &Passed {
        &self.passed
    }

    #[inline]
    fn home_of_passed(&self, rank: NodeRank, cell: u32) -> u64 {
        let start = self.places.passed[0] - self.places.cells - rank.index() * self.places.ring;
        ((start + cell as usize * self.geometry.cell.0) / HOME_UNIT) as u64
    }

    #[inline]
    fn passed_at(&self, rank: NodeRank, home: u64) -> Option<u32> {
        let units = home.checked_sub(self.home_of_passed(rank, 0))?;
        let length = (self.geometry.cell.0 / HOME_UNIT) as u64;
        // Most cells are powers of two, and each call of two ranks asks: a division takes longer than all else here.
        let cell = if length.is_power_of_two() { units >> length.trailing_zeros() } else { units / length };
        Some(cell as u32)
    }

    #[inline]
    fn control(&self, rank: NodeRank) -> &Control {
        debug_assert!(rank.index() < self.geometry.ranks);
        // SAFETY: within the segment, whose length `new` checked; aligned, since the segment is page-aligned and all
        // sizes are multiples of 128. Zeroed or written through atomics only.
        unsafe {
            let at = self.segment.base().add(PAGE + rank.index() * self.places.control);
            at.cast::<Control>().as_ref()
        }
    }

    #[inline]
    fn mine(&self) -> &Control {
        // SAFETY: as in `control`.
        unsafe { self.segment.base().add(self.places.mine[0]).cast::<Control>().as_ref() }
    }

    #[inline]
    fn line(&self, rank: NodeRank, line: Line, ticket: Ticket) -> &FlagLine {
        self.lines().at(rank, line, ticket)
    }

    #[inline]
    fn post(&self, to: NodeRank, from: NodeRank) -> &Flag {
        let geometry = &self.geometry;
        debug_assert!(to.index() < geometry.ranks && from.index() < geometry.ranks);
        let offset =
            PAGE + to.index() * self.places.control + geometry.posts_start() + from.index() * size_of::<Flag>();
        // SAFETY: as in `control`; there is a flag for each rank.
        unsafe { self.segment.base().add(offset).cast::<Flag>().as_ref() }
    }

    #[inline]
    fn last_claim(&self, rank: NodeRank, ticket: Ticket) -> &LastClaim {
        let [start, stride] = self.places.last_claims;
        let index = ticket.position(self.geometry.lines) * size_of::<LastClaim>();
        debug_assert!(rank.index() < self.geometry.ranks);
        // SAFETY: as in `control`; `position` is below `lines`.
        unsafe {
            let at = self.segment.base().add(start + rank.index() * stride + index);
            at.cast::<LastClaim>().as_ref()
        }
    }

    #[inline]
    fn my_last_claim(&self, ticket: Ticket) -> &LastClaim {
        let index = ticket.position(self.geometry.lines) * size_of::<LastClaim>();
        // SAFETY: as in `control`; `position` is below `lines`.
        unsafe { self.segment.base().add(self.places.mine[1] + index).cast::<LastClaim>().as_ref() }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// Two ranks of one process, each with a mapping of its own.
    pub(in super::super) fn two_ranks() -> [Context; 2] {
        two_ranks_with(Bytes(64))
    }

    pub(in super::super) fn two_ranks_with(cell: Bytes) -> [Context; 2] {
        let geometry = Geometry { ranks: 2, slots: 2, lines: 2, cell, round: cell };
        assert_eq!(geometry.cells_start() % PAGE, Geometry::CELLS_IN_PAGE);
        let (_, file) = Segment::create(geometry.length(), geometry.front()).expect("memfd");
        [0, 1].map(|me| {
            let segment = Segment::open(std::process::id(), file.as_raw_fd(), geometry.length()).expect("mapping");
            Context::new(segment, geometry, NodeRank(me), Layout::single(2), Levels::flat(2, NodeRank(me)))
        })
    }

    /// Ranks of another communicator may use a segment's presences while it is taken over, so a clear leaves them.
    #[test]
    fn presences_outlast_a_clear() {
        let [one, other] = two_ranks();
        one.presence(NodeRank(0)).leave_core(|| {
            other.clear();
            assert!(other.presence(NodeRank(0)).is_away());
        });
    }
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod walk_tests;
