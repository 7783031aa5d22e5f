//! What the loader tells the engine.

use crate::fabric::shm::Traffic;
use once_cell::sync::OnceCell;
use std::ffi::{CString, c_char};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// What the loader knows.
pub struct Loader {
    /// Path of the MPI library, as it was loaded.
    pub mpi_path: CString,
    /// The text of `MPI_Get_library_version`.
    pub mpi_version: String,
    /// Calls of a collective that huddle doesn't serve.
    pub calls: unsafe extern "C" fn(*const c_char) -> u64,
    /// Their names.
    pub counted: extern "C" fn(usize) -> *const c_char,
    /// The program's own traffic.
    pub traffic: OwnTraffic,
}

/// Set when the engine is opened.
pub static LOADER: OnceCell<Loader> = OnceCell::new();

/// What this process has in the MPI library that goes on between its calls, as far as the loader sees.
#[derive(Clone, Copy)]
pub struct OwnTraffic {
    /// Requests that were begun and are not completed.
    pub open: &'static AtomicI64,
    /// There is, or was, some whose end the loader does not see.
    pub is_endless: &'static AtomicBool,
}

impl OwnTraffic {
    /// Whether there may be some.
    #[inline(always)]
    pub fn now(self) -> Traffic {
        // Relaxed: what this thread has begun it finds; what others begin at the same time counts from the next call on.
        let is_absent = self.open.load(Ordering::Relaxed) == 0 && !self.is_endless.load(Ordering::Relaxed);
        if is_absent { Traffic::Absent } else { Traffic::Possible }
    }
}
