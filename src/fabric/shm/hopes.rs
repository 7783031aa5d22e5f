//! Whether looks at a peer that seems to be at work are of use.
//!
//! Where ranks share cores a rank that waits looks on for a while before it gives its own core away, as long as the awaited peer has not
//! done so. Looks at one that computes are in vain, and so are those at one that waits in a call of another communicator, where the two have no place
//! in common to tell that ([`presences`](super::presences)). They take as long as a change of ranks (docs/PERFORMANCE.md, "Tried"), so who has looked in vain for some
//! time at peers that are in no call of this communicator looks at such peers now and then only, until that helps again. It is each
//! rank's own affair.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Where ranks share cores, how long a rank looks for what a peer is to do that has not given its core away: about as long as it takes to give
/// this one away and get it back. Half of that misses some of what comes in time; twice as long takes longer than it saves.
const AT_WORK: Duration = Duration::from_nanos(1100);

/// Pauses that are timed to know what one takes.
const PAUSES: u32 = 100;

/// So many looks take [`AT_WORK`].
pub(super) fn looks_at_work() -> u32 {
    looks_where_pause_takes(pause_takes())
}

/// At least two, since one tells nothing of hope.
fn looks_where_pause_takes(picoseconds: u64) -> u32 {
    pauses_where_one_takes(picoseconds, AT_WORK).max(2)
}

/// So many pauses between two looks take that long, [`PAUSES`] at most: processors pause for 10 to 50 ns.
pub(super) fn pauses_in(time: Duration) -> u32 {
    pauses_where_one_takes(pause_takes(), time)
}

/// What a pause takes here, in picoseconds.
fn pause_takes() -> u64 {
    static TOOK: OnceLock<u64> = OnceLock::new();
    *TOOK.get_or_init(|| {
        let pauses = |_| {
            let started = Instant::now();
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            started.elapsed()
        };
        // The least: in some the system may have taken the core.
        let took = (0..3).map(pauses).min().unwrap_or(AT_WORK);
        nanoseconds_of(took) * 1000 / u64::from(PAUSES)
    })
}

/// Of some seconds at most.
fn nanoseconds_of(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn pauses_where_one_takes(picoseconds: u64, time: Duration) -> u32 {
    let pauses = nanoseconds_of(time) * 1000 / picoseconds.max(1);
    pauses.min(u64::from(PAUSES)) as u32
}

/// What looks at peers in no call here have come to in one context. Relaxed throughout: only this rank uses it, one call at a time; these are atomics so that a
/// context may move between threads.
#[derive(Debug, Default)]
pub(super) struct Hopes {
    /// Grows with each time in vain.
    doubts: AtomicU32,
    /// Chances to look on that were left out since hope was lost, or since one was taken.
    missed: AtomicU32,
}

impl Hopes {
    /// From so many doubts on looks are not taken for useful.
    const LOST: u32 = 8;
    /// Doubts grow no further, so that two successes restore hope.
    const MOST: u32 = 12;
    /// What a success takes off.
    const SUCCESS: u32 = 4;
    /// Without hope one chance in so many is taken.
    const TRIED: u32 = 16;

    /// Whether anything hangs on where the peer is.
    pub fn are_dimmed(&self) -> bool {
        self.doubts.load(Ordering::Relaxed) > 0
    }

    /// Whether to take this chance to look on at a peer in no call here.
    pub fn take_chance(&self) -> bool {
        if self.doubts.load(Ordering::Relaxed) < Self::LOST {
            return true;
        }
        let missed = self.missed.load(Ordering::Relaxed) + 1;
        self.missed.store(missed % Self::TRIED, Ordering::Relaxed);
        missed == Self::TRIED
    }

    /// Looks were of use.
    pub fn rise(&self) {
        let doubts = self.doubts.load(Ordering::Relaxed);
        self.doubts.store(doubts.saturating_sub(Self::SUCCESS), Ordering::Relaxed);
    }

    /// Looks were in vain to the last.
    pub fn sink(&self) {
        let doubts = self.doubts.load(Ordering::Relaxed);
        self.doubts.store((doubts + 1).min(Self::MOST), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looked_in_vain_tries_now_and_then_until_it_helps() {
        let hopes = Hopes::default();
        for _ in 0..Hopes::LOST {
            assert!(hopes.take_chance());
            hopes.sink();
        }
        for _ in 0..3 {
            let tried: Vec<bool> = (0..Hopes::TRIED).map(|_| hopes.take_chance()).collect();
            assert_eq!(tried.iter().position(|is_due| *is_due), Some(Hopes::TRIED as usize - 1));
        }
        (0..100).for_each(|_| hopes.sink());
        hopes.rise();
        assert!(!hopes.take_chance());
        hopes.rise();
        assert!((0..Hopes::TRIED).all(|_| hopes.take_chance()));
    }

    #[test]
    fn pauses_are_as_many_as_take_that_long_within_limits() {
        for (nanos, pauses) in [(0, 100), (10, 100), (22, 50), (44, 25), (110, 10), (10_000, 0)] {
            assert_eq!(pauses_where_one_takes(1000 * nanos, AT_WORK), pauses, "of {nanos} ns");
            assert_eq!(looks_where_pause_takes(1000 * nanos), pauses.max(2));
        }
    }

    #[test]
    fn looks_that_help_one_time_in_five_are_of_use() {
        let hopes = Hopes::default();
        for _ in 0..20 {
            hopes.rise();
            (0..4).for_each(|_| hopes.sink());
            assert!(hopes.take_chance());
        }
    }
}
