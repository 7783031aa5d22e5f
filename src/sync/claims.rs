//! When a rank may write its slots again, and in which call it did.

use super::atomic::{AtomicU64, Ordering};
use super::{Descriptor, Flag, FlagLine};
use crate::types::{Bytes, RingLengths, Ticket};

/// What of a slot a rank is going to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Room {
    /// The payloads of its lines.
    Lines,
    /// Its cell, or anything.
    Cell,
}

impl Room {
    /// For `n` bytes, which lie in a line where they fit.
    #[inline]
    pub fn of(n: Bytes) -> Self {
        if n.0 <= FlagLine::PAYLOAD { Self::Lines } else { Self::Cell }
    }
}

/// The descriptor of the call in which a line was taken last.
///
/// Zeroed memory is valid. Writer: the line's owner, behind a claim, so that it stays for as long as a peer has yet to read
/// the slot. Readers: all ranks that map it.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Written(AtomicU64);

impl Written {
    /// The word of the descriptor. Only for who has found a flag of the line that its owner published after the claim in
    /// question.
    #[inline]
    pub fn word(&self) -> u64 {
        // Relaxed: ordered after the claim by the flag that the caller found.
        self.0.load(Ordering::Relaxed)
    }
}

/// How far a rank may write: a book of its own, in no memory that a peer maps.
///
/// Whatever is claimed counts for the line and for the cell. Who claims a cell claims the lines of its ticket too, so it waits for what
/// either was claimed for last.
#[derive(Debug)]
pub struct Claims {
    /// Per position in the ring of lines, the ticket for which it was claimed last.
    lines: Box<[AtomicU64]>,
    /// The same in the ring of cells.
    cells: Box<[AtomicU64]>,
    /// All peers have released up to this ticket, as far as this rank has looked.
    all_released: AtomicU64,
}

impl Claims {
    /// For rings of `lines` and `cells`, powers of two of which the first is not the smaller, that nobody has written.
    pub fn new(lines: usize, cells: usize) -> Self {
        let ring = |length| (0..length).map(|_| AtomicU64::new(0)).collect();
        Self { lines: ring(lines), cells: ring(cells), all_released: AtomicU64::new(0) }
    }

    #[inline]
    fn rings(&self) -> RingLengths {
        RingLengths { lines: self.lines.len(), cells: self.cells.len() }
    }

    /// Whether the rank may write that much of its slot for `ticket`, because all peers, whose promises are `released`, have
    /// released what it wrote there last; if so, it is taken, as `written` tells, in the call of `descriptor`.
    #[inline]
    pub fn claim<'a, Flags: Iterator<Item = &'a Flag>>(
        &self,
        ticket: Ticket,
        room: Room,
        released: impl FnOnce() -> Flags,
        written: &Written,
        descriptor: Descriptor,
    ) -> bool {
        // Relaxed: only this rank uses these; they are atomics so that a context may move between threads.
        let line = &self.lines[self.rings().line(ticket)];
        let cell = &self.cells[self.rings().cell(ticket)];
        let before = self.last_written(ticket, room).0;
        if before > self.all_released.load(Ordering::Relaxed) && !self.have_all_released(Ticket(before), released) {
            return false;
        }
        line.store(ticket.0, Ordering::Relaxed);
        cell.store(ticket.0, Ordering::Relaxed);
        // Relaxed: who reads it has found a flag that was published later.
        written.0.store(descriptor.word(), Ordering::Relaxed);
        true
    }

    /// Whether all peers have released what the rank wrote last where the cell for `ticket` is.
    #[inline]
    pub fn is_drained<'a, Flags: Iterator<Item = &'a Flag>>(
        &self,
        ticket: Ticket,
        released: impl FnOnce() -> Flags,
    ) -> bool {
        let before = self.last_written(ticket, Room::Cell);
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

    /// The ticket for which this rank wrote there last: its peers have to release that before it may write that much for
    /// `ticket`.
    pub fn last_written(&self, ticket: Ticket, room: Room) -> Ticket {
        let line = self.lines[self.rings().line(ticket)].load(Ordering::Relaxed);
        let cell = || self.cells[self.rings().cell(ticket)].load(Ordering::Relaxed);
        Ticket(if room == Room::Lines { line } else { line.max(cell()) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::types::{Collective, Epoch};

    #[test]
    fn a_slot_is_claimed_again_when_all_have_released_it() {
        let (claims, written, peers) = (Claims::new(2, 2), Written::default(), [Flag::new(), Flag::new()]);
        let ticket = |epoch| Ticket::new(Epoch(epoch), 0);
        let descriptor = |epoch| Descriptor::new(Epoch(epoch), Collective::Bcast, 0, 0, Bytes(8));
        let claim = |epoch| claims.claim(ticket(epoch), Room::Cell, || peers.iter(), &written, descriptor(epoch));
        assert!(claim(1) && claim(2));
        assert!(!claim(3));
        peers[1].publish(Ticket::last_of(Epoch(2)));
        assert!(!claim(3), "one peer is behind");
        assert_eq!((written.word(), claims.last_written(ticket(3), Room::Cell)), (descriptor(2).word(), ticket(1)));
        peers[0].publish(ticket(1));
        assert!(claim(3) && !claim(4));
        assert_eq!((written.word(), claims.last_written(ticket(5), Room::Cell)), (descriptor(3).word(), ticket(3)));
    }

    #[test]
    fn lines_run_ahead_of_cells_and_cells_wait_for_lines() {
        let (claims, written, peer) = (Claims::new(4, 2), Written::default(), Flag::new());
        let ticket = |epoch| Ticket::new(Epoch(epoch), 0);
        let descriptor = Descriptor::new(Epoch(1), Collective::Bcast, 0, 0, Bytes(8));
        let claim = |epoch, room| claims.claim(ticket(epoch), room, || std::iter::once(&peer), &written, descriptor);
        assert!(claim(1, Room::Cell) && claim(2, Room::Lines) && claim(3, Room::Lines));
        assert!(!claim(4, Room::Cell), "the line of 2 is where it lies");
        assert!(claim(4, Room::Lines));
        assert!(!claim(5, Room::Lines), "its line is that of 1");
        let last = |room| claims.last_written(ticket(5), room);
        assert_eq!((last(Room::Lines), last(Room::Cell)), (ticket(1), ticket(3)));
        peer.publish(ticket(1));
        assert!(!claim(5, Room::Cell), "3 may still be read");
        assert!(claim(5, Room::Lines) && !claim(7, Room::Cell));
        peer.publish(ticket(5));
        assert!(claim(7, Room::Cell));
    }
}
