//! Notices that the program has loaded shared objects, at the cost of two loads per call.
//!
//! The dynamic linker keeps its objects in a list in the order of loading, which debuggers read as well
//! (`struct link_map` of `<link.h>`). huddle puts an object of its own without contents, the mark, at the end of that
//! list. While the mark has no successor, nothing that was loaded after it is still there. Once it has one, [`look`]
//! has the objects examined and puts a mark at the end again.
//!
//! The linker runs constructors of the objects that it loads under a lock, and each thread that loads something, such
//! as a mark, waits for that lock. Constructors may call MPI, and may need calls of other threads for that. So the
//! objects are examined without that lock, and no thread calls the linker while it holds a lock of huddle's. Where
//! several threads call, the mark is renewed a while later ([`GRACE`]).
//!
//! Keeping the last object of the program itself would be simpler, but then the program could not unload it any more,
//! or load another version of it.
//!
//! The mark is a file in memory, which is opened anew only when something was loaded. Debuggers open each object by its
//! name in the list. So the mark's name is one that any process can open (`/proc/PID/fd/N`), and N stays open as long
//! as the mark is there. `/proc/self/fd/N` would be a file of the debugger's own, mostly a pipe, at which it would wait
//! for ever.

use crate::kept::longest_file;
use crate::mpi::descriptor::{identity, out_of_the_way};
use std::ffi::{CStr, CString, c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

static MARK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mark.so"));

/// Where several threads call MPI one may be reading a mark that another replaces, so all marks stay. After this many
/// no more are made, and each call asks how many objects were ever loaded.
const MOST: usize = 64;

/// How long after something was loaded a mark is renewed where several threads call MPI: constructors have mostly ended
/// then. Until then each call asks how many objects were ever loaded, which takes some hundred nanoseconds for each
/// buffer. The first mark is made at once: programs load most of their objects before they call.
const GRACE: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };

/// `struct link_map`
#[repr(C)]
struct LinkMap {
    addr: usize,
    name: *const i8,
    dynamic: *const c_void,
    next: AtomicPtr<c_void>,
}

/// Stands for the successor of a mark that doesn't exist. It is never null: something may have been loaded.
static NEWS: AtomicPtr<c_void> = AtomicPtr::new(without_provenance_mut(1));

/// Where the linker keeps the mark's successor; `NEWS` without a mark.
static NEXT: AtomicPtr<AtomicPtr<c_void>> = AtomicPtr::new((&raw const NEWS).cast_mut());

/// Where calls look: as `NEXT`, or at `NEWS` if loaded libraries must be asked in each call.
static WATCHED: AtomicPtr<AtomicPtr<c_void>> = AtomicPtr::new((&raw const NEWS).cast_mut());

/// Nobody calls the linker with this lock held.
static KNOWN: Mutex<Known> = Mutex::new(Known { loads: None, news: None, watches: Watches::News, mark: None, kept: 0 });

/// Whether a thread is making a new mark.
static IS_RENEWED: AtomicBool = AtomicBool::new(false);

/// What is known of the loaded objects.
struct Known {
    /// How many had ever been loaded when they were last examined.
    loads: Option<u64>,
    /// When more than at the mark were found; `None` if another mark would be of no use.
    news: Option<Instant>,
    watches: Watches,
    mark: Option<Mark>,
    /// Number of marks that stay open, though others came after them.
    kept: usize,
}

/// When calls have to ask for memory of devices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Watches {
    /// After something was loaded.
    News,
    Always,
}

/// Which threads call MPI.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Callers {
    /// One thread, and there can be no other: the last mark is closed when there is a new one.
    One,
    /// One thread so far. Marks stay, since another thread may be reading them.
    OneYet,
    /// Several threads: marks stay, and are renewed a while after something was loaded.
    Several,
}

/// Whether objects must be examined, or libraries asked.
#[inline(always)]
pub(super) fn is_alert() -> bool {
    has_successor(&WATCHED)
}

#[inline(always)]
fn has_successor(mark: &AtomicPtr<AtomicPtr<c_void>>) -> bool {
    // [mark] acquire: pairs with the releases in `Known::watch`. A thread that uses a loaded object has seen that it
    // was loaded, so the load of the successor itself needs no order.
    let next = mark.load(Ordering::Acquire);
    // SAFETY: a static, or in the description of a mark that is open: where other threads call, marks stay.
    !unsafe { &*next }.load(Ordering::Relaxed).is_null()
}

/// If something was loaded since the last look, passes the paths of the objects whose file names `is_wanted` to
/// `examine`, and its result to `adopt`, in the order of loading. `adopt` returns when calls have to ask from now on.
pub(super) fn look<T>(
    callers: fn() -> Callers,
    is_wanted: fn(&[u8]) -> bool,
    examine: impl Fn(Vec<CString>) -> T,
    adopt: impl Fn(T) -> Watches,
) {
    if !has_successor(&NEXT) {
        return;
    }
    let examined = || {
        let (paths, loads) = objects(is_wanted);
        (examine(paths), loads)
    };
    let loads = loads_so_far();
    if known().loads != Some(loads) {
        let (found, loads) = examined();
        known().learn(loads, || adopt(found));
    }
    let due = known().due(callers);
    let Some(number) = due else { return };
    // [renewal] acquire: pairs with the release below.
    if IS_RENEWED.swap(true, Ordering::Acquire) {
        return;
    }
    let mark = Mark::open(number);
    // Examines once more: something may have been loaded between the look and the mark. All that is loaded later
    // follows the mark.
    let (found, loads) = examined();
    let old = known().replace(mark, loads, || adopt(found), callers);
    drop(old); // calls the linker, without the lock
    // [renewal] release: pairs with the acquire above.
    IS_RENEWED.store(false, Ordering::Release);
}

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    /// Adopts what was found when so many objects had been loaded, unless more is known already.
    fn learn(&mut self, loads: u64, adopt: impl FnOnce() -> Watches) {
        if self.loads.is_some_and(|known| known >= loads) {
            return;
        }
        self.loads = Some(loads);
        self.news = Some(Instant::now());
        self.watches = adopt();
        self.watch();
    }

    /// The number of the mark that is to be made now, if any.
    fn due(&self, callers: fn() -> Callers) -> Option<usize> {
        let is_due = self.mark.is_none() || callers() != Callers::Several || self.news?.elapsed() >= GRACE;
        let parity = self.mark.as_ref().map_or(0, |mark| 1 - mark.number % 2);
        (self.news.is_some() && is_due && self.kept < MOST).then_some(2 * self.kept + parity)
    }

    /// Puts `mark` in place of the last one, and adopts what was found after it was opened. Returns the mark that is to
    /// be closed.
    fn replace(
        &mut self,
        mark: Option<Mark>,
        loads: u64,
        adopt: impl FnOnce() -> Watches,
        callers: fn() -> Callers,
    ) -> Option<Mark> {
        let old = std::mem::replace(&mut self.mark, mark);
        self.learn(loads, adopt);
        self.news = self.mark.as_ref().filter(|mark| mark.is_followed()).map(|_| Instant::now());
        self.watch();
        // Another thread may be between the two loads of `has_successor`: where only one has called so far, in its
        // first call ever, of which nobody knows yet.
        if callers() != Callers::One && old.is_some() {
            std::mem::forget(old);
            self.kept += 1;
            return None;
        }
        old
    }

    /// Publishes where calls have to look from now on.
    fn watch(&self) {
        let news = (&raw const NEWS).cast_mut();
        let next = self.mark.as_ref().map_or(news, Mark::successor);
        // [mark] release: pairs with the acquire in `has_successor`.
        NEXT.store(next, Ordering::Release);
        // [mark] release: as above.
        WATCHED.store(if self.watches == Watches::Always { news } else { next }, Ordering::Release);
    }
}

/// An open mark.
struct Mark {
    handle: *mut c_void,
    map: *mut LinkMap,
    /// The file that its name stands for.
    file: ManuallyDrop<File>,
    identity: [u64; 2],
    number: usize,
}

// SAFETY: both pointers belong to the dynamic linker, which locks where it has to.
unsafe impl Send for Mark {}

impl Mark {
    /// Opens a mark, whose path has its number in it. The linker takes equal paths for the same object, and a new mark
    /// may get the descriptor of one that is still open if the program has closed that descriptor.
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
        let identity = identity(&file.metadata().ok()?);
        // SAFETY: a C string; the object has no initialisers.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return None;
        }
        let mut map: *mut LinkMap = null_mut();
        // SAFETY: an open handle, and a place for the address of its description.
        let code = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
        let mark = Self { handle, map, file: ManuallyDrop::new(file), identity, number };
        (code == 0 && !map.is_null()).then_some(mark)
    }

    fn is_followed(&self) -> bool {
        // SAFETY: the description of an object that is open.
        !unsafe { &*self.successor() }.load(Ordering::Relaxed).is_null()
    }

    fn successor(&self) -> *mut AtomicPtr<c_void> {
        // SAFETY: the description of an object that is open.
        unsafe { (&raw const (*self.map).next).cast_mut() }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: nobody reads the description any more: [`Known::replace`] sees to that.
        unsafe { libc::dlclose(self.handle) };
        // A program that closes all descriptors may have opened something else under this number.
        if self.file.metadata().is_ok_and(|metadata| identity(&metadata) == self.identity) {
            // SAFETY: nobody uses it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// A name of `file` that other processes can open too, if `/proc` is of this process's PID namespace; `number` as for
/// [`Mark::open`].
fn path_of(file: &File, number: usize) -> Option<String> {
    // The number of this process as `/proc` counts, whatever namespace that is of.
    let process = std::fs::read_link("/proc/self").ok()?;
    let path = format!("/proc/{}/fd/{}{}", process.display(), "./".repeat(number), file.as_raw_fd());
    let (named, opened) = (std::fs::metadata(&path).ok()?, file.metadata().ok()?);
    (identity(&named) == identity(&opened)).then_some(path)
}

/// How many objects were ever loaded.
fn loads_so_far() -> u64 {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, loads: *mut c_void) -> c_int {
        // SAFETY: the linker's description of an object, and the value below.
        unsafe { *loads.cast() = (*info).dlpi_adds };
        1 // each object tells it: one is enough
    }
    let mut loads = 0_u64;
    // SAFETY: `note` has the signature that is asked for, and gets the value that it expects.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut loads).cast()) };
    loads
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
    use std::thread;

    /// A library that the test does not need otherwise.
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

    fn found_by(callers: fn() -> Callers, watches: Watches) -> usize {
        let found = Cell::new(usize::MAX);
        look(
            callers,
            is_object,
            |paths| paths.len(),
            |paths| {
                found.set(paths);
                watches
            },
        );
        found.get()
    }

    fn found(callers: fn() -> Callers) -> usize {
        found_by(callers, Watches::News)
    }

    /// The name by which debuggers open the mark.
    fn name_of_the_mark() -> PathBuf {
        let known = known();
        // SAFETY: the description of an object that is open, with a C string.
        let name = unsafe { CStr::from_ptr((*known.mark.as_ref().unwrap().map).name) };
        PathBuf::from(name.to_str().unwrap())
    }

    fn read_by_another_process(path: &Path) -> Vec<u8> {
        Command::new("cat").arg(path).output().unwrap().stdout
    }

    /// One test, since there is one list.
    #[test]
    fn what_is_loaded_is_noticed_and_may_go() {
        for callers in [|| Callers::OneYet, || Callers::One] {
            assert_eq!((found(callers), is_alert()), (0, false));
            assert_eq!(read_by_another_process(&name_of_the_mark()), MARK);
            let descriptor: c_int = name_of_the_mark().file_name().unwrap().to_str().unwrap().parse().unwrap();
            assert!(
                (crate::mpi::descriptor::OUT_OF_THE_WAY..64).contains(&descriptor),
                "{descriptor} needs a longer table"
            );
            for _ in 0..3 {
                let object = open();
                assert!(is_alert());
                assert_eq!((found(callers), is_alert()), (1, false));
                // SAFETY: nothing of it is in use.
                unsafe { libc::dlclose(object) };
                // SAFETY: only a look at what is loaded.
                assert!(unsafe { libc::dlopen(OBJECT.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) }.is_null());
                assert!(!is_alert());
            }
            // Loaded and gone again: nothing to look at.
            // SAFETY: nothing of it is in use.
            unsafe { libc::dlclose(open()) };
            assert_eq!((found(callers), is_alert()), (usize::MAX, false));
            let object = open();
            found_by(callers, Watches::Always);
            assert!(is_alert(), "objects must be asked");
            assert_eq!(found(callers), usize::MAX, "but not looked for again");
            // SAFETY: nothing of it is in use.
            unsafe { libc::dlclose(object) };
            let other = open();
            assert_eq!((found(callers), is_alert()), (1, false));
            // SAFETY: nothing of it is in use.
            unsafe { libc::dlclose(other) };
            known().loads = None;
            NEXT.store((&raw const NEWS).cast_mut(), Ordering::Relaxed);
        }
        the_program_may_close_the_descriptor();
        threads_that_look_at_once_make_one_mark();
    }

    /// The linker and debuggers use the new mark, which may have the same descriptor.
    fn the_program_may_close_the_descriptor() {
        assert_eq!(found(|| Callers::One), 0);
        for _ in 0..3 {
            let descriptor: c_int = name_of_the_mark().file_name().unwrap().to_str().unwrap().parse().unwrap();
            // SAFETY: the descriptor of the mark, as a program closes all that it does not know.
            unsafe { libc::close(descriptor) };
            let object = open();
            assert_eq!((found(|| Callers::One), is_alert()), (1, false));
            assert_eq!(read_by_another_process(&name_of_the_mark()), MARK);
            // SAFETY: nothing of it is in use.
            unsafe { libc::dlclose(object) };
        }
    }

    fn threads_that_look_at_once_make_one_mark() {
        let look = || {
            for _ in 0..50 {
                found(|| Callers::Several);
            }
        };
        let marks = known().kept;
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(look);
            }
            for _ in 0..10 {
                let object = open();
                thread::sleep(Duration::from_millis(1));
                // SAFETY: nothing of it is in use.
                unsafe { libc::dlclose(object) };
            }
        });
        assert!(known().kept <= marks + 12, "{marks} marks, and for ten loads now {}", known().kept);
    }
}
