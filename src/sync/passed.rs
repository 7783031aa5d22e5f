//! Cells that two ranks pass to each other.
//!
//! Before a rank can write a line, it has to take the line from the caches of those who have read it, which takes
//! longer than to copy it. A rank that writes where it has read last finds the lines in its own cache. So on a node of
//! two ranks a cell that was claimed as [`Room::Passed`](super::Room) belongs to the reader once the reader has
//! released its ticket: the reader writes there what it sends next. Each rank knows which cells are its own. It takes
//! the one that it got last or, for long pieces, one that has rested ([`Passed::next`]); no other rank depends on which
//! one. Cells go back and forth where both ranks write, in one call or in successive calls. Where only one rank writes,
//! it soon has no such cell left, and writes its ring as before.
//!
//! A piece that is shorter than the last one in its cell leaves the remaining lines of that one in the cache of the
//! rank that has read them. If the rank that wrote these lines writes a long piece there next, it has to take them from
//! that reader. So a piece goes to a cell whose last pieces were about as long ([`Lengths`]).

use super::Private;
use crate::types::{Bytes, Ticket};

/// A cell that a rank may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Its number.
    pub cell: u32,
    /// Its index among the cells that this rank owns.
    place: usize,
    /// The greatest length of the piece.
    length: Bytes,
}

/// The cells that this rank owns, and those that it will own when it releases their tickets: private memory of this
/// rank, which no peer maps.
///
/// Each cell is owned by one rank at most, or is under way with a ticket. After a failed call some cells may be owned
/// by nobody from then on.
#[derive(Debug)]
pub struct Passed {
    /// The numbers of the cells that this rank owns, the latest at the end.
    own: Box<[Private<u32>]>,
    owned: Private<usize>,
    /// By number of the cell.
    cells: Box<[Cell]>,
    /// Bytes of long pieces that this rank has given, plus `rest`, so that new cells count as rested.
    given: Private<u64>,
    /// By how much `given` has to grow until a cell has rested.
    rest: u64,
    /// Cells that the peer has told of, in the order in which this rank waited for them.
    read: Box<[Read]>,
    reading: Private<usize>,
    /// How many cells of its ring this rank has claimed instead.
    missed: Private<usize>,
    /// The cell that it gave last, and the one before that.
    gave: [Private<u32>; 2],
    /// The ticket for which it gave the last one.
    gave_for: Private<u64>,
}

/// What a rank remembers of a cell.
#[derive(Debug, Default)]
struct Cell {
    /// The value of `Passed::given` when this rank last gave the cell for a long piece.
    given_before: Private<u64>,
    lengths: Lengths,
}

/// How far pieces reached into a cell, and so which lines are in whose cache. The reach of a whole call counts
/// ([`Plan::reach`](crate::coll::Plan)), since both ranks know it.
#[derive(Debug, Default)]
struct Lengths {
    /// The longest piece that this rank wrote, unless the peer has written as far since.
    own: Private<usize>,
    /// The last piece that the peer wrote, unless this rank has written there since.
    peers: Private<usize>,
}

impl Lengths {
    /// How many bytes of the cell would be slow to write if this rank wrote `reach` bytes. First, lines of its own
    /// pieces that the peer has read count. Second, lines that the peer has written beyond `reach` count in part: the
    /// peer would find them slow in its turn if it wrote as far again. They count little, since that happens once: the
    /// cell is for shorter pieces from then on. Few bytes count as none: to find another cell takes as long, and the
    /// reader does not expect that cell.
    #[inline]
    fn misplaced(&self, reach: Bytes) -> usize {
        const ONCE: usize = 16;
        const FEW: usize = 1 << 10;
        let [own, peers] = [&self.own, &self.peers].map(|length| length.get());
        let counted = |misplaced| if misplaced < FEW { 0 } else { misplaced };
        counted(reach.0.min(own).saturating_sub(peers)) + counted(peers.saturating_sub(reach.0)) / ONCE
    }

    fn write(&self, reach: Bytes) {
        self.own.set(self.own.get().max(reach.0));
        self.peers.set(0);
    }

    fn read(&self, reach: Bytes) {
        self.peers.set(reach.0);
        if self.own.get() <= reach.0 {
            self.own.set(0);
        }
    }
}

/// A cell that this rank owns once it releases `ticket`, and how far the peer's call reached into it.
#[derive(Debug, Default)]
struct Read {
    ticket: Private<u64>,
    cell: Private<u32>,
    reach: Private<usize>,
}

impl Read {
    fn set(&self, ticket: u64, cell: u32, reach: usize) {
        self.ticket.set(ticket);
        self.cell.set(cell);
        self.reach.set(reach);
    }

    fn get(&self) -> (u64, u32, usize) {
        let Self { ticket, cell, reach } = self;
        (ticket.get(), cell.get(), reach.get())
    }
}

/// No cell.
const NONE: u32 = u32::MAX;

impl Passed {
    /// The cells that each of two ranks has at first take this many bytes of memory at most.
    pub const BYTES: usize = 1 << 20;
    /// The most cells that each rank has at first: as many as a message of 1 MiB has pieces of 64 KiB.
    const MOST: usize = 16;
    /// Pieces of this length and more are long: their lines do not stay in the first-level cache.
    pub const LONG: Bytes = Bytes(16 << 10);
    /// A cell has rested once this many bytes were given after it, which the peer reads. An eighth of the second-level
    /// cache counts instead where that is less, since this cache also holds the user's buffers.
    const REST: u64 = 192 << 10;

    /// Whether a node with this many ranks passes cells: the reader of a cell has to be its only reader.
    pub const fn is_for(ranks: usize) -> bool {
        ranks == 2
    }

    /// How many cells of length `cell` each of the `ranks` ranks of a node has to pass at first.
    pub const fn at_first(ranks: usize, cell: Bytes) -> usize {
        let cells = Self::BYTES / cell.0;
        match Self::is_for(ranks) {
            true if cells < Self::MOST => cells,
            true => Self::MOST,
            false => 0,
        }
    }

    /// For `cells` cells in all, and a rank whose second-level cache has `l2` bytes. The rank owns none of the cells
    /// yet.
    pub fn new(cells: usize, l2: Bytes) -> Self {
        let rest = Self::REST.min(l2.0 as u64 / 8);
        Self {
            own: (0..cells).map(|_| Private::new(0)).collect(),
            owned: Private::new(0),
            cells: (0..cells).map(|_| Cell::default()).collect(),
            given: Private::new(rest),
            rest,
            read: (0..cells).map(|_| Read::default()).collect(),
            reading: Private::new(0),
            missed: Private::new(0),
            gave: [NONE; 2].map(Private::new),
            gave_for: Private::new(0),
        }
    }

    /// Whether there are no cells to pass.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// Notes that this rank has claimed a cell of its ring: it owns no passed cell, or keeps what it writes.
    #[inline]
    pub fn miss(&self) {
        self.missed.set(self.missed.get().saturating_add(1));
    }

    /// Whether this rank has claimed so many cells of its ring that the ring matters.
    #[inline]
    pub fn are_missed(&self) -> bool {
        /// A rank that is the root of some calls in a row claims as many.
        const SOME: usize = 64;
        self.is_empty() || self.missed.get() >= SOME
    }

    /// The cell for a piece of at most `reach` bytes; `None` if this rank owns none. For a short piece it is the cell
    /// that the rank got last, whose lines are in its first-level cache. For a long piece it is a cell that has rested,
    /// or else the one that has rested longest: readers fetch less ahead from pages that they have read not long ago,
    /// and take nearly twice as long. More memory than that would be farther away. But where lines of the chosen cell
    /// would be in the wrong cache, the rank takes the cell with the fewest such lines.
    #[inline]
    pub fn next(&self, reach: Bytes) -> Option<Next> {
        let owned = self.owned.get();
        let latest = owned.checked_sub(1)?;
        let is_apt = reach < Self::LONG && self.at(latest).lengths.misplaced(reach) == 0;
        let place = if is_apt { latest } else { self.most_apt(owned, reach) };
        Some(Next { place, cell: self.own[place].get(), length: reach })
    }

    /// The cell at index `place` among those that this rank owns.
    #[inline]
    fn at(&self, place: usize) -> &Cell {
        &self.cells[self.own[place].get() as usize]
    }

    /// The index of the most apt of the `owned` cells for a piece of `reach` bytes: the first good one from the end,
    /// else the best one. A cell that has not rested counts as if half of the piece were misplaced.
    #[inline(never)]
    fn most_apt(&self, owned: usize, reach: Bytes) -> usize {
        let given = self.given.get();
        let (mut best, mut least) = (owned - 1, (usize::MAX, u64::MAX));
        for place in (0..owned).rev() {
            let cell = self.at(place);
            let rest = if reach < Self::LONG { self.rest } else { given - cell.given_before.get() };
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

    /// Notes that this rank has claimed the cell `next` for `ticket`, and no longer owns it: the peer will read it.
    #[inline]
    pub fn give(&self, next: Next, ticket: Ticket) {
        let owned = self.owned.get() - 1;
        let cell = &self.cells[next.cell as usize];
        cell.lengths.write(next.length);
        if next.length >= Self::LONG {
            let given = self.given.get() + next.length.0 as u64;
            self.given.set(given);
            cell.given_before.set(given);
        }
        for place in next.place..owned {
            self.own[place].set(self.own[place + 1].get());
        }
        self.owned.set(owned);
        self.gave[1].set(self.gave[0].get());
        self.gave[0].set(next.cell);
        self.gave_for.set(ticket.0);
    }

    /// Whether this rank has given a cell for `ticket`, and none since.
    #[inline]
    pub fn gives_for(&self, ticket: Ticket) -> bool {
        self.gave_for.get() == ticket.0
    }

    /// The cell that the peer is likely to write for `ticket`: the last cell that this rank gave before that ticket.
    /// This is right if the peer takes the cell that it got last, as for a short piece ([`Passed::next`]).
    #[inline]
    pub fn likely(&self, ticket: Ticket) -> Option<u32> {
        let cell = self.gave[usize::from(self.gives_for(ticket))].get();
        (cell != NONE).then_some(cell)
    }

    /// Makes this rank the owner of a cell.
    #[inline]
    pub fn take(&self, cell: u32) {
        let owned = self.owned.get();
        self.own[owned].set(cell);
        self.owned.set(owned + 1);
    }

    /// Notes that this rank has waited for a flag that tells of a cell which the peer passes, in a call of that
    /// `reach`. This rank owns the cell once it releases `ticket`.
    #[inline]
    pub fn await_release(&self, ticket: Ticket, cell: u32, reach: Bytes) {
        let reading = self.reading.get();
        let is_known = |known: &Read| known.cell.get() == cell;
        // A ticket may have two flags that tell of the same cell.
        if self.read[..reading].iter().any(is_known) {
            return;
        }
        self.read[reading].set(ticket.0, cell, reach.0);
        self.reading.set(reading + 1);
    }

    /// Whether this rank gets no cell when it releases tickets.
    #[inline]
    pub fn awaits_none(&self) -> bool {
        self.reading.get() == 0
    }

    /// Takes the cells of all tickets up to `ticket`, which this rank releases.
    #[inline(always)]
    pub fn release(&self, ticket: Ticket) {
        if !self.awaits_none() {
            self.take_up_to(ticket);
        }
    }

    #[inline(always)]
    fn take_up_to(&self, ticket: Ticket) {
        let mut kept = 0;
        for index in 0..self.reading.get() {
            let (of, cell, reach) = self.read[index].get();
            if of <= ticket.0 {
                self.cells[cell as usize].lengths.read(Bytes(reach));
                self.take(cell);
            } else {
                self.read[kept].set(of, cell, reach);
                kept += 1;
            }
        }
        self.reading.set(kept);
    }

    /// Notes that this rank fails a call. The peer may still write the cells that this rank was told of in the call, so
    /// nobody owns them from here on.
    pub fn forget(&self) {
        self.reading.set(0);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "passed_tests.rs"]
mod tests;
