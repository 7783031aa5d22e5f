//! Counts the open requests: those that were begun and not completed.
//!
//! Entries of `Opens`, `Begun` and `OneSidedBegun` names count most requests as they open. A call that completes such a
//! request stores MPI_REQUEST_NULL in its place in the program's memory. Persistent requests keep their handles there,
//! so the started ones are known by their handles.
//!
//! A request that is not known to be complete stays open. This happens when a call reports an error, and when the
//! program frees an active request. The engine then expects traffic that doesn't exist, as it does where nothing is
//! known.

use crate::mpi::Mpi;
use crate::names::names;
use crate::objects::first_symbol;
use crate::slots::{Name, TRAFFIC, W};
use std::collections::HashSet;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicUsize};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Any of these functions. A callee with fewer parameters does not read the remaining arguments.
type Function = unsafe extern "C-unwind" fn(W, W, W, W, W) -> c_int;

/// What a function does with its requests. Numbers are positions of arguments that point to ints which the function
/// writes.
enum Effect {
    /// Starts all requests of the call.
    Start,
    /// Completes all requests of the call.
    Wait,
    /// Completes all requests of the call if the flag is set.
    Test { flag: usize },
    /// Completes the request with this index; if there is a flag, only if it is set.
    Any { index: usize, flag: Option<usize> },
    /// Completes `count` requests, with these indices.
    Some { count: usize, indices: usize },
}

/// A `Followed` name.
struct Followed {
    name: &'static str,
    /// Whether the first argument is a number of requests and the second points to them; else the first points to one
    /// request.
    takes_many: bool,
    effect: Effect,
    /// The function that stands in front of the native one, by [`Handles`]: ints (MPICH), pointers (Open MPI).
    in_front: [Function; 2],
}

const COUNT: usize = 10;

const fn one<const INDEX: usize>(name: &'static str, effect: Effect) -> Followed {
    let in_front = [follow::<c_int, INDEX> as Function, follow::<usize, INDEX>];
    Followed { name, takes_many: false, effect, in_front }
}

const fn many<const INDEX: usize>(name: &'static str, effect: Effect) -> Followed {
    Followed { takes_many: true, ..one::<INDEX>(name, effect) }
}

static FOLLOWED: [Followed; COUNT] = FOLLOWED_NAMES;

/// The same rows as a constant, for checks at compile time.
const FOLLOWED_NAMES: [Followed; COUNT] = [
    one::<0>("MPI_Start", Effect::Start),
    many::<1>("MPI_Startall", Effect::Start),
    one::<2>("MPI_Wait", Effect::Wait),
    many::<3>("MPI_Waitall", Effect::Wait),
    one::<4>("MPI_Test", Effect::Test { flag: 1 }),
    many::<5>("MPI_Testall", Effect::Test { flag: 2 }),
    many::<6>("MPI_Waitany", Effect::Any { index: 2, flag: None }),
    many::<7>("MPI_Testany", Effect::Any { index: 2, flag: Some(3) }),
    many::<8>("MPI_Waitsome", Effect::Some { count: 2, indices: 3 }),
    many::<9>("MPI_Testsome", Effect::Some { count: 2, indices: 3 }),
];

/// Checks that the `Followed` names of the table of names are exactly these.
macro_rules! check {
    ($($kind:ident: $($name:ident)*;)*) => {
        const _: () = {
            let mut followed = 0;
            $($(followed += check!(@ $kind $name);)*)*
            assert!(followed == COUNT);
        };
    };
    (@ Followed $name:ident) => {{
        assert!(is_followed(stringify!($name)));
        1
    }};
    (@ $kind:ident $name:ident) => { 0 };
}
names!(check);

const fn is_followed(name: &str) -> bool {
    let mut index = 0;
    while index < COUNT && !are_equal(FOLLOWED_NAMES[index].name.as_bytes(), name.as_bytes()) {
        index += 1;
    }
    index < COUNT
}

const fn are_equal(left: &[u8], right: &[u8]) -> bool {
    let mut at = 0;
    while at < left.len() && at < right.len() && left[at] == right[at] {
        at += 1;
    }
    at == left.len() && at == right.len()
}

/// The native functions of `FOLLOWED`. Set before the table of names leads to the functions in front of them.
static NATIVE: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(ptr::null_mut()) }; COUNT];
/// MPI_REQUEST_NULL. Set before then, too.
static NULL: AtomicUsize = AtomicUsize::new(0);

/// The handles of requests of an MPI library.
#[derive(Clone, Copy)]
pub enum Handles {
    Ints,
    Pointers,
}

impl Handles {
    /// The kind of handles of this library, whose requests are followed from now on; `None` if it is not known.
    pub fn of(mpi: &Mpi) -> Option<Self> {
        const MPICH_NULL: usize = 0x2c00_0000;
        let (null, handles) = match mpi.family()? {
            "mpich" => (MPICH_NULL, Self::Ints),
            "openmpi" => (object(c"ompi_request_null", mpi)? as usize, Self::Pointers),
            _ => return None,
        };
        // Relaxed: the release in `fill` comes later, and a thread reaches the functions that read this only through
        // the table.
        NULL.store(null, Relaxed);
        Some(handles)
    }

    /// The function that stands in front of `native`, the function called `name`, if requests are followed there.
    pub fn in_front_of(self, name: &Name, native: *mut c_void) -> Option<*mut c_void> {
        let index = FOLLOWED.iter().position(|followed| name.public.to_str() == Ok(followed.name))?;
        // Relaxed: as for `NULL`, the release in `fill` comes later.
        NATIVE[index].store(native, Relaxed);
        Some(FOLLOWED[index].in_front[self as usize] as *mut c_void)
    }
}

/// The address of an object of the MPI library. If the program was linked with a copy relocation of it, it is in the
/// program.
fn object(name: &CStr, mpi: &Mpi) -> Option<*mut c_void> {
    first_symbol(name).or_else(|| mpi.symbol(name))
}

/// A handle of a request: an int or a pointer.
trait Handle: Copy {
    fn word(self) -> W;
}

impl Handle for c_int {
    fn word(self) -> W {
        self as W
    }
}

impl Handle for usize {
    fn word(self) -> W {
        self
    }
}

/// The requests of a call, in the program's memory.
#[derive(Clone, Copy)]
struct Requests<H> {
    first: *const H,
    count: usize,
}

impl<H: Handle> Requests<H> {
    /// The requests of a call with these arguments; empty if the arguments are ones that MPI rejects.
    fn of(followed: &Followed, a: W, b: W) -> Self {
        let (count, first) = if followed.takes_many { (a as c_int, b) } else { (1, a) };
        let first = first as *const H;
        Self { first, count: if first.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) } }
    }

    /// # Safety
    /// The call is under way or has just ended.
    unsafe fn handle(&self, at: usize) -> Option<W> {
        // SAFETY: MPI demands `count` handles there, and nobody else accesses them during the call.
        let handle = unsafe { self.first.add(at).read_unaligned() }.word();
        (handle != NULL.load(Relaxed)).then_some(handle)
    }

    /// The handles that are not null.
    ///
    /// # Safety
    /// The call is under way or has just ended.
    unsafe fn handles(self) -> impl Iterator<Item = W> {
        // SAFETY: the caller promises that the call is under way or has just ended.
        (0..self.count).filter_map(move |at| unsafe { self.handle(at) })
    }
}

/// The value of `MPI_SUCCESS` in all MPIs.
const SUCCESS: c_int = 0;

/// Makes the call and counts the requests that it opens or completes. User code in the call may throw or `longjmp`:
/// nothing here needs to be dropped.
///
/// # Safety
/// These are the arguments of a call to the function at `INDEX`, of a library whose handles are `H`s.
unsafe extern "C-unwind" fn follow<H: Handle, const INDEX: usize>(a: W, b: W, c: W, d: W, e: W) -> c_int {
    let followed = &FOLLOWED[INDEX];
    let requests = Requests::<H>::of(followed, a, b);
    // SAFETY: the native function at `INDEX`, stored before the table led here, gets the arguments of the call.
    let native = || unsafe { transmute::<*mut c_void, Function>(NATIVE[INDEX].load(Relaxed))(a, b, c, d, e) };
    let argument = |at: usize| [a, b, c, d, e][at] as *const c_int;
    // SAFETY: used only after the call has succeeded, on an int that the call has written.
    let int = |at: usize| unsafe { argument(at).read_unaligned() };
    // SAFETY: these are the requests of the call.
    let handles = || unsafe { requests.handles() };
    match followed.effect {
        Effect::Start => {
            let code = native();
            // Also after an error: the call may have started some requests.
            start(handles());
            code
        }
        Effect::Wait | Effect::Test { .. } => {
            let before = handles().count();
            let code = native();
            let is_done = match followed.effect {
                Effect::Test { flag } => code != SUCCESS || int(flag) != 0,
                _ => true,
            };
            if is_done {
                // Handles that are still there belong to persistent requests, or to requests that are not complete.
                let ended = if code == SUCCESS { complete(handles()) } else { 0 };
                note_completed(before.saturating_sub(handles().count()) + ended);
            }
            code
        }
        Effect::Any { index, flag } => {
            let code = native();
            if code == SUCCESS && flag.is_none_or(|flag| int(flag) != 0) {
                let reported = if int(index) < 0 { int(index) } else { 1 };
                // SAFETY: the call has succeeded, and it has written the index.
                unsafe { note_reported(requests, reported, argument(index)) };
            }
            code
        }
        Effect::Some { count, indices } => {
            let code = native();
            if code == SUCCESS {
                // SAFETY: the call has succeeded, and it has written the count and the indices.
                unsafe { note_reported(requests, int(count), argument(indices)) };
            }
            code
        }
    }
}

/// Notes that a call has reported `reported` of its requests complete, the requests at `indices`. MPI_UNDEFINED, which
/// is negative, says that none is active: then also those started requests are complete that no call has reported
/// (MPICH, for MPI_PROC_NULL).
///
/// # Safety
/// The call has just ended, and has written `reported` indices.
unsafe fn note_reported<H: Handle>(requests: Requests<H>, reported: c_int, indices: *const c_int) {
    let Ok(reported) = usize::try_from(reported) else {
        // SAFETY: the caller promises that the call has just ended.
        return note_completed(complete(unsafe { requests.handles() }));
    };
    let is_completed = |&at: &usize| {
        // SAFETY: the caller promises that the call has just ended, and has written so many indices.
        let handle = unsafe { requests.handle(indices.add(at).read_unaligned() as usize) };
        handle.is_none_or(|persistent| complete(std::iter::once(persistent)) == 1)
    };
    note_completed((0..reported).filter(is_completed).count());
}

/// The handles of persistent requests that were started and not completed.
static STARTED: LazyLock<Mutex<HashSet<W>>> = LazyLock::new(Mutex::default);
/// The number of handles in `STARTED`.
static ARE_STARTED: AtomicUsize = AtomicUsize::new(0);

/// Notes that these requests are started.
fn start(handles: impl Iterator<Item = W>) {
    let opened = change_started(|started| handles.filter(|&handle| started.insert(handle)).count());
    TRAFFIC.open.fetch_add(opened as i64, Relaxed);
}

/// Notes that the started ones among these requests are complete. Returns how many these are.
fn complete(handles: impl Iterator<Item = W>) -> usize {
    let mut handles = handles.peekable();
    // With no started request, or no handle, this takes no lock.
    if ARE_STARTED.load(Relaxed) == 0 || handles.peek().is_none() {
        return 0;
    }
    change_started(|started| handles.filter(|handle| started.remove(handle)).count())
}

fn change_started(change: impl FnOnce(&mut HashSet<W>) -> usize) -> usize {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let changed = change(&mut started);
    // Relaxed: a thread that completes a request started it before, or is synchronised with the thread that did.
    ARE_STARTED.store(started.len(), Relaxed);
    changed
}

/// Subtracts completed requests from the open ones. If more complete than were open, some were begun by names that are
/// not seen, and more may be: traffic is endless from then on.
fn note_completed(requests: usize) {
    let requests = requests as i64;
    // Relaxed: a thread that completes a request began it before, or is synchronised with the thread that did.
    if requests > 0 && TRAFFIC.open.fetch_sub(requests, Relaxed) < requests {
        TRAFFIC.is_endless.store(true, Relaxed);
    }
}
