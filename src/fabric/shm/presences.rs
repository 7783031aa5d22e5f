//! Where ranks that share cores tell whether they have theirs.
//!
//! A rank that waits in a call of one communicator may be awaited in one of another: who awaits it there has to see that it has given its core
//! away, or looks on at a peer that seems to be at work. So a process tells that in one place, in the segment of one of its communicators, wherever all
//! ranks of a communicator have that in common.

use super::geometry::Geometry;
use super::segment::Segment;
use crate::sync::Presence;
use crate::types::NodeRank;
use std::ptr::NonNull;

/// The presences of some ranks, by their ranks on the node.
#[derive(Debug)]
pub struct Presences {
    segment: Segment,
    /// Where they lie in it.
    at: Box<[usize]>,
}

impl Presences {
    /// Those of a segment of these dimensions.
    pub(super) fn of_segment(segment: &Segment, geometry: &Geometry) -> Self {
        let (start, ranks) = (geometry.presences_start(), geometry.ranks);
        assert!(
            start.is_multiple_of(align_of::<Presence>()) && start + ranks * size_of::<Presence>() <= segment.length()
        );
        let at = (0..ranks).map(|rank| start + rank * size_of::<Presence>()).collect();
        Self { segment: segment.clone(), at }
    }

    /// Those of these ranks, which are ranks 0, 1 and so on of the result.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn among(&self, ranks: impl Iterator<Item = NodeRank>) -> Self {
        Self { segment: self.segment.clone(), at: ranks.map(|rank| self.at[rank.index()]).collect() }
    }

    pub(super) fn of(&self, rank: NodeRank) -> &Presence {
        let at: NonNull<u8> = self.segment.base();
        // SAFETY: within the segment and aligned, as `of_segment` found of all; zeroed or written through atomics only.
        unsafe { at.add(self.at[rank.index()]).cast::<Presence>().as_ref() }
    }
}
