//! Where this process tells, whatever call it is in, whether it has its core: in the segment of one of its communicators, its home.

use super::pool::Pooled;
use crate::fabric::shm::Presences;
use crate::types::NodeRank;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The communicator, of those that were built so far, that has the most ranks on this node, and the first of these. Its segment stays mapped when it
/// is freed.
pub(super) struct Home {
    nonce: u64,
    /// World ranks, in their order on the node.
    members: Box<[c_int]>,
    presences: Presences,
}

static HOME: Mutex<Option<Arc<Home>>> = Mutex::new(None);

fn place() -> MutexGuard<'static, Option<Arc<Home>>> {
    HOME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// That of this process; none before it has built a communicator whose ranks share cores.
pub(super) fn current() -> Option<Arc<Home>> {
    place().clone()
}

/// A communicator was built whose ranks share cores.
pub(super) fn consider(Pooled { members, nonce, context }: &Pooled) {
    let mut home = place();
    if home.as_ref().is_none_or(|home| members.len() > home.members.len()) {
        *home = Some(Arc::new(Home { nonce: *nonce, members: members.clone(), presences: context.own_presences() }));
    }
}

impl Home {
    /// By what others know it, never zero.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Where these ranks of the world tell it, if this is the home of all of them: then all are among its members.
    pub fn presences(&self, of: &[c_int], homes: impl IntoIterator<Item = u64>) -> Option<Presences> {
        let is_common = homes.into_iter().all(|nonce| nonce == self.nonce);
        let place = |rank: &c_int| self.members.iter().position(|member| member == rank);
        let places: Option<Vec<usize>> = of.iter().map(place).collect();
        let places = places.filter(|_| is_common)?;
        Some(self.presences.among(places.into_iter().map(|place| NodeRank(place as u32))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::shm::{Context, Geometry, Segment};
    use crate::topo::{Layout, Levels};
    use crate::types::{Bytes, CommRank};

    fn pooled(members: &[c_int], nonce: u64) -> Pooled {
        let n = members.len();
        let geometry = Geometry { ranks: n, slots: 2, lines: 2, cell: Bytes(64), round: Bytes(64) };
        let (segment, _) = Segment::create(geometry.length(), geometry.front()).expect("memfd");
        let levels = Levels::from_paths(&vec![vec![]; n], NodeRank(0));
        let layout = Layout::new(&vec![0; n], CommRank(0));
        let context = Context::new(segment, geometry, NodeRank(0), layout, levels);
        Pooled { members: members.into(), nonce, context }
    }

    /// One process's view, in one test, since there is one home.
    #[test]
    fn the_home_is_the_first_of_the_largest_and_serves_those_who_share_it() {
        assert!(current().is_none());
        for (members, nonce, home) in [
            (&[3, 5][..], 1, 1),
            (&[5, 7][..], 2, 1),
            (&[3, 5, 7, 9][..], 3, 3),
            (&[1, 3, 5, 7][..], 4, 3),
            (&[3][..], 5, 3),
        ] {
            consider(&pooled(members, nonce));
            assert_eq!(current().map(|home| home.nonce()), Some(home), "{members:?}");
        }
        let home = current().expect("a home");
        let serves = |of: &[c_int], homes: &[u64]| home.presences(of, homes.iter().copied()).is_some();
        assert!(serves(&[9, 3], &[3, 3]) && serves(&[3, 5, 7, 9], &[3; 4]));
        assert!(!serves(&[9, 3], &[3, 4]) && !serves(&[9, 3], &[3, 0]), "the home of one of them alone");
        assert!(!serves(&[1, 3], &[3, 3]), "a rank that it has not");
    }
}
