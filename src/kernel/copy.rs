//! Copying packed bytes.
//!
//! [`copy`] and [`copy_to`] move up to [`SMALL`] bytes inline, by loads and stores that overlap where the length lies
//! between two powers of two. Longer copies run the kernel in use for their [`SizeClass`] and their [`Destination`].
//! [`copy_streaming`] writes to memory, around the caches, for slots whose readers are far away; [`copy_fetching`] is
//! for the readers of such slots. [`copy_in_streams`] and [`copy_around_in_streams`] are for long pieces that end in
//! memory of the rank's own. Measurements of the machine ([`Probed`](super::Probed)) decide which kernels are in use.
//! Before that all copies use libc's `memcpy`, except those with streaming stores, in vectors or in several streams.

use super::Level;
use super::copy_loops as loops;
use crate::types::LINE;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// The longest copy that is done inline.
pub const SMALL: usize = 64;

/// A function that copies `n` bytes, more than [`SMALL`].
///
/// # Safety
/// As for [`copy`].
pub(super) type CopyFn = unsafe fn(to: *mut u8, from: *const u8, n: usize);

/// A way to copy.
#[derive(Debug)]
pub struct CopyKernel {
    /// Its name in files and output.
    pub name: &'static str,
    /// The instruction set that it needs.
    pub level: Level,
    /// What its stores do.
    pub stores: Stores,
    is_in_streams: bool,
    run: CopyFn,
}

/// What the stores of a copy kernel do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// They go to the caches, which fetch each line first.
    Cached,
    /// They go to the caches, which need not fetch lines that a long copy overwrites whole.
    WholeLines,
    /// They go to memory and leave the caches alone; they are ordered before later stores.
    Streaming,
}

const fn row(name: &'static str, level: Level, stores: Stores, run: CopyFn) -> CopyKernel {
    CopyKernel { name, level, stores, is_in_streams: false, run }
}

const fn row_in_streams(name: &'static str, level: Level, stores: Stores, run: CopyFn) -> CopyKernel {
    CopyKernel { is_in_streams: true, ..row(name, level, stores, run) }
}

/// All ways to copy. The first one serves until another is chosen. Those in several streams serve only
/// [`copy_in_streams`] and [`copy_around_in_streams`].
pub static COPIES: &[CopyKernel] = &[
    row("libc", Level::Baseline, Stores::WholeLines, loops::libc),
    row("baseline", Level::Baseline, Stores::Cached, loops::baseline),
    row("quarters", Level::Baseline, Stores::Cached, loops::quarters),
    #[cfg(target_arch = "x86_64")]
    row("avx2", Level::Avx2, Stores::Cached, loops::avx2),
    #[cfg(target_arch = "x86_64")]
    row("avx512", Level::Avx512, Stores::Cached, loops::avx512),
    #[cfg(target_arch = "x86_64")]
    row("rep", Level::Baseline, Stores::WholeLines, loops::rep),
    #[cfg(target_arch = "x86_64")]
    row("stream-baseline", Level::Baseline, Stores::Streaming, loops::stream_baseline),
    #[cfg(target_arch = "x86_64")]
    row("stream-avx2", Level::Avx2, Stores::Streaming, loops::stream_avx2),
    #[cfg(target_arch = "x86_64")]
    row("stream-avx2-prefetch", Level::Avx2, Stores::Streaming, loops::stream_avx2_prefetch),
    #[cfg(target_arch = "x86_64")]
    row("stream-avx512", Level::Avx512, Stores::Streaming, loops::stream_avx512),
    #[cfg(target_arch = "x86_64")]
    row("stream-avx512-prefetch", Level::Avx512, Stores::Streaming, loops::stream_avx512_prefetch),
    row_in_streams("several-baseline", Level::Baseline, Stores::Cached, loops::several_baseline),
    #[cfg(target_arch = "x86_64")]
    row_in_streams("several-avx2", Level::Avx2, Stores::Cached, loops::several_avx2),
    #[cfg(target_arch = "x86_64")]
    row_in_streams("several-avx512", Level::Avx512, Stores::Cached, loops::several_avx512),
    #[cfg(target_arch = "x86_64")]
    row_in_streams("several-around-baseline", Level::Baseline, Stores::Streaming, loops::several_around_baseline),
    #[cfg(target_arch = "x86_64")]
    row_in_streams("several-around-avx2", Level::Avx2, Stores::Streaming, loops::several_around_avx2),
    #[cfg(target_arch = "x86_64")]
    row_in_streams("several-around-avx512", Level::Avx512, Stores::Streaming, loops::several_around_avx512),
];

impl CopyKernel {
    /// The kernels that this processor can run.
    pub fn available() -> impl Iterator<Item = &'static Self> {
        COPIES.iter().filter(|kernel| kernel.level.is_available())
    }

    /// The kernel of this name, if this processor can run it.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        Self::available().find(|kernel| kernel.name == name)
    }

    /// Whether it copies in several streams.
    pub fn is_in_streams(&self) -> bool {
        self.is_in_streams
    }

    /// Copies `n` bytes.
    ///
    /// # Safety
    /// As for [`copy`]; the kernel is one of those [`available`](Self::available).
    #[inline]
    pub unsafe fn copy(&self, to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            if n <= SMALL {
                small(to, from, n);
            } else {
                (self.run)(to, from, n);
            }
        }
    }
}

/// Lengths above [`SMALL`] that share a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SizeClass {
    /// Up to 512 bytes
    Short,
    /// Up to 16 KiB
    Medium,
    /// Up to 512 KiB
    Long,
    /// Longer ones
    Huge,
}

impl SizeClass {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 4] = [Self::Short, Self::Medium, Self::Long, Self::Huge];

    /// The class of a length.
    #[inline(always)]
    pub const fn of(n: usize) -> Self {
        if n <= 512 {
            Self::Short
        } else if n <= 16 << 10 {
            Self::Medium
        } else if n <= 512 << 10 {
            Self::Long
        } else {
            Self::Huge
        }
    }

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Medium => "medium",
            Self::Long => "long",
            Self::Huge => "huge",
        }
    }
}

/// Whose memory a copy writes, which decides what its stores cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Destination {
    /// Memory of this rank alone.
    Private,
    /// A slot: its lines are in the caches of the peers that read it one turn of the ring ago.
    Slot,
}

impl Destination {
    /// Both, in the order of their discriminants.
    pub const ALL: [Self; 2] = [Self::Private, Self::Slot];

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Slot => "slot",
        }
    }
}

/// One `T` for each [`SizeClass`].
pub type PerClass<T> = [T; SizeClass::ALL.len()];

const fn place(run: CopyFn) -> AtomicPtr<()> {
    AtomicPtr::new(run as *mut ())
}

/// The functions in use, by [`Destination`].
static CHOSEN: [PerClass<AtomicPtr<()>>; Destination::ALL.len()] =
    [const { [const { place(loops::libc) }; SizeClass::ALL.len()] }; Destination::ALL.len()];
/// The function of [`copy_streaming`].
static STREAMING: AtomicPtr<()> = place(STREAMING_EVERYWHERE);
#[cfg(target_arch = "x86_64")]
const STREAMING_EVERYWHERE: CopyFn = loops::stream_baseline;
#[cfg(not(target_arch = "x86_64"))]
const STREAMING_EVERYWHERE: CopyFn = loops::libc;
/// The function of [`copy_fetching`].
static FETCHING: AtomicPtr<()> = place(loops::libc);

/// The function of [`copy_in_vectors`].
static IN_VECTORS: AtomicPtr<()> = place(loops::baseline);
/// The functions of [`copy_in_streams`] and [`copy_around_in_streams`].
static IN_STREAMS: [AtomicPtr<()>; 2] = [place(loops::several_baseline), place(AROUND_IN_STREAMS_EVERYWHERE)];
#[cfg(target_arch = "x86_64")]
const AROUND_IN_STREAMS_EVERYWHERE: CopyFn = loops::several_around_baseline;
#[cfg(not(target_arch = "x86_64"))]
const AROUND_IN_STREAMS_EVERYWHERE: CopyFn = loops::several_baseline;

/// From here on copies to `destination` use `kernel` for lengths of `class`.
pub fn choose(destination: Destination, class: SizeClass, kernel: &'static CopyKernel) {
    choose_for(&CHOSEN[destination as usize][class as usize], kernel);
}

/// From here on [`copy_streaming`] uses `kernel`.
pub fn choose_streaming(kernel: &'static CopyKernel) {
    choose_for(&STREAMING, kernel);
}

/// From here on [`copy_fetching`] uses `kernel`.
pub fn choose_fetching(kernel: &'static CopyKernel) {
    choose_for(&FETCHING, kernel);
}

/// From here on [`copy_in_vectors`], [`copy_in_streams`] and [`copy_around_in_streams`] use vectors of `level`.
pub fn choose_vectors(level: Level) {
    for kernel in CopyKernel::available().filter(|kernel| kernel.name == level.name()) {
        choose_for(&IN_VECTORS, kernel);
    }
    for kernel in CopyKernel::available().filter(|kernel| kernel.is_in_streams() && kernel.level == level) {
        choose_for(&IN_STREAMS[usize::from(kernel.stores == Stores::Streaming)], kernel);
    }
}

fn choose_for(place: &AtomicPtr<()>, kernel: &'static CopyKernel) {
    assert!(kernel.level.is_available(), "{} is not for this processor", kernel.name);
    place.store(kernel.run as *mut (), Ordering::Relaxed);
}

/// Copies `n` bytes to memory of this rank alone.
///
/// # Safety
/// `from` is readable, `to` writable for `n` bytes; they do not overlap. Meanwhile nobody changes the source's bytes or
/// touches the destination. Storing a byte as it was found, as [`copy_taking`] does, changes nothing.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_to(Destination::Private, to, from, n) }
}

/// Copies `n` bytes to memory of the kind that `destination` names.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
pub unsafe fn copy_to(destination: Destination, to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { call(&CHOSEN[destination as usize][SizeClass::of(n) as usize], to, from, n) }
}

/// Copies `n` bytes to memory, as [`copy`] does, but around the caches of this core and of all that hold lines of the
/// destination. The stores are ordered before all later ones. A processor without such stores makes an ordinary copy.
///
/// # Safety
/// As for [`copy`].
#[inline]
pub unsafe fn copy_streaming(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { call(&STREAMING, to, from, n) }
}

/// Copies `n` bytes, as [`copy`] does, from memory: the source is in no cache.
///
/// # Safety
/// As for [`copy`].
#[inline]
pub unsafe fn copy_fetching(to: *mut u8, from: *const u8, n: usize) {
    /// Shorter copies gain nothing from more streams.
    const SHORTEST: usize = 8 << 10;
    // SAFETY: the caller's promise.
    unsafe {
        if n < SHORTEST {
            copy(to, from, n);
        } else {
            call(&FETCHING, to, from, n);
        }
    }
}

/// Copies `n` bytes, as [`copy`] does, from lines of shared memory that their owner writes next. It also makes these
/// lines this core's, so that the owner gets each with one fetch. Where two caches share a line, the owner's write has
/// to make both give it up, one after the other, which takes up to seven times as long (Zen 4).
///
/// # Safety
/// As for [`copy`]. The source is writable too.
#[inline(never)]
pub unsafe fn copy_taking(to: *mut u8, from: *const u8, n: usize) {
    /// Bytes per step: their lines stay in the first-level cache until they are copied.
    const STEP: usize = 4 << 10;
    // SAFETY: all places lie within `n` bytes; the caller's promise. A byte is stored as it was found, so others may
    // read it or do the same meanwhile.
    let take = |at: usize| unsafe {
        let byte = AtomicU8::from_ptr(from.add(at).cast_mut());
        byte.store(byte.load(Ordering::Relaxed), Ordering::Relaxed);
    };
    for at in (0..n).step_by(STEP) {
        let end = (at + STEP).min(n);
        (at..end).step_by(LINE).for_each(take);
        take(end - 1);
        // SAFETY: the part lies within `n` bytes; the caller's promise.
        unsafe { copy_of(SizeClass::of(end - at), to.add(at), from.add(at), end - at) };
    }
}

/// Copies `n` bytes, as [`copy`] does, by the kernel that serves `class`: they are part of a piece of that class.
///
/// # Safety
/// As for [`copy`].
#[inline]
pub unsafe fn copy_of(class: SizeClass, to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { call(&CHOSEN[Destination::Private as usize][class as usize], to, from, n) }
}

/// Copies `n` bytes, as [`copy`] does, in [several streams](super::streams).
///
/// # Safety
/// As for [`copy`].
#[inline]
pub unsafe fn copy_in_streams(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { call(&IN_STREAMS[0], to, from, n) }
}

/// Copies `n` bytes, as [`copy`] does, by a plain loop of vectors. It is for lines that this core has already: there
/// the start of the processor's own loop, which libc uses, costs as much time as copying two kilobytes.
///
/// # Safety
/// As for [`copy`].
#[inline]
pub unsafe fn copy_in_vectors(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { call(&IN_VECTORS, to, from, n) }
}

/// Copies `n` bytes, as [`copy_streaming`] does, in [several streams](super::streams).
///
/// # Safety
/// As for [`copy`].
#[inline]
pub unsafe fn copy_around_in_streams(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { call(&IN_STREAMS[1], to, from, n) }
}

/// Copies `n` bytes: inline up to [`SMALL`], else by the function in `place`.
///
/// # Safety
/// As for [`CopyFn`].
#[inline(always)]
unsafe fn call(place: &AtomicPtr<()>, to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: only functions of this type are stored there, which this processor can run; the caller's promise.
    unsafe {
        if n <= SMALL {
            return small(to, from, n);
        }
        let run: CopyFn = std::mem::transmute(place.load(Ordering::Relaxed));
        run(to, from, n);
    }
}

/// Tells the processor that the line at `at` will be written soon. It may fetch the line meanwhile, and take it from
/// other caches. Nothing is read or written, so any address will do.
#[inline(always)]
pub fn expect_write(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that never faults; processors without it ignore it.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Tells the processor that the line at `at` will be read soon. Like [`expect_write`] it is a hint, and any address
/// will do.
#[inline(always)]
pub fn expect_read(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint that never faults, part of the baseline.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Returns when all that this core has stored is in its cache; later loads begin only then. This is for speed alone:
/// what others see, and when, is a matter of acquire and release. An atomic operation is not enough, since the
/// processor tries later loads before it, and these already take lines from peers (docs/PERFORMANCE.md, "Tried").
/// Processors other than x86 have not been measured.
#[inline(always)]
pub fn await_own_stores() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: part of the baseline.
    unsafe {
        std::arch::x86_64::_mm_mfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Copies `n` bytes, at most [`SMALL`].
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
pub(super) unsafe fn small(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise; of each pair the first value starts at 0 and the second ends at `n`.
    unsafe {
        match n {
            33.. => ends::<[u8; 32]>(to, from, n),
            16.. => ends::<[u8; 16]>(to, from, n),
            8.. => ends::<u64>(to, from, n),
            4.. => ends::<u32>(to, from, n),
            2.. => ends::<u16>(to, from, n),
            1 => to.write(from.read()),
            0 => {}
        }
    }
}

/// Copies the first and the last value of `n` bytes. They overlap unless `n` is twice their length.
///
/// # Safety
/// As for [`copy`]; `n` is at least the length of a value and at most twice that.
#[inline(always)]
pub(super) unsafe fn ends<T: Copy>(to: *mut u8, from: *const u8, n: usize) {
    let last = n - size_of::<T>();
    // SAFETY: the caller's promise.
    unsafe {
        let values = (from.cast::<T>().read_unaligned(), from.add(last).cast::<T>().read_unaligned());
        to.cast::<T>().write_unaligned(values.0);
        to.add(last).cast::<T>().write_unaligned(values.1);
    }
}

#[cfg(test)]
#[path = "copy_tests.rs"]
mod tests;
