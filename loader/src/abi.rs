//! The interface between the loader and an engine; the engine compiles this file too. In C, as in tests/fake/loader.h:
//!
//! ```c
//! struct huddle_loader { … };                                   // `Loader`
//! int huddle_engine_open(const struct huddle_loader *loader);   // `Open`
//! const void *huddle_engine_entry(const char *name);            // `Entry`
//! ```

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32};

/// The version of this interface. An engine built for another version refuses to open.
pub const ABI: u32 = 4;

/// What the loader tells the engine. Everything that it points at lives as long as the process.
#[repr(C)]
pub struct Loader {
    /// The loader's `ABI`. This field is first in all versions.
    pub abi: u32,
    /// The `dlopen` handle of the MPI library: the real functions are found with `dlsym` on it.
    pub mpi: *mut c_void,
    /// Path of the MPI library, as it was loaded.
    pub mpi_path: *const c_char,
    /// Text of its `MPI_Get_library_version`.
    pub mpi_version: *const c_char,
    /// Returns how often a `Counted` or `Begun` name, given by its `MPI_X` spelling, was called so far; 0 for all other
    /// names.
    pub calls: unsafe extern "C" fn(name: *const c_char) -> u64,
    /// Returns the `MPI_X` spelling of the `index`-th `Counted` or `Begun` name; null after the last.
    pub counted: extern "C" fn(index: usize) -> *const c_char,
    /// The program's own traffic in the MPI library.
    pub traffic: *const OwnTraffic,
}

/// The program's traffic in the MPI library that goes on between its calls, as far as the loader sees it begin and end.
/// Aligned to lines of its own, because the engine reads it in every call.
#[repr(C, align(128))]
pub struct OwnTraffic {
    /// Requests that were begun and not yet completed. May be negative if some were begun by names that the loader does
    /// not see.
    pub open: AtomicI64,
    /// The process has, or had, traffic whose end the loader can't see. Never cleared.
    pub is_endless: AtomicBool,
    /// Other processes may access memory of this process, which can need progress of its MPI library. Never cleared.
    pub has_windows: AtomicBool,
    /// Points to a word that calls of one-sided communication set to 1, and the engine to 0. At first it is the
    /// loader's own word. The engine may replace it by a word that processes share, which any of them then sets.
    pub notice: AtomicPtr<AtomicU32>,
}

/// `huddle_engine_open`: prepares the engine and returns 0, or another value if the engine can't serve this loader. The
/// loader calls it once, at the first call of the process to a name of the table, before it fills the table. The
/// function must not call MPI by linked names, because they lead back to the loader. It must not call collectives at
/// all, because MPI may not be initialised.
pub type Open = unsafe extern "C" fn(loader: *const Loader) -> c_int;

/// `huddle_engine_entry`: the function that serves `name` ("MPI_Allreduce", "huddle_version"), or null to leave it
/// native. The loader calls it after a successful `Open`, once for each `Served` name that the MPI library has and each
/// `Api` name.
pub type Entry = unsafe extern "C" fn(name: *const c_char) -> *const c_void;
