//! The objects of the process (the program and its libraries), as the dynamic linker reports them.

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

/// A handle of the object at `path` if it is loaded. It holds one more reference: close it with `close`, or keep it for
/// ever.
pub fn open_loaded(path: &CStr) -> Option<*mut c_void> {
    // SAFETY: the path is a C string; RTLD_NOLOAD only takes a reference to what is there.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    (!handle.is_null()).then_some(handle)
}

/// Closes a handle.
///
/// # Safety
/// Nothing uses the handle, or an address found with it, any more.
pub unsafe fn close(handle: *mut c_void) {
    // SAFETY: the caller promises that nothing uses the handle any more.
    unsafe { libc::dlclose(handle) };
}

/// The definition of `name` in an open object or else in a library that it needs.
pub fn symbol(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the handle is open, the name a C string.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// The definition of `name` that the program's own calls use.
pub fn first_symbol(name: &CStr) -> Option<*mut c_void> {
    symbol(libc::RTLD_DEFAULT, name)
}

/// The definition of `name` that the program would use if this library had none: the first one after this library, in
/// the order of the program and the libraries that were linked, preloaded or opened with RTLD_GLOBAL.
pub fn next_symbol(name: &CStr) -> Option<*mut c_void> {
    symbol(libc::RTLD_NEXT, name)
}

/// The path under which this library was loaded.
pub fn own_path() -> CString {
    object_of(own_path as *mut c_void).unwrap_or_default()
}

/// The path of the object that contains `address`.
pub fn object_of(address: *mut c_void) -> Option<CString> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr fills `info` when it returns nonzero; its file name is a C string that lives as long as the
    // object.
    unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return None;
        }
        let path = info.assume_init().dli_fname;
        (!path.is_null()).then(|| CStr::from_ptr(path).to_owned())
    }
}

/// The paths of the loaded objects, in the order of loading. Open them only after this returns: dlopen from inside
/// dl_iterate_phdr takes the linker's two locks in the wrong order.
pub fn loaded() -> Vec<CString> {
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

/// The part of the path after the last slash.
pub fn base_name(path: &CStr) -> &[u8] {
    path.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}
