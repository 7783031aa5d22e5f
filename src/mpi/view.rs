//! The user's buffers as packed bytes.

use super::datatype::{Rejected, TypeLayout, TypeMap};
use super::whole::{MOST_PACKED, Whole};
use crate::kernel::PackedBuffer;
use crate::mpi::handles::{constants, predefined};
use crate::mpi::native::native;
use mpi_sys::{MPI_Comm, MPI_Datatype};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

/// A buffer of the program as packed bytes: address, count and datatype.
#[derive(Clone)]
pub struct View {
    memory: Memory,
    len: usize,
}

#[derive(Clone)]
enum Memory {
    /// In memory as it is packed.
    Contiguous(*mut u8),
    /// Elements that lie in segments, and the buffer's address.
    Segments(*mut u8, Arc<TypeLayout>),
    /// Data that only the library can pack.
    Opaque(Arc<Whole>),
}

// SAFETY: the pointers are the program's, which lends the buffer to one call; threads take turns.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl Memory {
    /// `count` elements of this layout at `base`. Returns the layout as the error if only the library can pack them.
    #[inline]
    fn laid_out(base: *mut u8, count: usize, layout: Arc<TypeLayout>) -> Result<Self, Arc<TypeLayout>> {
        let packed_at = match &layout.type_map {
            TypeMap::Contiguous { at } => Some(*at),
            TypeMap::Segments { segments, times } => segments.contiguous_at(count.saturating_mul(*times)),
            TypeMap::Opaque => return Err(layout),
        };
        Ok(match packed_at {
            Some(at) => Self::Contiguous(base.wrapping_offset(at)),
            None => Self::Segments(base, layout),
        })
    }
}

/// Packed bytes of `count` elements.
#[inline]
fn length(size: usize, count: usize) -> Result<usize, Rejected> {
    size.checked_mul(count).filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or(Rejected::TooLarge)
}

impl View {
    /// The view of `count` elements of `datatype` at `address`, which is null (`MPI_BOTTOM`) where the datatype holds
    /// absolute addresses.
    ///
    /// # Errors
    /// If MPI rejects the datatype, or the size exceeds the address space.
    ///
    /// # Safety
    /// As for [`TypeLayout::of`]. The buffer is the program's for as long as the view is used.
    pub unsafe fn new(
        address: *mut c_void,
        count: u64,
        datatype: MPI_Datatype,
        self_comm: MPI_Comm,
    ) -> Result<Self, Rejected> {
        let base = address.cast::<u8>();
        let count = usize::try_from(count).map_err(|_| Rejected::TooLarge)?;
        if let Some(known) = predefined(datatype).filter(|known| known.is_contiguous()) {
            return Ok(Self { memory: Memory::Contiguous(base), len: length(known.size, count)? });
        }
        // SAFETY: the caller's promise.
        let layout = unsafe { TypeLayout::of(datatype, self_comm) }?;
        let len = length(layout.size, count)?;
        let memory = match Memory::laid_out(base, count, layout) {
            Ok(memory) => memory,
            // The library is not called to pack nothing.
            Err(_) if len == 0 => Memory::Contiguous(base),
            Err(layout) if layout.size > MOST_PACKED && native().pack_c.is_none() => return Err(Rejected::TooLarge),
            Err(layout) => Memory::Opaque(Arc::new(Whole::new(base, count, datatype, self_comm, layout))),
        };
        Ok(Self { memory, len })
    }

    /// A view of another buffer with the same datatype, `count` elements at `address`. The datatype is not looked at
    /// again. `None` unless its elements lie in segments.
    ///
    /// # Errors
    /// If the size exceeds the address space.
    pub(super) fn alike(&self, address: *mut c_void, count: u64) -> Result<Option<Self>, Rejected> {
        let Memory::Segments(_, layout) = &self.memory else { return Ok(None) };
        let count = usize::try_from(count).map_err(|_| Rejected::TooLarge)?;
        let len = length(layout.size, count)?;
        let memory = Memory::laid_out(address.cast(), count, Arc::clone(layout));
        Ok(memory.ok().map(|memory| Self { memory, len }))
    }

    /// Packed bytes of the buffer.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer holds no data.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the packed bytes lie, if they lie packed in memory.
    #[inline]
    pub fn as_contiguous(&self) -> Option<*mut u8> {
        match self.memory {
            Memory::Contiguous(at) => Some(at),
            _ => None,
        }
    }

    /// The buffer's address; where the data lie packed, their address.
    pub(super) fn address(&self) -> *mut u8 {
        match &self.memory {
            Memory::Contiguous(base) | Memory::Segments(base, _) => *base,
            Memory::Opaque(whole) => whole.base(),
        }
    }

    /// The layout of elements that lie in segments; `None` for others.
    pub(super) fn segmented(&self) -> Option<&Arc<TypeLayout>> {
        match &self.memory {
            Memory::Segments(_, layout) => Some(layout),
            _ => None,
        }
    }

    /// Whether the datatype holds absolute addresses of the data.
    pub(super) fn has_absolute_addresses(&self) -> bool {
        !matches!(self.memory, Memory::Contiguous(_)) && self.address() == constants().bottom.cast()
    }

    /// The range from the lowest byte of the data to one past the highest.
    pub(super) fn span(&self) -> Range<*mut u8> {
        let (count, layout) = match &self.memory {
            Memory::Contiguous(at) => return *at..at.wrapping_add(self.len),
            Memory::Segments(_, layout) => (self.len / layout.size.max(1), &**layout),
            Memory::Opaque(whole) => whole.elements(),
        };
        let last = layout.extent.wrapping_mul(count as isize - 1);
        let low = self.address().wrapping_offset(layout.true_lb);
        low.wrapping_offset(last.min(0))..low.wrapping_add(layout.true_extent).wrapping_offset(last.max(0))
    }

    /// Calls `each` with address and length of each block of adjacent data, in packed order. Does nothing where only
    /// the library knows the blocks.
    pub(super) fn each_block(&self, each: &mut dyn FnMut(*mut u8, usize)) {
        match &self.memory {
            Memory::Contiguous(at) => each(*at, self.len),
            Memory::Segments(base, layout) => {
                let segments = layout.segments();
                let blocks = segments.blocks(self.len / segments.size().max(1));
                blocks.for_each(|(at, n)| each(base.wrapping_offset(at), n));
            }
            Memory::Opaque(_) => {}
        }
    }

    /// The buffer, if only the library can pack it.
    pub(super) fn whole(&self) -> Option<&Whole> {
        match &self.memory {
            Memory::Opaque(whole) => Some(whole),
            _ => None,
        }
    }

    /// Copies data that were held back to the program's buffer. Called once after the last write.
    pub fn finish(&self) {
        if let Memory::Opaque(whole) = &self.memory {
            whole.unpack();
        }
    }
}

impl PackedBuffer for View {
    #[inline]
    unsafe fn read(&self, offset: usize, to: *mut u8, n: usize) {
        debug_assert!(offset + n <= self.len);
        // SAFETY: the range lies in the buffer, which is the program's as promised to `new`.
        unsafe {
            match &self.memory {
                Memory::Contiguous(at) => to.copy_from_nonoverlapping(at.wrapping_add(offset), n),
                Memory::Segments(base, layout) => layout.segments().gather(*base, offset, to, n),
                Memory::Opaque(whole) => to.copy_from_nonoverlapping(whole.packed().wrapping_add(offset), n),
            }
        }
    }

    #[inline]
    unsafe fn write(&self, offset: usize, from: *const u8, n: usize) {
        debug_assert!(offset + n <= self.len);
        // SAFETY: as in `read`.
        unsafe {
            match &self.memory {
                Memory::Contiguous(at) => at.wrapping_add(offset).copy_from_nonoverlapping(from, n),
                Memory::Segments(base, layout) => layout.segments().scatter(*base, offset, from, n),
                Memory::Opaque(whole) => {
                    whole.changed().wrapping_add(offset).copy_from_nonoverlapping(from, n);
                }
            }
        }
    }

    fn fills_lines(&self) -> bool {
        match &self.memory {
            Memory::Contiguous(_) | Memory::Opaque(_) => true,
            Memory::Segments(_, layout) => layout.segments().fills_lines(),
        }
    }
}
