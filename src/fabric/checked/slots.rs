//! The slots of one rank, with what is known of each byte: for which ticket it was written, when, and who has read it.

use super::clocks::{Clocks, History, Stamp};
use super::ranges::RangeMap;
use super::violation::Breach;
use crate::fabric::{INLINE, Line};
use crate::types::{Bytes, CommRank, Ticket};
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

/// One position of a ring.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// The ticket that may be written.
    pub(super) claimed: Option<Ticket>,
    /// The ticket written last: the one that peers must release before the next is written.
    pub(super) written: Option<Ticket>,
    /// The flags of the lines.
    pub(super) flags: [History; Line::COUNT],
    cell: Store,
    payloads: [Store; Line::COUNT],
}

impl Slot {
    pub(super) fn new(cell: Bytes) -> Self {
        Self {
            claimed: None,
            written: None,
            flags: Default::default(),
            cell: Store::new(cell.0),
            payloads: [Store::new(INLINE.0), Store::new(INLINE.0)],
        }
    }

    /// The payload of a line, or the cell.
    pub(super) fn store(&mut self, line: Option<Line>) -> &mut Store {
        match line {
            Some(line) => &mut self.payloads[line as usize],
            None => &mut self.cell,
        }
    }
}
