//! What copies and reductions do to memory, and the rules that they must keep.

use super::machine::Machine;
use super::memory::Spot;
use super::slots::{Told, room_of};
use super::violation::Breach;
use crate::fabric::{EXPOSURE, Exposed, Line, Place, Span};
use crate::types::{Bytes, CommRank, NodeRank, Ticket};
use std::ops::Range;

/// `n` bytes of some memory.
#[derive(Clone, Debug)]
pub(super) enum Location {
    Own(Place, Spot),
    Slot { owner: usize, line: Option<Line>, ticket: Ticket, position: usize, range: Range<usize> },
}

impl Location {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Own(_, mine), Self::Own(_, others)) => mine == others,
            (Self::Slot { range: mine, .. }, Self::Slot { range: others, .. }) => {
                self.is_beside(other) && mine == others
            }
            _ => false,
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Own(_, mine), Self::Own(_, others)) => mine.overlaps(others),
            (Self::Slot { range: mine, .. }, Self::Slot { range: others, .. }) => {
                self.is_beside(other) && mine.start < others.end && others.start < mine.end
            }
            _ => false,
        }
    }

    /// Whether both lie in the same cell or payload.
    fn is_beside(&self, other: &Self) -> bool {
        let key = |location: &Self| match location {
            Self::Slot { owner, line, position, .. } => Some((*owner, *line, *position)),
            Self::Own(..) => None,
        };
        key(self).is_some() && key(self) == key(other)
    }
}

impl Machine {
    pub(super) fn locate(&mut self, me: usize, span: Span, n: Bytes) -> Result<Location, Breach> {
        let (offset, n) = (span.offset.0, n.0);
        let (rank, told_by, line, ticket) = match span.place {
            Place::Cell { rank, line, ticket } => (rank, line, None, ticket),
            Place::Payload { rank, line, ticket } => (rank, line, Some(line), ticket),
            own => {
                return Ok(Location::Own(own, self.members[me].memory.locate(own, offset, n)?));
            }
        };
        self.check_epoch(me, ticket)?;
        let owner = self.peer(me, rank)?;
        let rings = &self.members[owner].rings;
        let position = match line {
            Some(_) => rings.line(ticket),
            None if owner == me => rings.home(ticket).ok_or(Breach::Unclaimed)?,
            None => {
                let told = self.told(me, owner, told_by, ticket)?;
                told.cell.ok_or(Breach::Untold)?
            }
        };
        let length = self.members[owner].rings.store(line, position).length();
        let end = offset + n;
        if end > length {
            return Err(Breach::OutOfBounds { end, length });
        }
        if line.is_none() && end > self.members[me].depth.0 {
            return Err(Breach::TooDeep { end });
        }
        Ok(Location::Slot { owner, line, ticket, position, range: offset..end })
    }

    /// What a flag of `owner` told, for which `me` must have waited.
    fn told(&self, me: usize, owner: usize, line: Line, ticket: Ticket) -> Result<Told, Breach> {
        let told = self.members[owner].rings.told(line, ticket).ok_or(Breach::Untold)?;
        match self.clocks.knows(me, owner, told.stamp) {
            true => Ok(told),
            false => Err(Breach::ReadRace { writer: CommRank(owner as u32) }),
        }
    }

    /// Appends the bytes at `from` to `data`.
    pub(super) fn read(&mut self, me: usize, from: &Location, data: &mut Vec<u8>) -> Result<(), Breach> {
        match from {
            Location::Own(place, spot) => {
                self.check_lent(me, from)?;
                data.extend_from_slice(self.members[me].memory.read(*place, spot)?);
            }
            Location::Slot { owner, line, ticket, position, range } => {
                if *owner != me && self.has_released(me, *ticket) {
                    return Err(Breach::ReadAfterRelease);
                }
                if *owner == me && line.is_none() {
                    let stamp = self.clocks.stamp(me);
                    self.members[me].rings.touch(*ticket, stamp)?;
                }
                let store = self.members[*owner].rings.store(*line, *position);
                data.extend_from_slice(store.read(&self.clocks, me, *ticket, range.clone())?);
            }
        }
        Ok(())
    }

    fn check_lent(&self, me: usize, location: &Location) -> Result<(), Breach> {
        match self.members[me].lent.iter().any(|lent| lent.overlaps(location)) {
            true => Err(Breach::Lent),
            false => Ok(()),
        }
    }

    /// Copies `data` to `to`.
    pub(super) fn write(&mut self, me: usize, to: &Location, data: &[u8]) -> Result<(), Breach> {
        match to {
            Location::Own(place, spot) => {
                self.check_lent(me, to)?;
                self.check_fetches(me, |fetched| fetched.overlaps(to))?;
                self.members[me].memory.write(*place, spot)?.copy_from_slice(data);
            }
            Location::Slot { owner, line, ticket, position, range } => {
                let has_released = self.has_released(me, *ticket);
                let rings = &mut self.members[*owner].rings;
                if *owner != me {
                    if line.is_some() || !rings.is_relayed(*ticket) {
                        return Err(Breach::NotOwner);
                    }
                    if has_released {
                        return Err(Breach::WriteAfterRelease);
                    }
                } else if !rings.is_claimed(*ticket, room_of(*line)) {
                    return Err(Breach::Unclaimed);
                } else if line.is_none() {
                    rings.touch(*ticket, self.clocks.stamp(me))?;
                }
                rings.write(*ticket);
                rings.store(*line, *position).write(&self.clocks, me, *ticket, range.clone())?.copy_from_slice(data);
            }
        }
        Ok(())
    }

    /// Checks that the fetches from the memory of `me` that `concerns` selects happened before.
    pub(super) fn check_fetches(&self, me: usize, concerns: impl Fn(&Location) -> bool) -> Result<(), Breach> {
        let known = |reader: usize, stamp| self.clocks.knows(me, reader, stamp);
        let mut fetches = self.members[me].fetches.iter();
        match fetches.find(|(from, reader, stamp)| concerns(from) && !known(*reader, *stamp)) {
            Some((_, reader, _)) => Err(Breach::StillFetched { reader: CommRank(*reader as u32) }),
            None => Ok(()),
        }
    }

    /// The first `n` bytes beside a flag of `rank`.
    fn beside(
        &mut self,
        me: usize,
        rank: NodeRank,
        (line, ticket): (Line, Ticket),
        n: Bytes,
    ) -> Result<Location, Breach> {
        self.locate(me, Place::Payload { rank, line, ticket }.start(), n)
    }

    pub(super) fn expose(&mut self, me: usize, line: Line, ticket: Ticket, from: Span) -> Result<(), Breach> {
        if matches!(from.place, Place::Cell { .. } | Place::Payload { .. }) {
            return Err(Breach::NotBuffer);
        }
        if self.members[me].rings.home(ticket).is_some() {
            return Err(Breach::ExposedWithCell);
        }
        if self.members[me].rings.told(line, ticket).is_some() {
            return Err(Breach::ExposedTooLate);
        }
        let rank = self.members[me].node_rank;
        let beside = self.beside(me, rank, (line, ticket), EXPOSURE)?;
        self.write(me, &beside, &[0; EXPOSURE.0])?;
        self.members[me].rings.expose(line, ticket, from);
        Ok(())
    }

    /// What a peer exposed beside that flag.
    fn exposed(&mut self, me: usize, rank: NodeRank, line: Line, ticket: Ticket) -> Result<Span, Breach> {
        let owner = self.peer(me, rank)?;
        let exposed = self.told(me, owner, line, ticket)?.memory.ok_or(Breach::Unexposed)?;
        let beside = self.beside(me, rank, (line, ticket), EXPOSURE)?;
        self.read(me, &beside, &mut Vec::new())?;
        Ok(exposed)
    }

    /// Whether a peer exposed something with that flag, for which `me` must have waited.
    pub(super) fn is_exposed(&mut self, me: usize, rank: NodeRank, line: Line, ticket: Ticket) -> Result<bool, Breach> {
        self.check_epoch(me, ticket)?;
        let owner = self.peer(me, rank)?;
        if self.has_released(me, ticket) {
            return Err(Breach::ReadAfterRelease);
        }
        Ok(self.told(me, owner, line, ticket)?.memory.is_some())
    }

    pub(super) fn fetch(&mut self, me: usize, to: Span, from: Exposed, n: Bytes) -> Result<bool, Breach> {
        let Exposed { rank, line, ticket, offset } = from;
        let from = self.exposed(me, rank, line, ticket)?.plus(offset);
        let to = self.locate(me, to, n)?;
        let Location::Own(place, spot) = &to else { return Err(Breach::NotBuffer) };
        let owner = self.peer(me, rank)?;
        if !self.members[owner].is_in_call || self.members[owner].epoch != ticket.epoch() {
            return Err(Breach::FetchedTooLate);
        }
        if self.misses > 0 && lot(me, ticket.0).is_multiple_of(self.misses) {
            self.check_lent(me, &to)?;
            self.members[me].memory.undefine(*place, spot)?;
            return Ok(false);
        }
        let from = self.locate(owner, from, n)?;
        let mut data = Vec::new();
        self.read(owner, &from, &mut data)?;
        let stamp = self.clocks.stamp(me);
        self.members[owner].fetches.push((from, me, stamp));
        self.write(me, &to, &data)?;
        Ok(true)
    }

    /// Draws whether a rank lends its memory in the call that it is in.
    pub(super) fn draws_to_lend(&self, me: usize) -> bool {
        lot(me, !self.members[me].epoch.0).is_multiple_of(2)
    }

    pub(super) fn answer(&mut self, me: usize, line: Line, ticket: Ticket, answer: bool) -> Result<(), Breach> {
        let rank = self.members[me].node_rank;
        let beside = self.beside(me, rank, (line, ticket), Bytes(1))?;
        self.write(me, &beside, &[u8::from(answer)])
    }

    pub(super) fn answered(&mut self, me: usize, rank: NodeRank, line: Line, ticket: Ticket) -> Result<bool, Breach> {
        let beside = self.beside(me, rank, (line, ticket), Bytes(1))?;
        let mut data = Vec::new();
        self.read(me, &beside, &mut data)?;
        Ok(data == [1])
    }

    pub(super) fn copy(&mut self, me: usize, to: Span, from: Span, n: Bytes) -> Result<(), Breach> {
        let (to, from) = (self.locate(me, to, n)?, self.locate(me, from, n)?);
        let mut data = std::mem::take(&mut self.spare[0]);
        data.clear();
        self.read(me, &from, &mut data)?;
        if to.is_same(&from) {
            // The bytes stay as they are, as input and as output.
        } else if to.overlaps(&from) {
            return Err(Breach::Overlap);
        } else {
            self.write(me, &to, &data)?;
        }
        self.spare[0] = data;
        Ok(())
    }

    pub(super) fn reduce(&mut self, me: usize, to: Span, left: Span, right: Span, n: Bytes) -> Result<(), Breach> {
        let operator = self.members[me].operator.ok_or(Breach::NoOperation)?;
        let granule = operator.granule();
        let is_split = |span: Span| {
            matches!(span.place, Place::SendBuf | Place::RecvBuf) && !span.offset.0.is_multiple_of(granule)
        };
        if !n.0.is_multiple_of(granule) || [to, left, right].into_iter().any(is_split) {
            return Err(Breach::SplitElement);
        }
        let (to, left, right) = (self.locate(me, to, n)?, self.locate(me, left, n)?, self.locate(me, right, n)?);
        if [&left, &right].into_iter().any(|operand| to.overlaps(operand) && !to.is_same(operand)) {
            return Err(Breach::Overlap);
        }
        let [mut first, mut second, mut result] = std::mem::take(&mut self.spare);
        first.clear();
        second.clear();
        result.clear();
        self.read(me, &left, &mut first)?;
        self.read(me, &right, &mut second)?;
        operator.combine(&first, &second, &mut result);
        self.write(me, &to, &result)?;
        self.spare = [first, second, result];
        Ok(())
    }
}

/// What a rank draws for `number`, the same whatever the turns are.
fn lot(me: usize, number: u64) -> u64 {
    (number ^ (me as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}
