//! Finds the MPI library among the objects of the process. It may be linked, or an interpreter may have opened it with
//! RTLD_LOCAL, where RTLD_NEXT doesn't see it.

use crate::objects::{base_name, close, loaded, object_of, open_loaded, own_path, symbol};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;

/// Room for the text of MPI_Get_library_version: the longest limit of all MPIs (MPICH's).
const VERSION_ROOM: usize = 8192;

/// The MPI library of this process. Its handle is never closed.
pub struct Mpi {
    pub handle: *mut c_void,
    pub path: CString,
    pub version: CString,
}

impl Mpi {
    /// Finds the MPI library: the first loaded object that defines PMPI_Init. Objects named libmpi* come before all
    /// others.
    pub fn find() -> Option<Mpi> {
        let own = own_path();
        let mut paths = loaded();
        paths.retain(|path| *path != own);
        paths.sort_by_key(|path| !base_name(path).starts_with(b"libmpi"));
        paths.into_iter().find_map(Mpi::open)
    }

    /// The object at `path`, if it is loaded and defines PMPI_Init itself, not in a library that it needs.
    fn open(path: CString) -> Option<Mpi> {
        let handle = open_loaded(&path)?;
        let mut mpi = Mpi { handle, path, version: CString::default() };
        if mpi.symbol(c"PMPI_Init").and_then(object_of).as_ref() != Some(&mpi.path) {
            // SAFETY: the handle is the one just opened.
            unsafe { close(handle) };
            return None;
        }
        mpi.version = mpi.library_version();
        Some(mpi)
    }

    /// The address of `name` in the MPI library, or else in a library that it needs.
    pub fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        symbol(self.handle, name)
    }

    /// The text of MPI_Get_library_version, which may be called before MPI_Init; empty in an MPI-2 library.
    fn library_version(&self) -> CString {
        let Some(function) = self.symbol(c"PMPI_Get_library_version") else {
            return CString::default();
        };
        let mut text = vec![0u8; VERSION_ROOM + 1];
        let mut length: c_int = 0;
        // SAFETY: the prototype is MPI's, the same in every implementation; the buffer is as large as the largest
        // limit.
        unsafe {
            let function: unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int = transmute(function);
            function(text.as_mut_ptr().cast(), &mut length);
        }
        CStr::from_bytes_until_nul(&text).map(CStr::to_owned).unwrap_or_default()
    }

    /// The family of engines that fits this library, by what handles are in its binary interface.
    pub fn family(&self) -> Option<&'static str> {
        const MPICH: [&[u8]; 4] = [b"MPICH", b"Intel(R) MPI", b"MVAPICH", b"CRAY"];
        let says = |word: &[u8]| self.version.as_bytes().windows(word.len()).any(|w| w == word);
        if base_name(&self.path).starts_with(b"libmpi_abi") {
            Some("abi")
        } else if self.symbol(c"ompi_mpi_comm_world").is_some() {
            Some("openmpi")
        } else {
            MPICH.into_iter().any(says).then_some("mpich")
        }
    }
}
