//! The states of freed communicators, kept for later communicators of the same processes: programs that make and free
//! communicators in loops pay for reserving and mapping memory once.

use crate::fabric::shm::{Context, Geometry};
use crate::topo::Hierarchy;
use crate::types::Epoch;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// States that a process keeps. The oldest is dropped first.
const MOST: usize = 8;

/// States that a rank offers at once, by their nonces.
pub(super) const OFFERED: usize = 4;

/// A context, and by what its ranks know it.
pub(super) struct NodeState {
    /// World ranks of its members on this node, in their order.
    pub members: Box<[c_int]>,
    /// The number in the segment's header.
    pub nonce: u64,
    /// How these members lie on the node, as their leader found out.
    pub hierarchy: Hierarchy,
    pub context: Context,
}

/// A process's pool of states that have a context.
pub(super) struct Pool<T>(Mutex<List<T>>);

/// In the order in which they were freed, the oldest first.
struct List<T> {
    kept: Vec<Kept<T>>,
    /// How many were kept so far.
    freed: u64,
}

/// A state in the pool, or on offer.
struct Kept<T> {
    /// Its ordinal among all states that were kept.
    ordinal: u64,
    /// Whether its communicator's last call went through it: then no rank makes another call on it.
    was_left_by_a_call: bool,
    /// In a box: a state has some KiB, which would move with each change of the list.
    state: Box<T>,
}

impl<T: AsRef<NodeState>> Kept<T> {
    fn node_state(&self) -> &NodeState {
        (*self.state).as_ref()
    }
}

impl<T> List<T> {
    fn insert(&mut self, new: Kept<T>) {
        let at = self.kept.partition_point(|kept| kept.ordinal < new.ordinal);
        self.kept.insert(at, new);
        if self.kept.len() > MOST {
            self.kept.remove(0);
        }
    }
}

impl<T: AsRef<NodeState>> Pool<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(List { kept: Vec::new(), freed: 0 }))
    }

    fn list(&self) -> MutexGuard<'_, List<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the state of a communicator that this rank has freed after its last call, of ordinal `last`. Its peers may
    /// still use theirs.
    pub fn keep(&self, state: Box<T>, last: Epoch) {
        let was_left_by_a_call = (*state).as_ref().context.left() == last;
        let mut list = self.list();
        list.freed += 1;
        let ordinal = list.freed;
        list.insert(Kept { ordinal, was_left_by_a_call, state });
    }

    /// Takes out the newest states whose contexts have these members and dimensions, as many lines or more, and are
    /// wanted: `OFFERED` at most.
    pub fn offer(
        &self,
        members: &[c_int],
        geometry: &Geometry,
        is_wanted: impl Fn(&Context) -> bool,
    ) -> Offered<'_, T> {
        let is_suitable = |NodeState { members: of, context, .. }: &NodeState| {
            let lines = context.geometry().lines;
            let alike = Geometry { lines, ..*geometry };
            **of == *members && *context.geometry() == alike && lines >= geometry.lines && is_wanted(context)
        };
        let (mut list, mut offered) = (self.list(), Vec::new());
        while offered.len() < OFFERED
            && let Some(at) = list.kept.iter().rposition(|kept| is_suitable(kept.node_state()))
        {
            offered.push(list.kept.remove(at));
        }
        Offered { pool: self, kept: offered }
    }
}

/// States on offer for a communicator that is about to be built. They are out of the pool, so that no other thread
/// offers, uses, frees or evicts them meanwhile. Those that are not taken go back.
pub(super) struct Offered<'a, T: AsRef<NodeState>> {
    pool: &'a Pool<T>,
    kept: Vec<Kept<T>>,
}

impl<T: AsRef<NodeState>> Offered<'_, T> {
    /// Their nonces; zeroes where there are fewer.
    pub fn nonces(&self) -> [u64; OFFERED] {
        std::array::from_fn(|index| self.kept.get(index).map_or(0, |kept| kept.node_state().nonce))
    }

    /// The context that was freed last, if its communicator's last call went through it. Then a rank that has left the
    /// calls that this one has left makes no other call on that communicator. A last call that was declined here may
    /// still be under way on other ranks.
    pub fn left_by_a_call(&self) -> Option<&Context> {
        self.kept.first().filter(|kept| kept.was_left_by_a_call).map(|kept| &kept.node_state().context)
    }

    /// How the members lie on the node, the same for all states; `None` if there is no state.
    pub fn hierarchy(&self) -> Option<Hierarchy> {
        self.kept.first().map(|kept| kept.node_state().hierarchy)
    }

    /// Takes the state with this nonce, for good.
    pub fn take(&mut self, nonce: u64) -> Option<Box<T>> {
        let at = self.kept.iter().position(|kept| kept.node_state().nonce == nonce)?;
        Some(self.kept.remove(at).state)
    }
}

impl<T: AsRef<NodeState>> Drop for Offered<'_, T> {
    fn drop(&mut self) {
        let mut list = self.pool.list();
        self.kept.drain(..).for_each(|kept| list.insert(kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::shm::Segment;
    use crate::topo::{Layout, Levels};
    use crate::types::{Bytes, CommRank, NodeRank};

    const GEOMETRY: Geometry = Geometry { ranks: 2, slots: 2, lines: 2, cell: Bytes(64), round: Bytes(64) };

    /// In these tests a state consists of a `NodeState` alone.
    impl AsRef<NodeState> for NodeState {
        fn as_ref(&self) -> &Self {
            self
        }
    }

    fn node_state(members: [c_int; 2], nonce: u64) -> Box<NodeState> {
        let (segment, _) = Segment::create(GEOMETRY.length(), GEOMETRY.front()).expect("memfd");
        let levels = Levels::from_paths(&[vec![], vec![]], NodeRank(0));
        let context = Context::new(segment, GEOMETRY, NodeRank(0), Layout::new(&[0, 0], CommRank(0)), levels);
        Box::new(NodeState { members: Box::new(members), nonce, hierarchy: Hierarchy::from_words([0; 2]), context })
    }

    fn offered(pool: &Pool<NodeState>, members: [c_int; 2]) -> Offered<'_, NodeState> {
        pool.offer(&members, &GEOMETRY, |_| true)
    }

    #[test]
    fn what_one_communicator_is_offered_no_other_is() {
        let (pool, members) = (Pool::new(), [1, 2]);
        pool.keep(node_state(members, 11), Epoch(0));
        let mut first = offered(&pool, members);
        let mut second = offered(&pool, members);
        assert_eq!((first.nonces(), second.nonces()), ([11, 0, 0, 0], [0; OFFERED]));
        // Others come and go meanwhile.
        (0..2 * MOST as u64).for_each(|nonce| pool.keep(node_state([7, 8], 100 + nonce), Epoch(0)));
        assert!(second.take(11).is_none());
        assert!(first.take(11).is_some());
        drop((first, second));
        assert_eq!(offered(&pool, members).nonces(), [0; OFFERED]);
    }

    #[test]
    fn the_newest_come_first_and_what_is_not_taken_comes_back() {
        let (pool, members) = (Pool::new(), [3, 4]);
        (1..=5).for_each(|nonce| pool.keep(node_state(members, nonce), Epoch(0)));
        assert_eq!(offered(&pool, members).nonces(), [5, 4, 3, 2]);
        assert!(offered(&pool, members).take(4).is_some());
        assert_eq!(offered(&pool, members).nonces(), [5, 3, 2, 1]);
    }

    #[test]
    fn who_left_a_call_natively_offers_nothing_that_is_ready() {
        let (pool, members) = (Pool::new(), [9, 10]);
        pool.keep(node_state(members, 31), Epoch(0));
        assert!(offered(&pool, members).left_by_a_call().is_some(), "nothing was left");
        pool.keep(node_state(members, 32), Epoch(4));
        assert!(offered(&pool, members).left_by_a_call().is_none(), "call 4 was declined");
    }

    #[test]
    fn other_dimensions_are_not_offered() {
        let (pool, members) = (Pool::new(), [5, 6]);
        pool.keep(node_state(members, 21), Epoch(0));
        let longer = Geometry { cell: Bytes(128), ..GEOMETRY };
        assert_eq!(pool.offer(&members, &longer, |_| true).nonces(), [0; OFFERED]);
        let lines = |lines| Geometry { slots: 1, lines, ..GEOMETRY };
        assert_eq!(pool.offer(&members, &lines(2), |_| true).nonces(), [0; OFFERED], "more slots");
        let more_lines = Geometry { lines: 4, ..GEOMETRY };
        assert_eq!(pool.offer(&members, &more_lines, |_| true).nonces(), [0; OFFERED]);
        assert_eq!(offered(&pool, members).nonces(), [21, 0, 0, 0]);
    }
}
