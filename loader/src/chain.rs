//! Profilers behind this library.
//!
//! A profiler defines `MPI_X`, does its work, and calls `PMPI_X`. The program's calls go to the first definition:
//!
//! | order of the objects     | `MPI_X` of the program | the profiler's `PMPI_X` |
//! |--------------------------|------------------------|-------------------------|
//! | profiler, huddle, MPI    | profiler               | huddle: engine          |
//! | huddle, profiler, MPI    | huddle, then profiler  | huddle: engine          |
//!
//! The second row is a profiler that is linked to the program, or named later in LD_PRELOAD. There the entry of `MPI_X`
//! hands on to it, as if this library weren't there, and the entry of `PMPI_X` does the work. A second profiler is called
//! if the first one hands on to it. Out of reach: a profiler that finds the MPI library's functions by itself keeps its
//! calls native, and one opened with RTLD_LOCAL isn't seen.

use crate::mpi::Mpi;
use crate::objects::{next_symbol, object_of, open_loaded, own_path, symbol};
use crate::slots::Name;
use std::ffi::c_void;

/// The profiler's `MPI_X` that comes after this library's. An object that defines `PMPI_X` too is no profiler: it is the
/// MPI library, a second one, or a stand-in for one like this.
pub fn next(name: &Name, mpi: &Mpi) -> Option<*mut c_void> {
    let next = next_symbol(name.public)?;
    if Some(next) == mpi.symbol(name.public) {
        return None; // the MPI library's, or that of a library which belongs to it
    }
    let object = object_of(next)?;
    // Itself: where somebody's own dlsym is in front of the linker's, "after this library" isn't after this one.
    if object == mpi.path || object == own_path() {
        return None;
    }
    let handle = open_loaded(&object)?; // never closed: the table points into the object
    let profiling = symbol(handle, name.profiling).and_then(object_of);
    (profiling != Some(object)).then_some(next)
}
