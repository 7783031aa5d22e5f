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
//! if the first one hands on to it. A call that `narrow` makes in place of the program's goes to either kind. Out of
//! reach: a profiler that finds the MPI library's functions by itself keeps its calls native, and one opened with
//! RTLD_LOCAL isn't seen.

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

    /// Whether `public`, a definition of `MPI_X`, is in a profiler. An object that defines `PMPI_X` too is none: it is the
    /// MPI library, a second one, or a stand-in for one like this.
    fn is_profiler(self, name: &Name, public: *mut c_void) -> bool {
        if Some(public) == self.0.symbol(name.public) {
            return false; // the MPI library's, or that of a library which belongs to it
        }
        let Some(object) = object_of(public) else {
            return false;
        };
        // "After this library" isn't after this one where somebody's own dlsym is in front of the linker's.
        if object == self.0.path || object == own_path() {
            return false;
        }
        // Never closed: the table points into it. The program itself has no such name, and no MPI library inside.
        let handle = open_loaded(&object);
        let profiling = handle.and_then(|handle| symbol(handle, name.profiling)).and_then(object_of);
        profiling != Some(object)
    }
}
