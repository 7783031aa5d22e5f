//! Data that only the library can pack and unpack, in whole elements.

use super::datatype::TypeLayout;
use super::failure::Code;
use crate::mpi::handles::constants;
use crate::mpi::native::native;
use crate::sync::Private;
use mpi_sys::{MPI_Comm, MPI_Count, MPI_Datatype};
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

/// The most bytes that one call packs: safely within an `int`.
pub(super) const MOST_PACKED: usize = 1 << 30;

/// A buffer that only the library can pack. It is packed as a whole at the first access and unpacked as a whole at the
/// end, so bytes that were not written keep their values.
pub(super) struct Whole {
    base: *mut u8,
    count: usize,
    datatype: MPI_Datatype,
    self_comm: MPI_Comm,
    layout: Arc<TypeLayout>,
    packed: OnceLock<Box<[UnsafeCell<u8>]>>,
    is_changed: Private<bool>,
}

// SAFETY: the address is the program's, which lends the buffer to one call; threads take turns.
unsafe impl Send for Whole {}
// SAFETY: as above.
unsafe impl Sync for Whole {}

impl Whole {
    /// A buffer of `count` elements at `base`; nothing is packed yet.
    pub(super) fn new(
        base: *mut u8,
        count: usize,
        datatype: MPI_Datatype,
        self_comm: MPI_Comm,
        layout: Arc<TypeLayout>,
    ) -> Self {
        Self { base, count, datatype, self_comm, layout, packed: OnceLock::new(), is_changed: Private::new(false) }
    }

    /// The address of the packed bytes; the first call packs them.
    pub(super) fn packed(&self) -> *mut u8 {
        let packed = self.packed.get_or_init(|| {
            let bytes = self.layout.size * self.count;
            let packed: Box<[UnsafeCell<u8>]> = (0..bytes).map(|_| UnsafeCell::new(0)).collect();
            let to = UnsafeCell::raw_get(packed.as_ptr());
            // SAFETY: the buffer is the program's, and `packed` has the room for it.
            unsafe { self.pack_at(self.base, to) };
            packed
        });
        UnsafeCell::raw_get(packed.as_ptr())
    }

    /// The address of the packed bytes, which the caller is about to change.
    pub(super) fn changed(&self) -> *mut u8 {
        let packed = self.packed();
        self.is_changed.set(true);
        packed
    }

    /// Unpacks the bytes to the program's buffer if they were changed.
    pub(super) fn unpack(&self) {
        if self.is_changed.replace(false) {
            // SAFETY: as in `packed`.
            unsafe { self.unpack_at(self.packed(), self.base) };
        }
    }

    /// Packs elements at `base`, which lie there as those of the buffer do at its own address.
    ///
    /// # Safety
    /// The elements are readable, and `to` is writable for their packed bytes.
    pub(super) unsafe fn pack_at(&self, base: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { pack_elements(&self.layout, self.datatype, base, to, self.count, self.self_comm) };
    }

    /// Unpacks to elements at `base`, which lie there as those of the buffer do at its own address.
    ///
    /// # Safety
    /// `from` is readable for their packed bytes, and the elements are writable.
    pub(super) unsafe fn unpack_at(&self, from: *const u8, base: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { unpack_elements(&self.layout, self.datatype, from, base, self.count, self.self_comm) };
    }

    /// The buffer's address.
    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    /// The number of elements, and their layout.
    pub(super) fn elements(&self) -> (usize, &TypeLayout) {
        (self.count, &self.layout)
    }
}

/// Elements that one call of the library packs or unpacks.
struct Step {
    /// The address of the first element, relative to the buffer's.
    at: isize,
    /// The offset of its packed bytes.
    packed_at: usize,
    count: usize,
    /// Packed bytes of these elements.
    bytes: usize,
}

/// Cuts `count` elements into steps, as many in each as fit an `int` of packed bytes.
fn steps(layout: &TypeLayout, count: usize) -> impl Iterator<Item = Step> {
    let (size, extent) = (layout.size, layout.extent);
    let most = (MOST_PACKED / size.max(1)).max(1);
    (0..count).step_by(most).map(move |first| {
        let count = most.min(count - first);
        Step { at: extent.wrapping_mul(first as isize), packed_at: first * size, count, bytes: count * size }
    })
}

/// Packs `count` elements at `base`, by the library.
///
/// # Panics
/// If the library fails, since the caller is in the middle of a collective.
///
/// # Safety
/// The elements are readable and `to` is writable for their packed bytes; `datatype` is valid and `layout` its layout.
pub(super) unsafe fn pack_elements(
    layout: &TypeLayout,
    datatype: MPI_Datatype,
    base: *const u8,
    to: *mut u8,
    count: usize,
    self_comm: MPI_Comm,
) {
    for Step { at, packed_at, count, bytes } in steps(layout, count) {
        let (from, to) = (base.wrapping_offset(at).cast(), to.wrapping_add(packed_at).cast());
        // SAFETY: the caller's promise, for the elements of this step.
        let (code, packed) = unsafe {
            if let Some(pack_c) = native().pack_c {
                let mut position: MPI_Count = 0;
                let (n, room) = (count as MPI_Count, bytes as MPI_Count);
                (pack_c(from, n, datatype, to, room, &mut position, self_comm), position as usize)
            } else {
                let mut position: c_int = 0;
                let (n, room) = (count as c_int, bytes as c_int);
                (native().pack(from, n, datatype, to, room, &mut position, self_comm), position as usize)
            }
        };
        assert!(
            code == constants().success && packed == bytes,
            "MPI_Pack failed after {packed} of {bytes} bytes ({})",
            Code(code)
        );
    }
}

/// Unpacks `count` elements to `base`, by the library.
///
/// # Panics
/// If the library fails, since the caller is in the middle of a collective.
///
/// # Safety
/// As for [`pack_elements`], but `from` is readable and the elements are writable.
pub(super) unsafe fn unpack_elements(
    layout: &TypeLayout,
    datatype: MPI_Datatype,
    from: *const u8,
    base: *mut u8,
    count: usize,
    self_comm: MPI_Comm,
) {
    for Step { at, packed_at, count, bytes } in steps(layout, count) {
        let (from, to) = (from.wrapping_add(packed_at).cast(), base.wrapping_offset(at).cast());
        // SAFETY: the caller's promise, for the elements of this step.
        let code = unsafe {
            if let Some(unpack_c) = native().unpack_c {
                let mut position: MPI_Count = 0;
                unpack_c(from, bytes as MPI_Count, &mut position, to, count as MPI_Count, datatype, self_comm)
            } else {
                let mut position: c_int = 0;
                native().unpack(from, bytes as c_int, &mut position, to, count as c_int, datatype, self_comm)
            }
        };
        assert!(code == constants().success, "MPI_Unpack failed ({})", Code(code));
    }
}
