//! What a call waits for, for lines that say so.

use super::{Line, Room};
use crate::types::{Epoch, NodeRank, Ticket};

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Nothing yet.
    Nothing,
    /// A flag of a peer.
    Flag {
        /// The peer that publishes it.
        rank: NodeRank,
        /// Its line.
        line: Line,
        /// The ticket that the flag has to reach.
        ticket: Ticket,
    },
    /// What a peer posts.
    Post {
        /// The peer that posts.
        rank: NodeRank,
        /// The ticket that the peer has to post.
        ticket: Ticket,
    },
    /// A slot of this rank that some peer has not released.
    Slot {
        /// The ticket for which this rank claims the slot.
        ticket: Ticket,
        /// How much of the slot this rank claims.
        room: Room,
    },
    /// That all peers release what this rank wrote for a ticket.
    Release {
        /// That ticket.
        ticket: Ticket,
    },
    /// What a peer tells about the memory of its cells.
    Cells {
        /// The peer.
        rank: NodeRank,
        /// In which call.
        epoch: Epoch,
    },
    /// The other nodes.
    Bridge,
}

// What a word says in its lowest byte.
const NOTHING: u64 = 0;
const UP: u64 = 1;
const DOWN: u64 = 2;
const POST: u64 = 3;
const SLOT: u64 = 4;
const RELEASE: u64 = 5;
const CELLS: u64 = 6;
const BRIDGE: u64 = 7;

impl Awaited {
    /// The same in two words, which a call stores without a lock.
    #[inline(always)]
    pub fn to_words(self) -> [u64; 2] {
        let of_rank = |what, rank: NodeRank| what | u64::from(rank.0) << 8;
        match self {
            Self::Nothing => [NOTHING, 0],
            Self::Flag { rank, line: Line::Up, ticket } => [of_rank(UP, rank), ticket.0],
            Self::Flag { rank, line: Line::Down, ticket } => [of_rank(DOWN, rank), ticket.0],
            Self::Post { rank, ticket } => [of_rank(POST, rank), ticket.0],
            Self::Slot { ticket, room } => [SLOT | (room as u64) << 8, ticket.0],
            Self::Release { ticket } => [RELEASE, ticket.0],
            Self::Cells { rank, epoch } => [of_rank(CELLS, rank), epoch.0],
            Self::Bridge => [BRIDGE, 0],
        }
    }

    /// What [`Self::to_words`] was called on.
    pub fn of_words([what, number]: [u64; 2]) -> Self {
        let (rank, ticket) = (NodeRank((what >> 8) as u32), Ticket(number));
        match what & 0xff {
            UP => Self::Flag { rank, line: Line::Up, ticket },
            DOWN => Self::Flag { rank, line: Line::Down, ticket },
            POST => Self::Post { rank, ticket },
            SLOT => Self::Slot { ticket, room: Room::ALL[(what >> 8) as usize] },
            RELEASE => Self::Release { ticket },
            CELLS => Self::Cells { rank, epoch: Epoch(number) },
            BRIDGE => Self::Bridge,
            _ => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_what_they_were_made_of() {
        let (rank, ticket, epoch) = (NodeRank(u32::MAX), Ticket(u64::MAX), Epoch(u64::MAX));
        let slots = Room::ALL.map(|room| Awaited::Slot { ticket, room });
        let others = [
            Awaited::Nothing,
            Awaited::Flag { rank, line: Line::Up, ticket },
            Awaited::Flag { rank, line: Line::Down, ticket },
            Awaited::Post { rank, ticket },
            Awaited::Release { ticket },
            Awaited::Cells { rank, epoch },
            Awaited::Bridge,
        ];
        for awaited in others.into_iter().chain(slots) {
            assert_eq!(Awaited::of_words(awaited.to_words()), awaited);
        }
    }
}
