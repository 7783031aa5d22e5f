//! Where each rank has a core: how long a wait looks on before it gives the core away in between.
//!
//! Others may want that core all the same. Threads of the rank that is waited for, say, or that rank itself where the system has put both on one core:
//! then the wait ends because this rank yields. Or another program, to which a yield gives a time slice of milliseconds, while what is waited for
//! comes: where such a one runs on each core, steps of some 0.3 ms between Allreduces took twice as long as natively (docs/PERFORMANCE.md,
//! "Tried"). Nobody can see which of them it is. So where yields take long both are tried, by all ranks in the same calls: a rank that looks on for one
//! that yields waits for that one's time slice too. Otherwise it is each rank's own affair.

use super::trials::{Arm, Schedule, Took, Trials, TwoWays};
use crate::types::Epoch;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// What a rank does in the waits of one context that last. Relaxed throughout: as [`Trials`].
#[derive(Debug, Default)]
pub(super) struct Yields {
    /// The other way is late.
    trials: Trials<LastingWaits>,
    /// What speaks for yields that take long.
    long: AtomicI32,
}

/// Of the yields of one wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    First,
    Later,
}

impl Yields {
    /// A wait this long may be for one whose core does something else.
    pub const SOON: Duration = Duration::from_micros(50);
    /// Some time slices: a peer that has lost its core comes back meanwhile. To yield while it is away gives the next slice away too.
    const LATE: Duration = Duration::from_millis(10);
    /// Calls that are farther apart have little to gain.
    const FAR_APART: Duration = Duration::from_millis(20);
    /// A yield that took so long gave a good part of a time slice away. Where many threads of the job share cores most take microseconds, and to look on
    /// would take a thousand times as long.
    const LONG: Duration = Duration::from_micros(500);
    /// So much speaks for long yields where they are taken to be so, and no more.
    const LONGS: i32 = 8;
    const MOST: i32 = 16;
    /// What a long one adds, and the first one of a wait takes off if it was short: who has given time slices away gets some of that back, and yields
    /// in vain meanwhile. So waits count in which one was long.
    const MORE: i32 = 3;
    const LESS: i32 = 2;

    /// How long a wait in the call of `epoch` looks on before it yields; to be asked where it has lasted for [`Self::SOON`].
    pub fn after(&self, Epoch(epoch): Epoch, clock: impl FnOnce() -> u64) -> Duration {
        match self.trials.way(epoch, Self::FAR_APART, clock) {
            Arm::Other if self.long.load(Ordering::Relaxed) >= Self::LONGS => Self::LATE,
            _ => Self::SOON,
        }
    }

    /// A yield took that long.
    pub fn note(&self, took: Duration, which: Which) {
        let change = match (took >= Self::LONG, which) {
            (true, _) => Self::MORE,
            (false, Which::First) => -Self::LESS,
            (false, Which::Later) => return,
        };
        let long = self.long.load(Ordering::Relaxed) + change;
        self.long.store(long.clamp(0, Self::MOST), Ordering::Relaxed);
    }
}

/// Calls by their epochs, among which those are noted in which a wait lasts.
#[derive(Debug)]
struct LastingWaits;

impl Schedule for LastingWaits {
    const BLOCK: u64 = 32;
    /// Some ranks are a call ahead of others, and who lost the core is behind.
    const UNTIMED: u64 = 8;
    /// A rank that is as often early as late waits in some of so many calls.
    const WINDOW: u64 = 8;
    const INTERVAL: u64 = 16;
    /// Time slices make intervals long or short by chance: many are needed for a mean.
    const BLOCKS: u64 = 16;
    /// 3 % of calls are tried, half of them late, which may take some times as long.
    const EVERY: u64 = 512;
}

impl TwoWays for LastingWaits {
    const GAIN: f64 = 0.8;

    fn compared(took: Took<u64>) -> u64 {
        took.mean_but_longest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls of a program, of which `lasts` tells in which this rank waits for long, that take so many microseconds where waits yield soon, and where
    /// they yield late. -> how many of the last 1000 yield late
    fn late_of(yields: &Yields, calls: u64, lasts: impl Fn(u64) -> bool, [soon, late]: [u64; 2]) -> usize {
        let mut now = 0;
        let is_late = |epoch| {
            let is_late = if lasts(epoch) {
                yields.after(Epoch(epoch), || now) == Yields::LATE
            } else {
                LastingWaits::has(epoch) && LastingWaits::way(epoch) == Arm::Other
            };
            // Every seventh call is in a time slice of another program's.
            now += 1000 * (if is_late { late } else { soon } + if epoch % 7 == 0 { 500 } else { 0 });
            is_late
        };
        let ways: Vec<bool> = (1..=calls).map(is_late).collect();
        ways[ways.len() - 1000..].iter().filter(|is_late| **is_late).count()
    }

    #[test]
    fn the_faster_way_becomes_the_habit() {
        const CALLS: u64 = 3 * LastingWaits::PERIOD;
        for lasts in [|_| true, |epoch| epoch % 3 != 0, |epoch: u64| epoch.count_ones().is_multiple_of(2)] {
            let yields = Yields::default();
            (0..Yields::LONGS).for_each(|_| yields.note(Yields::LONG, Which::First));
            assert!(
                late_of(&yields, CALLS, lasts, [3000, 1200]) > 300,
                "another program has the core after each yield"
            );
            assert_eq!(yields.after(Epoch(CALLS), || 0), Yields::LATE);
            late_of(&yields, 4 * CALLS, lasts, [200, 2000]);
            assert_eq!(yields.after(Epoch(CALLS), || 0), Yields::SOON, "peers need the core");
            late_of(&yields, CALLS, lasts, [1000, 950]);
            assert_eq!(yields.after(Epoch(CALLS), || 0), Yields::SOON, "where both are as fast it stays");
        }
    }

    #[test]
    fn nobody_looks_on_where_most_yields_are_short() {
        let yields = Yields::default();
        yields.trials.begin(Arm::Other, 2);
        let way = || yields.after(Epoch(1), || 0);
        let wait_of = |took: &[u64]| {
            for (number, took) in took.iter().enumerate() {
                yields.note(Duration::from_micros(*took), if number == 0 { Which::First } else { Which::Later });
            }
        };
        for _ in 0..1000 {
            for took in [&[3000][..], &[30, 5, 5], &[1]] {
                wait_of(took);
            }
            assert_eq!(way(), Yields::SOON);
        }
        (0..Yields::MOST).for_each(|_| wait_of(&[1, 1, 3000]));
        assert_eq!(way(), Yields::LATE, "each wait has lost the core");
        (0..=(Yields::MOST - Yields::LONGS) / Yields::LESS).for_each(|_| wait_of(&[1, 1, 1]));
        assert_eq!(way(), Yields::SOON);
    }
}
