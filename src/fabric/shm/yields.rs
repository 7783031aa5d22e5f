//! Where each rank has a core: how long a wait polls before it yields the core in between.
//!
//! Others may want that core all the same. These may be threads of the awaited rank, or that rank itself, if the
//! system has put both ranks on one core: then the wait ends because this rank yields. Or it may be another program,
//! to which a yield gives a time slice of milliseconds, while the awaited flag comes. Where such a program runs on
//! each core, steps of some 0.3 ms between Allreduces took twice as long as natively (docs/PERFORMANCE.md, "Tried").
//! No rank can see which of these it is. So where yields take long, both ways are tried. All ranks try the same way in
//! the same calls, since a rank that polls for one that yields waits for that one's time slice too. Otherwise each
//! rank decides for itself.

use super::trials::{Arm, Schedule, Took, Trials, TwoWays};
use crate::sync::Private;
use crate::types::Epoch;
use std::time::Duration;

/// What a rank does in the waits of one context that last long.
#[derive(Debug, Default)]
pub(super) struct Yields {
    /// The challenger is to yield late.
    trials: Trials<LastingWaits>,
    /// The evidence that yields take long.
    long: Private<i32>,
    /// Waits that polled in vain since the beginning of this period.
    vain: Private<i32>,
    /// The period, from one trial to the next, for which `vain` counts.
    period: Private<u64>,
}

/// Which yield of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    First,
    Later,
}

impl Yields {
    /// A wait this long may be for a rank whose core does something else.
    pub const SOON: Duration = Duration::from_micros(50);
    /// Some time slices: a peer that has lost its core gets it back within this time. If this rank yields while the
    /// peer is away, it gives away the next slice too.
    const LATE: Duration = Duration::from_millis(10);
    /// Longer intervals are ignored: such calls have little to gain. The limit is this high because waits that poll in
    /// vain make calls some times [`Self::LATE`] long, and have to count.
    const FAR_APART: Duration = Duration::from_secs(1);
    /// How many waits of a period, a trial and the calls up to the next one, may poll in vain: 80 ms. Otherwise, where
    /// helper threads of a peer need this core, a trial could take as long as thousands of a program's calls.
    const VAIN: i32 = 8;
    /// A yield that took this long gave away a good part of a time slice. Where many threads of the job share cores,
    /// most yields take microseconds, and polling instead would take a thousand times as long.
    const LONG: Duration = Duration::from_micros(500);
    /// From this much evidence on, yields are taken to be long; the evidence grows up to `MOST`.
    const LONGS: i32 = 8;
    const MOST: i32 = 16;
    /// What a long yield adds to the evidence, and what the first yield of a wait takes off if it was short: a rank
    /// that has given time slices away gets some of that back, and yields in vain meanwhile.
    const MORE: i32 = 3;
    const LESS: i32 = 2;

    /// How long a wait in the call of `epoch` polls before it yields. To be called once the wait has lasted for
    /// [`Self::SOON`].
    pub fn after(&self, Epoch(epoch): Epoch, clock: impl FnOnce() -> u64) -> Duration {
        let period = LastingWaits::trial(epoch);
        if self.period.get() != period {
            self.period.set(period);
            self.vain.set(0);
        }
        let may_look_on = || self.long.get() >= Self::LONGS && self.vain.get() < Self::VAIN;
        match self.trials.way(epoch, Self::FAR_APART, clock) {
            Arm::Challenger if may_look_on() => Self::LATE,
            _ => Self::SOON,
        }
    }

    /// Notes that a wait yielded after `waited`, and that the yield took `took`.
    pub fn note(&self, waited: Duration, took: Duration, which: Which) {
        if which == Which::First && waited >= Self::LATE {
            self.vain.set(self.vain.get().saturating_add(1));
        }
        let change = match (took >= Self::LONG, which) {
            (true, _) => Self::MORE,
            (false, Which::First) => -Self::LESS,
            (false, Which::Later) => return,
        };
        let long = self.long.get() + change;
        self.long.set(long.clamp(0, Self::MOST));
    }
}

/// Calls numbered by epoch; those in which a wait lasts long are noted.
#[derive(Debug)]
struct LastingWaits;

impl Schedule for LastingWaits {
    const BLOCK: u64 = 64;
    /// Some ranks are a call ahead of others, and a rank that lost its core is behind.
    const UNTIMED: u64 = 16;
    /// A rank that comes early as often as late has a long wait in some of this many calls; in fewer where polling
    /// helps.
    const WINDOW: u64 = 16;
    /// Time slices make calls long or short by chance, so the mean is of many calls.
    const INTERVAL: u64 = 32;
    const BLOCKS: u64 = 8;
    /// 3 % of calls are tried, half of them late.
    const EVERY: u64 = 256;
}

impl TwoWays for LastingWaits {
    const GAIN: f64 = 0.8;
    /// One trial undoes what others have shown, since other programs come and go.
    const EVIDENCE: [i32; 2] = [0, 1];

    fn compared(took: Took<u64>) -> u64 {
        took.mean_but_longest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: fn(u64) -> bool = |_| true;

    /// Calls of a program; this rank waits for long in those for which `lasts` is true. A call takes `soon`
    /// microseconds where waits yield soon, and `late` where they keep polling. Returns in how many this rank kept
    /// polling.
    fn late_of(
        yields: &Yields,
        epochs: std::ops::Range<u64>,
        lasts: impl Fn(u64) -> bool,
        [soon, late]: [u64; 2],
    ) -> usize {
        let mut now = 0;
        let is_late = |epoch: &u64| {
            let after = lasts(*epoch).then(|| yields.after(Epoch(*epoch), || now));
            let is_late = after == Some(Yields::LATE);
            let took = Duration::from_micros(if is_late { late } else { soon });
            if is_late && took >= Yields::LATE {
                yields.note(took, Yields::LONG, Which::First);
            }
            // Every seventh call loses a time slice to another program.
            now += took.as_nanos() as u64 + if epoch.is_multiple_of(7) { 500_000 } else { 0 };
            is_late
        };
        epochs.filter(is_late).count()
    }

    /// Yields of a rank that has found yields to take long.
    fn with_long_yields() -> Yields {
        let yields = Yields::default();
        (0..Yields::LONGS).for_each(|_| yields.note(Yields::SOON, Yields::LONG, Which::First));
        yields
    }

    #[test]
    fn the_faster_way_becomes_the_habit() {
        const CALLS: u64 = 3 * LastingWaits::PERIOD;
        for lasts in [ALL, |epoch| epoch % 3 != 0, |epoch: u64| epoch.count_ones().is_multiple_of(2)] {
            let yields = with_long_yields();
            let late = late_of(&yields, 1..CALLS, lasts, [3000, 1200]);
            assert!(late as u64 > CALLS / 3, "another program has the core after each yield");
            late_of(&yields, CALLS..2 * CALLS, lasts, [600, 2000]);
            assert_eq!(yields.after(Epoch(2 * CALLS), || 0), Yields::SOON, "peers need the core");
            late_of(&yields, 2 * CALLS..3 * CALLS, lasts, [1000, 950]);
            assert_eq!(yields.after(Epoch(3 * CALLS), || 0), Yields::SOON, "where both are as fast it stays");
        }
    }

    #[test]
    fn few_waits_look_on_in_vain() {
        const CALLS: u64 = 3 * LastingWaits::PERIOD;
        let late = |yields: &Yields, epochs| late_of(yields, epochs, ALL, [600, 25_000]);
        assert!(late(&with_long_yields(), 1..CALLS) <= 3 * Yields::VAIN as usize);
        let yields = with_long_yields();
        late_of(&yields, 1..CALLS, ALL, [3000, 1200]);
        assert!(late(&yields, CALLS..2 * CALLS) <= 3 * Yields::VAIN as usize, "also where it was the habit");
    }

    #[test]
    fn nobody_looks_on_where_most_yields_are_short() {
        let yields = Yields::default();
        yields.trials.begin(Arm::Challenger, 1);
        let way = || yields.after(Epoch(1), || 0);
        let wait_of = |took: &[u64]| {
            for (number, took) in took.iter().enumerate() {
                let which = if number == 0 { Which::First } else { Which::Later };
                yields.note(Yields::SOON, Duration::from_micros(*took), which);
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
