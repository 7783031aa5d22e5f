//! Elements that do not lie as they are packed, on the short way ([`lane`](super::lane)).

use super::datatype::{TypeLayout, TypeMap};
use super::holes::Holes;
use crate::mpi::handles::predefined;
use crate::types::Bytes;
use mpi_sys::{MPI_Comm, MPI_Datatype};
use std::sync::Arc;

/// How the elements of all buffers of a call lie.
pub(super) enum Elements {
    /// Packed, so many bytes after the address that the program gives.
    Shifted(isize),
    /// Pairs that a kernel combines.
    Pairs(Holes),
    /// In segments; packed before the call and unpacked after it.
    Segments(Arc<TypeLayout>),
}

impl Elements {
    /// Of longer calls the long way is as fast, which moves elements to slots and out of them as they lie.
    const LONGEST: Bytes = Bytes(4096);

    /// Elements of `datatype`, which the library accepts; `count` of them, and so many bytes, in the longest buffer of the call at any rank.
    /// The first is `None` where these take the long way, the second where they lie as they are packed.
    ///
    /// # Safety
    /// As for [`TypeLayout::of`].
    pub unsafe fn of(
        datatype: MPI_Datatype,
        count: usize,
        bytes: Bytes,
        has_kernel: bool,
        self_comm: MPI_Comm,
    ) -> Option<Option<Self>> {
        let known = predefined(datatype);
        if known.is_some_and(|known| known.is_contiguous()) {
            return Some(None);
        }
        if has_kernel {
            let pairs = known.filter(|_| bytes <= Self::LONGEST).and_then(Holes::of)?;
            return Some(Some(Self::Pairs(pairs)));
        }
        // SAFETY: the caller's promise.
        let layout = unsafe { TypeLayout::of(datatype, self_comm) }.ok()?;
        let at = match &layout.type_map {
            TypeMap::Contiguous { at } => Some(*at),
            TypeMap::Segments { segments, times } => segments.contiguous_at(count.checked_mul(*times)?),
            TypeMap::Opaque => return None,
        };
        match at {
            Some(0) => Some(None),
            Some(at) => Some(Some(Self::Shifted(at))),
            None => (bytes <= Self::LONGEST).then_some(Some(Self::Segments(layout))),
        }
    }

    /// From one element to the next, in the program's buffers.
    pub fn extent(&self) -> isize {
        match self {
            Self::Segments(layout) => layout.extent,
            Self::Shifted(_) | Self::Pairs(_) => unreachable!("asked where blocks are in segments"),
        }
    }

    /// Packs `n` elements of `bytes` in all.
    ///
    /// # Safety
    /// `from` has `n` elements, `to` room for as many packed ones, and they do not overlap.
    pub unsafe fn pack(&self, to: *mut u8, from: *const u8, n: usize, bytes: Bytes) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Pairs(holes) => holes.pack(to, from, n),
                Self::Segments(layout) => layout.segments().gather(from, 0, to, bytes.0),
                Self::Shifted(_) => unreachable!("shifted elements are packed"),
            }
        }
    }

    /// Unpacks `n` elements of `bytes` in all; what lies between them stays as it is.
    ///
    /// # Safety
    /// As for [`Elements::pack`], the other way round.
    pub unsafe fn unpack(&self, to: *mut u8, from: *const u8, n: usize, bytes: Bytes) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Pairs(holes) => holes.unpack(to, from, n),
                Self::Segments(layout) => layout.segments().scatter(to, 0, from, bytes.0),
                Self::Shifted(_) => unreachable!("shifted elements are packed"),
            }
        }
    }
}
