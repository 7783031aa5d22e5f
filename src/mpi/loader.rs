//! What the loader tells the engine.

use crate::fabric::shm::Traffic;
use abi::OwnTraffic;
use once_cell::sync::OnceCell;
use std::ffi::{CString, c_char};
use std::sync::atomic::Ordering;

#[path = "../../loader/src/abi.rs"]
pub mod abi;

/// What the loader knows.
pub struct Loader {
    /// Path of the MPI library, as it was loaded.
    pub mpi_path: CString,
    /// The text of `MPI_Get_library_version`.
    pub mpi_version: String,
    /// Returns the number of calls of a collective, given by name, that huddle doesn't serve.
    pub calls: unsafe extern "C" fn(*const c_char) -> u64,
    /// Returns the name of the collective of this index in that count; null past the last.
    pub counted: extern "C" fn(usize) -> *const c_char,
    /// The program's own traffic.
    pub traffic: &'static OwnTraffic,
}

/// Set when the engine is opened.
pub static LOADER: OnceCell<Loader> = OnceCell::new();

/// Whether the program may have traffic in the library now; `may_be_reached` tells whether others may reach into
/// windows.
#[inline(always)]
pub(super) fn traffic(own: &OwnTraffic, may_be_reached: impl FnOnce() -> bool) -> Traffic {
    // Relaxed: this thread finds what it has begun itself; what others begin at the same time counts from the next call
    // on.
    let is_absent = own.open.load(Ordering::Relaxed) == 0
        && !own.is_endless.load(Ordering::Relaxed)
        && !(own.has_windows.load(Ordering::Relaxed) && may_be_reached());
    if is_absent { Traffic::Absent } else { Traffic::Possible }
}
