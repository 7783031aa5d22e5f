//! Profilers before and after this library.
//!
//! A profiler defines `MPI_X`, does its work, and calls `PMPI_X`. The program's calls go to the first definition:
//!
//! | order of the objects     | `MPI_X` of the program | the profiler's `PMPI_X` |
//! |--------------------------|------------------------|-------------------------|
//! | profiler, huddle, MPI    | profiler               | huddle: engine          |
//! | huddle, profiler, MPI    | huddle, then profiler  | huddle: engine          |
//!
//! In the second row the profiler is linked to the program, or named later in LD_PRELOAD. There the entry of `MPI_X`
//! jumps to the profiler, as if this library weren't there, and the entry of `PMPI_X` goes to the engine. A second
//! profiler is called if the first one calls it. A call that `narrow` makes in place of the program's goes to a
//! profiler before or after this library. Two kinds are out of reach. A profiler that looks up the MPI library's
//! functions itself keeps its calls native. A profiler opened with RTLD_LOCAL isn't seen.

use crate::mpi::Mpi;
use crate::objects::{first_symbol, next_symbol, object_of, open_loaded, own_path, symbol};
use crate::slots::Name;
use std::ffi::c_void;

/// The profilers of a process with this MPI library.
#[derive(Clone, Copy)]
pub struct Profilers<'a>(pub &'a Mpi);

impl Profilers<'_> {
    /// The `MPI_X` of a profiler that comes after this library.
    pub fn behind(self, name: &Name) -> Option<*mut c_void> {
        next_symbol(name.public).filter(|&next| self.is_profiler(name, next))
    }

    /// The `MPI_X` of a profiler that comes before this library; it may be the program itself.
    pub fn in_front(self, name: &Name) -> Option<*mut c_void> {
        first_symbol(name.public).filter(|&first| self.is_profiler(name, first))
    }

    /// Whether `public`, a definition of `MPI_X`, is in a profiler. An object that defines `PMPI_X` too is no profiler:
    /// it is the MPI library, a second MPI library, or another library that stands in front of MPI like this one.
    fn is_profiler(self, name: &Name, public: *mut c_void) -> bool {
        if Some(public) == self.0.symbol(name.public) {
            return false; // defined by the MPI library or a library that it needs
        }
        let Some(object) = object_of(public) else {
            return false;
        };
        // Where another object interposes dlsym, RTLD_NEXT counts from that object, so it may find this library or the
        // MPI library.
        if object == self.0.path || object == own_path() {
            return false;
        }
        // The handle is never closed: the table points into the object. The program itself can't be opened by its path,
        // but it contains no MPI library either.
        let handle = open_loaded(&object);
        let profiling = handle.and_then(|handle| symbol(handle, name.profiling)).and_then(object_of);
        profiling != Some(object)
    }
}
