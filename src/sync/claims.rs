//! When a rank may write its slots again, and in which call it did.

use super::atomic::{AtomicU64, Ordering};
use super::{Descriptor, Flag};
use crate::types::Ticket;

/// The descriptor of the call in which a slot was taken last.
///
/// Zeroed memory is valid. Writer: the slot's owner, behind a claim, so that it stays for as long as a peer has yet to read
/// the slot. Readers: all ranks that map it.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Written(AtomicU64);

impl Written {
    /// The word of the descriptor. Only for who has found a flag of the slot that its owner published after the claim in
    /// question.
    #[inline]
    pub fn word(&self) -> u64 {
        // Relaxed: ordered after the claim by the flag that the caller found.
        self.0.load(Ordering::Relaxed)
    }
}

/// How far a rank may write: a book of its own, in no memory that a peer maps.
#[derive(Debug)]
pub struct Claims {
    /// Per position, the ticket for which the slot was written last.
    last_written: Box<[AtomicU64]>,
    /// All peers have released up to this ticket, as far as this rank has looked.
    all_released: AtomicU64,
}

impl Claims {
    /// For a ring of `slots`, a power of two, that nobody has written.
    pub fn new(slots: usize) -> Self {
        Self { last_written: (0..slots).map(|_| AtomicU64::new(0)).collect(), all_released: AtomicU64::new(0) }
    }

    /// Whether the rank may write its slot for `ticket`, because all peers, whose promises are `released`, have released
    /// what it wrote there last; if so, the slot is taken, as `written` tells, in the call of `descriptor`.
    #[inline]
    pub fn claim<'a, Flags: Iterator<Item = &'a Flag>>(
        &self,
        ticket: Ticket,
        released: impl FnOnce() -> Flags,
        written: &Written,
        descriptor: Descriptor,
    ) -> bool {
        // Relaxed: only this rank uses these two; they are atomics so that a context may move between threads.
        let last = &self.last_written[ticket.position(self.last_written.len())];
        let before = last.load(Ordering::Relaxed);
        if before > self.all_released.load(Ordering::Relaxed) && !self.have_all_released(Ticket(before), released) {
            return false;
        }
        last.store(ticket.0, Ordering::Relaxed);
        // Relaxed: who reads it has found a flag that was published later.
        written.0.store(descriptor.word(), Ordering::Relaxed);
        true
    }

    /// Whether all peers have released what the rank wrote last into the slot that `ticket` uses.
    #[inline]
    pub fn is_drained<'a, Flags: Iterator<Item = &'a Flag>>(
        &self,
        ticket: Ticket,
        released: impl FnOnce() -> Flags,
    ) -> bool {
        let before = self.last_written(ticket);
        before.0 <= self.all_released.load(Ordering::Relaxed) || self.have_all_released(before, released)
    }

    #[cold]
    fn have_all_released<'a, Flags: Iterator<Item = &'a Flag>>(
        &self,
        ticket: Ticket,
        released: impl FnOnce() -> Flags,
    ) -> bool {
        let mut earliest = u64::MAX;
        for flag in released() {
            match flag.reached(ticket) {
                Some(released) => earliest = earliest.min(released),
                None => return false,
            }
        }
        self.all_released.store(earliest, Ordering::Relaxed);
        true
    }

    /// The ticket for which this rank wrote the slot of `ticket` last: its peers have to release that before it may be
    /// written again.
    pub fn last_written(&self, ticket: Ticket) -> Ticket {
        Ticket(self.last_written[ticket.position(self.last_written.len())].load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::types::{Bytes, Collective, Epoch};

    #[test]
    fn a_slot_is_claimed_again_when_all_have_released_it() {
        let (claims, written, peers) = (Claims::new(2), Written::default(), [Flag::new(), Flag::new()]);
        let ticket = |epoch| Ticket::new(Epoch(epoch), 0);
        let descriptor = |epoch| Descriptor::new(Epoch(epoch), Collective::Bcast, 0, 0, Bytes(8));
        let claim = |epoch| claims.claim(ticket(epoch), || peers.iter(), &written, descriptor(epoch));
        assert!(claim(1) && claim(2));
        assert!(!claim(3));
        peers[1].publish(Ticket::last_of(Epoch(2)));
        assert!(!claim(3), "one peer is behind");
        assert_eq!((written.word(), claims.last_written(ticket(3))), (descriptor(2).word(), ticket(1)));
        peers[0].publish(ticket(1));
        assert!(claim(3) && !claim(4));
        assert_eq!((written.word(), claims.last_written(ticket(5))), (descriptor(3).word(), ticket(3)));
    }
}
