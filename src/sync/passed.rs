//! Cells that two ranks pass to each other.
//!
//! Before a line can be written it has to be taken from the caches of those who have read it, which takes longer than to copy it. A rank
//! that writes where it has read last finds the lines in its own cache. So on a node of two ranks a cell that was claimed as
//! [`Room::Passed`](super::Room) is the reader's once that has released its ticket: the reader writes there what it sends next.
//! Each rank knows which cells are its own, and takes the one it got last, or, for long pieces, one that has rested ([`Passed::next`]).
//! Which one is the rank's own affair. Cells go to and fro where both ranks write, in one call or in
//! calls that follow each other. Where only one does it soon has none left, and writes its ring as before.

use crate::types::{Bytes, Ticket};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// A cell that a rank may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Its number.
    pub cell: u32,
    /// Where it is among those that are this rank's.
    place: usize,
    /// At most so long a piece.
    length: Bytes,
}

/// The cells that are this rank's to write, and those that will be when it releases their tickets: a book of its own, in no memory that a
/// peer maps.
///
/// Each cell is in one rank's book at most, or under way with a ticket. Where a call fails some may be in none from then on.
#[derive(Debug)]
pub struct Passed {
    /// The last ones that it got are at the end.
    own: Box<[AtomicU32]>,
    owned: AtomicUsize,
    /// What this rank had given of long pieces when it gave each cell for one last.
    given_before: Box<[AtomicU64]>,
    /// What it has given of them.
    given: AtomicU64,
    /// After how much of that a cell has rested.
    rest: u64,
    /// Cells that a peer has told of, with their tickets, in the order in which this rank waited for them.
    read: Box<[(AtomicU64, AtomicU32)]>,
    reading: AtomicUsize,
    /// Other cells that this rank has claimed.
    missed: AtomicUsize,
    /// The cell that it gave last, and the one before that.
    gave: [AtomicU32; 2],
    /// The ticket for which it gave the last one.
    gave_for: AtomicU64,
}

/// No cell.
const NONE: u32 = u32::MAX;

// Relaxed throughout: only this rank uses these, one call at a time; they are atomics so that a context may move between threads. Under loom
// too: they order nothing.
impl Passed {
    /// What each of two ranks has at first takes so much memory at most.
    pub const BYTES: usize = 1 << 20;
    /// As many as the pieces of 64 KiB of a message of 1 MiB.
    const MOST: usize = 16;
    /// Pieces of this length and more are long: their lines do not stay in the first-level cache.
    pub const LONG: Bytes = Bytes(16 << 10);
    /// A cell has rested when so much was given since, which its peer reads: or an eighth of a second-level cache, where that is less, which also
    /// holds the user's buffers.
    const REST: u64 = 192 << 10;

    /// Whether as many ranks of a node pass cells: who reads one has to be the only one who does.
    pub const fn is_for(ranks: usize) -> bool {
        ranks == 2
    }

    /// How many cells of that length each of so many ranks of a node has to pass at first.
    pub const fn at_first(ranks: usize, cell: Bytes) -> usize {
        let cells = Self::BYTES / cell.0;
        match Self::is_for(ranks) {
            true if cells < Self::MOST => cells,
            true => Self::MOST,
            false => 0,
        }
    }

    /// Of so many cells in all, for a rank whose second-level cache is that long. None is this rank's yet.
    pub fn new(cells: usize, l2: Bytes) -> Self {
        let rest = Self::REST.min(l2.0 as u64 / 8);
        Self {
            own: (0..cells).map(|_| AtomicU32::new(0)).collect(),
            owned: AtomicUsize::new(0),
            given_before: (0..cells).map(|_| AtomicU64::new(0)).collect(),
            given: AtomicU64::new(rest),
            rest,
            read: (0..cells).map(|_| (AtomicU64::new(0), AtomicU32::new(0))).collect(),
            reading: AtomicUsize::new(0),
            missed: AtomicUsize::new(0),
            gave: [NONE; 2].map(AtomicU32::new),
            gave_for: AtomicU64::new(0),
        }
    }

    /// Whether there are no cells to pass.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// This rank has claimed another cell: it had none of these, or keeps what it writes.
    #[inline]
    pub fn miss(&self) {
        self.missed.store(self.missed.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }

    /// Whether so many claims were of other cells that these matter.
    #[inline]
    pub fn are_missed(&self) -> bool {
        /// A rank that is the root of some calls in a row has as many.
        const SOME: usize = 64;
        self.is_empty() || self.missed.load(Ordering::Relaxed) >= SOME
    }

    /// The cell for a piece of at most that length: the one that it got last, whose lines are in its first-level cache. For a long one, of
    /// those that have rested, or else the one that has longest: readers fetch less ahead from pages that they have read not long ago, and
    /// take nearly twice as long. More memory than that would be farther away.
    #[inline]
    pub fn next(&self, reach: Bytes) -> Option<Next> {
        let owned = self.owned.load(Ordering::Relaxed);
        let latest = owned.checked_sub(1)?;
        let place = if reach < Self::LONG { latest } else { self.rested(owned) };
        Some(Next { place, cell: self.own[place].load(Ordering::Relaxed), length: reach })
    }

    /// Where a cell is that has rested, of so many.
    #[inline(never)]
    fn rested(&self, owned: usize) -> usize {
        let given = self.given.load(Ordering::Relaxed);
        let rest = |place: &usize| {
            let cell = self.own[*place].load(Ordering::Relaxed);
            given - self.given_before[cell as usize].load(Ordering::Relaxed)
        };
        let rested = (0..owned).rev().find(|place| rest(place) >= self.rest);
        rested.or_else(|| (0..owned).max_by_key(rest)).unwrap_or(0)
    }

    /// That cell is claimed for `ticket`, and no longer its own: a peer will read it.
    #[inline]
    pub fn give(&self, next: Next, ticket: Ticket) {
        let owned = self.owned.load(Ordering::Relaxed) - 1;
        if next.length >= Self::LONG {
            let given = self.given.load(Ordering::Relaxed) + next.length.0 as u64;
            self.given.store(given, Ordering::Relaxed);
            self.given_before[next.cell as usize].store(given, Ordering::Relaxed);
        }
        for place in next.place..owned {
            self.own[place].store(self.own[place + 1].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.owned.store(owned, Ordering::Relaxed);
        self.gave[1].store(self.gave[0].load(Ordering::Relaxed), Ordering::Relaxed);
        self.gave[0].store(next.cell, Ordering::Relaxed);
        self.gave_for.store(ticket.0, Ordering::Relaxed);
    }

    /// Whether this rank has given a cell for `ticket`, and none since.
    #[inline]
    pub fn gives_for(&self, ticket: Ticket) -> bool {
        self.gave_for.load(Ordering::Relaxed) == ticket.0
    }

    /// The cell that the peer writes for `ticket`, if it takes the one that it got last, as for a short piece ([`Passed::next`]): the last one that
    /// this rank gave before that ticket.
    #[inline]
    pub fn likely(&self, ticket: Ticket) -> Option<u32> {
        let cell = self.gave[usize::from(self.gives_for(ticket))].load(Ordering::Relaxed);
        (cell != NONE).then_some(cell)
    }

    /// A cell is this rank's from here on.
    #[inline]
    pub fn take(&self, cell: u32) {
        let owned = self.owned.load(Ordering::Relaxed);
        self.own[owned].store(cell, Ordering::Relaxed);
        self.owned.store(owned + 1, Ordering::Relaxed);
    }

    /// This rank has waited for a flag that tells of a cell which the peer passes: it is its own once it releases the ticket.
    #[inline]
    pub fn await_release(&self, ticket: Ticket, cell: u32) {
        let reading = self.reading.load(Ordering::Relaxed);
        let is_known = |(_, known): &(_, AtomicU32)| known.load(Ordering::Relaxed) == cell;
        // A ticket may have two flags.
        if self.read[..reading].iter().any(is_known) {
            return;
        }
        self.read[reading].0.store(ticket.0, Ordering::Relaxed);
        self.read[reading].1.store(cell, Ordering::Relaxed);
        self.reading.store(reading + 1, Ordering::Relaxed);
    }

    /// Whether no cell becomes its own when it releases tickets.
    #[inline]
    pub fn awaits_none(&self) -> bool {
        self.reading.load(Ordering::Relaxed) == 0
    }

    /// This rank releases all tickets up to that one.
    #[inline]
    pub fn release(&self, ticket: Ticket) {
        if !self.awaits_none() {
            self.take_up_to(ticket);
        }
    }

    #[inline(never)]
    fn take_up_to(&self, ticket: Ticket) {
        let mut kept = 0;
        for index in 0..self.reading.load(Ordering::Relaxed) {
            let of = self.read[index].0.load(Ordering::Relaxed);
            let cell = self.read[index].1.load(Ordering::Relaxed);
            if of <= ticket.0 {
                self.take(cell);
            } else {
                self.read[kept].0.store(of, Ordering::Relaxed);
                self.read[kept].1.store(cell, Ordering::Relaxed);
                kept += 1;
            }
        }
        self.reading.store(kept, Ordering::Relaxed);
    }

    /// This rank fails a call: what it was told of in it may still be written there, so it is nobody's from here on.
    pub fn forget(&self) {
        self.reading.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::types::Epoch;

    fn ticket(step: u64) -> Ticket {
        Ticket::new(Epoch(3), step)
    }

    const SHORT: Bytes = Bytes(4096);
    const L2: Bytes = Bytes(2 << 20);

    fn all(passed: &Passed) -> Vec<u32> {
        let give = |next: Next| {
            passed.give(next, ticket(1));
            next.cell
        };
        std::iter::from_fn(|| passed.next(SHORT).map(give)).collect()
    }

    /// Gives so many pieces of that length, each of which comes back after some more.
    fn given(cells: u32, length: usize, back_after: usize, pieces: usize) -> Vec<u32> {
        let passed = Passed::new(cells as usize, L2);
        (0..cells).for_each(|cell| passed.take(cell));
        let mut given = Vec::new();
        for piece in 0..pieces {
            let next = passed.next(Bytes(length)).expect("a cell");
            passed.give(next, ticket(1));
            given.push(next.cell);
            if piece + 1 >= back_after {
                passed.take(given[piece + 1 - back_after]);
            }
        }
        given
    }

    #[test]
    fn a_cell_of_long_pieces_is_given_again_when_it_has_rested() {
        const KIB: usize = 1024;
        for (length, back_after, cells) in
            [(32 * KIB, 1, 7), (64 * KIB, 1, 4), (128 * KIB, 1, 3), (32 * KIB, 4, 7), (16 * KIB, 1, 13)]
        {
            let given = given(16, length, back_after, 200);
            let late = &given[100..];
            let used: std::collections::HashSet<_> = late.iter().collect();
            assert_eq!(used.len(), cells, "{length} bytes: {late:?}");
            assert!((cells..100).all(|at| late[at] == late[at - cells]), "in turn: {late:?}");
        }
        assert!(given(16, 8 * KIB, 1, 10).iter().all(|cell| *cell == 15), "short ones stay");
    }

    #[test]
    fn a_smaller_cache_means_less_rest() {
        let passed = Passed::new(16, Bytes(256 << 10));
        (0..16).for_each(|cell| passed.take(cell));
        let cells = [(); 6].map(|()| {
            let next = passed.next(Bytes(16 << 10)).expect("a cell");
            passed.give(next, ticket(1));
            passed.take(next.cell);
            next.cell
        });
        assert_eq!(cells, [15, 14, 13, 15, 14, 13]);
    }

    #[test]
    fn where_no_cell_has_rested_the_one_that_has_longest_is_given() {
        assert_eq!(given(2, 32 << 10, 1, 6)[2..], [1, 0, 1, 0]);
    }

    #[test]
    fn what_came_last_is_given_first_and_given_once() {
        let passed = Passed::new(4, L2);
        assert_eq!(passed.next(SHORT), None);
        [2, 3].into_iter().for_each(|cell| passed.take(cell));
        assert_eq!(all(&passed), [3, 2]);
        assert_eq!(passed.next(SHORT), None);
    }

    #[test]
    fn what_was_read_is_owned_with_the_release_of_its_ticket() {
        let passed = Passed::new(4, L2);
        passed.take(0);
        passed.await_release(ticket(1), 2);
        passed.await_release(ticket(1), 2);
        passed.await_release(ticket(2), 3);
        passed.release(ticket(0));
        assert_eq!(passed.next(SHORT).map(|next| next.cell), Some(0));
        passed.release(ticket(1));
        assert_eq!(all(&passed), [2, 0]);
        passed.release(Ticket::last_of(Epoch(3)));
        assert_eq!(all(&passed), [3]);
    }

    /// Two ranks with cells to pass, and their calls.
    struct Pair {
        ranks: [Passed; 2],
        call: u64,
    }

    impl Pair {
        fn new() -> Self {
            let ranks = [(); 2].map(|()| Passed::new(8, L2));
            (0..8).for_each(|cell| ranks[cell as usize / 4].take(cell));
            Self { ranks, call: 0 }
        }

        fn give(&self, rank: usize) -> u32 {
            let next = self.ranks[rank].next(SHORT).expect("a cell");
            self.ranks[rank].give(next, ticket(self.call));
            next.cell
        }

        fn get(&self, rank: usize, cell: u32) {
            self.ranks[rank].await_release(ticket(self.call), cell);
            self.ranks[rank].release(ticket(self.call));
        }

        /// Both write. -> what each expects of the other one, and what that wrote
        fn exchange(&mut self) -> [[Option<u32>; 2]; 2] {
            self.call += 1;
            let cells = [0, 1].map(|rank| self.give(rank));
            let expected = self.ranks.each_ref().map(|rank| rank.likely(ticket(self.call)));
            (0..2).for_each(|rank| self.get(rank, cells[1 - rank]));
            [expected, [Some(cells[1]), Some(cells[0])]]
        }

        /// One writes. -> what the other one expects, and what it gets
        fn send(&mut self, root: usize) -> [Option<u32>; 2] {
            self.call += 1;
            let expected = self.ranks[1 - root].likely(ticket(self.call));
            let cell = self.give(root);
            self.get(1 - root, cell);
            [expected, Some(cell)]
        }
    }

    #[test]
    fn in_exchanges_the_peers_cell_is_known_from_the_second_one_on() {
        let mut pair = Pair::new();
        let [expected, _] = pair.exchange();
        assert_eq!(expected, [None; 2], "nothing was given before");
        for _ in 0..5 {
            let [expected, cells] = pair.exchange();
            assert_eq!(expected, cells);
        }
    }

    #[test]
    fn with_roots_in_turn_the_reader_knows_the_cell() {
        let mut pair = Pair::new();
        pair.send(0);
        for call in 1..6 {
            let [expected, cell] = pair.send(call % 2);
            assert_eq!(expected, cell);
        }
    }

    #[test]
    fn the_peers_cell_is_known_again_soon_after_other_pieces() {
        let mut pair = Pair::new();
        (0..3).for_each(|_| _ = pair.exchange());
        (0..2).for_each(|_| _ = pair.send(0));
        pair.exchange();
        pair.exchange();
        let [expected, cells] = pair.exchange();
        assert_eq!(expected, cells);
    }

    #[test]
    fn other_cells_matter_where_these_do_not_suffice() {
        let passed = Passed::new(2, L2);
        passed.miss();
        assert!(!passed.are_missed());
        (0..100).for_each(|_| passed.miss());
        assert!(passed.are_missed() && Passed::new(0, L2).are_missed());
    }

    #[test]
    fn what_was_read_in_a_failed_call_is_nobodys() {
        let passed = Passed::new(2, L2);
        passed.await_release(ticket(1), 1);
        passed.forget();
        passed.release(Ticket::last_of(Epoch(4)));
        assert_eq!(passed.next(SHORT), None);
    }
}
