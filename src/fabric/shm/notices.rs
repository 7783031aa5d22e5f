//! Where the processes of a job tell each other of one-sided communication.

use super::geometry::Geometry;
use super::segment::Segment;
use crate::sync::Notice;
use std::ops::Deref;

/// The notice in the header of a segment, which stays mapped as long as this value exists.
#[derive(Debug)]
pub struct SharedNotice(Segment);

impl SharedNotice {
    pub(super) fn of_segment(segment: &Segment) -> Self {
        Self(segment.clone())
    }
}

impl Deref for SharedNotice {
    type Target = Notice;

    #[inline]
    fn deref(&self) -> &Notice {
        // SAFETY: within the header (`Geometry::NOTICE`), which is page-aligned; zeroed, or written through atomics
        // only.
        unsafe { self.0.base().add(Geometry::NOTICE).cast::<Notice>().as_ref() }
    }
}
