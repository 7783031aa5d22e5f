//! How the elements of a call that takes a lane ([`lane`](super::lane)) lie in memory.

use super::datatype::{TypeLayout, TypeMap};
use super::holes::Holes;
use crate::mpi::handles::predefined;
use crate::types::Bytes;
use mpi_sys::MPI_Datatype;
use std::sync::Arc;

/// How the elements of all buffers of a call lie.
pub(super) enum Elements {
    /// As they are packed, from `at` bytes after the program's address on.
    Packed { at: isize },
    /// With holes between them.
    Apart(Apart),
}

/// Elements with holes between them: they are packed before a call and unpacked after it.
pub(super) enum Apart {
    /// Pairs that a kernel combines.
    Pairs(Holes),
    /// Any other elements, in segments.
    Segments(Arc<TypeLayout>),
}

/// Longer calls with elements apart take the long way, which copies these between slots and the program's buffer
/// without packing them first. In such calls the extra copy would take longer than the long way takes to find out about
/// the call.
const LONGEST: Bytes = Bytes(4096);

impl Elements {
    /// The elements of a call that moves them or has the library combine them. The longest buffer that any rank may
    /// have holds `count` elements of `bytes` in all: one lane serves a rank both as root and otherwise, so that buffer
    /// counts. `None` if such calls take the long way.
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

    /// As `of`, for elements of this layout.
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

    /// As `of`, for elements of `bytes` in all that a kernel combines; kernels know predefined datatypes alone.
    pub fn of_kernel(datatype: MPI_Datatype, bytes: Bytes) -> Option<Self> {
        let known = predefined(datatype)?;
        if known.is_contiguous() {
            return Some(Self::Packed { at: 0 });
        }
        Holes::of(known).filter(|_| bytes <= LONGEST).map(|holes| Self::Apart(Apart::Pairs(holes)))
    }
}

impl Apart {
    /// Distance between elements in the program's buffers.
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

    /// Unpacks `n` elements; the bytes between them keep their values.
    ///
    /// # Safety
    /// As for [`Apart::pack`], with `from` packed and `to` not.
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
