//! The engine's entry points: what the loader's table points at.
//!
//! Each entry asks [`crate::mpi::collectives`]. If the call is left to the native library, the entry ends in the native
//! function with the very same arguments. No state is kept across that jump: a native call may run callbacks that enter
//! here again.

mod entries;
mod preloaded;

use crate::log;
use crate::mpi::loader::abi::{self, ABI, Loader};
use crate::mpi::loader::{LOADER, Loader as KnownLoader};
use crate::mpi::native::{self, Native};
use crate::mpi::serve;
use std::ffi::{CStr, c_char, c_int, c_void};

const _: abi::Open = huddle_engine_open;
const _: abi::Entry = huddle_engine_entry;

/// Prepares the engine. Returns 0 if it can serve. The loader calls it once, before it asks for entries.
///
/// # Safety
/// `loader` points to the loader's description, which lives as long as the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn huddle_engine_open(loader: *const Loader) -> c_int {
    // SAFETY: the caller's promise; `abi` is the first member in all versions.
    if unsafe { (*loader).abi } != ABI {
        return 1;
    }
    // SAFETY: the caller's promise.
    let loader = unsafe { &*loader };
    // SAFETY: the loader's handle of the MPI library.
    match unsafe { Native::load(loader.mpi) } {
        Ok(table) => native::install(table),
        Err(problem) => {
            log::warning(format_args!("{problem}; collectives stay native"));
            return 2;
        }
    }
    // SAFETY: the loader's C string.
    let mpi_version = unsafe { CStr::from_ptr(loader.mpi_version) }.to_string_lossy().into_owned();
    // SAFETY: as above.
    let mpi_path = unsafe { CStr::from_ptr(loader.mpi_path) }.to_owned();
    // A panic ends the process with a line that names rank and call.
    log::report_panics(serve::latest_call);
    // SAFETY: the loader's words, which live as long as the process.
    let traffic = unsafe { &*loader.traffic };
    let _ = LOADER.set(KnownLoader { mpi_path, mpi_version, calls: loader.calls, counted: loader.counted, traffic });
    0
}

/// The function that serves `name`, or null to leave it native.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn huddle_engine_entry(name: *const c_char) -> *const c_void {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    let entry = entries::TABLE.iter().find(|(served, _)| *served == name);
    entry.map_or(std::ptr::null(), |(_, function)| function.0)
}
