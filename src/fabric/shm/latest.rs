//! The call that a rank served last, which the line of an internal fault of huddle names.

use super::Context;
use crate::coll::REGISTRY;
use crate::fabric::words::Words;
use crate::sync::PeerCall;
use crate::types::{Collective, Epoch};
use std::fmt;

/// A call, its algorithm and its ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatestCall {
    collective: Collective,
    row: usize,
    epoch: Epoch,
}

impl Context {
    /// The call that this rank is in, as its peers see it.
    pub fn current_call(&self) -> PeerCall {
        self.control(self.rank()).call.current()
    }

    /// The call that this rank entered last; `None` before the first.
    pub fn latest_call(&self) -> Option<LatestCall> {
        let line = &self.control(self.rank()).call;
        let (call, row) = (line.current(), line.row());
        (row < REGISTRY.len()).then_some(LatestCall { collective: call.collective?, row, epoch: call.epoch })
    }
}

impl fmt::Display for LatestCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (collective, algorithm) = (self.collective.name(), REGISTRY[self.row].name);
        write!(f, "MPI_{collective} by {algorithm} (call {} of its communicator)", self.epoch.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::context::tests::two_ranks;
    use super::*;
    use crate::coll;
    use crate::sync::Descriptor;
    use crate::types::Bytes;

    #[test]
    fn the_latest_call_is_named_with_its_algorithm() {
        let [me, peer] = two_ranks();
        assert_eq!(me.latest_call(), None);
        for (epoch, collective, algorithm) in [(1, Collective::Barrier, "flat"), (7, Collective::Reduce, "tree")] {
            let row = coll::find(collective, algorithm).unwrap();
            let descriptor = Descriptor::new(Epoch(epoch), collective, row, 1, Bytes(8));
            me.control(me.rank()).call.enter(Epoch(epoch), descriptor, Bytes(8));
        }
        let latest = me.latest_call().map(|call| call.to_string());
        assert_eq!(latest.as_deref(), Some("MPI_Reduce by tree (call 7 of its communicator)"));
        assert_eq!(peer.latest_call(), None);
    }
}
