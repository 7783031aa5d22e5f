//! Whether a rank copies long pieces out of its peers' slots as one stream, or as two.
//!
//! Processors fetch ahead within a page of memory, and of each stream only so many lines. Where a line takes long from the peer's
//! cache (150 ns between cores of one large die) two pages at a time bring more lines on their way and take an eighth less time; a core
//! alone is as fast either way. Which way is faster depends on the processor and on where the ranks run, so a rank now and then copies
//! one half of a piece each way, and goes by that. It is each rank's own affair.

use super::writes::clock_reading;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// How one rank reads its peers' slots of one context, and what it has seen. Relaxed throughout, as [`Writes`](super::writes::Writes).
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// Two streams.
    is_paired: AtomicBool,
    /// Copies that are not compared until one is.
    uncompared: AtomicU32,
    /// The next comparison begins with two streams: which half comes first must not matter.
    begins_paired: AtomicBool,
    /// Comparisons that spoke for the other way, less those that spoke against it.
    evidence: AtomicU32,
}

/// How a piece is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Streams {
    One,
    Two,
    /// One half each way, with [`Reads::judge`] after it; whether the first half in two streams.
    Compared {
        begins_paired: bool,
    },
}

impl Reads {
    /// Shorter ones have no two halves of two pages each.
    pub const SHORTEST: usize = 16 << 10;
    /// How many copies are between two that are compared: the clock takes as long as a kilobyte, and is read three times.
    const UNCOMPARED: u32 = 31;
    /// So much evidence turns to the other way.
    const ENOUGH: u32 = 4;

    /// How to copy a piece of `n` bytes.
    #[inline(always)]
    pub fn streams(&self, n: usize) -> Streams {
        if n < Self::SHORTEST {
            return Streams::One;
        }
        let uncompared = self.uncompared.load(Ordering::Relaxed);
        if uncompared == 0 {
            return self.compared();
        }
        self.uncompared.store(uncompared - 1, Ordering::Relaxed);
        self.usual()
    }

    fn usual(&self) -> Streams {
        if self.is_paired.load(Ordering::Relaxed) { Streams::Two } else { Streams::One }
    }

    #[cold]
    fn compared(&self) -> Streams {
        const CLOCK: Duration = Duration::from_nanos(100);
        self.uncompared.store(Self::UNCOMPARED, Ordering::Relaxed);
        if clock_reading() > CLOCK {
            return self.usual();
        }
        let begins_paired = self.begins_paired.load(Ordering::Relaxed);
        self.begins_paired.store(!begins_paired, Ordering::Relaxed);
        Streams::Compared { begins_paired }
    }

    /// After a comparison of halves of the same length.
    #[cold]
    pub fn judge(&self, one: Duration, two: Duration) {
        let is_paired = self.is_paired.load(Ordering::Relaxed);
        let speaks_against = if is_paired { one < two } else { two < one };
        let evidence = self.evidence.load(Ordering::Relaxed);
        let evidence = if speaks_against { evidence + 1 } else { evidence.saturating_sub(1) };
        let turns = evidence >= Self::ENOUGH;
        self.evidence.store(if turns { 0 } else { evidence }, Ordering::Relaxed);
        self.is_paired.store(is_paired != turns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many copies, of which one stream and two take so long: how many were compared.
    fn copy(reads: &Reads, times: usize, [one, two]: [u64; 2]) -> usize {
        let is_compared = |_: &usize| {
            let is_compared = matches!(reads.streams(Reads::SHORTEST), Streams::Compared { .. });
            if is_compared {
                reads.judge(Duration::from_nanos(one), Duration::from_nanos(two));
            }
            is_compared
        };
        (0..times).filter(is_compared).count()
    }

    #[test]
    fn the_faster_way_is_taken() {
        let reads = Reads::default();
        if copy(&reads, 320, [100, 100]) == 0 {
            return; // a slow clock
        }
        assert_eq!(reads.usual(), Streams::One, "two are not faster");
        copy(&reads, 32 * 4, [100, 99]);
        assert_eq!(reads.usual(), Streams::Two);
        copy(&reads, 32 * 3, [99, 100]);
        assert_eq!(reads.usual(), Streams::Two, "three times are chance");
        copy(&reads, 32, [99, 100]);
        assert_eq!(reads.usual(), Streams::One);
    }

    #[test]
    fn few_copies_are_compared_and_each_way_comes_first_as_often() {
        let reads = Reads::default();
        assert_eq!(reads.streams(Reads::SHORTEST - 1), Streams::One);
        let first = (0..640).filter(|_| reads.streams(1 << 20) == Streams::Compared { begins_paired: true }).count();
        let second = (0..640).filter(|_| reads.streams(1 << 20) == Streams::Compared { begins_paired: false }).count();
        assert!((first, second) == (10, 10) || (first, second) == (0, 0));
    }
}
