//! Several streams of memory at a time.
//!
//! Processors fetch ahead of a stream of loads, but only so many lines of each stream. With several streams more lines
//! are in flight, which matters where they come from another core. Streams hinder each other where their addresses
//! agree in the last twelve bits: the processor takes a load for one of what has just been stored at such an address,
//! and the first-level cache has few ways for such lines. So no two streams of a buffer agree in these bits
//! (docs/PERFORMANCE.md, "Tried"). Streams of two buffers that begin at other places in a page may still agree.

use crate::types::LINE;

/// How many streams long copies and reductions have.
pub const STREAMS: usize = 6;

/// Bytes that are processed of each stream in turn: processors fetch lines in pairs.
pub const STEP: usize = 2 * LINE;

/// Streams are an odd multiple of this many bytes apart. So up to sixteen begin at places that differ in the last
/// twelve bits.
pub const APART: usize = 256;

/// Calls `at_place` with the start of each step: `EACH` bytes of each of `COUNT` streams in turn. All steps lie between
/// `at` and `end`, and none overlap. Returns where the streams end.
#[inline(always)]
pub fn in_turn<const COUNT: usize, const EACH: usize>(at: usize, end: usize, mut at_place: impl FnMut(usize)) -> usize {
    const { assert!(APART.is_multiple_of(EACH), "streams are whole steps") };
    let length = length_of(COUNT, end - at);
    for first in (at..at + length).step_by(EACH) {
        for stream in 0..COUNT {
            at_place(first + stream * length);
        }
        keep_loop();
    }
    at + COUNT * length
}

/// The length of each of `streams` streams that begin one behind the other in `n` bytes: an odd multiple of [`APART`],
/// at most twice `APART` below their share of `n`; 0 where `n` is too short.
#[inline(always)]
pub const fn length_of(streams: usize, n: usize) -> usize {
    let units = n / (streams * APART);
    if units == 0 { 0 } else { ((units - 1) | 1) * APART }
}

/// Bytes from `to` to the next start of a cache line; 0 if `to` is one.
#[inline(always)]
pub fn to_next_line(to: *mut u8) -> usize {
    to.addr().wrapping_neg() % LINE
}

/// Keeps the compiler from vectorising the loop around it: its body is vector code already.
#[inline(always)]
pub fn keep_loop() {
    // SAFETY: no instruction.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
    unsafe {
        std::arch::asm!("", options(nomem, nostack, preserves_flags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::PAGE;
    use std::collections::HashSet;

    #[test]
    fn streams_are_whole_steps_that_leave_little() {
        for n in (0..200_000).step_by(61) {
            let length = length_of(STREAMS, n);
            assert!(length.is_multiple_of(STEP) && STREAMS * length <= n, "{n}");
            assert!(n - STREAMS * length < STREAMS * 2 * APART, "{n}");
        }
    }

    #[test]
    fn no_two_streams_are_alike_in_the_last_bits() {
        for streams in [2, STREAMS, 16] {
            for n in (streams * APART..200_000).step_by(61) {
                let length = length_of(streams, n);
                let places: HashSet<_> = (0..streams).map(|stream| stream * length % PAGE / APART).collect();
                assert_eq!(places.len(), streams, "{n}");
            }
        }
    }

    #[test]
    fn each_place_has_its_turn_once() {
        let at = 64;
        for end in [at, at + 100, at + STREAMS * APART, 70_000] {
            let mut places = Vec::new();
            let rest = in_turn::<STREAMS, STEP>(at, end, |place| places.push(place));
            let length = length_of(STREAMS, end - at);
            assert!(rest <= end && (rest == at) == (length == 0), "{end}");
            assert!(places.iter().take(STREAMS).is_sorted_by(|left, right| **right - **left == length), "{end}");
            places.sort_unstable();
            assert_eq!(places, (at..rest).step_by(STEP).collect::<Vec<_>>());
        }
    }

    #[test]
    fn lines_begin_at_their_multiples() {
        for address in 0..300_usize {
            let rest = to_next_line(std::ptr::without_provenance_mut(address));
            assert!(rest < LINE && (address + rest).is_multiple_of(LINE), "{address}");
        }
    }
}
