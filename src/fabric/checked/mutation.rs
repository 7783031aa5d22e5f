//! Deliberate mistakes, made in the operations of correct algorithms, to show that the machine finds them.

use super::operation::Operation;
use crate::fabric::{Exposed, Line, Place, Room, Span};
use crate::types::{Bytes, CommRank, NodeRank, Ticket};

/// A class of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Claims.
    Claim,
    /// Releases within calls.
    Release,
    /// Publications.
    Publish,
    /// Waits for a line.
    Wait(Line),
    /// Waits for what others post.
    WaitPost,
    /// Copies into a slot.
    CopyIn,
    /// Copies from a slot to the rank's own memory.
    CopyOut,
    /// Reductions.
    Reduce,
    /// Exposures of memory.
    Expose,
    /// Copies out of exposed memory.
    Fetch,
    /// Answers.
    Answer,
    /// Beginnings of steps between nodes.
    Bridge,
    /// Ends of steps between nodes.
    BridgeEnd,
}

/// What is done to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is left out.
    Drop(Kind),
    /// It is performed after the operation that follows it.
    Postpone(Kind),
    /// Its ticket is released before it, and no longer after it.
    ReleaseBefore(Kind),
    /// A claim does not wait, but permits to write.
    ClaimAtOnce,
    /// A claim of a cell takes its lines alone.
    ClaimLines,
    /// A wait looks at the other line.
    OtherLine,
    /// A wait is for the ticket before.
    EarlierTicket,
    /// All operations use the ticket before, as if one had not been drawn.
    MissingTicket,
    /// The operands of a reduction change places.
    SwapOperands,
    /// A copy ends one byte early.
    ShortCopy,
    /// A copy goes to or from the payload in place of the cell.
    PayloadForCell,
    /// A copy goes to the slot of the next rank.
    OthersSlot,
}

/// A change, and which operations suffer it.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// What is done.
    pub change: Change,
    /// Whose operations suffer it; everyone's if `None`.
    pub rank: Option<CommRank>,
    /// It changes the first operation that it fits, and every `period`th from there; at least 1.
    pub period: usize,
}

/// Applies a mutation to the operations of all ranks, or looks for occasions for some.
#[derive(Debug)]
pub(in crate::fabric) struct Mutator {
    mutation: Option<Mutation>,
    ranks: Vec<Progress>,
    hits: u64,
    sought: Vec<Change>,
    occasions: Vec<Change>,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    fitting: usize,
    postponed: Option<Operation>,
    released: Option<Ticket>,
}

impl Mutator {
    pub(in crate::fabric) fn new(mutation: Option<Mutation>, ranks: usize) -> Self {
        let ranks = vec![Progress::default(); ranks];
        Self { mutation, ranks, hits: 0, sought: Vec::new(), occasions: Vec::new() }
    }

    /// Changes nothing, but finds out which of `changes` fit an operation.
    pub(super) fn seeking(changes: &[Change], ranks: usize) -> Self {
        Self { sought: changes.to_vec(), ..Self::new(None, ranks) }
    }

    /// The changes that were sought and have fitted an operation so far.
    pub(super) fn occasions(&self) -> &[Change] {
        &self.occasions
    }

    /// Operations changed so far.
    pub(in crate::fabric) fn hits(&self) -> u64 {
        self.hits
    }

    /// Appends to `queue` what `me` does in place of `operation`. A ticket that is returned counts as claimed at once,
    /// with its room.
    pub(in crate::fabric) fn apply(
        &mut self,
        me: usize,
        operation: Operation,
        queue: &mut Vec<Operation>,
    ) -> Option<(Ticket, Room)> {
        self.occasions.extend(self.sought.extract_if(.., |change| change.fits(&operation)));
        let Some(mutation) = self.mutation else {
            queue.push(operation);
            return None;
        };
        let progress = &mut self.ranks[me];
        let postponed = progress.postponed.take();
        let mut claimed = None;
        if mutation.concerns(me) && mutation.change.fits(&operation) {
            progress.fitting += 1;
            if (progress.fitting - 1).is_multiple_of(mutation.period) {
                self.hits += 1;
                claimed = progress.change(mutation.change, operation, queue);
            } else {
                queue.push(operation);
            }
        } else if !matches!(operation, Operation::Release(ticket) if progress.released == Some(ticket)) {
            queue.push(operation);
        }
        queue.extend(postponed);
        claimed
    }
}

impl Mutation {
    fn concerns(&self, rank: usize) -> bool {
        self.rank.is_none_or(|concerned| concerned.index() == rank)
    }
}

impl Progress {
    fn change(&mut self, change: Change, operation: Operation, queue: &mut Vec<Operation>) -> Option<(Ticket, Room)> {
        match (change, operation) {
            (Change::Drop(_), _) => {}
            (Change::Postpone(_), _) => self.postponed = Some(operation),
            (Change::ReleaseBefore(_), _) => {
                let ticket = ticket_of(&operation).filter(|ticket| self.released < Some(*ticket));
                self.released = ticket.or(self.released);
                queue.extend(ticket.map(Operation::Release));
                queue.push(operation);
            }
            (Change::ClaimAtOnce, Operation::Claim(ticket, room)) => return Some((ticket, room)),
            _ => queue.push(replaced(change, operation)),
        }
        None
    }
}

impl Change {
    fn fits(self, operation: &Operation) -> bool {
        match self {
            Self::Drop(kind) | Self::Postpone(kind) => kind.has(operation),
            Self::ReleaseBefore(kind) => kind.has(operation) && ticket_of(operation).is_some(),
            Self::ClaimAtOnce => Kind::Claim.has(operation),
            Self::ClaimLines => matches!(operation, Operation::Claim(_, room) if room.has_cell()),
            Self::OtherLine => matches!(operation, Operation::Wait(..)),
            Self::EarlierTicket => {
                matches!(operation, Operation::Wait(_, _, ticket) | Operation::WaitPost(_, ticket) if ticket.step() > 0)
            }
            Self::MissingTicket => ticket_of(operation).is_some_and(|ticket| ticket.step() > 0),
            Self::SwapOperands => Kind::Reduce.has(operation),
            Self::ShortCopy => matches!(operation, Operation::Copy { .. }),
            Self::PayloadForCell => {
                let is_cell = |span: &Span| matches!(span.place, Place::Cell { .. });
                matches!(operation, Operation::Copy { to, from, .. } if is_cell(to) || is_cell(from))
            }
            Self::OthersSlot => Kind::CopyIn.has(operation),
        }
    }
}

impl Kind {
    fn has(self, operation: &Operation) -> bool {
        match (self, operation) {
            (Self::Claim, Operation::Claim(..))
            | (Self::Release, Operation::Release(_))
            | (Self::Publish, Operation::Publish(..) | Operation::Post(..))
            | (Self::WaitPost, Operation::WaitPost(..))
            | (Self::Reduce, Operation::Reduce { .. })
            | (Self::Expose, Operation::Expose(..))
            | (Self::Fetch, Operation::Fetch { .. })
            | (Self::Answer, Operation::Answer(..))
            | (Self::Bridge, Operation::BridgeBegin(_))
            | (Self::BridgeEnd, Operation::BridgeEnd) => true,
            (Self::Wait(line), Operation::Wait(_, other, _)) => line == *other,
            (Self::CopyIn, Operation::Copy { to, .. }) => ticket_in(to).is_some(),
            (Self::CopyOut, Operation::Copy { to, from, .. }) => ticket_in(to).is_none() && ticket_in(from).is_some(),
            _ => false,
        }
    }
}

fn ticket_in(span: &Span) -> Option<Ticket> {
    match span.place {
        Place::Cell { ticket, .. } | Place::Payload { ticket, .. } => Some(ticket),
        _ => None,
    }
}

/// The ticket that an operation is about. For a copy or a reduction it is that of a slot that is read, or else of a
/// slot that a copy writes.
fn ticket_of(operation: &Operation) -> Option<Ticket> {
    match operation {
        Operation::Claim(ticket, _)
        | Operation::Release(ticket)
        | Operation::Publish(_, ticket)
        | Operation::Post(_, ticket)
        | Operation::WaitPost(_, ticket)
        | Operation::Expose(_, ticket, _)
        | Operation::Fetch { from: Exposed { ticket, .. }, .. }
        | Operation::Answer(_, ticket, _)
        | Operation::Answered(_, _, ticket)
        | Operation::IsExposed(_, _, ticket)
        | Operation::Wait(_, _, ticket) => Some(*ticket),
        Operation::Copy { to, from, .. } => ticket_in(from).or(ticket_in(to)),
        Operation::Reduce { left, right, .. } => ticket_in(right).or(ticket_in(left)),
        Operation::Drain(_) | Operation::BridgeBegin(_) | Operation::BridgeEnd => None,
    }
}

fn replaced(change: Change, operation: Operation) -> Operation {
    match (change, operation) {
        (Change::OtherLine, Operation::Wait(rank, line, ticket)) => {
            let other = if line == Line::Up { Line::Down } else { Line::Up };
            Operation::Wait(rank, other, ticket)
        }
        (Change::ClaimLines, Operation::Claim(ticket, _)) => Operation::Claim(ticket, Room::Lines),
        (Change::SwapOperands, Operation::Reduce { to, left, right, n }) => {
            Operation::Reduce { to, left: right, right: left, n }
        }
        (Change::ShortCopy, Operation::Copy { to, from, n }) => Operation::Copy { to, from, n: n - Bytes(1) },
        (Change::EarlierTicket | Change::MissingTicket, _) => {
            with_places(operation, |ticket, place| (before(ticket), place))
        }
        (Change::PayloadForCell, _) => with_places(operation, |ticket, place| match place {
            Place::Cell { rank, line, .. } => (ticket, Place::Payload { rank, line, ticket }),
            other => (ticket, other),
        }),
        (Change::OthersSlot, Operation::Copy { to, from, n }) => {
            let place = match to.place {
                Place::Cell { rank, line, ticket } => Place::Cell { rank: NodeRank(rank.0 ^ 1), line, ticket },
                Place::Payload { rank, line, ticket } => Place::Payload { rank: NodeRank(rank.0 ^ 1), line, ticket },
                own => own,
            };
            Operation::Copy { to: Span { place, ..to }, from, n }
        }
        _ => operation,
    }
}

fn before(ticket: Ticket) -> Ticket {
    if ticket.step() > 0 { Ticket(ticket.0 - 1) } else { ticket }
}

/// The operation with every ticket and every slot replaced.
fn with_places(operation: Operation, change: impl Fn(Ticket, Place) -> (Ticket, Place)) -> Operation {
    let ticket_only = |ticket| change(ticket, Place::SendBuf).0;
    let span = |span: Span| {
        let Some(ticket) = ticket_in(&span) else {
            return span;
        };
        let place = match change(ticket, span.place) {
            (ticket, Place::Cell { rank, line, .. }) => Place::Cell { rank, line, ticket },
            (ticket, Place::Payload { rank, line, .. }) => Place::Payload { rank, line, ticket },
            (_, own) => own,
        };
        Span { place, offset: span.offset }
    };
    match operation {
        Operation::Claim(ticket, room) => Operation::Claim(ticket_only(ticket), room),
        Operation::Release(ticket) => Operation::Release(ticket_only(ticket)),
        Operation::Publish(line, ticket) => Operation::Publish(line, ticket_only(ticket)),
        Operation::Post(rank, ticket) => Operation::Post(rank, ticket_only(ticket)),
        Operation::WaitPost(rank, ticket) => Operation::WaitPost(rank, ticket_only(ticket)),
        Operation::Wait(rank, line, ticket) => Operation::Wait(rank, line, ticket_only(ticket)),
        Operation::Copy { to, from, n } => Operation::Copy { to: span(to), from: span(from), n },
        Operation::Reduce { to, left, right, n } => {
            Operation::Reduce { to: span(to), left: span(left), right: span(right), n }
        }
        Operation::Expose(line, ticket, from) => Operation::Expose(line, ticket_only(ticket), span(from)),
        Operation::IsExposed(rank, line, ticket) => Operation::IsExposed(rank, line, ticket_only(ticket)),
        Operation::Fetch { to, from, n } => {
            Operation::Fetch { to: span(to), from: Exposed { ticket: ticket_only(from.ticket), ..from }, n }
        }
        Operation::Answer(line, ticket, answer) => Operation::Answer(line, ticket_only(ticket), answer),
        Operation::Answered(rank, line, ticket) => Operation::Answered(rank, line, ticket_only(ticket)),
        Operation::Drain(_) | Operation::BridgeBegin(_) | Operation::BridgeEnd => operation,
    }
}
