//! Notices that the program has loaded shared objects, at the cost of two loads per call.
//!
//! The dynamic linker keeps its objects in a list in the order of loading, which debuggers read as well (`struct link_map`
//! of `<link.h>`). At the end of that list stands an object of huddle's own without contents, the mark. While the mark has
//! no successor, nothing was loaded after it that is still there. Once it has one, [`look`] puts a mark at the end again and
//! lets the objects before it be looked at.
//!
//! To keep the last object of the program itself would be simpler, but then the program could not unload it any more, or
//! load another version of it.
//!
//! The mark is a file in memory that is opened anew, only when something was loaded. Debuggers open each object by its name
//! in the list, so the name is one that any process can open (`/proc/PID/fd/N`), and N stays open as long as it is there.
//! `/proc/self/fd/N` would be a file of the debugger's own, mostly a pipe, at which it waits for ever.

use crate::fabric::shm::longest_file;
use crate::mpi::descriptor::{identity, out_of_the_way};
use std::ffi::{CStr, CString, c_int, c_void};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static MARK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mark.so"));

/// Where threads call MPI at once one may be reading a mark that another replaces, so all marks stay. After this many,
/// each call asks how many objects were ever loaded.
const MOST: usize = 64;

/// `struct link_map`
#[repr(C)]
struct LinkMap {
    addr: usize,
    name: *const i8,
    dynamic: *const c_void,
    next: AtomicPtr<c_void>,
}

/// Stands for the successor of a mark that isn't there: something may have been loaded.
static NEWS: AtomicPtr<c_void> = AtomicPtr::new(without_provenance_mut(1));

/// The successor of the mark.
static NEXT: AtomicPtr<AtomicPtr<c_void>> = AtomicPtr::new((&raw const NEWS).cast_mut());

/// The same, or what is never null where the objects that are there already must be asked.
static WATCHED: AtomicPtr<AtomicPtr<c_void>> = AtomicPtr::new((&raw const NEWS).cast_mut());

/// No more than a few stores happen under this lock. The dynamic linker lets constructors of what it loads run under a lock of its own, and
/// they may call MPI: who asked the linker for something with this lock held would wait for a thread that waits for this lock.
static LOOKED: Mutex<Looked> = Mutex::new(Looked { looks: 0, mark: None, kept: 0, loads: None });

/// What the last look left.
struct Looked {
    /// How many ended.
    looks: usize,
    mark: Option<Mark>,
    /// Marks that stay, though others came after them.
    kept: usize,
    /// How many objects had been loaded.
    loads: Option<u64>,
}

/// A look that is to end.
struct Look {
    /// How many had ended when it began.
    looks: usize,
    mark: Option<Mark>,
    loads: u64,
    watches: Watches,
}

/// When calls have to ask.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watches {
    /// When something was loaded.
    News,
    Always,
}

/// What becomes of the last mark when there is a new one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OldMark {
    /// It is closed: no other thread calls.
    Closed,
    /// It stays open, since another thread may be reading it.
    Kept,
}

/// Whether anything must be looked at, or asked.
#[inline(always)]
pub(super) fn is_alert() -> bool {
    has_successor(&WATCHED)
}

#[inline(always)]
fn has_successor(mark: &AtomicPtr<AtomicPtr<c_void>>) -> bool {
    // [mark] acquire: pairs with the releases in `look`. Whoever uses what was loaded has seen that it was, so the successor
    // itself needs no order.
    let next = mark.load(Ordering::Acquire);
    // SAFETY: a static, or in the description of a mark, which is open: where other threads call it stays.
    !unsafe { &*next }.load(Ordering::Relaxed).is_null()
}

/// Where something was loaded since the last look, `examine` gets the paths of the objects whose file names `is_wanted`, and
/// says whether calls have to ask from now on. Several threads may be at it at once.
pub(super) fn look(old_mark: fn() -> OldMark, is_wanted: fn(&[u8]) -> bool, examine: impl Fn(Vec<CString>) -> bool) {
    while has_successor(&NEXT) {
        let (looks, kept, loads) = looked().what_asks();
        if loads.is_some() && loads == Some(objects(is_wanted).1) {
            return;
        }
        // What is loaded while this goes on comes after the mark or is counted later.
        let mark = if kept < MOST { Mark::open(2 * kept + looks % 2) } else { None };
        let (paths, loads) = objects(is_wanted);
        let watches = if examine(paths) { Watches::Always } else { Watches::News };
        let ended = looked().end(Look { looks, mark, loads, watches }, old_mark);
        if ended.is_ok() {
            return; // what the linker closes is closed without the lock
        }
    }
}

fn looked() -> MutexGuard<'static, Looked> {
    LOOKED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Looked {
    /// The looks so far, the marks that stay, and what was counted where there is no mark.
    fn what_asks(&self) -> (usize, usize, Option<u64>) {
        (self.looks, self.kept, if self.mark.is_none() { self.loads } else { None })
    }

    /// Ends a look; the mark to be closed.
    ///
    /// # Errors
    /// Another thread's has ended meanwhile. What this one noticed was there before that one's mark, or follows it.
    fn end(&mut self, look: Look, old_mark: fn() -> OldMark) -> Result<Option<Mark>, Option<Mark>> {
        if self.looks != look.looks {
            return Err(look.mark);
        }
        self.looks += 1;
        self.loads = Some(look.loads);
        let news = (&raw const NEWS).cast_mut();
        let next = look.mark.as_ref().map_or(news, Mark::successor);
        // [mark] release: pairs with the acquire in `has_successor`.
        NEXT.store(next, Ordering::Release);
        // [mark] release: as above.
        WATCHED.store(if look.watches == Watches::Always { news } else { next }, Ordering::Release);
        let old = std::mem::replace(&mut self.mark, look.mark);
        // Only the first call ever of another thread, which nobody knows of yet, could still be between the two loads of `has_successor`.
        if old_mark() == OldMark::Kept && old.is_some() {
            std::mem::forget(old);
            self.kept += 1;
            return Ok(None);
        }
        Ok(old)
    }
}

/// An open mark.
struct Mark {
    handle: *mut c_void,
    map: *mut LinkMap,
    /// What its name stands for.
    file: ManuallyDrop<File>,
}

// SAFETY: what is done with both is the dynamic linker's business, which locks where it has to.
unsafe impl Send for Mark {}

impl Mark {
    /// A mark; no other one that is open has its `number`, though the program may have closed that one's descriptor: the linker takes equal
    /// paths for the same object.
    fn open(number: usize) -> Option<Self> {
        if longest_file() < MARK.len() as u64 {
            return None; // writing would kill the process (SIGXFSZ)
        }
        // SAFETY: a C string; the call has no other preconditions.
        let descriptor = unsafe { libc::memfd_create(c"huddle-mark".as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return None;
        }
        // SAFETY: the descriptor is new and nobody else's.
        let mut file = out_of_the_way(unsafe { File::from_raw_fd(descriptor) });
        file.write_all(MARK).ok()?;
        let path = CString::new(path_of(&file, number)?).ok()?;
        // SAFETY: a C string; the object has no initialisers.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return None;
        }
        let mut map: *mut LinkMap = null_mut();
        // SAFETY: an open handle, and a place for the address of its description.
        let code = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
        let mark = Self { handle, map, file: ManuallyDrop::new(file) };
        (code == 0 && !map.is_null()).then_some(mark)
    }

    fn successor(&self) -> *mut AtomicPtr<c_void> {
        // SAFETY: the description of an object that is open.
        unsafe { (&raw const (*self.map).next).cast_mut() }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: nobody reads the description any more, as [`Looked::end`] sees to.
        unsafe { libc::dlclose(self.handle) };
        // A program that closes all descriptors may have something else there.
        if is_mark(self.file.metadata()) {
            // SAFETY: nobody uses it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// A name of that file which other processes can open too, where `/proc` is of this process's PID namespace; `number` as for [`Mark::open`].
fn path_of(file: &File, number: usize) -> Option<String> {
    // As `/proc` counts, whichever it is.
    let process = std::fs::read_link("/proc/self").ok()?;
    let path = format!("/proc/{}/fd/{}{}", process.display(), "./".repeat(number), file.as_raw_fd());
    let (named, opened) = (std::fs::metadata(&path).ok()?, file.metadata().ok()?);
    (identity(&named) == identity(&opened)).then_some(path)
}

/// Whether these are of a file as long as a mark, and without a name.
fn is_mark(metadata: io::Result<Metadata>) -> bool {
    metadata.is_ok_and(|metadata| metadata.nlink() == 0 && metadata.len() == MARK.len() as u64)
}

/// The paths of the loaded objects whose file names `is_wanted`, and how many objects were ever loaded.
fn objects(is_wanted: fn(&[u8]) -> bool) -> (Vec<CString>, u64) {
    struct Found {
        is_wanted: fn(&[u8]) -> bool,
        paths: Vec<CString>,
        loads: u64,
    }
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the linker's description of an object, whose name is a C string or null, and the value below.
        let (found, name, loads) = unsafe { (&mut *found.cast::<Found>(), (*info).dlpi_name, (*info).dlpi_adds) };
        found.loads = loads;
        if !name.is_null() {
            // SAFETY: as above.
            let path = unsafe { CStr::from_ptr(name) };
            if (found.is_wanted)(path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default()) {
                found.paths.push(path.to_owned());
            }
        }
        0
    }
    let mut found = Found { is_wanted, paths: Vec::new(), loads: 0 };
    // SAFETY: `note` has the signature that is asked for, and gets the value that it expects.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut found).cast()) };
    (found.paths, found.loads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// Something that the test does not need otherwise.
    const OBJECT: &CStr = c"libBrokenLocale.so.1";

    fn is_object(name: &[u8]) -> bool {
        name == OBJECT.to_bytes()
    }

    fn open() -> *mut c_void {
        // SAFETY: a library without initialisers.
        let handle = unsafe { libc::dlopen(OBJECT.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        handle
    }

    fn found(old_mark: fn() -> OldMark) -> usize {
        let found = Cell::new(usize::MAX);
        look(old_mark, is_object, |paths| {
            found.set(paths.len());
            false
        });
        found.get()
    }

    /// The name by which debuggers open the mark.
    fn name_of_the_mark() -> PathBuf {
        let looked = LOOKED.lock().unwrap();
        // SAFETY: the description of an object that is open, with a C string.
        let name = unsafe { CStr::from_ptr((*looked.mark.as_ref().unwrap().map).name) };
        PathBuf::from(name.to_str().unwrap())
    }

    fn read_by_another_process(path: &Path) -> Vec<u8> {
        Command::new("cat").arg(path).output().unwrap().stdout
    }

    /// One test, since there is one list.
    #[test]
    fn what_is_loaded_is_noticed_and_may_go() {
        for old_mark in [|| OldMark::Kept, || OldMark::Closed] {
            assert_eq!((found(old_mark), is_alert()), (0, false));
            assert_eq!(read_by_another_process(&name_of_the_mark()), MARK);
            let descriptor: c_int = name_of_the_mark().file_name().unwrap().to_str().unwrap().parse().unwrap();
            assert!(
                (crate::mpi::descriptor::OUT_OF_THE_WAY..64).contains(&descriptor),
                "{descriptor} needs a longer table"
            );
            for _ in 0..3 {
                let object = open();
                assert!(is_alert());
                assert_eq!((found(old_mark), is_alert()), (1, false));
                // SAFETY: nothing of it is in use.
                unsafe { libc::dlclose(object) };
                // SAFETY: only a look at what is loaded.
                assert!(unsafe { libc::dlopen(OBJECT.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) }.is_null());
                assert!(!is_alert());
            }
            // Loaded and gone again: nothing to look at.
            // SAFETY: nothing of it is in use.
            unsafe { libc::dlclose(open()) };
            assert_eq!((found(old_mark), is_alert()), (usize::MAX, false));
            let object = open();
            look(old_mark, is_object, |_| true);
            assert!(is_alert(), "objects must be asked");
            assert_eq!(found(old_mark), usize::MAX, "but not looked for again");
            // SAFETY: nothing of it is in use.
            unsafe { libc::dlclose(object) };
            let other = open();
            assert_eq!((found(old_mark), is_alert()), (1, false));
            // SAFETY: nothing of it is in use.
            unsafe { libc::dlclose(other) };
            NEXT.store((&raw const NEWS).cast_mut(), Ordering::Relaxed);
        }
    }
}
