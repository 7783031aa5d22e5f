//! How the elements of a call lie that takes a lane ([`lane`](super::lane)).

use super::datatype::{TypeLayout, TypeMap};
use super::holes::Holes;
use crate::mpi::handles::predefined;
use crate::types::Bytes;
use mpi_sys::MPI_Datatype;
use std::sync::Arc;

/// How the elements of all buffers of a call lie.
pub(super) enum Elements {
    /// As they are packed, so many bytes after the address that the program gives.
    Packed { at: isize },
    /// With something between them.
    Apart(Apart),
}

/// Elements with something between them: packed before a call and unpacked after it.
pub(super) enum Apart {
    /// Pairs that a kernel combines.
    Pairs(Holes),
    /// Any others, in segments.
    Segments(Arc<TypeLayout>),
}

/// Longer calls with elements apart take the long way, which moves these to slots and out of them as they lie: there a second copy takes
/// longer than to find out about the call.
const LONGEST: Bytes = Bytes(4096);

impl Elements {
    /// Of a call that moves elements, or has the library combine them: `count` of them and so many bytes in the longest buffer that any rank
    /// may have, since one lane serves a rank as root and as another. `None` where such calls take the long way.
    ///
    /// # Safety
    /// As for [`TypeLayout::of`].
    pub unsafe fn of(datatype: MPI_Datatype, count: usize, bytes: Bytes) -> Option<Self> {
        if predefined(datatype).is_some_and(|known| known.is_contiguous()) {
            return Some(Self::Packed { at: 0 });
        }
        // SAFETY: the caller's promise.
        Self::laid_out(unsafe { TypeLayout::kept(datatype) }?, count, bytes)
    }

    /// The same of elements that lie so.
    pub fn laid_out(layout: Arc<TypeLayout>, count: usize, bytes: Bytes) -> Option<Self> {
        let at = match &layout.type_map {
            TypeMap::Contiguous { at } => Some(*at),
            TypeMap::Segments { segments, times } => segments.contiguous_at(count.checked_mul(*times)?),
            TypeMap::Opaque => return None,
        };
        match at {
            Some(at) => Some(Self::Packed { at }),
            None => (bytes <= LONGEST).then_some(Self::Apart(Apart::Segments(layout))),
        }
    }

    /// The same where a kernel combines elements of `bytes` in all: that knows predefined ones alone.
    pub fn of_kernel(datatype: MPI_Datatype, bytes: Bytes) -> Option<Self> {
        let known = predefined(datatype)?;
        if known.is_contiguous() {
            return Some(Self::Packed { at: 0 });
        }
        Holes::of(known).filter(|_| bytes <= LONGEST).map(|holes| Self::Apart(Apart::Pairs(holes)))
    }
}

impl Apart {
    /// From one element to the next, in the program's buffers.
    pub fn extent(&self) -> isize {
        match self {
            Self::Pairs(holes) => holes.extent() as isize,
            Self::Segments(layout) => layout.extent,
        }
    }

    /// Packs `n` elements.
    ///
    /// # Safety
    /// `from` has `n` elements, `to` room for as many packed ones, and they do not overlap.
    pub unsafe fn pack(&self, to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Pairs(holes) => holes.pack(to, from, n),
                Self::Segments(layout) => layout.segments().gather(from, 0, to, n * layout.size),
            }
        }
    }

    /// Unpacks `n` elements; what lies between them stays as it is.
    ///
    /// # Safety
    /// As for [`Apart::pack`], the other way round.
    pub unsafe fn unpack(&self, to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Pairs(holes) => holes.unpack(to, from, n),
                Self::Segments(layout) => layout.segments().scatter(to, 0, from, n * layout.size),
            }
        }
    }
}
