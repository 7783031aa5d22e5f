//! What the loader and an engine agree on; the engine compiles this page too. In C, as in tests/fake/loader.h:
//!
//! ```c
//! struct huddle_loader { … };                                   // `Loader`
//! int huddle_engine_open(const struct huddle_loader *loader);   // `Open`
//! const void *huddle_engine_entry(const char *name);            // `Entry`
//! ```

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32};

/// The version of this page. An engine that was built for another one refuses to open.
pub const ABI: u32 = 4;

/// What the loader tells the engine. Everything it points at lives as long as the process.
#[repr(C)]
pub struct Loader {
    /// `ABI`, at this place in all versions.
    pub abi: u32,
    /// The `dlopen` handle of the MPI library: the real functions are found with `dlsym` on it.
    pub mpi: *mut c_void,
    /// Path of the MPI library, as it was loaded.
    pub mpi_path: *const c_char,
    /// Text of its `MPI_Get_library_version`.
    pub mpi_version: *const c_char,
    /// Calls so far of a `Counted` or `Begun` name, by its `MPI_X` spelling; 0 for all others.
    pub calls: unsafe extern "C" fn(name: *const c_char) -> u64,
    /// The `MPI_X` spelling of the `index`-th such name, null after the last.
    pub counted: extern "C" fn(index: usize) -> *const c_char,
    /// The program's own traffic in the MPI library.
    pub traffic: *const OwnTraffic,
}

/// The program's traffic in the MPI library that goes on between its calls, as far as the loader sees it begin and end. On lines of its own: the
/// engine reads it in every call.
#[repr(C, align(128))]
pub struct OwnTraffic {
    /// Requests that were begun and are not completed; may be negative where some were begun unseen.
    pub open: AtomicI64,
    /// There is, or was, some whose end nobody sees. Set for good.
    pub is_endless: AtomicBool,
    /// Others may reach into memory of this process, which can need its library's progress. Set for good.
    pub has_windows: AtomicBool,
    /// Points to a word that calls of one-sided communication make 1, and the engine 0. The loader's own at first; the engine may put in one that
    /// processes share, which then tells of any of them.
    pub notice: AtomicPtr<AtomicU32>,
}

/// `huddle_engine_open`: prepares the engine and returns 0, or anything else if it can't serve this loader. Called once,
/// at the first call of the process to a name of the table, before the table is filled. It must not call MPI by
/// linked names (they lead back here), nor collectives at all: MPI may not be initialised.
pub type Open = unsafe extern "C" fn(loader: *const Loader) -> c_int;

/// `huddle_engine_entry`: the function that serves `name` ("MPI_Allreduce", "huddle_version"), or null to leave it
/// native. Called after a successful `Open`, once for each `Served` name that the MPI library has and each `Api` name.
pub type Entry = unsafe extern "C" fn(name: *const c_char) -> *const c_void;
