//! What a process holds for one communicator: its view of the segment, and how far it has come.

use super::Segment;
use crate::fabric::Line;
use crate::sync::{Event, Flag, FlagLine};
use crate::topo::{Layout, Levels};
use crate::types::{Bytes, Collective, CommRank, Epoch, NodeRank, Ticket};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The dimensions of a segment, the same on all ranks of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Ranks of the communicator on this node.
    pub ranks: usize,
    /// Slots in each rank's ring, a power of two.
    pub slots: usize,
    /// Length of a cell, a multiple of 64.
    pub cell: Bytes,
}

const PAGE: usize = 4096;

impl Geometry {
    /// Control lines of one rank: `released`, its call, and its flags.
    const fn control(&self) -> usize {
        size_of::<Control>() + Line::COUNT * self.slots * size_of::<FlagLine>()
    }

    const fn cells_start(&self) -> usize {
        (PAGE + self.ranks * self.control()).next_multiple_of(PAGE)
    }

    const fn written_start(&self) -> usize {
        (self.cells_start() + self.ranks * self.slots * self.cell.0).next_multiple_of(128)
    }

    /// Length of what one rank says of its own slots, on lines of its own.
    const fn written(&self) -> usize {
        (self.slots * size_of::<AtomicU64>()).next_multiple_of(128)
    }

    /// Length of the segment: a page for the header, the ranks' control lines, the ranks' cells, and the calls in which
    /// they wrote them.
    pub const fn length(&self) -> usize {
        self.written_start() + self.ranks * self.written()
    }
}

/// What a rank tells its peers besides its flags. Writer: the rank. Readers: all ranks of the node.
#[repr(C, align(128))]
struct Control {
    /// All tickets up to this one are released.
    released: Flag,
    call: CallLine,
    /// Announced with every flag and release where ranks share cores.
    event: EventLine,
}

/// An event on a line of its own: sleepers write it.
#[repr(C, align(128))]
struct EventLine(Event);

/// The call that a rank is in, for diagnosis, and the last calls that it could not take part in.
#[repr(C, align(128))]
struct CallLine {
    /// With [`CallLine::BUSY`] while `what` and `bytes` change.
    epoch: AtomicU64,
    what: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    forgotten: AtomicU64,
    failed: [AtomicU64; CallLine::FAILED],
}

impl CallLine {
    const FAILED: usize = 3;
    const BUSY: u64 = 1 << 63;
}

/// What MPI makes equal on all ranks of a call, in one word; travels with every flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor(u64);

impl Descriptor {
    /// 8 bits of the epoch, 4 of the collective, 6 of the row, 18 of the root, 28 of the bytes.
    pub fn new(epoch: Epoch, collective: Collective, row: usize, root: u32, bytes: Bytes) -> Self {
        let field = |value: u64, bits: u32, shift: u32| (value & ((1 << bits) - 1)) << shift;
        Self(
            field(epoch.0, 8, 0)
                | field(collective as u64, 4, 8)
                | field(row as u64, 6, 12)
                | field(u64::from(root), 18, 18)
                | field(bytes.0 as u64, 28, 36),
        )
    }

    /// The word.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// Whether a word found beside a flag belongs to the same epoch but to another call.
    #[inline]
    pub fn contradicts(self, word: u64) -> bool {
        self.0 != word && self.0 & 0xff == word & 0xff
    }

    fn what(self) -> u64 {
        self.0 >> 8 & ((1 << 28) - 1)
    }
}

/// A peer's account of the call that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCall {
    /// The call's ordinal.
    pub epoch: Epoch,
    /// The collective; none before the first.
    pub collective: Option<Collective>,
    /// The root's rank in the communicator.
    pub root: u32,
    /// Packed bytes as in [`crate::coll::Plan`].
    pub bytes: u64,
}

impl PeerCall {
    fn new(epoch: Epoch, what: u64, bytes: u64) -> Self {
        let collective = if epoch.0 == 0 { None } else { Collective::from_index((what & 0xf) as usize) };
        Self { epoch, collective, root: (what >> 10 & ((1 << 18) - 1)) as u32, bytes }
    }

    /// The call in `epoch` that a descriptor's word tells of, whose bytes may have lost their upper bits.
    pub(super) fn of_word(epoch: Epoch, word: u64) -> Self {
        Self::new(epoch, word >> 8, word >> 36)
    }
}

/// One communicator's shared memory, as one of its ranks sees it. At most one call runs on it at a time.
pub struct Context {
    segment: Segment,
    geometry: Geometry,
    me: NodeRank,
    layout: Layout,
    levels: Levels,
    /// Per position, the ticket for which this rank wrote its slot last.
    last_written: Box<[AtomicU64]>,
    /// All peers have released up to this ticket, as far as this rank has looked.
    all_released: AtomicU64,
}

impl Context {
    /// # Panics
    /// If the segment is shorter than the geometry asks for, or the number of slots is not a power of two.
    pub fn new(segment: Segment, geometry: Geometry, me: NodeRank, layout: Layout, levels: Levels) -> Self {
        assert!(segment.length() >= geometry.length() && geometry.slots.is_power_of_two() && geometry.slots >= 2);
        assert!(me.index() < geometry.ranks && levels.size() == geometry.ranks);
        let last_written = (0..geometry.slots).map(|_| AtomicU64::new(0)).collect();
        Self { segment, geometry, me, layout, levels, last_written, all_released: AtomicU64::new(0) }
    }

    /// The dimensions.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// This rank.
    #[inline]
    pub fn rank(&self) -> NodeRank {
        self.me
    }

    /// A rank of this node in the communicator.
    pub fn comm_rank(&self, rank: NodeRank) -> CommRank {
        self.layout.members(self.layout.my_node())[rank.index()]
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

    fn control(&self, rank: NodeRank) -> &Control {
        debug_assert!(rank.index() < self.geometry.ranks);
        // SAFETY: within the segment, whose length `new` checked; aligned, since the segment is page-aligned and all
        // sizes are multiples of 128. Zeroed or written through atomics only.
        unsafe {
            let at = self.segment.base().add(PAGE + rank.index() * self.geometry.control());
            at.cast::<Control>().as_ref()
        }
    }

    /// The flag of `line` for the slot that `ticket` uses.
    #[inline]
    pub(super) fn line(&self, rank: NodeRank, line: Line, ticket: Ticket) -> &FlagLine {
        let slots = self.geometry.slots;
        let index = line as usize * slots + ticket.position(slots);
        let offset =
            PAGE + rank.index() * self.geometry.control() + size_of::<Control>() + index * size_of::<FlagLine>();
        debug_assert!(rank.index() < self.geometry.ranks);
        // SAFETY: as in `control`; `position` is below `slots`.
        unsafe { self.segment.base().add(offset).cast::<FlagLine>().as_ref() }
    }

    /// The first byte of the cell that `ticket` uses.
    #[inline]
    pub(super) fn cell(&self, rank: NodeRank, ticket: Ticket) -> *mut u8 {
        let slot = rank.index() * self.geometry.slots + ticket.position(self.geometry.slots);
        debug_assert!(rank.index() < self.geometry.ranks);
        // SAFETY: as in `control`.
        unsafe { self.segment.base().as_ptr().add(self.geometry.cells_start() + slot * self.geometry.cell.0) }
    }

    /// The descriptor of the call in which `rank` took the slot for `ticket` last. Writer: the owner, behind a claim, so
    /// that it stays for as long as a peer has yet to read the slot.
    #[inline]
    pub(super) fn written(&self, rank: NodeRank, ticket: Ticket) -> &AtomicU64 {
        let geometry = &self.geometry;
        let index = ticket.position(geometry.slots) * size_of::<AtomicU64>();
        debug_assert!(rank.index() < geometry.ranks);
        // SAFETY: as in `control`; `position` is below `slots`.
        unsafe {
            let at = self.segment.base().add(geometry.written_start() + rank.index() * geometry.written() + index);
            at.cast::<AtomicU64>().as_ref()
        }
    }

    /// Whether this rank may write its slot for `ticket`; if so, the slot is taken for it, in the call of `descriptor`.
    #[inline]
    pub(super) fn claim(&self, ticket: Ticket, descriptor: Descriptor) -> bool {
        // Relaxed: only this rank uses these two; they are atomics so that a context may move between threads.
        let last = &self.last_written[ticket.position(self.geometry.slots)];
        let before = last.load(Ordering::Relaxed);
        if before > self.all_released.load(Ordering::Relaxed) && !self.have_all_released(before) {
            return false;
        }
        last.store(ticket.0, Ordering::Relaxed);
        // Relaxed: who reads it has found a flag that was published later.
        self.written(self.me, ticket).store(descriptor.word(), Ordering::Relaxed);
        true
    }

    #[cold]
    fn have_all_released(&self, ticket: u64) -> bool {
        let mut earliest = u64::MAX;
        for rank in (0..self.geometry.ranks as u32).map(NodeRank).filter(|rank| *rank != self.me) {
            match self.control(rank).released.reached(Ticket(ticket)) {
                Some(released) => earliest = earliest.min(released),
                None => return false,
            }
        }
        self.all_released.store(earliest, Ordering::Relaxed);
        true
    }

    /// Promises to read no slot of any ticket up to `ticket` again.
    #[inline]
    pub(super) fn release(&self, ticket: Ticket) {
        self.control(self.me).released.publish(ticket);
    }

    /// What `rank` announces its flags and releases with, where ranks share cores.
    #[inline]
    pub(super) fn event(&self, rank: NodeRank) -> &Event {
        &self.control(rank).event.0
    }

    /// Whether `rank` has released all tickets that this rank's slot for `ticket` waits for.
    pub(super) fn has_released(&self, rank: NodeRank, ticket: Ticket) -> bool {
        let before = Ticket(self.last_written[ticket.position(self.geometry.slots)].load(Ordering::Relaxed));
        self.control(rank).released.reached(before).is_some()
    }

    /// The peer that keeps this rank from writing its slot for `ticket`.
    pub(super) fn peer_that_has_not_released(&self, ticket: Ticket) -> Option<NodeRank> {
        let before = Ticket(self.last_written[ticket.position(self.geometry.slots)].load(Ordering::Relaxed));
        let mut peers = (0..self.geometry.ranks as u32).map(NodeRank).filter(|rank| *rank != self.me);
        peers.find(|rank| self.control(*rank).released.reached(before).is_none())
    }

    /// Tells peers which call this rank is in.
    #[inline]
    pub(super) fn enter(&self, epoch: Epoch, descriptor: Descriptor, bytes: Bytes) {
        let call = &self.control(self.me).call;
        call.epoch.store(epoch.0 | CallLine::BUSY, Ordering::Relaxed);
        // [busy] release: pairs with the acquire in `peer_contradicts`.
        fence(Ordering::Release);
        call.what.store(descriptor.what(), Ordering::Relaxed);
        call.bytes.store(bytes.0 as u64, Ordering::Relaxed);
        // [call] release: pairs with the acquires in `peer_call`, `peer_contradicts` and `has_left`.
        call.epoch.store(epoch.0, Ordering::Release);
    }

    /// The call that a peer entered last; while it enters one, some of it may be of the call before.
    pub(super) fn peer_call(&self, rank: NodeRank) -> PeerCall {
        let call = &self.control(rank).call;
        // [call] acquire: pairs with the release in `enter`.
        let epoch = Epoch(call.epoch.load(Ordering::Acquire) & !CallLine::BUSY);
        PeerCall::new(epoch, call.what.load(Ordering::Relaxed), call.bytes.load(Ordering::Relaxed))
    }

    /// Whether a peer in `epoch` is in another call than `descriptor`.
    pub(super) fn peer_contradicts(&self, rank: NodeRank, epoch: Epoch, descriptor: Descriptor, bytes: Bytes) -> bool {
        let call = &self.control(rank).call;
        // [call] acquire: pairs with the release in `enter`.
        if call.epoch.load(Ordering::Acquire) != epoch.0 {
            return false;
        }
        let differs = call.what.load(Ordering::Relaxed) != descriptor.what()
            || call.bytes.load(Ordering::Relaxed) != bytes.0 as u64;
        // It may have begun to enter its next call meanwhile.
        // [busy] acquire: pairs with the release in `enter`.
        fence(Ordering::Acquire);
        differs && call.epoch.load(Ordering::Relaxed) == epoch.0
    }

    /// Whether a peer has entered a call after `epoch`; then all that it did up to `epoch` is visible here.
    pub(super) fn has_left(&self, rank: NodeRank, epoch: Epoch) -> bool {
        // [call] acquire: pairs with the release in `enter`.
        let current = self.control(rank).call.epoch.load(Ordering::Acquire);
        current & CallLine::BUSY == 0 && current > epoch.0
    }

    /// Tells peers that this rank takes no part in `epoch`: its arguments were rejected, or a peer's were. Peers that
    /// depend on this rank fail too; the others end the call. Later calls are not affected.
    pub fn fail(&self, epoch: Epoch) {
        let call = &self.control(self.me).call;
        let count = call.failures.load(Ordering::Relaxed);
        let entry = &call.failed[count as usize % CallLine::FAILED];
        call.forgotten.store(entry.load(Ordering::Relaxed), Ordering::Relaxed);
        // [forgotten] release: pairs with the acquire in `has_failed`.
        entry.store(epoch.0, Ordering::Release);
        // [failed] release: pairs with the acquire in `has_failed`.
        call.failures.store(count + 1, Ordering::Release);
        self.release(Ticket::last_of(epoch));
        self.event(self.me).announce();
    }

    /// Whether `rank`, which is beyond `epoch` or will not publish in it, took no part in it. Of failures that are longer
    /// ago than the last three it remembers only the latest: a peer so far behind fails rather than trust its data.
    pub(super) fn has_failed(&self, rank: NodeRank, epoch: Epoch) -> bool {
        let call = &self.control(rank).call;
        // [failed] acquire: pairs with the release in `fail`.
        if call.failures.load(Ordering::Acquire) == 0 {
            return false;
        }
        // [forgotten] acquire: pairs with the release in `fail`. Who misses the epoch because its entry was used again finds
        // it among the forgotten.
        call.failed.iter().any(|failed| failed.load(Ordering::Acquire) == epoch.0)
            || call.forgotten.load(Ordering::Relaxed) >= epoch.0
    }
}

/// Using a context again for another communicator of the same processes.
impl Context {
    /// Whether all peers have left every call that this rank has left: then none of them reads or writes the segment
    /// before it enters another call.
    pub fn is_idle(&self) -> bool {
        let mine = Ticket(self.control(self.me).released.peek());
        let ranks = (0..self.geometry.ranks as u32).map(NodeRank);
        ranks.into_iter().all(|rank| self.control(rank).released.reached(mine).is_some())
    }

    /// Makes all flags those of a new segment. Called by one rank, while the context is idle and no rank of it can enter a
    /// call.
    pub fn clear(&self) {
        let control = PAGE..self.geometry.cells_start();
        let written = self.geometry.written_start()..self.geometry.length();
        for range in [control, written] {
            // SAFETY: within the segment, whose length `new` checked. Nobody else accesses it now: the caller's promise and
            // the collective that orders this before the next call. Zeroes are valid for all that lies there.
            unsafe { self.segment.base().add(range.start).write_bytes(0, range.len()) };
        }
    }

    /// The context for a communicator with other nodes or ranks but the same members, in the same order, on this node.
    #[must_use]
    pub fn renew(self, layout: Layout) -> Self {
        Self::new(self.segment, self.geometry, self.me, layout, self.levels)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::AtomicBool;

    fn descriptor(epoch: u64, bytes: usize) -> Descriptor {
        Descriptor::new(Epoch(epoch), Collective::Reduce, 3, 5, Bytes(bytes))
    }

    /// Two ranks of one process, each with a mapping of its own.
    pub(in super::super) fn two_ranks() -> [Context; 2] {
        let geometry = Geometry { ranks: 2, slots: 2, cell: Bytes(64) };
        let (_, file) = Segment::create(geometry.length()).expect("memfd");
        [0, 1].map(|me| {
            let segment = Segment::open(std::process::id(), file.as_raw_fd(), geometry.length()).expect("mapping");
            Context::new(segment, geometry, NodeRank(me), Layout::single(2), Levels::flat(2, NodeRank(me)))
        })
    }

    #[test]
    fn descriptors_contradict_only_within_an_epoch() {
        let new = descriptor;
        assert!(new(7, 8).contradicts(new(7, 16).word()));
        assert!(!new(7, 8).contradicts(new(7, 8).word()));
        assert!(!new(7, 8).contradicts(new(8, 16).word()));
        assert_eq!(new(7, 8).what() & 0xf, Collective::Reduce as u64);
        assert_eq!(new(7, 8).what() >> 10, 5);
    }

    #[test]
    fn a_peer_that_enters_its_next_call_contradicts_nobody() {
        let [peer, me] = two_ranks();
        let is_over = AtomicBool::new(false);
        let mut contradictions = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut epoch = 0;
                while !is_over.load(Ordering::Relaxed) {
                    epoch += 1;
                    peer.enter(Epoch(epoch), descriptor(epoch, epoch as usize), Bytes(epoch as usize));
                }
            });
            let contradicts = |_: &u32| {
                let Epoch(epoch) = me.peer_call(NodeRank(0)).epoch;
                let bytes = epoch as usize;
                epoch > 0 && me.peer_contradicts(NodeRank(0), Epoch(epoch), descriptor(epoch, bytes), Bytes(bytes))
            };
            contradictions = (0..1_000_000).filter(contradicts).count();
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(contradictions, 0);
    }
}
