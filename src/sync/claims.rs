//! When a rank may write its slots again, and in which call it claimed them last.

use super::atomic::{AtomicU64, Ordering};
use super::{Descriptor, Flag, FlagLine, Private};
use crate::types::{Bytes, Epoch, LINE, Ticket};
use std::ops::Range;
use std::sync::OnceLock;

/// Which part of a slot a rank is going to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Room {
    /// The payloads of its lines.
    Lines,
    /// A cell, or any part of the slot.
    Cell,
    /// A cell that the rank does not touch after the last flag that tells of it. A peer waits for that flag before it
    /// releases the ticket. On a node of two ranks the cell then belongs to the peer ([`Passed`](super::Passed)).
    Passed,
    /// A cell in which peers write too, each after a flag of the writer before it. Nobody copies from it before the
    /// last writer has published; until then it holds an operand only. Relayed cells use one place in each cell of the
    /// ring. So they soon use the same memory again, which is meant to stay in caches.
    Relayed,
}

const _: () = {
    let mut index = 0;
    while index < Room::ALL.len() {
        assert!(Room::ALL[index] as usize == index, "in the order of discriminants");
        index += 1;
    }
};

impl Room {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 4] = [Self::Lines, Self::Cell, Self::Passed, Self::Relayed];

    /// The room for `n` bytes: the lines where they fit, else a cell.
    #[inline]
    pub fn of(n: Bytes) -> Self {
        if n.0 <= FlagLine::PAYLOAD { Self::Lines } else { Self::Cell }
    }

    /// The room for `n` bytes that this rank leaves to its peers with a flag: the lines where they fit, else a passed
    /// cell.
    #[inline]
    pub fn passing(n: Bytes) -> Self {
        if Self::of(n).has_cell() { Self::Passed } else { Self::Lines }
    }

    /// Whether a cell is claimed.
    #[inline]
    pub fn has_cell(self) -> bool {
        self != Self::Lines
    }
}

/// The descriptor of the call in which a line was claimed last.
///
/// Zeroed memory is valid. Writer: the line's owner, after a successful claim, so the word stays as it is while a peer
/// has yet to read the slot. Readers: all ranks that map it.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct LastClaim(AtomicU64);

impl LastClaim {
    /// The word of the descriptor. The caller has found a flag of the line that the owner published after the claim in
    /// question.
    #[inline]
    pub fn word(&self) -> u64 {
        // Relaxed: ordered after the claim by the flag that the caller found.
        self.0.load(Ordering::Relaxed)
    }
}

/// Bytes per unit of a *home*: where a cell begins, counted from the first of its owner's cells.
pub const HOME_UNIT: usize = LINE;

/// Stands for a ticket without a home of its own.
const NO_HOME: u64 = u64::MAX;

/// The memory of the cell that is claimed next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where the cell begins, in units of [`HOME_UNIT`]; `None` if its owner need not tell that.
    pub home: Option<u64>,
    /// The grains that the cell touches.
    pub grains: Range<usize>,
    /// The cursor from which the next stretch follows.
    pub cursor: u64,
}

/// What a rank has claimed and may claim next: private memory of this rank, which no peer maps.
///
/// A ticket determines its lines. It determines its cell for short pieces only. For any other ticket that needs a cell,
/// the rank takes the next stretch of its memory, and tells with the flag where that is. So the rank comes back to the
/// same memory as late as it can, whoever writes meanwhile. A claim of a cell also claims the lines of its ticket, so
/// it waits for the last claims of both.
#[derive(Debug)]
pub struct Claims {
    /// By position in the ring of lines: the last claim of that line.
    lines: Box<[Claimed]>,
    /// By grain of the cells' memory: the ticket that claimed the grain last. Allocated late, since many communicators
    /// never claim a cell.
    grains: OnceLock<Box<[Private<u64>]>>,
    /// How many grains there are.
    n_grains: usize,
    /// The tickets of the last claims of cells, as many as there are cells.
    recent: Box<[Private<u64>]>,
    /// How many cells were claimed.
    turns: Private<u64>,
    /// The cursor of the cell that was claimed last.
    cursor: Private<u64>,
    /// The ticket that some peer had not released when a claim failed last.
    missing: Private<u64>,
    /// All peers have released up to this ticket, as far as this rank knows.
    all_released: Private<u64>,
}

/// The last claim of a line.
#[derive(Debug)]
struct Claimed {
    ticket: Private<u64>,
    /// Where the cell begins that was claimed with the line, or `NO_HOME`.
    home: Private<u64>,
}

/// `n` words for tickets, all zero: no ticket yet.
fn tickets(n: usize) -> Box<[Private<u64>]> {
    (0..n).map(|_| Private::new(0)).collect()
}

impl Claims {
    /// The record of a rank that has written nothing yet, for rings of `lines` and `cells`, powers of two, with
    /// `grains` grains of memory in all cells together.
    pub fn new(lines: usize, cells: usize, grains: usize) -> Self {
        debug_assert!(cells.is_power_of_two());
        Self {
            lines: (0..lines).map(|_| Claimed { ticket: Private::new(0), home: Private::new(NO_HOME) }).collect(),
            grains: OnceLock::new(),
            n_grains: grains,
            recent: tickets(cells),
            turns: Private::new(0),
            cursor: Private::new(0),
            missing: Private::new(0),
            all_released: Private::new(0),
        }
    }

    #[inline]
    fn grains(&self, range: Range<usize>) -> &[Private<u64>] {
        if range.is_empty() { &[] } else { &self.grains.get_or_init(|| tickets(self.n_grains))[range] }
    }

    /// Claims the lines of `ticket` if all peers have released what this rank wrote there last; returns whether they
    /// have. `released` gives the flags of the peers' releases. A successful claim writes the call's descriptor to
    /// `last`.
    #[inline(always)]
    pub fn claim_lines<'a, Flags: Iterator<Item = &'a Flag>>(
        &self,
        ticket: Ticket,
        released: impl FnOnce() -> Flags,
        last: (&LastClaim, Descriptor),
    ) -> bool {
        let line = self.line(ticket);
        let is_free = self.is_free(line.ticket.get(), released);
        if is_free {
            line.take(ticket, NO_HOME, last);
        }
        is_free
    }

    /// Claims the lines of `ticket` and a cell if all peers have released what this rank wrote there last; returns
    /// whether they have. `next` gives the cell's stretch from the cursor of the last cell, 0 at first. Within a call
    /// that stretch must touch no grain of the last claims, or of the last tickets, as many as there are cells.
    #[inline(always)]
    pub fn claim_cell<'a, Flags: Iterator<Item = &'a Flag>>(
        &self,
        ticket: Ticket,
        released: impl FnOnce() -> Flags,
        last: (&LastClaim, Descriptor),
        next: impl FnOnce(u64) -> Stretch,
    ) -> bool {
        let line = self.line(ticket);
        let turn = self.turns.get();
        let stretch = next(self.cursor.get());
        let grains = self.grains(stretch.grains);
        let before = line.ticket.get();
        let before = grains.iter().map(|grain| grain.get()).fold(before, u64::max);
        let is_free = self.is_free(before, released);
        if is_free {
            line.take(ticket, stretch.home.unwrap_or(NO_HOME), last);
            grains.iter().for_each(|grain| grain.set(ticket.0));
            self.recent(turn).set(ticket.0);
            self.cursor.set(stretch.cursor);
            self.turns.set(turn + 1);
        }
        is_free
    }

    #[inline(always)]
    fn line(&self, ticket: Ticket) -> &Claimed {
        &self.lines[ticket.position(self.lines.len())]
    }

    /// Whether all peers have released the ticket `before`, which a claim would overwrite. If not, notes it as
    /// `missing`.
    #[inline(always)]
    fn is_free<'a, Flags: Iterator<Item = &'a Flag>>(&self, before: u64, released: impl FnOnce() -> Flags) -> bool {
        let is_free = self.is_released(Ticket(before), released);
        if !is_free {
            self.missing.set(before);
        }
        is_free
    }

    /// Whether all peers have released what the rank wrote for `ticket` and for all tickets before it.
    #[inline]
    pub fn is_released<'a, Flags: Iterator<Item = &'a Flag>>(
        &self,
        ticket: Ticket,
        released: impl FnOnce() -> Flags,
    ) -> bool {
        ticket.0 <= self.all_released.get() || self.have_all_released(ticket, released)
    }

    /// Notes that the only peer has entered the call of `epoch`, as its publication for that call shows. So the peer
    /// has released all tickets before. To read its release flag instead would take a cache line from the peer, which
    /// it would have to take back before its next release.
    #[inline(always)]
    pub fn note_entered(&self, epoch: Epoch) {
        debug_assert!(epoch.0 > 0, "the first call is 1");
        let before = Ticket::new(epoch, 0).0 - 1;
        self.all_released.set(before.max(self.all_released.get()));
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
        self.all_released.set(earliest);
        true
    }

    #[inline]
    fn recent(&self, turn: u64) -> &Private<u64> {
        &self.recent[turn as usize & (self.recent.len() - 1)]
    }

    /// The ticket that was not released by all peers when a claim failed last.
    pub fn missing(&self) -> Ticket {
        Ticket(self.missing.get())
    }

    /// The ticket for which this rank claimed a cell `cells` claims ago, at most as many as it has cells. Zero for
    /// none.
    #[inline]
    pub fn claimed_ago(&self, cells: usize) -> Ticket {
        debug_assert!((1..=self.recent.len()).contains(&cells));
        let turn = self.turns.get().wrapping_sub(cells as u64);
        Ticket(self.recent(turn).get())
    }

    /// Whether the rank has claimed the lines of `ticket`, and has not claimed them for another ticket since.
    #[inline]
    pub fn has_claimed(&self, ticket: Ticket) -> bool {
        self.line(ticket).ticket.get() == ticket.0
    }

    /// The cursor of the cell that was claimed last.
    #[inline]
    pub fn cursor(&self) -> u64 {
        self.cursor.get()
    }

    /// Where the cell begins that was claimed for `ticket`; `None` if none was, or if its owner need not tell that.
    #[inline]
    pub fn home(&self, ticket: Ticket) -> Option<u64> {
        let line = self.line(ticket);
        let home = line.home.get();
        (home != NO_HOME && line.ticket.get() == ticket.0).then_some(home)
    }
}

impl Claimed {
    #[inline(always)]
    fn take(&self, ticket: Ticket, home: u64, (last, descriptor): (&LastClaim, Descriptor)) {
        self.ticket.set(ticket.0);
        self.home.set(home);
        // Relaxed: a reader has found a flag that was published later.
        last.0.store(descriptor.word(), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::types::Collective;

    fn ticket(epoch: u64) -> Ticket {
        Ticket::new(Epoch(epoch), 0)
    }

    fn descriptor(epoch: u64) -> Descriptor {
        Descriptor::new(Epoch(epoch), Collective::Bcast, 0, 0, Bytes(8))
    }

    /// Takes one cell after the other, each one grain long.
    fn in_turn<const CELLS: usize>(cursor: u64) -> Stretch {
        let cell = cursor as usize % CELLS;
        Stretch { home: Some(cell as u64), grains: cell..cell + 1, cursor: cursor + 1 }
    }

    #[test]
    fn a_slot_is_claimed_again_when_all_have_released_it() {
        let (claims, last, peers) = (Claims::new(2, 2, 2), LastClaim::default(), [Flag::new(), Flag::new()]);
        let claim = |epoch| claims.claim_cell(ticket(epoch), || peers.iter(), (&last, descriptor(epoch)), in_turn::<2>);
        assert!(claim(1) && claim(2));
        assert!(!claim(3));
        peers[1].publish(Ticket::last_of(Epoch(2)));
        assert!(!claim(3), "one peer is behind");
        assert_eq!((last.word(), claims.missing()), (descriptor(2).word(), ticket(1)));
        peers[0].publish(ticket(1));
        assert!(claim(3) && !claim(4));
        assert_eq!((last.word(), claims.missing()), (descriptor(3).word(), ticket(2)));
    }

    /// In calls 2 to 4 others write.
    #[test]
    fn cells_are_taken_in_turn_whatever_the_tickets_are() {
        let (claims, last, peer) = (Claims::new(8, 4, 4), LastClaim::default(), Flag::new());
        let claim = |epoch| {
            claims.claim_cell(ticket(epoch), || std::iter::once(&peer), (&last, descriptor(epoch)), in_turn::<4>)
        };
        let home = |epoch| claims.home(ticket(epoch));
        assert!([1, 5, 6, 7].into_iter().all(claim));
        assert_eq!([1, 2, 5, 6, 7].map(home), [Some(0), None, Some(1), Some(2), Some(3)]);
        assert_eq!([1, 2, 4].map(|ago| claims.claimed_ago(ago)), [ticket(7), ticket(6), ticket(1)]);
        assert!(!claim(8), "the first cell is that of 1");
        peer.publish(ticket(1));
        assert!(claim(8) && !claim(10));
        assert_eq!([8, 10].map(home), [Some(0), None]);
    }

    #[test]
    fn the_flag_of_the_only_peer_tells_what_it_has_released() {
        let (claims, last, peer) = (Claims::new(2, 2, 2), LastClaim::default(), Flag::new());
        let claim = |epoch| claims.claim_lines(ticket(epoch), || std::iter::once(&peer), (&last, descriptor(epoch)));
        assert!(claim(1) && claim(2) && !claim(3));
        claims.note_entered(Epoch(1));
        assert!(!claim(3), "it may still be in the first call");
        claims.note_entered(Epoch(2));
        assert!(claim(3) && !claim(4));
        peer.publish(Ticket::last_of(Epoch(3)));
        assert!(claim(4) && claim(5), "its promise counts as before");
    }

    #[test]
    fn lines_run_ahead_of_cells_and_cells_wait_for_lines() {
        let (claims, last, peer) = (Claims::new(4, 2, 2), LastClaim::default(), Flag::new());
        let claim = |epoch, room| {
            let released = || std::iter::once(&peer);
            match room {
                Room::Lines => claims.claim_lines(ticket(epoch), released, (&last, descriptor(1))),
                _ => claims.claim_cell(ticket(epoch), released, (&last, descriptor(1)), in_turn::<2>),
            }
        };
        assert!(claim(1, Room::Cell) && claim(2, Room::Lines) && claim(3, Room::Lines) && claim(4, Room::Cell));
        assert!(!claim(5, Room::Lines), "its line is that of 1");
        assert_eq!(claims.missing(), ticket(1));
        peer.publish(ticket(1));
        assert!(claim(5, Room::Lines) && !claim(6, Room::Cell), "the line of 2 is where it lies");
        peer.publish(ticket(2));
        assert!(claim(6, Room::Cell) && !claim(7, Room::Cell), "3 and 4 may still be read");
    }

    /// A long piece waits for short ones that lie in the second and the third quarter of its memory.
    #[test]
    fn a_stretch_waits_for_all_that_it_touches() {
        let (claims, last, peer) = (Claims::new(8, 4, 4), LastClaim::default(), Flag::new());
        let claim = |epoch, grains: Range<usize>| {
            let next = |cursor| Stretch { home: Some(grains.start as u64), grains, cursor };
            let released = || std::iter::once(&peer);
            claims.claim_cell(ticket(epoch), released, (&last, descriptor(epoch)), next)
        };
        assert!(claim(1, 2..3) && claim(2, 1..2) && claim(3, 3..4) && !claim(4, 0..3));
        assert_eq!(claims.missing(), ticket(2));
        peer.publish(ticket(2));
        assert!(claim(4, 0..3) && !claim(5, 2..3) && !claim(5, 3..4));
        assert_eq!(claims.missing(), ticket(3));
        peer.publish(ticket(4));
        assert!(claim(5, 2..3));
    }

    /// Tickets a million calls apart share lines. What was told for one ticket says nothing of another, nor of one
    /// whose claim has no home.
    #[test]
    fn a_home_is_that_of_one_ticket() {
        let (claims, last) = (Claims::new(2, 2, 2), LastClaim::default());
        let claim = |epoch, home: Option<u64>, room| {
            let next = |cursor| Stretch { home, grains: 0..0, cursor };
            let (ticket, last) = (ticket(epoch), (&last, descriptor(epoch)));
            assert!(match room {
                Room::Lines => claims.claim_lines(ticket, std::iter::empty, last),
                _ => claims.claim_cell(ticket, std::iter::empty, last, next),
            });
        };
        for epoch in [1, 3, 9_792_021, 9_792_022, 47_225_809].into_iter().chain((1..40).map(|at| 1 + at * (1 << 22))) {
            assert_eq!(claims.home(ticket(epoch)), None, "{epoch}");
        }
        claim(3, Some(77), Room::Cell);
        assert_eq!(claims.home(ticket(3)), Some(77));
        for epoch in (0..5000).map(|at| 5 + 2 * at) {
            assert_eq!(claims.home(ticket(epoch)), None, "{epoch}");
        }
        claim(5, None, Room::Cell);
        assert_eq!([3, 5].map(|epoch| claims.home(ticket(epoch))), [None; 2]);
        claim(7, Some(0), Room::Cell);
        claim(9, Some(1), Room::Lines);
        assert_eq!([7, 9].map(|epoch| claims.home(ticket(epoch))), [None; 2]);
    }
}
