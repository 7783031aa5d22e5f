//! Where this process tells whether it has its core: on its board, in the segment of one of its communicators. A
//! communicator uses the board if all its ranks had the same one when it was built; otherwise its ranks tell it in its
//! own segment.

use super::pool::NodeState;
use crate::fabric::shm::Presences;
use crate::types::NodeRank;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The board lies in the segment of the communicator with the most ranks on this node among those built so far, and of
/// the first of these. That segment stays mapped to the end of the process.
pub(super) struct Board {
    nonce: u64,
    /// World ranks, in their order on the node.
    members: Box<[c_int]>,
    presences: Presences,
}

static BOARD: Mutex<Option<Arc<Board>>> = Mutex::new(None);

fn place() -> MutexGuard<'static, Option<Arc<Board>>> {
    BOARD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The board of this process; none before it has built a communicator whose ranks share cores.
pub(super) fn current() -> Option<Arc<Board>> {
    place().clone()
}

/// Moves the board to a new communicator, whose ranks share cores, if there is none yet or if this communicator has
/// more ranks on the node than that of the board.
pub(super) fn consider(NodeState { members, nonce, context, .. }: &NodeState) {
    let mut board = place();
    if board.as_ref().is_none_or(|board| members.len() > board.members.len()) {
        *board = Some(Arc::new(Board { nonce: *nonce, members: members.clone(), presences: context.own_presences() }));
    }
}

impl Board {
    /// The number by which other processes know this board, never zero.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Where the world ranks `of` tell whether they have their cores; `None` unless all `boards`, which these ranks
    /// named, are this one, and all of the ranks are among its members.
    pub fn presences(&self, of: &[c_int], boards: impl IntoIterator<Item = u64>) -> Option<Presences> {
        if boards.into_iter().any(|nonce| nonce != self.nonce) {
            return None;
        }
        let place = |rank: &c_int| self.members.iter().position(|member| member == rank);
        let places: Option<Vec<usize>> = of.iter().map(place).collect();
        Some(self.presences.among(places?.into_iter().map(|place| NodeRank(place as u32))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::shm::{Context, Geometry, Segment};
    use crate::topo::{Hierarchy, Layout, Levels};
    use crate::types::{Bytes, CommRank};

    fn state(members: &[c_int], nonce: u64) -> NodeState {
        let n = members.len();
        let geometry = Geometry { ranks: n, slots: 2, lines: 2, cell: Bytes(64), round: Bytes(64) };
        let (segment, _) = Segment::create(geometry.length(), geometry.front()).expect("memfd");
        let levels = Levels::from_paths(&vec![vec![]; n], NodeRank(0));
        let layout = Layout::new(&vec![0; n], CommRank(0));
        let context = Context::new(segment, geometry, NodeRank(0), layout, levels);
        NodeState { members: members.into(), nonce, hierarchy: Hierarchy::from_words([0; 2]), context }
    }

    /// The view of one process. One test, since there is one board.
    #[test]
    fn the_board_is_the_first_of_the_largest_and_serves_those_who_share_it() {
        assert!(current().is_none());
        for (members, nonce, board) in [
            (&[3, 5][..], 1, 1),
            (&[5, 7][..], 2, 1),
            (&[3, 5, 7, 9][..], 3, 3),
            (&[1, 3, 5, 7][..], 4, 3),
            (&[3][..], 5, 3),
        ] {
            consider(&state(members, nonce));
            assert_eq!(current().map(|board| board.nonce()), Some(board), "{members:?}");
        }
        let board = current().expect("a board");
        let serves = |of: &[c_int], boards: &[u64]| board.presences(of, boards.iter().copied()).is_some();
        assert!(serves(&[9, 3], &[3, 3]) && serves(&[3, 5, 7, 9], &[3; 4]));
        assert!(!serves(&[9, 3], &[3, 4]) && !serves(&[9, 3], &[3, 0]), "the board of one of them alone");
        assert!(!serves(&[1, 3], &[3, 3]), "a rank that it has not");
    }
}
