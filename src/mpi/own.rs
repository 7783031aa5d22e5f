//! The engine's own file, and where it is installed.

use crate::config;
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::with_exposed_provenance;

/// The path under which this engine was loaded.
pub fn path() -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr fills `info` when it returns nonzero; its file name is a C string that lives as long as the
    // object.
    let name = unsafe {
        if libc::dladdr(path as *const c_void, info.as_mut_ptr()) == 0 {
            return None;
        }
        CStr::from_ptr(info.assume_init().dli_fname)
    };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The build id of this engine, as `readelf -n` and debuggers show it: engines that differ have different ones. `None`
/// if the linker was not asked for one.
pub fn build_id() -> Option<String> {
    struct Search {
        /// An address within the engine.
        address: usize,
        found: Option<String>,
    }
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: the linker's description of an object, which stays until this returns, and the value below.
        let (search, info) = unsafe { (&mut *search.cast::<Search>(), &*info) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: the linker's table of that object's segments.
        let segments = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        // Addresses in files may be relative to any base, so sums wrap.
        let start = |segment: &libc::Elf64_Phdr| info.dlpi_addr.wrapping_add(segment.p_vaddr) as usize;
        let is_loaded = |address: usize, n: usize| {
            let loaded = segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD);
            loaded
                .map(|it| (address.wrapping_sub(start(it)), it.p_memsz as usize))
                .any(|(at, all)| at < all && n <= all - at)
        };
        if !is_loaded(search.address, 1) {
            return 0;
        }
        search.found = segments.iter().filter(|segment| segment.p_type == libc::PT_NOTE).find_map(|segment| {
            let (start, n) = (start(segment), segment.p_memsz as usize);
            if !is_loaded(start, n) {
                return None;
            }
            // SAFETY: loaded with the engine, which only reads it.
            build_id_among(unsafe { std::slice::from_raw_parts(with_exposed_provenance(start), n) })
        });
        1
    }
    let mut search = Search { address: build_id as *const () as usize, found: None };
    // SAFETY: `visit` has the signature that is asked for, and gets the value that it expects.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

/// The build id among ELF notes, in hexadecimal digits. Each note has the lengths of its name and contents, a kind, the
/// name and the contents, both padded to words. Segments with other notes may pad to two words: no build id is found
/// there.
fn build_id_among(mut notes: &[u8]) -> Option<String> {
    const BUILD_ID: u32 = 3;
    loop {
        let (header, rest) = notes.split_at_checked(12)?;
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (name, rest) = rest.split_at_checked((word(0) as usize).next_multiple_of(4))?;
        let contents = rest.get(..word(4) as usize)?;
        if name == b"GNU\0" && word(8) == BUILD_ID {
            return Some(contents.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = rest.get(contents.len().next_multiple_of(4)..)?;
    }
}

/// The directory that scripts/install was given; empty where this engine is not installed.
pub fn prefix() -> PathBuf {
    config::prefix_of(path(), 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, contents: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [name.len() as u32, contents.len() as u32, kind] {
            note.extend(word.to_ne_bytes());
        }
        for part in [name, contents] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let id = note(b"GNU\0", 3, &[0x0a, 0xbc, 0x01]);
        let others = [note(b"GNU\0", 5, &[1; 9]), note(b"stapsdt\0", 3, &[2; 5]), note(b"", 3, b"")].concat();
        assert_eq!(build_id_among(&id).as_deref(), Some("0abc01"));
        assert_eq!(build_id_among(&[others.clone(), id.clone(), others.clone()].concat()).as_deref(), Some("0abc01"));
        assert_eq!(build_id_among(&others), None);
        assert_eq!(build_id_among(&[]), None);
        for end in 0..id.len() - 1 {
            assert_eq!(build_id_among(&id[..end]), None, "{end} bytes");
        }
        assert_eq!(build_id_among(&[0xff; 40]), None);
    }

    #[test]
    fn the_build_id_is_that_of_the_file() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let Some(id) = build_id() else { panic!("tests are linked without a build id") };
        let bytes: Vec<u8> =
            (0..id.len()).step_by(2).map(|at| u8::from_str_radix(&id[at..at + 2], 16).unwrap()).collect();
        assert!(bytes.len() >= 8 && own.windows(bytes.len()).any(|window| window == bytes), "{id}");
    }
}
