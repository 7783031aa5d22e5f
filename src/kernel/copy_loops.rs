//! The loops behind [`CopyKernel`](super::copy::CopyKernel): each copies more than 64 bytes.
//!
//! The first block is stored where it belongs, the loop goes on from the next cache line of the destination, and the
//! last block ends where the destination ends: no remainder is copied byte by byte. Streaming loops store each line
//! once, whole.

use super::copy::{copy_in_vectors, ends};
use super::streams::{STEP, STREAMS, in_turn, keep_loop, to_next_line};
use crate::types::{LINE, PAGE};

/// Copies by libc's `memcpy`, or by vectors where its `rep movsb` may stall.
///
/// # Safety
/// As for [`copy`](super::copy::copy).
pub unsafe fn libc(to: *mut u8, from: *const u8, n: usize) {
    /// Up to this length no libc uses `rep movsb`.
    const VECTORS: usize = 2 << 10;
    // SAFETY: the caller's promise.
    unsafe {
        if n > VECTORS && stalls_processors_loop(to, from) {
            copy_in_vectors(to, from, n);
        } else {
            to.copy_from_nonoverlapping(from, n);
        }
    }
}

/// Whether `rep movsb` may take up to 27 times as long: 1.4 to 3.5 GB/s in place of 36 to 97. It does where the
/// destination is 1 to 15 bytes (on a Zen 3, 1 to 31) further on than the source, not counting whole pages. The
/// processor takes each store there for one to the address that it loads next.
fn stalls_processors_loop(to: *mut u8, from: *const u8) -> bool {
    /// Other processors may compare whole lines.
    const CLOSE: usize = LINE;
    let ahead = to.addr().wrapping_sub(from.addr()) % PAGE;
    cfg!(target_arch = "x86_64") && ahead != 0 && ahead < CLOSE
}

/// Copies in blocks of `BLOCK` bytes, a multiple of a cache line.
///
/// # Safety
/// As for [`copy`](super::copy::copy), and `n` is more than 64.
#[inline(always)]
unsafe fn blocks<const BLOCK: usize>(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: all blocks lie within `n` bytes; the caller's promise.
    unsafe {
        if n <= 2 * LINE {
            return ends::<[u8; LINE]>(to, from, n);
        }
        if n <= 2 * BLOCK {
            let last = n - LINE;
            let tail = from.add(last).cast::<[u8; LINE]>().read();
            let mut at = 0;
            while at < last {
                to.add(at).cast::<[u8; LINE]>().write(from.add(at).cast::<[u8; LINE]>().read());
                at += LINE;
                keep_loop();
            }
            return to.add(last).cast::<[u8; LINE]>().write(tail);
        }
        let last = n - BLOCK;
        let tail = from.add(last).cast::<[u8; BLOCK]>().read();
        // The first `LINE` bytes are stored here; the loop goes on from the next cache line of the destination.
        to.cast::<[u8; LINE]>().write(from.cast::<[u8; LINE]>().read());
        let mut at = LINE - to.addr() % LINE;
        while at < last {
            to.add(at).cast::<[u8; BLOCK]>().write(from.add(at).cast::<[u8; BLOCK]>().read());
            at += BLOCK;
            keep_loop();
        }
        to.add(last).cast::<[u8; BLOCK]>().write(tail);
    }
}

/// Copies in several streams, and what they leave in blocks of `BLOCK` bytes.
///
/// # Safety
/// As for [`copy`](super::copy::copy), and `n` is more than 64.
#[inline(always)]
unsafe fn several<const BLOCK: usize>(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: all steps, and what is left behind them, lie within `n` bytes; the caller's promise.
    unsafe {
        to.cast::<[u8; LINE]>().write(from.cast::<[u8; LINE]>().read());
        let end = in_turn::<STREAMS, STEP>(to_next_line(to), n, |at| {
            to.add(at).cast::<[u8; STEP]>().write(from.add(at).cast::<[u8; STEP]>().read());
        });
        match n - end {
            0..=LINE => to.add(n - LINE).cast::<[u8; LINE]>().write(from.add(n - LINE).cast::<[u8; LINE]>().read()),
            rest => blocks::<BLOCK>(to.add(end), from.add(end), rest),
        }
    }
}

/// By vectors that every processor has.
///
/// # Safety
/// As for [`copy`](super::copy::copy), and `n` is more than 64.
pub unsafe fn baseline(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { blocks::<64>(to, from, n) }
}

/// By vectors that every processor has, in several streams.
///
/// # Safety
/// As for [`copy`](super::copy::copy), and `n` is more than 64.
pub unsafe fn several_baseline(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { several::<64>(to, from, n) }
}

/// Copies the four quarters of the data at the same time, line by line: processors fetch ahead from memory for each of
/// several streams.
///
/// # Safety
/// As for [`copy`](super::copy::copy), and `n` is more than 64.
pub unsafe fn quarters(to: *mut u8, from: *const u8, n: usize) {
    const STREAMS: usize = 4;
    let quarter = n / (STREAMS * LINE) * LINE;
    // SAFETY: all lines, and what is left behind them, lie within `n` bytes; the caller's promise.
    unsafe {
        for line in (0..quarter).step_by(LINE) {
            for stream in 0..STREAMS {
                let at = stream * quarter + line;
                to.add(at).cast::<[u8; LINE]>().write(from.add(at).cast::<[u8; LINE]>().read());
            }
        }
        let at = STREAMS * quarter;
        to.add(at).copy_from_nonoverlapping(from.add(at), n - at);
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::*;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::copy::small;
    use super::super::streams::{STEP, STREAMS, in_turn, to_next_line};
    use super::{blocks, copy_in_vectors, several, stalls_processors_loop};
    use crate::types::LINE;
    use std::arch::asm;
    use std::arch::x86_64::*;

    /// By vectors of 32 bytes.
    ///
    /// # Safety
    /// As for [`copy`](super::super::copy::copy), `n` is more than 64, and the processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub unsafe fn avx2(to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { blocks::<128>(to, from, n) }
    }

    /// By vectors of 64 bytes.
    ///
    /// # Safety
    /// As for [`copy`](super::super::copy::copy), `n` is more than 64, and the processor has AVX-512.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub unsafe fn avx512(to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { blocks::<256>(to, from, n) }
    }

    /// By vectors of 32 bytes, in several streams.
    ///
    /// # Safety
    /// As for [`avx2`].
    #[target_feature(enable = "avx2")]
    pub unsafe fn several_avx2(to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { several::<128>(to, from, n) }
    }

    /// By vectors of 64 bytes, in several streams.
    ///
    /// # Safety
    /// As for [`avx512`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub unsafe fn several_avx512(to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { several::<128>(to, from, n) }
    }

    /// Copies by the processor's own loop (`rep movsb`), or by vectors where that may stall.
    ///
    /// # Safety
    /// As for [`copy`](super::super::copy::copy).
    pub unsafe fn rep(to: *mut u8, from: *const u8, n: usize) {
        if stalls_processors_loop(to, from) {
            // SAFETY: the caller's promise.
            return unsafe { copy_in_vectors(to, from, n) };
        }
        // SAFETY: the caller's promise; the direction flag is clear, as the calling convention says.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") n => _,
                inout("rdi") to => _,
                inout("rsi") from => _,
                options(nostack, preserves_flags)
            );
        }
    }

    /// How far ahead of its loads a streaming loop prefetches: a few lines more than it copies within a latency of
    /// memory.
    const AHEAD: usize = 1024;

    /// Copies a cache line to an aligned place, by streaming stores of 16 bytes.
    ///
    /// # Safety
    /// `to` is the start of a line; a line is readable at `from` and writable at `to`. The caller fences.
    #[inline(always)]
    unsafe fn line_in_16s(to: *mut u8, from: *const u8) {
        let (to, from) = (to.cast::<__m128i>(), from.cast::<__m128i>());
        // SAFETY: the caller's promise.
        unsafe {
            let line = [from, from.add(1), from.add(2), from.add(3)].map(|from| _mm_loadu_si128(from));
            _mm_stream_si128(to, line[0]);
            _mm_stream_si128(to.add(1), line[1]);
            _mm_stream_si128(to.add(2), line[2]);
            _mm_stream_si128(to.add(3), line[3]);
        }
    }

    /// Copies a cache line to an aligned place, by streaming stores of 32 bytes.
    ///
    /// # Safety
    /// As for [`line_in_16s`]; the processor has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn line_in_32s(to: *mut u8, from: *const u8) {
        let (to, from) = (to.cast::<__m256i>(), from.cast::<__m256i>());
        // SAFETY: the caller's promise.
        unsafe {
            let line = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
            _mm256_stream_si256(to, line.0);
            _mm256_stream_si256(to.add(1), line.1);
        }
    }

    /// Copies a cache line to an aligned place, by one streaming store.
    ///
    /// # Safety
    /// As for [`line_in_16s`]; the processor has AVX-512.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn whole_line(to: *mut u8, from: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_stream_si512(to.cast(), _mm512_loadu_si512(from.cast())) }
    }

    /// Streaming loops: by the function that copies a cache line, the number of streams, and how far ahead each
    /// prefetches.
    macro_rules! stream {
        ($(#[$doc:meta] $name:ident $(, $feature:literal)?: $line:ident, streams $streams:expr, ahead $ahead:expr;)*) => {$(
            #[$doc]
            ///
            /// # Safety
            #[doc = "As for [`copy`](super::super::copy::copy), `n` is more than 64, and the processor has the vectors."]
            $(#[target_feature(enable = $feature)])?
            pub unsafe fn $name(to: *mut u8, from: *const u8, n: usize) {
                // SAFETY: all lines lie within `n` bytes; the caller's promise. The fence orders streaming stores,
                // which the processor may delay, before everything that follows.
                unsafe {
                    // A line that is stored in part has to be fetched, so only a destination that begins within a line
                    // gets this store.
                    let mut at = to_next_line(to);
                    if at > 0 {
                        to.cast::<[u8; LINE]>().write(from.cast::<[u8; LINE]>().read());
                    }
                    if $streams > 1 {
                        at = in_turn::<$streams, STEP>(at, n, |step| {
                            for place in (step..step + STEP).step_by(LINE) {
                                $line(to.add(place), from.add(place));
                            }
                        });
                    }
                    while at + LINE <= n {
                        if $ahead > 0 {
                            _mm_prefetch::<_MM_HINT_NTA>(from.wrapping_add(at + $ahead).cast());
                        }
                        $line(to.add(at), from.add(at));
                        at += LINE;
                    }
                    small(to.add(at), from.add(at), n - at);
                    _mm_sfence();
                }
            }
        )*};
    }

    stream! {
        /// By streaming stores of 16 bytes.
        stream_baseline: line_in_16s, streams 1, ahead 0;
        /// By streaming stores of 32 bytes.
        stream_avx2, "avx2": line_in_32s, streams 1, ahead 0;
        /// By streaming stores of 32 bytes, with prefetches.
        stream_avx2_prefetch, "avx2": line_in_32s, streams 1, ahead AHEAD;
        /// By streaming stores of 64 bytes.
        stream_avx512, "avx512f,avx512bw,avx512dq,avx512vl": whole_line, streams 1, ahead 0;
        /// By streaming stores of 64 bytes, with prefetches.
        stream_avx512_prefetch, "avx512f,avx512bw,avx512dq,avx512vl": whole_line, streams 1, ahead AHEAD;
        /// By streaming stores of 16 bytes, in several streams.
        several_around_baseline: line_in_16s, streams STREAMS, ahead 0;
        /// By streaming stores of 32 bytes, in several streams.
        several_around_avx2, "avx2": line_in_32s, streams STREAMS, ahead 0;
        /// By streaming stores of 64 bytes, in several streams.
        several_around_avx512, "avx512f,avx512bw,avx512dq,avx512vl": whole_line, streams STREAMS, ahead 0;
    }
}
