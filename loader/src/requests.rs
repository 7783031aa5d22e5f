//! Which requests are open: begun, and not completed.
//!
//! Most are opened by the entries of `Opens`, `Begun` and `OneSidedBegun` names, which count. A call that completes such a request puts
//! MPI_REQUEST_NULL in its place in the program's memory. Persistent requests stay there: those that were started are known by their handles.
//!
//! What is not known to be complete stays open: the engine then expects traffic that is not there, as it does where nothing is known. So it is where
//! a call reports an error, and where an active request is freed.

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

/// Any of these functions: what the callee doesn't declare, it doesn't read.
type Function = unsafe extern "C-unwind" fn(W, W, W, W, W) -> c_int;

/// What a function does with requests. Numbers are positions of arguments that point to ints, which it writes.
enum Effect {
    /// Opens all.
    Start,
    /// Completes all.
    Wait,
    /// Completes all if this says so.
    Test { flag: usize },
    /// Completes the one with this index, if the flag says so, where there is one.
    Any { index: usize, flag: Option<usize> },
    /// Completes so many, with these indices.
    Some { count: usize, indices: usize },
}

/// A `Followed` name.
struct Followed {
    name: &'static str,
    /// The first argument is how many requests the second one points to; else it points to one.
    takes_many: bool,
    effect: Effect,
    /// What stands in front of its native function, by [`Handles`]: ints (MPICH), pointers (Open MPI).
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

/// The same, for what is checked while this is compiled.
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

/// The table of names has the same ones.
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

/// The native functions of `FOLLOWED`, from the time on when the table of names leads to what stands in front of them.
static NATIVE: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(ptr::null_mut()) }; COUNT];
/// MPI_REQUEST_NULL, likewise.
static NULL: AtomicUsize = AtomicUsize::new(0);

/// The handles of requests of an MPI library.
#[derive(Clone, Copy)]
pub enum Handles {
    Ints,
    Pointers,
}

impl Handles {
    /// Those of this library, whose requests are followed from now on; `None` where they are not known.
    pub fn of(mpi: &Mpi) -> Option<Self> {
        const MPICH_NULL: usize = 0x2c00_0000;
        let (null, handles) = match mpi.family()? {
            "mpich" => (MPICH_NULL, Self::Ints),
            "openmpi" => (object(c"ompi_request_null", mpi)? as usize, Self::Pointers),
            _ => return None,
        };
        // Relaxed: whoever is led to what stands in front of functions finds it by the release in `fill`.
        NULL.store(null, Relaxed);
        Some(handles)
    }

    /// What stands in front of `native`, the function of that name, if it is followed.
    pub fn in_front_of(self, name: &Name, native: *mut c_void) -> Option<*mut c_void> {
        let index = FOLLOWED.iter().position(|followed| name.public.to_str() == Ok(followed.name))?;
        // Relaxed: as above.
        NATIVE[index].store(native, Relaxed);
        Some(FOLLOWED[index].in_front[self as usize] as *mut c_void)
    }
}

/// Where an object of the MPI library is: in the program, where that has been linked so that it has it (a copy relocation).
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
    /// Those of a call with these arguments. What MPI rejects is not looked at.
    fn of(followed: &Followed, a: W, b: W) -> Self {
        let (count, first) = if followed.takes_many { (a as c_int, b) } else { (1, a) };
        let first = first as *const H;
        Self { first, count: if first.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) } }
    }

    /// # Safety
    /// The call is under way, or was until now.
    unsafe fn handle(&self, at: usize) -> Option<W> {
        // SAFETY: MPI demands so many handles there, which nobody else touches during the call.
        let handle = unsafe { self.first.add(at).read_unaligned() }.word();
        (handle != NULL.load(Relaxed)).then_some(handle)
    }

    /// Those that are not null.
    ///
    /// # Safety
    /// As of `handle`.
    unsafe fn handles(self) -> impl Iterator<Item = W> {
        // SAFETY: as the caller promises.
        (0..self.count).filter_map(move |at| unsafe { self.handle(at) })
    }
}

/// `MPI_SUCCESS`, of all MPIs.
const SUCCESS: c_int = 0;

/// Makes the call, and counts the requests that it opens or completes. User code within it may throw, or jump out: nothing here has to be dropped.
///
/// # Safety
/// These are the arguments of a call to the function at `INDEX`, of a library whose handles are `H`s.
unsafe extern "C-unwind" fn follow<H: Handle, const INDEX: usize>(a: W, b: W, c: W, d: W, e: W) -> c_int {
    let followed = &FOLLOWED[INDEX];
    let requests = Requests::<H>::of(followed, a, b);
    // SAFETY: the function's, stored before anybody was led here, with the arguments of the call.
    let native = || unsafe { transmute::<*mut c_void, Function>(NATIVE[INDEX].load(Relaxed))(a, b, c, d, e) };
    let argument = |at: usize| [a, b, c, d, e][at] as *const c_int;
    // SAFETY: used once the call has succeeded: an int that it has written.
    let int = |at: usize| unsafe { argument(at).read_unaligned() };
    // SAFETY: these are the requests of the call.
    let handles = || unsafe { requests.handles() };
    match followed.effect {
        Effect::Start => {
            let code = native();
            // Also after an error: some may have been started.
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
                // What is there still is persistent, or has not come to its end.
                let ended = if code == SUCCESS { complete(handles()) } else { 0 };
                note_completed(before.saturating_sub(handles().count()) + ended);
            }
            code
        }
        Effect::Any { index, flag } => {
            let code = native();
            if code == SUCCESS && flag.is_none_or(|flag| int(flag) != 0) {
                let reported = if int(index) < 0 { int(index) } else { 1 };
                // SAFETY: as `int`.
                unsafe { note_reported(requests, reported, argument(index)) };
            }
            code
        }
        Effect::Some { count, indices } => {
            let code = native();
            if code == SUCCESS {
                // SAFETY: as `int`.
                unsafe { note_reported(requests, int(count), argument(indices)) };
            }
            code
        }
    }
}

/// A call reports so many of its requests to be complete, whose indices are there. MPI_UNDEFINED, which is negative, says that none is active, not
/// even one that no call has reported (MPICH, of MPI_PROC_NULL).
///
/// # Safety
/// The call was under way until now, and has written that.
unsafe fn note_reported<H: Handle>(requests: Requests<H>, reported: c_int, indices: *const c_int) {
    let Ok(reported) = usize::try_from(reported) else {
        // SAFETY: the caller's promise.
        return note_completed(complete(unsafe { requests.handles() }));
    };
    let is_completed = |&at: &usize| {
        // SAFETY: the caller's promise.
        let handle = unsafe { requests.handle(indices.add(at).read_unaligned() as usize) };
        handle.is_none_or(|persistent| complete(std::iter::once(persistent)) == 1)
    };
    note_completed((0..reported).filter(is_completed).count());
}

/// The handles of persistent requests that were started and not completed.
static STARTED: LazyLock<Mutex<HashSet<W>>> = LazyLock::new(Mutex::default);
/// How many these are.
static ARE_STARTED: AtomicUsize = AtomicUsize::new(0);

/// These requests are started.
fn start(handles: impl Iterator<Item = W>) {
    let opened = change_started(|started| handles.filter(|&handle| started.insert(handle)).count());
    TRAFFIC.open.fetch_add(opened as i64, Relaxed);
}

/// Those among these that were started are complete. -> how many they are
fn complete(handles: impl Iterator<Item = W>) -> usize {
    let mut handles = handles.peekable();
    // Without any there is no lock to take.
    if ARE_STARTED.load(Relaxed) == 0 || handles.peek().is_none() {
        return 0;
    }
    change_started(|started| handles.filter(|handle| started.remove(handle)).count())
}

fn change_started(change: impl FnOnce(&mut HashSet<W>) -> usize) -> usize {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let changed = change(&mut started);
    // Relaxed: who completes a request has started it before, or knows who has.
    ARE_STARTED.store(started.len(), Relaxed);
    changed
}

/// So many requests are open no longer. If they were more than had been begun, some were begun unseen, now and later.
fn note_completed(requests: usize) {
    let requests = requests as i64;
    // Relaxed: as in `change_started`.
    if requests > 0 && TRAFFIC.open.fetch_sub(requests, Relaxed) < requests {
        TRAFFIC.is_endless.store(true, Relaxed);
    }
}
