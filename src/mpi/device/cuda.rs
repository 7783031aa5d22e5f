//! The driver interface of CUDA, on which its runtime and all compilers are built.
//!
//! - `cuPointerGetAttributes` needs no current context, and returns no error for addresses that CUDA doesn't know.
//! - A copy needs a current context. A thread that has never used CUDA has none, and memory of pools or mapped by
//!   `cuMemMap` belongs to none. Then the primary context of the device is used.
//! - `cuMemcpy` to a device from pageable memory returns before the data are there ("API synchronization behavior" in
//!   the CUDA documentation), and waits for all other streams. So copies go to the stream of this thread, which waits
//!   only for the legacy default stream, and `Copies::end` waits for the stream of this thread.

use super::{check, find};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

// CUpointer_attribute
const CONTEXT: c_uint = 1;
const MEMORY_TYPE: c_uint = 2;
const HOST_POINTER: c_uint = 4;
const DEVICE_ORDINAL: c_uint = 9;

// CUmemorytype; 0 for addresses that CUDA doesn't know.
const UNKNOWN: c_uint = 0;
const HOST: c_uint = 1;

/// `CU_STREAM_PER_THREAD`
const STREAM: usize = 2;

type Context = *mut c_void;

/// The functions of the library.
#[derive(Clone, Copy)]
pub struct Cuda {
    attributes: unsafe extern "C" fn(c_uint, *const c_uint, *const *mut c_void, usize) -> c_int,
    current: unsafe extern "C" fn(*mut Context) -> c_int,
    push: unsafe extern "C" fn(Context) -> c_int,
    pop: unsafe extern "C" fn(*mut Context) -> c_int,
    retain: unsafe extern "C" fn(*mut Context, c_int) -> c_int,
    release: unsafe extern "C" fn(c_int) -> c_int,
    copy: unsafe extern "C" fn(usize, usize, usize, usize) -> c_int,
    wait: unsafe extern "C" fn(usize) -> c_int,
}

/// The context and device of some memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Null if the memory belongs to none.
    context: Context,
    device: c_int,
}

impl Cuda {
    /// The functions of an open library, if it has them all.
    pub(super) fn of(handle: *mut c_void) -> Option<Self> {
        // SAFETY: the prototypes of cuda.h since CUDA 7, on 64 bits: `CUdeviceptr` and `CUstream` have the size of an
        // address, `CUdevice` and enumerations that of an int.
        unsafe {
            Some(Self {
                attributes: find(handle, c"cuPointerGetAttributes")?,
                current: find(handle, c"cuCtxGetCurrent")?,
                push: find(handle, c"cuCtxPushCurrent_v2")?,
                pop: find(handle, c"cuCtxPopCurrent_v2")?,
                retain: find(handle, c"cuDevicePrimaryCtxRetain")?,
                release: find(handle, c"cuDevicePrimaryCtxRelease")?,
                copy: find(handle, c"cuMemcpyAsync")?,
                wait: find(handle, c"cuStreamSynchronize")?,
            })
        }
    }

    /// Where `address` lies, if the host can't use it. Managed memory counts as the device's.
    pub(super) fn place_of(&self, address: *const u8) -> Option<Place> {
        let (mut kind, mut context, mut host, mut device) =
            (UNKNOWN, null_mut::<c_void>(), null_mut::<c_void>(), 0_i32);
        let names = [MEMORY_TYPE, CONTEXT, HOST_POINTER, DEVICE_ORDINAL];
        let places: [*mut c_void; 4] =
            [(&raw mut kind).cast(), (&raw mut context).cast(), (&raw mut host).cast(), (&raw mut device).cast()];
        // SAFETY: names and as many places of their types.
        let code = unsafe { (self.attributes)(names.len() as c_uint, names.as_ptr(), places.as_ptr(), address.addr()) };
        // An error means that CUDA isn't initialised, or has ended: then there is no memory of devices.
        let is_hosts = code != 0 || kind == UNKNOWN || kind == HOST && host.addr() == address.addr();
        (!is_hosts).then_some(Place { context, device })
    }

    /// Starts copying memory at `place`.
    pub(super) fn begin(self, place: Place) -> Copies {
        let (mut context, mut is_retained) = (place.context, false);
        let mut is_pushed = !context.is_null();
        // SAFETY: valid places, contexts that the library has named, and a device that it has named.
        unsafe {
            if context.is_null() && ((self.current)(&mut context) != 0 || context.is_null()) {
                check("cuDevicePrimaryCtxRetain", (self.retain)(&mut context, place.device));
                (is_pushed, is_retained) = (true, true);
            }
            if is_pushed {
                check("cuCtxPushCurrent", (self.push)(context));
            }
        }
        Copies { cuda: self, is_pushed, retained: is_retained.then_some(place.device) }
    }
}

/// Copies on this thread's stream of the current context.
pub struct Copies {
    cuda: Cuda,
    is_pushed: bool,
    retained: Option<c_int>,
}

impl Copies {
    /// # Safety
    /// As for [`super::Copies::add`].
    pub(super) unsafe fn add(&mut self, to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller's promise; the library knows by the addresses which side is the device's.
        check("cuMemcpyAsync", unsafe { (self.cuda.copy)(to.addr(), from.addr(), n, STREAM) });
    }

    pub(super) fn end(self) {
        // SAFETY: the stream exists in every context; what was pushed and retained in `begin` is popped and released.
        unsafe {
            check("cuStreamSynchronize", (self.cuda.wait)(STREAM));
            if self.is_pushed {
                let mut context = null_mut();
                check("cuCtxPopCurrent", (self.cuda.pop)(&mut context));
            }
            if let Some(device) = self.retained {
                check("cuDevicePrimaryCtxRelease", (self.cuda.release)(device));
            }
        }
    }
}
