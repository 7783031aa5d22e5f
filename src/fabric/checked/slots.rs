//! The lines and cells of one rank, with what is known of each byte: for which ticket it was written, when, and who has read it.

use super::clocks::{Clocks, History, Stamp};
use super::ranges::RangeMap;
use super::violation::Breach;
use crate::fabric::{INLINE, Line, Room};
use crate::types::{Bytes, CommRank, RingLengths, Ticket};
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Written {
    ticket: Ticket,
    stamp: Stamp,
}

#[derive(Clone, Debug)]
struct Read {
    range: Range<usize>,
    reader: usize,
    stamp: Stamp,
}

/// Memory that its owner writes and all ranks of the node read: a cell or the payload of a line.
#[derive(Clone, Debug)]
pub(super) struct Store {
    bytes: Vec<u8>,
    written: RangeMap<Written>,
    /// By others, since the owner last wrote the same bytes with knowledge of them.
    reads: Vec<Read>,
}

impl Store {
    fn new(length: usize) -> Self {
        Self { bytes: vec![0; length], written: RangeMap::default(), reads: Vec::new() }
    }

    pub(super) fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that `owner` wrote for `ticket`, if all of that happened before what `me` does now.
    pub(super) fn read(
        &mut self,
        clocks: &Clocks,
        me: usize,
        owner: usize,
        ticket: Ticket,
        range: Range<usize>,
    ) -> Result<&[u8], Breach> {
        if let Some(at) = self.written.first_gap(range.clone()) {
            return Err(Breach::Unwritten { at });
        }
        for (_, written) in self.written.overlapping(range.clone()) {
            if !clocks.knows(me, owner, written.stamp) {
                return Err(Breach::ReadRace { writer: CommRank(owner as u32) });
            }
            if written.ticket != ticket {
                return Err(Breach::WrongTicket { found: written.ticket });
            }
        }
        if me != owner && !range.is_empty() {
            self.reads.push(Read { range: range.clone(), reader: me, stamp: clocks.stamp(me) });
        }
        Ok(&self.bytes[range])
    }

    /// The bytes, for their owner to write for `ticket`, if all reads of them happened before.
    pub(super) fn write(
        &mut self,
        clocks: &Clocks,
        owner: usize,
        ticket: Ticket,
        range: Range<usize>,
    ) -> Result<&mut [u8], Breach> {
        let overlaps = |read: &Read| read.range.start < range.end && range.start < read.range.end;
        let knows = |read: &Read| clocks.knows(owner, read.reader, read.stamp);
        if let Some(read) = self.reads.iter().find(|read| overlaps(read) && !knows(read)) {
            return Err(Breach::WriteRace { reader: CommRank(read.reader as u32) });
        }
        // What the owner knows now it knows at every later write.
        self.reads.retain(|read| !knows(read));
        self.written.set(range.clone(), Written { ticket, stamp: clocks.stamp(owner) });
        Ok(&mut self.bytes[range])
    }
}

/// What is known of one position of a ring.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    /// The ticket that may be written.
    pub(super) claimed: Option<Ticket>,
    /// The ticket written last: the one that peers must release before the next is written.
    pub(super) written: Option<Ticket>,
}

/// The rings of one rank.
#[derive(Clone, Debug)]
pub(super) struct Rings {
    lines: Vec<(Position, Lines)>,
    cells: Vec<(Position, Store)>,
}

#[derive(Clone, Debug)]
struct Lines {
    flags: [History; Line::COUNT],
    payloads: [Store; Line::COUNT],
}

impl Rings {
    pub(super) fn new(lines: usize, cells: usize, cell: Bytes) -> Self {
        let line = Lines { flags: Default::default(), payloads: [Store::new(INLINE.0), Store::new(INLINE.0)] };
        Self {
            lines: vec![(Position::default(), line); lines],
            cells: vec![(Position::default(), Store::new(cell.0)); cells],
        }
    }

    /// What a claim of that much for `ticket` looks at: who claims a cell claims the ticket's lines too.
    pub(super) fn position(&self, ticket: Ticket, room: Room) -> Position {
        let line = self.lines[self.index(ticket, Room::Lines)].0;
        match room {
            Room::Lines => line,
            Room::Cell => {
                let cell = self.cells[self.index(ticket, Room::Cell)].0;
                Position { claimed: cell.claimed, written: cell.written.max(line.written) }
            }
        }
    }

    /// Where in its ring that is.
    pub(super) fn index(&self, ticket: Ticket, room: Room) -> usize {
        let rings = RingLengths { lines: self.lines.len(), cells: self.cells.len() };
        match room {
            Room::Lines => rings.line(ticket),
            Room::Cell => rings.cell(ticket),
        }
    }

    /// That much may be written for `ticket`.
    pub(super) fn claim(&mut self, ticket: Ticket, room: Room) {
        let (line, cell) = (self.index(ticket, Room::Lines), self.index(ticket, Room::Cell));
        self.lines[line].0.claimed = Some(ticket);
        if room == Room::Cell {
            self.cells[cell].0.claimed = Some(ticket);
        }
    }

    /// Something was written for `ticket`.
    pub(super) fn write(&mut self, ticket: Ticket) {
        let (line, cell) = (self.index(ticket, Room::Lines), self.index(ticket, Room::Cell));
        self.lines[line].0.written = Some(ticket);
        self.cells[cell].0.written = Some(ticket);
    }

    /// The flag of a line.
    pub(super) fn flag(&self, line: Line, ticket: Ticket) -> &History {
        &self.lines[self.index(ticket, Room::Lines)].1.flags[line as usize]
    }

    /// The same.
    pub(super) fn flag_mut(&mut self, line: Line, ticket: Ticket) -> &mut History {
        let index = self.index(ticket, Room::Lines);
        &mut self.lines[index].1.flags[line as usize]
    }

    /// The payload of a line at that index, or the cell.
    pub(super) fn store(&mut self, line: Option<Line>, index: usize) -> &mut Store {
        match line {
            Some(line) => &mut self.lines[index].1.payloads[line as usize],
            None => &mut self.cells[index].1,
        }
    }
}

/// Where a payload is, or the cell.
pub(super) fn room_of(line: Option<Line>) -> Room {
    if line.is_some() { Room::Lines } else { Room::Cell }
}
