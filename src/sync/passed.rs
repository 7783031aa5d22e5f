//! Cells that two ranks pass to each other.
//!
//! Before a line can be written it has to be taken from the caches of those who have read it, which takes longer than to copy it. A rank
//! that writes where it has read last finds the lines in its own cache. So on a node of two ranks a cell that was claimed as
//! [`Room::Passed`](super::Room) is the reader's once that has released its ticket: the reader writes there what it sends next.
//! Each rank knows which cells are its own, and takes the one it got last, or, for long pieces, one that has rested ([`Passed::next`]).
//! Which one is the rank's own affair. Cells go to and fro where both ranks write, in one call or in
//! calls that follow each other. Where only one does it soon has none left, and writes its ring as before.
//!
//! A piece that is shorter than the last one in its cell leaves lines of that where they are: a long one that follows, of the rank that wrote
//! them, has to take them from who has read them. So pieces go to cells whose last ones were about as long ([`Lengths`]).

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
    /// By its number.
    cells: Box<[Cell]>,
    /// What this rank has given of long pieces.
    given: AtomicU64,
    /// After how much of that a cell has rested.
    rest: u64,
    /// Cells that a peer has told of, in the order in which this rank waited for them.
    read: Box<[Read]>,
    reading: AtomicUsize,
    /// Other cells that this rank has claimed.
    missed: AtomicUsize,
    /// The cell that it gave last, and the one before that.
    gave: [AtomicU32; 2],
    /// The ticket for which it gave the last one.
    gave_for: AtomicU64,
}

/// What a rank remembers of a cell.
#[derive(Debug, Default)]
struct Cell {
    /// What it had given of long pieces when it gave this cell for one last.
    given_before: AtomicU64,
    lengths: Lengths,
}

/// How far pieces reached into a cell: whose lines are in which cache. What calls reach at most counts ([`Plan::reach`](crate::coll::Plan)), which
/// both ranks know.
#[derive(Debug, Default)]
struct Lengths {
    /// The longest one that this rank wrote, unless the peer has written as far since.
    own: AtomicUsize,
    /// The last one that the peer wrote, unless this rank has written there since.
    peers: AtomicUsize,
}

impl Lengths {
    /// How much of the cell would be where it is slow to write, if this rank wrote so far: lines of its own that the peer has read, and in part such
    /// of the peer's as it would find so in its turn, if it wrote as far again. That happens once, where the cell is for shorter pieces from then on.
    /// A few lines don't count: it takes as long to find another cell, and who reads it does not expect that one.
    #[inline]
    fn misplaced(&self, reach: Bytes) -> usize {
        const ONCE: usize = 16;
        const FEW: usize = 1 << 10;
        let [own, peers] = [&self.own, &self.peers].map(|length| length.load(Ordering::Relaxed));
        let counted = |misplaced| if misplaced < FEW { 0 } else { misplaced };
        counted(reach.0.min(own).saturating_sub(peers)) + counted(peers.saturating_sub(reach.0)) / ONCE
    }

    fn write(&self, reach: Bytes) {
        self.own.store(self.own.load(Ordering::Relaxed).max(reach.0), Ordering::Relaxed);
        self.peers.store(0, Ordering::Relaxed);
    }

    fn read(&self, reach: Bytes) {
        self.peers.store(reach.0, Ordering::Relaxed);
        if self.own.load(Ordering::Relaxed) <= reach.0 {
            self.own.store(0, Ordering::Relaxed);
        }
    }
}

/// A cell that is this rank's once it releases that ticket, and how far the peer's call reached into it.
#[derive(Debug, Default)]
struct Read {
    ticket: AtomicU64,
    cell: AtomicU32,
    reach: AtomicUsize,
}

impl Read {
    fn set(&self, ticket: u64, cell: u32, reach: usize) {
        self.ticket.store(ticket, Ordering::Relaxed);
        self.cell.store(cell, Ordering::Relaxed);
        self.reach.store(reach, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u32, usize) {
        let Self { ticket, cell, reach } = self;
        (ticket.load(Ordering::Relaxed), cell.load(Ordering::Relaxed), reach.load(Ordering::Relaxed))
    }
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
            cells: (0..cells).map(|_| Cell::default()).collect(),
            given: AtomicU64::new(rest),
            rest,
            read: (0..cells).map(|_| Read::default()).collect(),
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
    /// take nearly twice as long. More memory than that would be farther away. But where lines of the cell would be in the wrong cache,
    /// that of which fewest are.
    #[inline]
    pub fn next(&self, reach: Bytes) -> Option<Next> {
        let owned = self.owned.load(Ordering::Relaxed);
        let latest = owned.checked_sub(1)?;
        let is_apt = reach < Self::LONG && self.at(latest).lengths.misplaced(reach) == 0;
        let place = if is_apt { latest } else { self.most_apt(owned, reach) };
        Some(Next { place, cell: self.own[place].load(Ordering::Relaxed), length: reach })
    }

    /// The cell at that place among those that are this rank's.
    #[inline]
    fn at(&self, place: usize) -> &Cell {
        &self.cells[self.own[place].load(Ordering::Relaxed) as usize]
    }

    /// Where the most apt cell for that length is, of so many: the first one from the end that is good, or the best one. One that has not
    /// rested counts as if half of it were misplaced.
    #[inline(never)]
    fn most_apt(&self, owned: usize, reach: Bytes) -> usize {
        let given = self.given.load(Ordering::Relaxed);
        let (mut best, mut least) = (owned - 1, (usize::MAX, u64::MAX));
        for place in (0..owned).rev() {
            let cell = self.at(place);
            let rest = if reach < Self::LONG { self.rest } else { given - cell.given_before.load(Ordering::Relaxed) };
            let is_tired = rest < self.rest;
            let slow = cell.lengths.misplaced(reach) + if is_tired { reach.0 / 2 } else { 0 };
            let found = (slow, if is_tired { u64::MAX - rest } else { 0 });
            if found < least {
                (best, least) = (place, found);
            }
            if slow == 0 {
                break;
            }
        }
        best
    }

    /// That cell is claimed for `ticket`, and no longer its own: a peer will read it.
    #[inline]
    pub fn give(&self, next: Next, ticket: Ticket) {
        let owned = self.owned.load(Ordering::Relaxed) - 1;
        let cell = &self.cells[next.cell as usize];
        cell.lengths.write(next.length);
        if next.length >= Self::LONG {
            let given = self.given.load(Ordering::Relaxed) + next.length.0 as u64;
            self.given.store(given, Ordering::Relaxed);
            cell.given_before.store(given, Ordering::Relaxed);
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

    /// This rank has waited for a flag that tells of a cell which the peer passes, in a call that reaches so far into it: it is its own once it
    /// releases the ticket.
    #[inline]
    pub fn await_release(&self, ticket: Ticket, cell: u32, reach: Bytes) {
        let reading = self.reading.load(Ordering::Relaxed);
        let is_known = |known: &Read| known.cell.load(Ordering::Relaxed) == cell;
        // A ticket may have two flags.
        if self.read[..reading].iter().any(is_known) {
            return;
        }
        self.read[reading].set(ticket.0, cell, reach.0);
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
            let (of, cell, reach) = self.read[index].get();
            if of <= ticket.0 {
                self.cells[cell as usize].lengths.read(Bytes(reach));
                self.take(cell);
            } else {
                self.read[kept].set(of, cell, reach);
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
#[path = "passed_tests.rs"]
mod tests;
