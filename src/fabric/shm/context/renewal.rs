//! Using a context again for another communicator of the same processes.

use super::{Context, claims_of, passed_of, when_used};
use crate::fabric::shm::geometry::PAGE;
use crate::fabric::shm::presences::Presences;
use crate::fabric::shm::rhythm::Rhythm;
use crate::fabric::words::Words;
use crate::kernel::host::Design;
use crate::sync::Control;
use crate::topo::Layout;
use crate::types::{Epoch, Ticket};
use std::sync::OnceLock;

impl Context {
    /// Whether all peers have left every call that this rank has left: then none of them reads or writes the segment
    /// before it enters another call.
    pub fn is_idle(&self) -> bool {
        let mine = Ticket(self.mine().released.peek());
        self.peers().all(|rank| self.control(rank).released.reached(mine).is_some())
    }

    /// The last call that this rank has left.
    pub fn left(&self) -> Epoch {
        Ticket(self.mine().released.peek()).epoch()
    }

    /// Zeroes all flags, as in a new segment. Events and presences of ranks stay as they are: they mean nothing by
    /// themselves, and as the last step of a call a peer may still look there for ranks to wake. One rank calls this,
    /// while the context is idle and before any of its ranks can enter a call.
    pub fn clear(&self) {
        let events = (0..self.geometry.ranks).map(|rank| PAGE + rank * self.places.control + Control::EVENT.start);
        let mut start = PAGE;
        for event in events.chain([self.geometry.presences_start()]) {
            // SAFETY: within the segment, whose length `new` checked. Nobody accesses these bytes now: the caller
            // promises that the context is idle, and events and presences, which peers may still access, are left out.
            // A collective orders this before the next call. Zeroes are valid for all that lies there.
            unsafe { self.segment.base().add(start).write_bytes(0, event - start) };
            start = event + Control::EVENT.len();
        }
    }

    /// Makes this the context of another communicator with the same members on this node, in the same order; `nodes`
    /// and the ranks of members may differ. All of it is new but for what is reserved. It changes in place, since it
    /// has some KiB.
    pub fn renew(&mut self, nodes: Layout) {
        // Names each field, so that none that is added later is forgotten here.
        let Self {
            segment,
            geometry,
            places: _,
            me: _,
            layout,
            levels: _,
            process: _,
            claims,
            reserved: _,
            reserved_passed,
            passed,
            writes,
            reads,
            ways,
            rhythm,
            hopes,
            givers,
            first_looks,
            loans,
            company,
            yields,
            presences,
        } = self;
        *layout = nodes;
        (*claims, *passed) = (claims_of(geometry), passed_of(geometry));
        (*writes, *reads, *hopes, *givers, *first_looks, *company, *yields) = Default::default();
        (*ways, *loans) = (when_used(), OnceLock::new());
        *rhythm = Rhythm::of(Design::of_this_host());
        *presences = Presences::of_segment(segment, geometry);
        if reserved_passed.get() > 0 {
            self.own_passed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::shm::context::tests::two_ranks;
    use crate::types::{Bytes, NodeRank};
    use std::time::Duration;

    /// Ranks that agreed on it do not ask again.
    #[test]
    fn what_is_reserved_stays() {
        let [mut one, _other] = two_ranks();
        let reserved = |context: &Context| [&context.reserved, &context.reserved_passed].map(|bytes| bytes.get());
        one.reserve_cells(Bytes(1)).expect("a page");
        let before = reserved(&one);
        assert!(before.into_iter().all(|bytes| bytes > 0), "{before:?}");
        one.renew(one.layout().clone());
        assert_eq!(reserved(&one), before);
    }

    /// A rank that has ended its last call may still look at its event for peers to wake.
    #[test]
    fn events_outlast_a_clear_and_flags_do_not() {
        let [one, other] = two_ranks();
        one.release(Ticket::last_of(Epoch(3)));
        assert_eq!((one.left(), other.left()), (Epoch(3), Epoch(0)));
        let event = one.event(NodeRank(0));
        let clear = || {
            other.clear();
            true
        };
        event.sleep_unless(clear, Duration::ZERO);
        assert!(format!("{event:?}").contains("sleepers: 0"), "{event:?}");
        assert_eq!(one.left(), Epoch(0));
    }
}
