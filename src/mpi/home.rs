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
