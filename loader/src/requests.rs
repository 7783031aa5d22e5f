//! Completed requests: how many of those that the process has open a `MPI_Wait…` or `MPI_Test…` closes.
//!
//! A request that is completed gets another handle in the program's memory, MPI_REQUEST_NULL, unless it is persistent; one that is not keeps
//! its own. So what the call changed tells, whatever a library's null handle is. Where a call fails, or a library gives no other handle to what it
//! completed at once, a request stays open for good: the engine then asks for traffic that is not there, as it does where nothing is known.

use crate::slots::{Name, TRAFFIC};
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

/// Any of these functions: what the callee doesn't declare, it doesn't read.
type Native = unsafe extern "C-unwind" fn(W, W, W, W, W) -> c_int;
type W = usize;

/// A handle of a request: an int (MPICH) or a pointer (Open MPI).
trait Handle: Copy + Default + PartialEq {}
impl Handle for c_int {}
impl Handle for usize {}

/// What stands in front of the native function of one name.
struct Closer {
    name: &'static CStr,
    of_ints: Native,
    of_pointers: Native,
}

const COUNT: usize = 8;

/// `MPI_X(MPI_Request *, …)`, the one at `INDEX`.
const fn of_one<const INDEX: usize>(name: &'static CStr) -> Closer {
    Closer { name, of_ints: close_one::<c_int, INDEX>, of_pointers: close_one::<usize, INDEX> }
}

/// `MPI_X(int, MPI_Request[], …)`, the one at `INDEX`.
const fn of_many<const INDEX: usize>(name: &'static CStr) -> Closer {
    Closer { name, of_ints: close_many::<c_int, INDEX>, of_pointers: close_many::<usize, INDEX> }
}

static CLOSERS: [Closer; COUNT] = [
    of_one::<0>(c"MPI_Wait"),
    of_one::<1>(c"MPI_Test"),
    of_many::<2>(c"MPI_Waitall"),
    of_many::<3>(c"MPI_Waitany"),
    of_many::<4>(c"MPI_Waitsome"),
    of_many::<5>(c"MPI_Testall"),
    of_many::<6>(c"MPI_Testany"),
    of_many::<7>(c"MPI_Testsome"),
];

/// The native functions of `CLOSERS`, from the time on when the table of names leads to these.
static NATIVE: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(ptr::null_mut()) }; COUNT];

/// What stands in front of `native`, the function of that `Closes` name in a library of that family; `None` where its handles are not known.
pub fn closer(name: &Name, native: *mut c_void, family: &str) -> Option<*mut c_void> {
    let index = CLOSERS.iter().position(|closer| closer.name == name.public)?;
    let closer = match family {
        "mpich" => CLOSERS[index].of_ints,
        "openmpi" => CLOSERS[index].of_pointers,
        _ => return None,
    };
    // Relaxed: whoever is led to the closer finds it by the release in `fill`.
    NATIVE[index].store(native, Relaxed);
    Some(closer as *mut c_void)
}

/// # Safety
/// The call is one to the name at `INDEX`, whose handles are `H`s.
unsafe extern "C-unwind" fn close_one<H: Handle, const INDEX: usize>(a: W, b: W, c: W, d: W, e: W) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { close::<H>(INDEX, (a as *const H, 1), [a, b, c, d, e]) }
}

/// # Safety
/// As of `close_one`.
unsafe extern "C-unwind" fn close_many<H: Handle, const INDEX: usize>(a: W, b: W, c: W, d: W, e: W) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { close::<H>(INDEX, (b as *const H, a as c_int), [a, b, c, d, e]) }
}

/// Makes the call, and closes the requests that it completes.
///
/// # Safety
/// These are the arguments of a call to the name at `index`, among them so many requests.
#[inline]
unsafe fn close<H: Handle>(index: usize, (requests, count): (*const H, c_int), arguments: [W; 5]) -> c_int {
    /// So many handles need no memory of their own: two cache lines or four.
    const FEW: usize = 32;
    let [a, b, c, d, e] = arguments;
    // SAFETY: the name's native function, stored before anybody was led here.
    let native = unsafe { transmute::<*mut c_void, Native>(NATIVE[index].load(Relaxed)) };
    // What MPI rejects is not looked at.
    let count = if requests.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
    // SAFETY: MPI demands so many handles there, which nobody else touches during the call.
    let handle = |at: usize| unsafe { requests.add(at).read_unaligned() };
    let (mut few, many);
    let before = if count <= FEW {
        few = [H::default(); FEW];
        (0..count).for_each(|at| few[at] = handle(at));
        &few[..count]
    } else {
        many = (0..count).map(handle).collect::<Vec<H>>();
        &many[..]
    };
    // SAFETY: the arguments of the call.
    let code = unsafe { native(a, b, c, d, e) };
    let completed = before.iter().enumerate().filter(|&(at, before)| handle(at) != *before).count();
    if completed > 0 {
        note_completed(completed as i64);
    }
    code
}

/// So many requests are open no longer. If they were more than had been begun, some were begun unseen, now and later.
fn note_completed(requests: i64) {
    // Relaxed: who completes a request has begun it before, or knows who has.
    if TRAFFIC.open.fetch_sub(requests, Relaxed) < requests {
        TRAFFIC.is_endless.store(true, Relaxed);
    }
}
