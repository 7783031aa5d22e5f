//! An engine that is preloaded itself serves nothing, since programs come to the loader alone. The only code that runs when an engine is
//! loaded says so.

use crate::log;
use crate::mpi::own;
use std::env;
use std::os::unix::ffi::OsStrExt;

/// What the dynamic linker calls.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = warn_if_preloaded;

/// By rank 0, not by launchers and what runs before them. A shell that rank 0 starts has no MPI library, unless that of Open MPI comes with
/// the engine.
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
