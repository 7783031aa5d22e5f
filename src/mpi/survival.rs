//! Whether the MPI library is to survive processes that fail.
//!
//! If so, the library alone knows which processes have failed and which communicators were revoked, and it ends calls
//! on these with errors. Ranks that wait in shared memory would wait for ever.

use super::loader::LOADER;
use super::peers::Library;
use libc::RTLD_NOLOAD;

/// Whether this is Open MPI 5 or later, started with `mpiexec --with-ft ulfm`. Called after MPI_Init.
pub(super) fn is_wanted() -> bool {
    let library = LOADER.get().and_then(|loader| Library::open(&loader.mpi_path, RTLD_NOLOAD));
    let enabled = library.and_then(|library| library.find(c"ompi_ftmpi_enabled"));
    // SAFETY: a `bool` of the library, which stays loaded and has set it in MPI_Init.
    enabled.is_some_and(|enabled| unsafe { enabled.cast::<u8>().read_volatile() } != 0)
}
