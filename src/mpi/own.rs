//! The engine's own file, and where it is installed.

use crate::config;
use std::ffi::{CStr, OsStr, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The path under which this engine was loaded.
pub fn path() -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr fills `info` when it returns nonzero; its file name is a C string that lives as long as the object.
    let name = unsafe {
        if libc::dladdr(path as *const c_void, info.as_mut_ptr()) == 0 {
            return None;
        }
        CStr::from_ptr(info.assume_init().dli_fname)
    };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The directory that scripts/install was given; empty where this engine is not installed.
pub fn prefix() -> PathBuf {
    config::prefix_of(path(), 3)
}
