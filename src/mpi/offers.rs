//! What ranks that build the context of a communicator tell each other, and how all of them read it.

use super::pool;
use crate::types::CommRank;
use std::ops::Index;

/// The offer of one rank, which it tells all others.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Offer {
    /// Where the leader's new segment can be opened: a process and its descriptor.
    pub process: u64,
    pub descriptor: u64,
    /// The number in the new segment's header; zero if there is no new one.
    pub nonce: u64,
    /// Number of a communicator between nodes, for leaders of this rank's index; that of the first node's leader
    /// counts. Zero if this rank can't have one more.
    pub bridge: u64,
    /// Nonces of segments of earlier communicators of the same members that this rank still has mapped; a leader's are
    /// idle.
    pub pooled: [u64; pool::OFFERED],
    /// Whether the leader has cleared the first of these segments; on one node only.
    pub is_prepared: u64,
    /// Whether buffers of this rank may be in memory of a device that huddle can't copy.
    pub has_unknown_devices: u64,
    /// How the ranks of a leader's node lie there ([`Hierarchy::to_words`](crate::topo::Hierarchy::to_words)); the
    /// lowest leader's counts.
    pub hierarchy: [u64; 2],
    /// The board of this process ([`board`](super::board)); zero where it has none.
    pub board: u64,
    /// Lines of each kind in a rank's ring of the leader's new segment.
    pub lines: u64,
}

/// Which segment a node uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The leader's new segment.
    New(Offer),
    /// A kept segment that all members have, by its nonce.
    Pooled(u64),
    /// Members share none of the segments that the leader has kept: it makes a new one and offers again.
    Again,
    /// The leader could not make one.
    Nothing,
}

/// The offers of all ranks of a communicator, by rank: the same on each of them.
pub(super) struct Offers(Vec<Offer>);

impl Index<CommRank> for Offers {
    type Output = Offer;

    fn index(&self, rank: CommRank) -> &Offer {
        &self.0[rank.index()]
    }
}

impl Offers {
    pub fn new(by_rank: Vec<Offer>) -> Self {
        Self(by_rank)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Offer> {
        self.0.iter()
    }

    /// The offer of the leader of a node with these members.
    pub fn of_leader(&self, members: &[CommRank]) -> &Offer {
        &self[members[0]]
    }

    /// Which segment a node with these members uses.
    pub fn source(&self, members: &[CommRank]) -> Source {
        let leader = self.of_leader(members);
        if leader.nonce != 0 {
            return Source::New(*leader);
        }
        let is_common = |nonce: u64| members.iter().all(|rank| self[*rank].pooled.contains(&nonce));
        match leader.pooled.into_iter().filter(|nonce| *nonce != 0).find(|nonce| is_common(*nonce)) {
            Some(nonce) => Source::Pooled(nonce),
            None if leader.pooled[0] != 0 => Source::Again,
            None => Source::Nothing,
        }
    }

    /// Whether these members share a context that the leader had cleared before it offered it: then all of them have
    /// what they need.
    pub fn are_prepared(&self, members: &[CommRank]) -> bool {
        let leader = self.of_leader(members);
        leader.is_prepared != 0 && self.source(members) == Source::Pooled(leader.pooled[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBERS: [CommRank; 2] = [CommRank(0), CommRank(1)];

    fn of(leader: Offer, other: Offer) -> Offers {
        Offers::new(vec![leader, other])
    }

    fn pooled(first: u64, second: u64) -> Offer {
        Offer { pooled: [first, second, 0, 0], ..Offer::default() }
    }

    fn is(offers: &Offers, source: Source) -> bool {
        offers.source(&MEMBERS) == source
    }

    #[test]
    fn what_all_have_is_used_again_and_the_newest_of_it_needs_no_vote() {
        let leader = Offer { is_prepared: 1, ..pooled(7, 8) };
        let newest = of(leader, pooled(8, 7));
        assert!(is(&newest, Source::Pooled(7)) && newest.are_prepared(&MEMBERS));
        let older = of(leader, pooled(8, 9));
        assert!(is(&older, Source::Pooled(8)) && !older.are_prepared(&MEMBERS));
        let untouched = of(pooled(7, 8), pooled(7, 8));
        assert!(is(&untouched, Source::Pooled(7)) && !untouched.are_prepared(&MEMBERS));
    }

    #[test]
    fn what_not_all_have_is_offered_again() {
        assert!(is(&of(pooled(7, 0), pooled(8, 0)), Source::Again));
        assert!(is(&of(Offer::default(), pooled(8, 0)), Source::Nothing), "the leader tried");
        let new = Offer { nonce: 5, is_prepared: 1, ..pooled(7, 0) };
        assert!(is(&of(new, pooled(7, 0)), Source::New(new)) && !of(new, pooled(7, 0)).are_prepared(&MEMBERS));
    }
}
