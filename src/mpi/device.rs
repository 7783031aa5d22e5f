//! Memory of devices (CUDA, HIP): recognised call by call, and never dereferenced.
//!
//! The device's own library copies such a buffer to and from host memory of this rank ([`staged`]); the peers know
//! nothing of it. In a process that has loaded no such library, or none that can copy, the check costs a call two loads
//! ([`watch`]).

mod cuda;
mod hip;
mod staged;
mod watch;

pub use staged::{Role, Staged};

use super::job::abort;
use crate::callers;
use crate::log;
use crate::report;
use cuda::Cuda;
use hip::Hip;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use watch::{Callers, Watches};

/// The libraries of devices that this process has loaded. They stay loaded.
#[derive(Clone, Copy)]
struct Libraries {
    cuda: Option<Cuda>,
    hip: Option<Hip>,
}

/// The libraries found last, or null. Those found before are not freed, since a thread may use them.
static LIBRARIES: AtomicPtr<Libraries> = AtomicPtr::new(std::ptr::null_mut());

/// Whether a library is loaded whose memory huddle can't copy.
static HAS_UNKNOWN: AtomicBool = AtomicBool::new(false);

/// Whether the loaded objects were looked at before: then there may be contexts.
static HAS_LOOKED: AtomicBool = AtomicBool::new(false);

/// Libraries that allocate memory on devices, by the start of their file names. HIP is built on HSA, which some
/// compilers use without HIP for OpenMP's offloading.
const CUDA: &[u8] = b"libcuda.so";
const HIP: &[u8] = b"libamdhip64.so";
const HSA: &[u8] = b"libhsa-runtime64.so";

fn is_device_library(name: &[u8]) -> bool {
    [CUDA, HIP, HSA].into_iter().any(|start| name.starts_with(start))
}

/// Whether an address may be that of a device's memory; [`memory_at`] finds out.
#[inline(always)]
pub fn may_be_used() -> bool {
    watch::is_alert()
}

/// Whether this process has loaded a library of devices whose memory huddle can't copy.
pub fn has_unknown() -> bool {
    look();
    HAS_UNKNOWN.load(Ordering::Relaxed)
}

/// Looks for libraries that were loaded before the call. Returns those that are known.
fn look() -> Option<&'static Libraries> {
    let callers = || match () {
        () if !callers::may_overlap() => Callers::One,
        () if report::is_one_thread() => Callers::OneYet,
        () => Callers::Several,
    };
    watch::look(callers, is_device_library, |paths| Found::among(&paths), Found::adopt);
    // [libraries] acquire: pairs with the release in `adopt`.
    let libraries = LIBRARIES.load(Ordering::Acquire);
    // SAFETY: null or a box that was leaked.
    unsafe { libraries.as_ref() }
}

/// The libraries of devices that were found.
struct Found {
    libraries: Libraries,
    /// The name of one whose memory can't be copied.
    unknown: Option<&'static str>,
}

impl Found {
    /// Looks among the objects at `paths`, and skips those that were unloaded meanwhile.
    fn among(paths: &[CString]) -> Self {
        let (cuda, lacks_cuda) = first(paths, CUDA, Cuda::of);
        let (hip, lacks_hip) = first(paths, HIP, Hip::of);
        let has_hsa = first(paths, HSA, |_| None::<()>).1;
        let unknown =
            if lacks_cuda { Some("CUDA") } else { (lacks_hip || has_hsa && hip.is_none()).then_some("HSA or HIP") };
        Self { libraries: Libraries { cuda, hip }, unknown }
    }

    /// Makes the libraries known, and tells when calls have to ask from now on. Called by one thread at a time.
    fn adopt(self) -> Watches {
        let is_late = HAS_LOOKED.swap(true, Ordering::Relaxed);
        let had_unknown = HAS_UNKNOWN.swap(self.unknown.is_some(), Ordering::Relaxed);
        if let Some(name) = self.unknown
            && is_late
            && !had_unknown
        {
            log::warning(format_args!(
                "a library of {name} was loaded that huddle can't copy with; if the program passes memory of its devices on \
                 communicators that it has used before, set HUDDLE_DISABLE=1"
            ));
        }
        if self.libraries.cuda.is_none() && self.libraries.hip.is_none() {
            return Watches::News;
        }
        // [libraries] release: pairs with the acquire in `look`.
        LIBRARIES.store(Box::into_raw(Box::new(self.libraries)), Ordering::Release);
        Watches::Always
    }
}

fn file_name(path: &CStr) -> &[u8] {
    path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Applies `of` to the loaded objects at `paths` whose file names begin with `start`. Returns the first result, whose
/// object then stays loaded, and otherwise whether there are such objects, of which none could be used.
fn first<T>(paths: &[CString], start: &[u8], of: fn(*mut c_void) -> Option<T>) -> (Option<T>, bool) {
    let mut are_there = false;
    for path in paths.iter().filter(|path| file_name(path).starts_with(start)) {
        // SAFETY: a C string; only a reference to what is loaded is taken.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            continue; // unloaded meanwhile
        }
        if let Some(library) = of(handle) {
            return (Some(library), false);
        }
        are_there = true;
        // SAFETY: nothing of that reference was kept: the program may unload the object.
        unsafe { libc::dlclose(handle) };
    }
    (None, are_there)
}

/// The function `name` of an open object.
///
/// # Safety
/// `handle` is null or stays open, and `F` is a pointer to a function of the prototype of `name`.
unsafe fn find<F: Copy>(handle: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: an open handle and a C string.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    // SAFETY: the caller's promise on `F`.
    (!address.is_null()).then(|| unsafe { std::mem::transmute_copy(&address) })
}

/// Memory that the host can't use: where it is, and which library copies it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// CUDA, in this context.
    Cuda(cuda::Place),
    /// HIP.
    Hip,
}

/// The device's memory at `address`; `None` if the host can use the address.
#[cold]
pub fn memory_at(address: *const u8) -> Option<Memory> {
    let libraries = look()?;
    let in_cuda = libraries.cuda.and_then(|cuda| cuda.place_of(address)).map(Memory::Cuda);
    in_cuda.or_else(|| libraries.hip.is_some_and(|hip| hip.has(address)).then_some(Memory::Hip))
}

/// Copies between memory of a device and of the host, which are complete when [`Copies::end`] returns.
pub enum Copies {
    /// By CUDA.
    Cuda(cuda::Copies),
    /// By HIP.
    Hip(Hip),
}

impl Copies {
    /// Begins with no copies.
    pub fn begin(memory: Memory) -> Self {
        let libraries = look();
        let hip = || libraries.and_then(|libraries| libraries.hip).map(Self::Hip);
        let copies = match memory {
            Memory::Cuda(place) => {
                libraries.and_then(|libraries| libraries.cuda).map(|cuda| Self::Cuda(cuda.begin(place)))
            }
            Memory::Hip => hip(),
        };
        copies.unwrap_or_else(|| unreachable!("the library that knows this memory stays loaded"))
    }

    /// Adds a copy of `n` bytes.
    ///
    /// # Safety
    /// The memory is the program's or this call's, on the host or on the device, and unused by others until the end.
    pub unsafe fn add(&mut self, to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Cuda(copies) => copies.add(to, from, n),
                Self::Hip(hip) => hip.copy(to, from, n),
            }
        }
    }

    /// Waits for all of them.
    pub fn end(self) {
        match self {
            Self::Cuda(copies) => copies.end(),
            Self::Hip(hip) => hip.wait(),
        }
    }
}

/// Ends the job if `code` is an error: it can't go on if a rank can't reach its own buffer.
fn check(function: &str, code: c_int) {
    if code != 0 {
        log::error(format_args!("a buffer in memory of a device can't be copied: {function} failed with code {code}"));
        abort();
    }
}
