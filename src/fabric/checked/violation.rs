//! What the checking scheduler finds.

use crate::types::{CommRank, Epoch, NodeRank, Ticket};
use std::fmt;

/// A rule that a program broke: where, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Who broke it.
    pub rank: CommRank,
    /// In which call.
    pub epoch: Epoch,
    /// By which operation, in words.
    pub operation: String,
    /// The rule.
    pub breach: Breach,
}

/// The rules of the fabric and of the collectives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Breach {
    /// Wrote another rank's slot that was not claimed to be relayed.
    NotOwner,
    /// Reached further into a cell than the plan of the call says: there may be no memory.
    TooDeep {
        /// How far.
        end: usize,
    },
    /// Wrote a slot that it had not claimed for that ticket.
    Unclaimed,
    /// Reached beyond the end of a place.
    OutOfBounds {
        /// The end asked for.
        end: usize,
        /// The length of the place.
        length: usize,
    },
    /// Named a rank that is not on the node.
    NoSuchRank(NodeRank),
    /// Named a ticket of another call.
    WrongEpoch(Ticket),
    /// Named a ticket beyond those that the call may draw: huddle declines calls by that bound, lest they run out.
    TooManyTickets {
        /// How many it may draw.
        most: u64,
    },
    /// Read bytes that nobody had written.
    Unwritten {
        /// The first of them.
        at: usize,
    },
    /// Read bytes that were written for another ticket.
    WrongTicket {
        /// Their ticket.
        found: Ticket,
    },
    /// Read bytes whose write by another rank did not happen before.
    ReadRace {
        /// The writer.
        writer: CommRank,
    },
    /// Wrote bytes whose read by another rank did not happen before.
    WriteRace {
        /// The reader.
        reader: CommRank,
    },
    /// Wrote bytes that another rank had written, in a relay or for an earlier ticket, where that write did not happen
    /// before.
    OverwriteRace {
        /// That rank.
        writer: CommRank,
    },
    /// Looked for another rank's cell of which no flag of the line had told, or for what a flag tells before it was
    /// published.
    Untold,
    /// The owner of a passed cell touched it, where nothing orders that access before the peer's release of the ticket.
    /// The rank that broke the rule is the later one in this run: the owner, or the peer that released.
    TouchedAfterPassing,
    /// Released the ticket of a cell that its peer passes, without having waited for a flag of that ticket: then no
    /// rank owns the cell.
    NeverTold,
    /// Read a slot of another rank after having released its ticket.
    ReadAfterRelease,
    /// Wrote a relayed cell of another rank after having released its ticket.
    WriteAfterRelease,
    /// Wrote its input.
    InputWritten,
    /// Read input that its own output had overwritten in place.
    InputOverwritten,
    /// Source and destination overlap without being equal.
    Overlap,
    /// Cut an element of a reduction.
    SplitElement,
    /// Reduced in a collective that has no operation.
    NoOperation,
    /// Published, posted or released a ticket that is not later than the one before, or claimed an earlier one.
    OutOfOrder {
        /// The one before.
        before: Ticket,
    },
    /// Claimed a slot whose last ticket it has not released itself: peers may do the same and wait for ever.
    Lookahead {
        /// That ticket.
        held: Ticket,
    },
    /// Began a step between nodes, or left the call, before the previous step had ended.
    StepUnderWay,
    /// Ended a step between nodes that it had not begun.
    NoStep,
    /// Touched memory that a step between nodes had not given back.
    Lent,
    /// Looked beside a flag for memory that a peer exposes, where it exposed none for that ticket.
    Unexposed,
    /// Exposed memory with a flag that tells of a cell.
    ExposedWithCell,
    /// Exposed memory with a flag that it had published.
    ExposedTooLate,
    /// Left a call, or wrote memory that it had exposed, though a fetch of that memory did not happen before.
    StillFetched {
        /// Who fetched.
        reader: CommRank,
    },
    /// Fetched from a rank that had left the call.
    FetchedTooLate,
    /// A rank other than a leader took a step between nodes.
    NotLeader,
    /// Named a slot in place of a buffer: in a step between nodes, an exposure or a fetch.
    NotBuffer,
    /// Leaders took different steps between nodes.
    BridgeMismatch {
        /// What another leader asked for.
        other: String,
    },
    /// All ranks that have not finished wait: who for what.
    Deadlock {
        /// One line per waiting rank.
        waiting: Vec<String>,
    },
    /// The call ended with the wrong result.
    WrongResult {
        /// The first wrong byte.
        at: usize,
    },
    /// Left a barrier that another rank had not entered.
    LeftBarrierEarly {
        /// That rank.
        missing: CommRank,
    },
    /// The algorithm panicked.
    Panic(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, epoch, operation, breach } = self;
        write!(f, "rank {}, call {}, {operation}: {breach:?}", rank.0, epoch.0)
    }
}

impl std::error::Error for Violation {}
