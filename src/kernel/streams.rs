//! Several streams of memory at a time.
//!
//! Processors fetch ahead of a stream of loads, and of each stream only so many lines: of several more are on their way, which matters
//! where these come from another core. Streams whose places are alike in the last twelve bits hinder each other, since the processor takes a load for
//! one of what has just been stored there, and the ways of the first-level cache that such lines share are few. So no two of them are
//! (docs/PERFORMANCE.md, "Tried").

use crate::types::LINE;

/// How many streams long copies and reductions have.
pub const STREAMS: usize = 6;

/// So much of each stream in turn: processors fetch lines in pairs.
pub const STEP: usize = 2 * LINE;

/// The length of each of so many streams that begin one behind the other in `n` bytes: whole steps, at least their part of `n` but for half a
/// kilobyte; 0 where `n` is too short. An odd multiple of 256 bytes: up to sixteen streams begin at places that differ in the last twelve bits then.
#[inline(always)]
pub const fn length_of(streams: usize, n: usize) -> usize {
    const APART: usize = 256;
    let lengths = n / (streams * APART);
    match lengths {
        0 => 0,
        _ => (lengths - 1 + lengths % 2) * APART,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::PAGE;
    use std::collections::HashSet;

    #[test]
    fn streams_are_whole_steps_that_leave_little() {
        for n in (0..70_000).step_by(61) {
            let length = length_of(STREAMS, n);
            assert!(length.is_multiple_of(STEP) && STREAMS * length <= n, "{n}");
            assert!(n - STREAMS * length < STREAMS * 512, "{n}");
        }
    }

    #[test]
    fn no_two_streams_are_alike_in_the_last_bits() {
        for n in [4 << 10, 10_000, 16 << 10, 24 << 10, 32 << 10, 64 << 10, 128 << 10, 1 << 20] {
            let places: HashSet<_> = (0..STREAMS).map(|stream| stream * length_of(STREAMS, n) % PAGE / STEP).collect();
            assert_eq!(places.len(), STREAMS, "{n}");
        }
    }
}
