//! Where ranks that share cores publish whether they have their core.
//!
//! While a rank waits in a call of one communicator, a peer may await it in a call of another one. That peer has to
//! see that the rank has given its core away; otherwise it keeps polling a rank that only seems to be at work. So a
//! process publishes its presence in one place, in the segment of one of its communicators, which serves every
//! communicator whose ranks all have that segment in common.

use super::geometry::Geometry;
use super::segment::Segment;
use crate::sync::Presence;
use crate::types::NodeRank;
use std::ptr::NonNull;

/// The presence words of some ranks, indexed by rank on the node.
#[derive(Debug)]
pub struct Presences {
    segment: Segment,
    /// Offset of each presence word in the segment.
    at: Box<[usize]>,
}

impl Presences {
    /// The presence words in `segment`, which has the dimensions of `geometry`.
    pub(super) fn of_segment(segment: &Segment, geometry: &Geometry) -> Self {
        let (start, ranks) = (geometry.presences_start(), geometry.ranks);
        assert!(
            start.is_multiple_of(align_of::<Presence>()) && start + ranks * size_of::<Presence>() <= segment.length()
        );
        let at = (0..ranks).map(|rank| start + rank * size_of::<Presence>()).collect();
        Self { segment: segment.clone(), at }
    }

    /// The presence words of `ranks`, which become ranks 0, 1 and so on of the result.
    ///
    /// # Panics
    /// If one of `ranks` does not exist.
    #[must_use]
    pub fn among(&self, ranks: impl Iterator<Item = NodeRank>) -> Self {
        Self { segment: self.segment.clone(), at: ranks.map(|rank| self.at[rank.index()]).collect() }
    }

    pub(super) fn of(&self, rank: NodeRank) -> &Presence {
        let at: NonNull<u8> = self.segment.base();
        // SAFETY: the offset is within the segment and aligned, as `of_segment` asserted for all ranks; the word is
        // zeroed or written through atomics only.
        unsafe { at.add(self.at[rank.index()]).cast::<Presence>().as_ref() }
    }
}
