//! Warns of an engine that is preloaded itself. It serves nothing, since programs call the loader alone. The warning is
//! the only code that runs when an engine is loaded.

use crate::log;
use crate::mpi::own;
use std::env;
use std::os::unix::ffi::OsStrExt;

/// The dynamic linker calls this when it loads the engine.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = warn_if_preloaded;

/// Rank 0 alone warns, not launchers and what runs before them. A shell that rank 0 starts does not warn, since it has
/// no MPI library, unless that of Open MPI is loaded with the engine.
extern "C" fn warn_if_preloaded() {
    let Some(list) = env::var_os("LD_PRELOAD") else { return };
    let Some(engine) = own::path() else { return };
    let is_preloaded =
        list.as_bytes().split(|byte| b": ".contains(byte)).any(|path| path == engine.as_os_str().as_bytes());
    let rank = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"].into_iter().find_map(env::var_os);
    // SAFETY: the name is a C string.
    let has_mpi = || !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"MPI_Init".as_ptr()) }.is_null();
    if is_preloaded && rank.is_some_and(|rank| rank == "0") && has_mpi() {
        log::warning(format_args!(
            "preload lib/libhuddle.so, not an engine: {} serves nothing by itself",
            engine.display()
        ));
    }
}
