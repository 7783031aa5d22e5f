//! The lines and cells of one rank, with what is known of each byte: for which ticket it was written, when, and who has
//! read it.

use super::clocks::{Clocks, History, Snapshot, Stamp};
use super::ranges::RangeMap;
use super::violation::Breach;
use crate::fabric::{INLINE, Line, Room, Span};
use crate::types::{Bytes, CommRank, Ticket};
use std::collections::VecDeque;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Written {
    ticket: Ticket,
    /// The rank that wrote, and in `stamp` when that was by its clock.
    writer: usize,
    stamp: Stamp,
}

#[derive(Clone, Debug)]
struct Read {
    range: Range<usize>,
    reader: usize,
    stamp: Stamp,
}

/// A cell, or the payload of a line. Its owner writes it, peers write it too where it is relayed, and all ranks of the
/// node read it.
#[derive(Clone, Debug)]
pub(super) struct Store {
    bytes: Vec<u8>,
    written: RangeMap<Written>,
    /// Reads since the last write that covered all of their bytes. That write happened after the reads that it covered,
    /// so a later writer need only know of that write.
    reads: Vec<Read>,
}

impl Store {
    fn new(length: usize) -> Self {
        Self { bytes: vec![0; length], written: RangeMap::default(), reads: Vec::new() }
    }

    pub(super) fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that were written for `ticket`, if all of that happened before what `me` does now.
    pub(super) fn read(
        &mut self,
        clocks: &Clocks,
        me: usize,
        ticket: Ticket,
        range: Range<usize>,
    ) -> Result<&[u8], Breach> {
        if let Some(at) = self.written.first_gap(range.clone()) {
            return Err(Breach::Unwritten { at });
        }
        for (_, written) in self.written.overlapping(range.clone()) {
            if !clocks.knows(me, written.writer, written.stamp) {
                return Err(Breach::ReadRace { writer: CommRank(written.writer as u32) });
            }
            if written.ticket != ticket {
                return Err(Breach::WrongTicket { found: written.ticket });
            }
        }
        if !range.is_empty() {
            self.reads.push(Read { range: range.clone(), reader: me, stamp: clocks.stamp(me) });
        }
        Ok(&self.bytes[range])
    }

    /// The bytes, for `me` to write for `ticket`, if all reads of them and all that others wrote there happened before.
    pub(super) fn write(
        &mut self,
        clocks: &Clocks,
        me: usize,
        ticket: Ticket,
        range: Range<usize>,
    ) -> Result<&mut [u8], Breach> {
        let overlaps = |read: &Read| read.range.start < range.end && range.start < read.range.end;
        let knows = |read: &Read| clocks.knows(me, read.reader, read.stamp);
        if let Some(read) = self.reads.iter().find(|read| overlaps(read) && !knows(read)) {
            return Err(Breach::WriteRace { reader: CommRank(read.reader as u32) });
        }
        let is_unknown = |before: &Written| !clocks.knows(me, before.writer, before.stamp);
        let before = self.written.overlapping(range.clone()).map(|(_, written)| written).find(is_unknown);
        if let Some(Written { writer, .. }) = before {
            return Err(Breach::OverwriteRace { writer: CommRank(writer as u32) });
        }
        // A rank that writes there later has to know of this write, and so of these reads.
        self.reads.retain(|read| !(range.start <= read.range.start && read.range.end <= range.end));
        self.written.set(range.clone(), Written { ticket, writer: me, stamp: clocks.stamp(me) });
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
    /// How many cells were claimed.
    turns: usize,
    /// The last ticket for which a cell was claimed that is not relayed, and the last for one that is.
    last: [Option<Ticket>; 2],
    /// The last cells that were claimed to be passed.
    passes: VecDeque<Pass>,
}

/// A cell that goes to the one peer with its ticket.
#[derive(Clone, Copy, Debug)]
struct Pass {
    ticket: Ticket,
    /// When its owner touched the cell last.
    touched: Stamp,
    /// The peer has waited for a flag of the ticket.
    is_told: bool,
    /// The peer has released the ticket.
    is_over: bool,
}

/// What a flag told when it was announced, for a ticket for which its owner had claimed the line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    ticket: Ticket,
    /// The cell of the ticket.
    pub(super) cell: Option<usize>,
    /// Memory that the owner exposed.
    pub(super) memory: Option<Span>,
    /// When the flag was announced, by the owner's clock.
    pub(super) stamp: Stamp,
}

#[derive(Clone, Debug)]
struct Lines {
    flags: [History; Line::COUNT],
    /// The cell that was claimed with the line last, for which ticket, and how.
    home: Option<(Ticket, usize, Room)>,
    /// What each flag told last for a ticket for which its line was claimed. Flags without data leave this as it is.
    told: [Option<Told>; Line::COUNT],
    payloads: [Store; Line::COUNT],
    /// The memory of which each flag is to tell.
    exposed: [Option<(Ticket, Span)>; Line::COUNT],
}

impl Rings {
    pub(super) fn new(lines: usize, cells: usize, cell: Bytes) -> Self {
        let payloads = [Store::new(INLINE.0), Store::new(INLINE.0)];
        let (told, exposed) = ([None; Line::COUNT], [None; Line::COUNT]);
        let line = Lines { flags: Default::default(), home: None, told, payloads, exposed };
        Self {
            lines: vec![(Position::default(), line); lines],
            cells: vec![(Position::default(), Store::new(cell.0)); cells],
            turns: 0,
            last: [None; 2],
            passes: VecDeque::new(),
        }
    }

    /// Notes that the cell of `ticket` goes to the one peer with that ticket.
    pub(super) fn pass(&mut self, ticket: Ticket) {
        self.passes.truncate(2 * self.cells.len());
        self.passes.push_front(Pass { ticket, touched: 0, is_told: false, is_over: false });
    }

    /// The owner of the rings touches the cell of `ticket`, at this time of its clock.
    pub(super) fn touch(&mut self, ticket: Ticket, stamp: Stamp) -> Result<(), Breach> {
        match self.passes.iter_mut().find(|pass| pass.ticket == ticket) {
            Some(Pass { is_over: true, .. }) => Err(Breach::TouchedAfterPassing),
            Some(pass) => {
                pass.touched = stamp;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The peer has waited for a flag of `ticket`.
    pub(super) fn tell_of_pass(&mut self, ticket: Ticket) {
        self.passes.iter_mut().filter(|pass| pass.ticket == ticket).for_each(|pass| pass.is_told = true);
    }

    /// The peer releases all tickets up to `ticket`. `knows` tells whether a time of the owner's clock happened before
    /// that.
    pub(super) fn take_passed(&mut self, ticket: Ticket, knows: impl Fn(Stamp) -> bool) -> Result<(), Breach> {
        for pass in self.passes.iter_mut().filter(|pass| pass.ticket <= ticket && !pass.is_over) {
            pass.is_over = true;
            if !knows(pass.touched) {
                return Err(Breach::TouchedAfterPassing);
            }
            if !pass.is_told {
                return Err(Breach::NeverTold);
            }
        }
        Ok(())
    }

    /// The position that a claim of `room` for `ticket` looks at. A claim of a cell also claims the ticket's lines.
    pub(super) fn next(&self, ticket: Ticket, room: Room) -> Position {
        let line = self.lines[self.line(ticket)].0;
        match room {
            Room::Lines => line,
            Room::Cell | Room::Passed | Room::Relayed => {
                let cell = self.cells[self.turns % self.cells.len()].0;
                // Cells that are relayed and others take memory in orders of their own, so each kind waits for the last
                // one of the other.
                let other = self.last[usize::from(room != Room::Relayed)];
                Position { claimed: line.claimed.max(cell.claimed), written: line.written.max(cell.written).max(other) }
            }
        }
    }

    /// The ticket for which something was written last to the cell that was claimed `cells` claims ago.
    pub(super) fn written_ago(&self, cells: usize) -> Option<Ticket> {
        let turn = self.turns.checked_sub(cells)?;
        self.cells[turn % self.cells.len()].0.written
    }

    /// The index of a ticket's lines.
    pub(super) fn line(&self, ticket: Ticket) -> usize {
        ticket.position(self.lines.len())
    }

    /// The index of the cell that was claimed for `ticket`.
    pub(super) fn home(&self, ticket: Ticket) -> Option<usize> {
        self.claimed_home(ticket).map(|(cell, _)| cell)
    }

    /// Whether peers may write the cell of `ticket`.
    pub(super) fn is_relayed(&self, ticket: Ticket) -> bool {
        self.claimed_home(ticket).is_some_and(|(_, room)| room == Room::Relayed)
    }

    fn claimed_home(&self, ticket: Ticket) -> Option<(usize, Room)> {
        let (owner, cell, room) = self.lines[self.line(ticket)].1.home?;
        (owner == ticket).then_some((cell, room))
    }

    /// What the flag of `line` tells a rank that looks for `ticket`.
    pub(super) fn told(&self, line: Line, ticket: Ticket) -> Option<Told> {
        self.lines[self.line(ticket)].1.told[line as usize].filter(|told| told.ticket == ticket)
    }

    /// Notes that the flag of `line` for `ticket` will tell of memory at `from`.
    pub(super) fn expose(&mut self, line: Line, ticket: Ticket, from: Span) {
        let index = self.line(ticket);
        self.lines[index].1.exposed[line as usize] = Some((ticket, from));
    }

    /// Whether the owner may write `room` for `ticket`.
    pub(super) fn is_claimed(&self, ticket: Ticket, room: Room) -> bool {
        match room {
            Room::Lines => self.lines[self.line(ticket)].0.claimed == Some(ticket),
            Room::Cell | Room::Passed | Room::Relayed => self.home(ticket).is_some(),
        }
    }

    /// Lets the owner write `room` for `ticket`.
    pub(super) fn claim(&mut self, ticket: Ticket, room: Room) {
        let (line, cell) = (self.line(ticket), self.turns % self.cells.len());
        self.lines[line].0.claimed = Some(ticket);
        if room.has_cell() {
            self.cells[cell].0.claimed = Some(ticket);
            self.lines[line].1.home = Some((ticket, cell, room));
            self.last[usize::from(room == Room::Relayed)] = Some(ticket);
            self.turns += 1;
        }
    }

    /// Notes that something was written for `ticket`.
    pub(super) fn write(&mut self, ticket: Ticket) {
        let line = self.line(ticket);
        self.lines[line].0.written = Some(ticket);
        if let Some(cell) = self.home(ticket) {
            self.cells[cell].0.written = Some(ticket);
        }
    }

    /// The flag of a line.
    pub(super) fn flag(&self, line: Line, ticket: Ticket) -> &History {
        &self.lines[self.line(ticket)].1.flags[line as usize]
    }

    /// Announces the flag of `line` for `ticket`, with what belongs to it; the owner's clock shows `stamp`.
    pub(super) fn publish(&mut self, line: Line, ticket: Ticket, stamp: Stamp, snapshot: Snapshot) {
        let (index, cell) = (self.line(ticket), self.home(ticket));
        let (position, lines) = &mut self.lines[index];
        if position.claimed == Some(ticket) {
            let memory = lines.exposed[line as usize].and_then(|(owner, from)| (owner == ticket).then_some(from));
            lines.told[line as usize] = Some(Told { ticket, cell, memory, stamp });
        }
        lines.flags[line as usize].push(ticket, snapshot);
    }

    /// The payload of `line` at `index`; the cell at `index` if there is no `line`.
    pub(super) fn store(&mut self, line: Option<Line>, index: usize) -> &mut Store {
        match line {
            Some(line) => &mut self.lines[index].1.payloads[line as usize],
            None => &mut self.cells[index].1,
        }
    }
}

/// The room of a payload, or of a cell if there is no `line`.
pub(super) fn room_of(line: Option<Line>) -> Room {
    if line.is_some() { Room::Lines } else { Room::Cell }
}
