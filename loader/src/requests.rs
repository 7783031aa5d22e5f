//! Which requests are open: begun, and not completed.
//!
//! Most are opened by the entries of `Opens` and `Begun` names, which count. A call that completes such a request gives it another handle in the
//! program's memory, MPI_REQUEST_NULL; one that is not completed keeps its own. So what a call changed tells, whatever a library's null handle is.
//! Persistent requests keep theirs: those that were started are known by them, and a call reports which of these it completed.
//!
//! Where a call fails, or a library gives no other handle to what it completed at once, a request stays open for good: the engine then expects
//! traffic that is not there, as it does where nothing is known.

use crate::slots::{Name, TRAFFIC};
use std::collections::HashSet;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicUsize};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::{ptr, slice};

/// Any of these functions: what the callee doesn't declare, it doesn't read.
type Native = unsafe extern "C-unwind" fn(W, W, W, W, W) -> c_int;
type W = usize;
type Arguments = [W; 5];

/// A function that takes requests.
struct Function {
    name: &'static CStr,
    /// The first argument is how many requests the second one points to; else it points to one.
    takes_many: bool,
    /// What it does with them. Positions are those of arguments.
    effect: Effect,
}

enum Effect {
    /// Opens all.
    Start,
    /// Completes all, when it has no error.
    Wait,
    /// Completes all if this int says so.
    Test { flag: usize },
    /// Completes the one whose index this int is, if that other int says so, where there is one.
    Any { index: usize, flag: Option<usize> },
    /// Completes as many as this int says, whose indices are there.
    Some { count: usize, indices: usize },
}

const fn of_one(name: &'static CStr, effect: Effect) -> Function {
    Function { name, takes_many: false, effect }
}

const fn of_many(name: &'static CStr, effect: Effect) -> Function {
    Function { name, takes_many: true, effect }
}

const COUNT: usize = 10;

static FUNCTIONS: [Function; COUNT] = [
    of_one(c"MPI_Start", Effect::Start),
    of_many(c"MPI_Startall", Effect::Start),
    of_one(c"MPI_Wait", Effect::Wait),
    of_many(c"MPI_Waitall", Effect::Wait),
    of_one(c"MPI_Test", Effect::Test { flag: 1 }),
    of_many(c"MPI_Testall", Effect::Test { flag: 2 }),
    of_many(c"MPI_Waitany", Effect::Any { index: 2, flag: None }),
    of_many(c"MPI_Testany", Effect::Any { index: 2, flag: Some(3) }),
    of_many(c"MPI_Waitsome", Effect::Some { count: 2, indices: 3 }),
    of_many(c"MPI_Testsome", Effect::Some { count: 2, indices: 3 }),
];

/// The native functions of `FUNCTIONS`, from the time on when the table of names leads to what stands in front of them.
static NATIVE: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(ptr::null_mut()) }; COUNT];

/// A handle of a request: an int (MPICH) or a pointer (Open MPI).
trait Handle: Copy + Default + PartialEq {
    /// The same as a word.
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

/// By the index of the function.
macro_rules! in_front_of {
    ($handle:ty: $($index:literal)*) => {
        [$(call::<$handle, $index>),*]
    };
}
static OF_INTS: [Native; COUNT] = in_front_of!(c_int: 0 1 2 3 4 5 6 7 8 9);
static OF_POINTERS: [Native; COUNT] = in_front_of!(usize: 0 1 2 3 4 5 6 7 8 9);

/// What stands in front of `native`, the function of that name in a library of that family; `None` where its handles are not known.
pub fn in_front_of(name: &Name, native: *mut c_void, family: &str) -> Option<*mut c_void> {
    let index = FUNCTIONS.iter().position(|function| function.name == name.public)?;
    let in_front = match family {
        "mpich" => OF_INTS[index],
        "openmpi" => OF_POINTERS[index],
        _ => return None,
    };
    // Relaxed: whoever is led here finds it by the release in `fill`.
    NATIVE[index].store(native, Relaxed);
    Some(in_front as *mut c_void)
}

/// Makes the call, and counts the requests that it opens or completes.
///
/// # Safety
/// These are the arguments of a call to the function at `INDEX`, of a library whose handles are `H`s.
unsafe extern "C-unwind" fn call<H: Handle, const INDEX: usize>(a: W, b: W, c: W, d: W, e: W) -> c_int {
    let arguments = [a, b, c, d, e];
    // SAFETY: the function's, stored before anybody was led here.
    let native = unsafe { transmute::<*mut c_void, Native>(NATIVE[INDEX].load(Relaxed)) };
    // SAFETY: the arguments of the call.
    let call = || unsafe { native(a, b, c, d, e) };
    let function = &FUNCTIONS[INDEX];
    let (count, first) = if function.takes_many { (a as c_int, b) } else { (1, a) };
    let first = first as *const H;
    // What MPI rejects is not looked at.
    let count = if first.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
    // SAFETY: MPI demands so many handles there, which nobody else touches during the call.
    let handle = |at: usize| unsafe { first.add(at).read_unaligned() };
    if matches!(function.effect, Effect::Start) {
        start((0..count).map(|at| handle(at).word()));
        return call();
    }
    /// So many need no memory of their own.
    const FEW: usize = 32;
    let (mut few, many);
    let before = if count <= FEW {
        few = [H::default(); FEW];
        (0..count).for_each(|at| few[at] = handle(at));
        &few[..count]
    } else {
        many = (0..count).map(handle).collect::<Vec<H>>();
        &many[..]
    };
    let code = call();
    let mut completed = before.iter().enumerate().filter(|&(at, before)| handle(at) != *before).count();
    if ARE_STARTED.load(Relaxed) > 0 && code == SUCCESS {
        // SAFETY: the call has succeeded, so its arguments are as MPI demands.
        let indices = unsafe { completed_by(&function.effect, &arguments, count) };
        completed += complete(indices.filter_map(|at| before.get(at)).map(|handle| handle.word()));
    }
    if completed > 0 {
        note_completed(completed as i64);
    }
    code
}

/// `MPI_SUCCESS`, of all MPIs.
const SUCCESS: c_int = 0;

/// The indices of the requests of which a call of `count` has reported that they are complete, maybe for long.
///
/// # Safety
/// These are the arguments of such a call that has succeeded.
unsafe fn completed_by(effect: &Effect, arguments: &Arguments, count: usize) -> impl Iterator<Item = usize> {
    // SAFETY: as the caller promises, an int that the call has written.
    let int = |at: usize| unsafe { (arguments[at] as *const c_int).read_unaligned() };
    let (all, some): (usize, &[c_int]) = match *effect {
        Effect::Wait => (count, &[]),
        Effect::Test { flag } if int(flag) != 0 => (count, &[]),
        Effect::Any { flag: Some(flag), .. } if int(flag) == 0 => (0, &[]),
        // MPI_UNDEFINED, which is negative, says that none is active, not even one that it has not reported (MPICH, of MPI_PROC_NULL).
        Effect::Any { index, .. } | Effect::Some { count: index, .. } if int(index) < 0 => (count, &[]),
        // SAFETY: as above.
        Effect::Any { index, .. } => (0, slice::from_ref(unsafe { &*(arguments[index] as *const c_int) })),
        Effect::Some { count: some, indices } if int(some) > 0 => {
            // SAFETY: as above, so many ints.
            (0, unsafe { slice::from_raw_parts(arguments[indices] as *const c_int, int(some) as usize) })
        }
        Effect::Start | Effect::Test { .. } | Effect::Some { .. } => (0, &[]),
    };
    (0..all).chain(some.iter().map(|&index| index as usize))
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
fn note_completed(requests: i64) {
    // Relaxed: as in `change_started`.
    if TRAFFIC.open.fetch_sub(requests, Relaxed) < requests {
        TRAFFIC.is_endless.store(true, Relaxed);
    }
}
