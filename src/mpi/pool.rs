//! Contexts of communicators that were freed, for communicators of the same processes that come later: programs that make
//! and free communicators in loops pay for reserving and mapping memory once.

use crate::fabric::shm::{Context, Geometry};
use crate::topo::Hierarchy;
use crate::types::Epoch;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Segments that a process keeps. The oldest goes first.
const MOST: usize = 8;

/// Segments that a rank offers at once.
pub(super) const OFFERED: usize = 4;

/// A context, and what its ranks know it by.
pub(super) struct Pooled {
    /// World ranks of its members on this node, in their order.
    pub members: Box<[c_int]>,
    /// The number in its header.
    pub nonce: u64,
    /// How these members lie on the node, as their leader found out.
    pub hierarchy: Hierarchy,
    pub context: Context,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { kept: Vec::new(), freed: 0 });

/// The oldest first.
struct Pool {
    kept: Vec<Kept>,
    /// Contexts kept so far.
    freed: u64,
}

/// A context in the pool, or on offer.
struct Kept {
    /// Its ordinal among those that were freed.
    ordinal: u64,
    /// Its communicator's last call went through it: no rank makes another one.
    is_settled: bool,
    /// In a box: it has some KiB, which would move with each change of the list.
    pooled: Box<Pooled>,
}

impl Pool {
    fn insert(&mut self, new: Kept) {
        let at = self.kept.partition_point(|kept| kept.ordinal < new.ordinal);
        self.kept.insert(at, new);
        if self.kept.len() > MOST {
            self.kept.remove(0);
        }
    }
}

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a context whose communicator this rank has freed, after a last call of that ordinal. Its peers may still use theirs.
pub(super) fn keep(pooled: Pooled, last: Epoch) {
    let mut pool = pool();
    pool.freed += 1;
    let ordinal = pool.freed;
    pool.insert(Kept { ordinal, is_settled: pooled.context.left() == last, pooled: Box::new(pooled) });
}

/// Contexts for a communicator that is about to be built. They are out of the pool, so that no other thread offers them for
/// a communicator of its own, uses, frees or evicts them meanwhile; those that are not taken go back.
pub(super) struct Offered(Vec<Kept>);

/// The newest contexts of these members and dimensions that are wanted, with as many lines or more.
pub(super) fn offer(members: &[c_int], geometry: &Geometry, is_wanted: impl Fn(&Context) -> bool) -> Offered {
    let is_suitable = |Pooled { members: of, context, .. }: &Pooled| {
        let lines = context.geometry().lines;
        let alike = Geometry { lines, ..*geometry };
        **of == *members && *context.geometry() == alike && lines >= geometry.lines && is_wanted(context)
    };
    let (mut pool, mut offered) = (pool(), Vec::new());
    while offered.len() < OFFERED
        && let Some(at) = pool.kept.iter().rposition(|kept| is_suitable(&kept.pooled))
    {
        offered.push(pool.kept.remove(at));
    }
    Offered(offered)
}

impl Offered {
    /// Their nonces; zeroes where there are fewer.
    pub fn nonces(&self) -> [u64; OFFERED] {
        std::array::from_fn(|index| self.0.get(index).map_or(0, |kept| kept.pooled.nonce))
    }

    /// The one that was freed last, if all ranks that have left the calls that this one has left make no other call on its communicator: a call
    /// that was declined here may still be under way elsewhere.
    pub fn settled(&self) -> Option<&Context> {
        self.0.first().filter(|kept| kept.is_settled).map(|kept| &kept.pooled.context)
    }

    /// How the members of all of them lie on the node; none where there is none.
    pub fn hierarchy(&self) -> Option<Hierarchy> {
        self.0.first().map(|kept| kept.pooled.hierarchy)
    }

    /// The one with this nonce, for good.
    pub fn take(&mut self, nonce: u64) -> Option<Box<Pooled>> {
        let at = self.0.iter().position(|kept| kept.pooled.nonce == nonce)?;
        Some(self.0.remove(at).pooled)
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        let mut pool = pool();
        self.0.drain(..).for_each(|kept| pool.insert(kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::shm::Segment;
    use crate::topo::{Layout, Levels};
    use crate::types::{Bytes, CommRank, NodeRank};

    const GEOMETRY: Geometry = Geometry { ranks: 2, slots: 2, lines: 2, cell: Bytes(64), round: Bytes(64) };

    /// The tests share the one pool.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn alone() -> MutexGuard<'static, ()> {
        ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pooled(members: [c_int; 2], nonce: u64) -> Pooled {
        let (segment, _) = Segment::create(GEOMETRY.length(), GEOMETRY.front()).expect("memfd");
        let levels = Levels::from_paths(&[vec![], vec![]], NodeRank(0));
        let context = Context::new(segment, GEOMETRY, NodeRank(0), Layout::new(&[0, 0], CommRank(0)), levels);
        Pooled { members: Box::new(members), nonce, hierarchy: Hierarchy::from_words([0; 2]), context }
    }

    fn offered(members: [c_int; 2]) -> Offered {
        offer(&members, &GEOMETRY, |_| true)
    }

    #[test]
    fn what_one_communicator_is_offered_no_other_is() {
        let (_alone, members) = (alone(), [1, 2]);
        keep(pooled(members, 11), Epoch(0));
        let mut first = offered(members);
        let mut second = offered(members);
        assert_eq!((first.nonces(), second.nonces()), ([11, 0, 0, 0], [0; OFFERED]));
        // Others come and go meanwhile.
        (0..2 * MOST as u64).for_each(|nonce| keep(pooled([7, 8], 100 + nonce), Epoch(0)));
        assert!(second.take(11).is_none());
        assert!(first.take(11).is_some());
        drop((first, second));
        assert_eq!(offered(members).nonces(), [0; OFFERED]);
    }

    #[test]
    fn the_newest_come_first_and_what_is_not_taken_comes_back() {
        let (_alone, members) = (alone(), [3, 4]);
        (1..=5).for_each(|nonce| keep(pooled(members, nonce), Epoch(0)));
        assert_eq!(offered(members).nonces(), [5, 4, 3, 2]);
        assert!(offered(members).take(4).is_some());
        assert_eq!(offered(members).nonces(), [5, 3, 2, 1]);
    }

    #[test]
    fn who_left_a_call_natively_has_no_settled_context() {
        let (_alone, members) = (alone(), [9, 10]);
        keep(pooled(members, 31), Epoch(0));
        assert!(offered(members).settled().is_some(), "nothing was left");
        keep(pooled(members, 32), Epoch(4));
        assert!(offered(members).settled().is_none(), "call 4 was declined");
    }

    #[test]
    fn other_dimensions_are_not_offered() {
        let (_alone, members) = (alone(), [5, 6]);
        keep(pooled(members, 21), Epoch(0));
        let longer = Geometry { cell: Bytes(128), ..GEOMETRY };
        assert_eq!(offer(&members, &longer, |_| true).nonces(), [0; OFFERED]);
        let lines = |lines| Geometry { slots: 1, lines, ..GEOMETRY };
        assert_eq!(offer(&members, &lines(2), |_| true).nonces(), [0; OFFERED], "more slots");
        let more_lines = Geometry { lines: 4, ..GEOMETRY };
        assert_eq!(offer(&members, &more_lines, |_| true).nonces(), [0; OFFERED]);
        assert_eq!(offered(members).nonces(), [21, 0, 0, 0]);
    }
}
