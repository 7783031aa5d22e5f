//! Flags: tickets that one rank writes and all others wait for, alone or with a payload beside them.

use super::atomic::{AtomicU64, Ordering, Pair, UnsafeCell, acquire, release};
use crate::types::{Bytes, Ticket};

/// The latest ticket that its one writer has announced; zero before the first.
///
/// Zeroed memory is a valid flag. Writer: one rank, with growing tickets. Readers: all ranks that map it.
#[derive(Debug)]
#[repr(transparent)]
pub struct Flag(AtomicU64);

impl Flag {
    /// A flag that has announced nothing.
    #[cfg(not(loom))]
    #[inline]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A flag that has announced nothing.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Announces `ticket`. Everything that the writer did before is visible to a reader that finds the flag to have
    /// [`reached`](Self::reached) it.
    #[inline]
    pub fn publish(&self, ticket: Ticket) {
        // Pairs with the acquire in `reached`.
        self.0.store(ticket.0, release(Pair::Flag));
    }

    /// Returns the flag's value if it is `ticket` or a later one. Everything that the writer did before it announced
    /// that value is then visible to the caller.
    #[inline]
    pub fn reached(&self, ticket: Ticket) -> Option<u64> {
        // Pairs with the release in `publish`.
        let value = self.0.load(acquire(Pair::Flag));
        (value >= ticket.0).then_some(value)
    }

    /// Returns the value, for reports: the caller may conclude nothing about other memory.
    #[inline]
    pub fn peek(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Flag {
    fn default() -> Self {
        Self::new()
    }
}

/// A flag with the words and the payload that its writer tells beside it, in a pair of cache lines of 64 bytes. The
/// pair starts at a 128-byte boundary, so that prefetchers of line pairs do not join two writers. The first 32 bytes of
/// the payload are in the flag's own line. The rest is in the next line, which such prefetchers fetch too.
///
/// Zeroed memory is a valid line. Writer: the owner of the slot. Readers: all ranks that map it.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct FlagLine {
    flag: Flag,
    /// The descriptor of the call that published the flag.
    descriptor: AtomicU64,
    /// Where the cell of the ticket in `home_of` is.
    home: AtomicU64,
    /// The ticket whose cell `home` tells; or, with all bits inverted, a ticket without a cell, whose payload tells of
    /// memory. An inverted ticket is never another ticket: tickets have their highest bit clear
    /// ([`LAST_EPOCH`](crate::tune::LAST_EPOCH)).
    home_of: AtomicU64,
    /// Aligned as user-defined operations may expect of elements.
    payload: UnsafeCell<[u8; FlagLine::PAYLOAD]>,
}

// SAFETY: all fields but the payload are atomics. The payload is only handed out as a raw pointer. Code that follows
// this pointer must ensure that the owner writes after a claim and before `publish`, and that others read after
// `reached` and before they release.
unsafe impl Sync for FlagLine {}

#[cfg(not(loom))]
const _: () = assert!(
    size_of::<FlagLine>() == 128
        && std::mem::offset_of!(FlagLine, payload) + FlagLine::PAYLOAD == 128
        && std::mem::offset_of!(FlagLine, payload) + FlagLine::BESIDE_FLAG == 64
);

/// How far a payload extends into the pair of lines of its flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// It fits in the flag's own line.
    BesideFlag,
    /// It continues in the second line.
    BeyondFlag,
}

impl Payload {
    /// The extent of a payload of `n` bytes, which must fit.
    #[inline]
    pub fn of(n: Bytes) -> Self {
        if n.0 <= FlagLine::BESIDE_FLAG { Self::BesideFlag } else { Self::BeyondFlag }
    }
}

impl FlagLine {
    /// Bytes of payload. loom has fewer, so that data which need a cell can be short and take few accesses.
    pub const PAYLOAD: usize = if cfg!(loom) { 40 } else { 96 };

    /// Bytes of the payload that are in the flag's own line.
    const BESIDE_FLAG: usize = if cfg!(loom) { Self::PAYLOAD } else { 32 };

    /// A line that has announced nothing.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        let [descriptor, home, home_of] = [const { AtomicU64::new(0) }; 3];
        Self { flag: Flag::new(), descriptor, home, home_of, payload: UnsafeCell::new([0; Self::PAYLOAD]) }
    }

    /// A line that has announced nothing.
    #[cfg(loom)]
    pub fn new() -> Self {
        let [descriptor, home, home_of] = [(); 3].map(|()| AtomicU64::new(0));
        Self { flag: Flag::new(), descriptor, home, home_of, payload: UnsafeCell::new([0; Self::PAYLOAD]) }
    }

    /// Announces `ticket` with `descriptor`; see [`Flag::publish`] for what becomes visible.
    #[inline]
    pub fn publish(&self, ticket: Ticket, descriptor: u64) {
        // Relaxed: the flag's release orders this before the flag.
        self.descriptor.store(descriptor, Ordering::Relaxed);
        self.flag.publish(ticket);
    }

    /// Tells readers where the cell of `ticket` is. The caller announces `ticket` next.
    #[inline]
    pub fn tell_home(&self, ticket: Ticket, home: u64) {
        // Relaxed: the flag's release orders this before the flag.
        self.home.store(home, Ordering::Relaxed);
        self.home_of.store(ticket.0, Ordering::Relaxed);
    }

    /// Returns where the cell of `ticket` is, if its owner told that with this flag. The caller has reached this flag,
    /// or one that a peer published after it had reached this one.
    #[inline]
    pub fn home(&self, ticket: Ticket) -> Option<u64> {
        // Relaxed: ordered by the flag that the caller has reached: this one, or (in a relay) the flag of a rank that
        // reached this one before it published. Both words stay as they are until the ticket is released.
        (self.home_of.load(Ordering::Relaxed) == ticket.0).then(|| self.home.load(Ordering::Relaxed))
    }

    /// Tells readers that the payload of `ticket` tells of exposed memory. The ticket has no cell, and the caller
    /// announces it next.
    #[inline]
    pub fn tell_of_memory(&self, ticket: Ticket) {
        // Relaxed: the flag's release orders this before the flag.
        self.home_of.store(!ticket.0, Ordering::Relaxed);
    }

    /// Whether the owner told that the payload of `ticket` tells of exposed memory. The caller has reached the flag.
    #[inline]
    pub fn tells_of_memory(&self, ticket: Ticket) -> bool {
        // Relaxed: as in `home`.
        self.home_of.load(Ordering::Relaxed) == !ticket.0
    }

    /// Returns the flag's value if it is `ticket` or a later one; see [`Flag::reached`] for what is then visible.
    #[inline]
    pub fn reached(&self, ticket: Ticket) -> Option<u64> {
        self.flag.reached(ticket)
    }

    /// The flag's value for reports; see [`Flag::peek`].
    #[inline]
    pub fn peek(&self) -> u64 {
        self.flag.peek()
    }

    /// Returns the descriptor published with the value that the caller reached, or with a later one.
    #[inline]
    pub fn descriptor(&self) -> u64 {
        self.descriptor.load(Ordering::Relaxed)
    }

    /// Returns the address of the payload: [`FlagLine::PAYLOAD`] bytes, 32-byte aligned, valid as long as the line.
    ///
    /// loom does not see accesses through this pointer: its tests use [`FlagLine::read_payload`] and
    /// [`FlagLine::write_payload`].
    #[inline]
    pub fn payload(&self) -> *mut u8 {
        self.payload.with(|payload| payload.cast_mut().cast())
    }

    /// An address in the cache line after the flag's own, for prefetch hints.
    #[inline]
    pub fn beyond_flag(&self) -> *const u8 {
        std::ptr::from_ref(self).cast::<u8>().wrapping_add(size_of::<Self>() / 2)
    }

    /// Calls `read` with the payload.
    #[inline]
    pub fn read_payload<R>(&self, read: impl FnOnce(*const [u8; Self::PAYLOAD]) -> R) -> R {
        self.payload.with(read)
    }

    /// Calls `write` with the payload.
    #[inline]
    pub fn write_payload<R>(&self, write: impl FnOnce(*mut [u8; Self::PAYLOAD]) -> R) -> R {
        self.payload.with_mut(write)
    }
}

impl Default for FlagLine {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::types::Epoch;

    #[test]
    fn a_flag_has_reached_what_was_published_and_all_before() {
        let line = FlagLine::new();
        let ticket = |epoch| Ticket::new(Epoch(epoch), 0);
        assert_eq!(line.reached(ticket(1)), None);
        line.publish(ticket(2), 77);
        assert_eq!(line.reached(ticket(1)), Some(ticket(2).0));
        assert_eq!(line.reached(ticket(3)), None);
        assert_eq!(line.descriptor(), 77);
        assert_eq!(line.peek(), ticket(2).0);
    }

    #[test]
    fn a_home_is_told_of_one_ticket() {
        let line = FlagLine::new();
        let tickets = (1..5000).map(|epoch| Ticket::new(Epoch(epoch), epoch % 40));
        assert!(tickets.clone().chain([Ticket::new(Epoch(9_792_022), 0)]).all(|ticket| line.home(ticket).is_none()));
        let told = Ticket::new(Epoch(24), 24);
        line.tell_home(told, 5);
        assert_eq!(line.home(told), Some(5));
        assert!(tickets.clone().filter(|ticket| *ticket != told).all(|ticket| line.home(ticket).is_none()));
        assert!(tickets.chain([told]).all(|ticket| !line.tells_of_memory(ticket)));
    }

    #[test]
    fn memory_is_told_of_one_ticket_which_has_no_home() {
        let line = FlagLine::new();
        let tickets = (0..5000).map(|epoch| Ticket::new(Epoch(epoch), epoch % 40));
        assert!(tickets.clone().all(|ticket| !line.tells_of_memory(ticket)));
        let told = Ticket::new(Epoch(24), 24);
        line.tell_home(told, 5);
        line.tell_of_memory(told);
        assert!(line.tells_of_memory(told) && tickets.clone().all(|ticket| line.home(ticket).is_none()));
        assert!(tickets.filter(|ticket| *ticket != told).all(|ticket| !line.tells_of_memory(ticket)));
    }
}
