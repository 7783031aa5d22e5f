//! The runtime of HIP.
//!
//! - `hipPointerGetAttributes` fails on addresses that HIP doesn't know, and keeps that failure as the thread's last
//!   error. A program may take it for one of its own, so it is cleared.
//! - The numbers of `hipMemoryType` changed with version 6.
//! - A copy from pageable memory may end later, so `wait` waits for the null stream.

use super::{check, find};
use std::ffi::{c_int, c_void};

/// The first version in which 1 stands for the host's memory and 0 for memory that HIP doesn't know; before it 0 stood
/// for the host's and 1 for the device's.
const VERSION_6: c_int = 60_000_000;

/// `hipMemcpyDefault`: the library finds the direction by the addresses.
const DEFAULT: c_int = 4;

/// `hipPointerAttribute_t`: in all versions the type is the first member; `rest` is more room than the others take.
#[repr(C, align(8))]
struct Attributes {
    kind: c_int,
    rest: [c_int; 31],
}

/// The functions of the library.
#[derive(Clone, Copy)]
pub struct Hip {
    attributes: unsafe extern "C" fn(*mut Attributes, *const c_void) -> c_int,
    peek_error: unsafe extern "C" fn() -> c_int,
    take_error: unsafe extern "C" fn() -> c_int,
    copy: unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int, *mut c_void) -> c_int,
    wait: unsafe extern "C" fn(*mut c_void) -> c_int,
    version: c_int,
}

impl Hip {
    /// The functions of an open library, if it has them all.
    pub(super) fn of(handle: *mut c_void) -> Option<Self> {
        // SAFETY: the prototypes of hip_runtime_api.h since ROCm 4.
        unsafe {
            let version: unsafe extern "C" fn(*mut c_int) -> c_int = find(handle, c"hipRuntimeGetVersion")?;
            let hip = Self {
                attributes: find(handle, c"hipPointerGetAttributes")?,
                peek_error: find(handle, c"hipPeekAtLastError")?,
                take_error: find(handle, c"hipGetLastError")?,
                copy: find(handle, c"hipMemcpyAsync")?,
                wait: find(handle, c"hipStreamSynchronize")?,
                version: 0,
            };
            let mut number = 0;
            let code = version(&mut number);
            Some(Self { version: if code == 0 { number } else { 0 }, ..hip })
        }
    }

    /// Whether `address` lies in memory that is not surely the host's.
    pub(super) fn has(&self, address: *const u8) -> bool {
        let mut found = Attributes { kind: 0, rest: [0; 31] };
        // SAFETY: a place with more room than the structure takes; the other functions have no preconditions.
        unsafe {
            let earlier = (self.peek_error)();
            let code = (self.attributes)(&mut found, address.cast());
            if code != 0 && earlier == 0 {
                (self.take_error)();
            }
            // Since version 6 kind 1 is host memory that is registered with HIP. If the version is unknown, memory of
            // kind 1 is copied.
            code == 0 && found.kind != 0 && !(found.kind == 1 && self.version >= VERSION_6)
        }
    }

    /// # Safety
    /// As for [`super::Copies::add`].
    pub(super) unsafe fn copy(&self, to: *mut u8, from: *const u8, n: usize) {
        let null_stream = std::ptr::null_mut();
        // SAFETY: the caller's promise.
        check("hipMemcpyAsync", unsafe { (self.copy)(to.cast(), from.cast(), n, DEFAULT, null_stream) });
    }

    pub(super) fn wait(&self) {
        // SAFETY: the null stream always exists.
        check("hipStreamSynchronize", unsafe { (self.wait)(std::ptr::null_mut()) });
    }
}
