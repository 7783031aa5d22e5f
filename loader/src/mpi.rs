//! Finds the MPI library among the objects of the process. It may be linked, or opened by an interpreter with
//! RTLD_LOCAL, where RTLD_NEXT doesn't see it.

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::mem::{transmute, MaybeUninit};
use std::ptr;

/// Room for the text of MPI_Get_library_version: the longest of the MPIs (MPICH).
const VERSION_ROOM: usize = 8192;

/// The MPI library of this process. Its handle is never closed.
pub struct Mpi {
    pub handle: *mut c_void,
    pub path: CString,
    pub version: CString,
}

impl Mpi {
    /// The MPI library: the first loaded object that defines PMPI_Init, those named libmpi* before all others.
    pub fn find() -> Option<Mpi> {
        let own = own_path();
        let mut paths = loaded();
        paths.retain(|path| *path != own);
        paths.sort_by_key(|path| !base_name(path).starts_with(b"libmpi"));
        paths.into_iter().find_map(Mpi::open)
    }

    /// The object at `path` if it is loaded and PMPI_Init is its own, not that of a library which it needs.
    fn open(path: CString) -> Option<Mpi> {
        // SAFETY: RTLD_NOLOAD only takes a reference to what is there.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        if handle.is_null() {
            return None;
        }
        let mut mpi = Mpi { handle, path, version: CString::default() };
        if mpi.symbol(c"PMPI_Init").and_then(object_of).as_ref() != Some(&mpi.path) {
            // SAFETY: the handle is the one just opened.
            unsafe { libc::dlclose(handle) };
            return None;
        }
        mpi.version = mpi.library_version();
        Some(mpi)
    }

    /// The library's own definition of `name`.
    pub fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    /// The text of MPI_Get_library_version, which may be called before MPI_Init; empty in an MPI-2 library.
    fn library_version(&self) -> CString {
        let Some(function) = self.symbol(c"PMPI_Get_library_version") else {
            return CString::default();
        };
        let mut text = vec![0u8; VERSION_ROOM + 1];
        let mut length: c_int = 0;
        // SAFETY: the prototype is MPI's, the same in every implementation, and the buffer the largest one asked for.
        unsafe {
            let function: unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int = transmute(function);
            function(text.as_mut_ptr().cast(), &mut length);
        }
        CStr::from_bytes_until_nul(&text).map(CStr::to_owned).unwrap_or_default()
    }

    /// The family whose engine fits, by the meaning of handles in its binary interface.
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

/// The path under which this library was loaded.
pub fn own_path() -> CString {
    object_of(own_path as *mut c_void).unwrap_or_default()
}

/// The path of the object that `address` is in.
fn object_of(address: *mut c_void) -> Option<CString> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr fills `info` when it returns nonzero; its file name is a C string that lives as long as the object.
    unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return None;
        }
        let path = info.assume_init().dli_fname;
        (!path.is_null()).then(|| CStr::from_ptr(path).to_owned())
    }
}

/// The paths of the loaded objects, in the order of loading. They are opened afterwards: dlopen from inside
/// dl_iterate_phdr takes the linker's two locks in the wrong order.
fn loaded() -> Vec<CString> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, paths: *mut c_void) -> c_int {
        // SAFETY: the linker passes a valid `info` whose name is a C string or null, and `paths` is the vector below.
        unsafe {
            let name = (*info).dlpi_name;
            if !name.is_null() && *name != 0 {
                (*paths.cast::<Vec<CString>>()).push(CStr::from_ptr(name).to_owned());
            }
        }
        0
    }
    let mut paths = Vec::<CString>::new();
    // SAFETY: `note` matches its data argument, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), ptr::from_mut(&mut paths).cast()) };
    paths
}

/// What follows the last slash.
fn base_name(path: &CStr) -> &[u8] {
    path.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}
