//! Finds out which of two or more ways is fastest, where nothing else tells: a few of all calls try them in turn, and
//! the fastest way becomes the habit.
//!
//! Calls are numbered, and a call's number alone decides whether it tries a way, and which. So ranks that number calls
//! alike try alike, and a rank's times include the effect of its peers' ways. Time is usually taken from call to call,
//! with all that lies between, for two reasons. What a rank saves by leaving one call early shows only in its next
//! call. A way may also slow down the program's own data accesses.

use crate::sync::Private;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static ARE_HELD: AtomicBool = AtomicBool::new(true);

/// From now on this process tries nothing: each question keeps its first answer. All ranks of a job do this or none,
/// before their first call, since peers try alike.
pub fn forgo_trials() {
    ARE_HELD.store(false, Ordering::Relaxed);
}

/// Whether calls of this process try ways, unless their schedule says otherwise.
pub fn are_trials_held() -> bool {
    ARE_HELD.load(Ordering::Relaxed)
}

/// An arm of a trial: one of the two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    /// The way that is the habit as long as neither trials nor prior knowledge speak for the other one.
    Baseline,
    /// The other way.
    Challenger,
}

impl Arm {
    /// The way that the evidence favours.
    #[inline(always)]
    pub fn by(evidence: i32) -> Self {
        if evidence > 0 { Self::Challenger } else { Self::Baseline }
    }

    /// The evidence as if `trials` trials had shown this way to be faster.
    pub fn evidence(self, trials: i32) -> i32 {
        if self == Self::Challenger { trials } else { 1 - trials }
    }
}

/// Which calls are tried. Counts of calls and blocks are powers of two, so that a call finds out with a few
/// instructions that it is in no trial.
///
/// ```text
/// a block of 64   32 untimed | a window of 8 | 16 | a window of 8
/// a block of 8     1 untimed | one of 1 | 1 | one of 1 | 1 | one of 1 | 1 | one of 1
/// a block of 16    3 untimed | one of 1 | 3 | one of 1 | 3 | one of 1 | 3 | one of 1
/// ```
///
/// An interval runs from the first call noted in a window to the first one noted in the next window, since not every
/// call of a block is noted if the program makes other calls in between. All intervals have the same length.
pub(super) trait Schedule {
    /// Length of a block: successive calls that go the same way.
    const BLOCK: u64;
    /// The first calls of a block, not timed: their time depends on what the calls before them left in the caches.
    const UNTIMED: u64;
    /// Length of a window: calls of which the first one noted ends an interval and begins the next.
    const WINDOW: u64;
    /// Calls from the beginning of one window to that of the next.
    const INTERVAL: u64;
    /// Blocks of a trial; all ways have equally many.
    const BLOCKS: u64;
    /// Blocks from the beginning of one trial to that of the next.
    const EVERY: u64;
    /// Calls of a trial. It is also the number of the call with which the first trial begins.
    const CALLS: u64 = Self::BLOCKS * Self::BLOCK;
    /// Calls from the beginning of one trial to that of the next.
    const PERIOD: u64 = {
        let period = Self::EVERY * Self::BLOCK;
        assert!(Self::BLOCK.is_power_of_two() && Self::BLOCKS.is_power_of_two() && period.is_power_of_two());
        assert!(Self::BLOCKS > 1 && 2 * Self::BLOCKS <= Self::EVERY);
        assert!(
            Self::LAST_WINDOW > 0 && Self::UNTIMED + Self::LAST_WINDOW * Self::INTERVAL + Self::WINDOW == Self::BLOCK
        );
        period
    };
    const LAST_WINDOW: u64 = (Self::BLOCK - Self::UNTIMED - Self::WINDOW) / Self::INTERVAL;

    /// Whether call `number` is in a trial.
    #[inline(always)]
    fn has(number: u64) -> bool {
        number & (Self::PERIOD - Self::CALLS) == Self::CALLS && are_trials_held()
    }

    fn is_last_block(number: u64) -> bool {
        number / Self::BLOCK % Self::BLOCKS == Self::BLOCKS - 1
    }

    /// The trial that a call belongs to.
    fn trial(number: u64) -> u64 {
        number / Self::PERIOD
    }

    /// The window of its block that a call is in, if it is in one.
    fn window(number: u64) -> Option<u64> {
        let at = (number % Self::BLOCK).checked_sub(Self::UNTIMED)?;
        (at % Self::INTERVAL < Self::WINDOW).then_some(at / Self::INTERVAL)
    }
}

/// The schedule of trials of two ways.
pub(super) trait TwoWays: Schedule {
    /// A way counts as faster if it takes less than this fraction of the other one's time. Trials of two identical
    /// ways differ by as much.
    const GAIN: f64;
    /// Bounds of the evidence. A single trial does not undo what several have shown for the challenger.
    const EVIDENCE: [i32; 2] = [-1, 3];

    /// The value by which the ways are compared, from the intervals of one way.
    fn compared(took: Took<u64>) -> u64 {
        took.least
    }

    /// Which way a call of a trial goes. The blocks follow the sequence of Thue and Morse, which keeps step with few
    /// rhythms of programs.
    fn way(number: u64) -> Arm {
        if (number / Self::BLOCK).count_ones() % 2 == 1 { Arm::Challenger } else { Arm::Baseline }
    }
}

/// Statistics of the intervals of one way: picoseconds per call by the clock of the trial; all 0 if there were none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Took<T> {
    /// The shortest interval: hardly ever one in which the system took the core, or the program did something else.
    pub least: T,
    pub most: T,
    /// The sum of all intervals, and their number.
    sum: T,
    times: T,
}

impl Took<u64> {
    /// Adds one interval.
    fn and(self, each: u64) -> Self {
        let Self { least, most, sum, times } = self;
        let least = if times == 0 { each } else { each.min(least) };
        Self { least, most: each.max(most), sum: sum.saturating_add(each), times: times + 1 }
    }

    /// The mean of all intervals but the longest one; if there is only one, that one.
    pub fn mean_but_longest(self) -> u64 {
        let Self { most, sum, times, .. } = self;
        if times > 1 { (sum - most) / (times - 1) } else { sum }
    }
}

impl Took<Private<u64>> {
    fn now(&self) -> Took<u64> {
        let [least, most, sum, times] = [&self.least, &self.most, &self.sum, &self.times].map(|part| part.get());
        Took { least, most, sum, times }
    }

    fn set(&self, to: Took<u64>) {
        self.least.set(to.least);
        self.most.set(to.most);
        self.sum.set(to.sum);
        self.times.set(to.times);
    }
}

/// What one rank has measured of the ways of a trial.
#[derive(Debug)]
pub(super) struct Timings<S, const WAYS: usize> {
    /// The call that began the interval under way; 0, which is in no trial, if there is none.
    timed_from: Private<u64>,
    /// When that interval began, in nanoseconds.
    timed_since: Private<u64>,
    /// The trial under way.
    trial: Private<u64>,
    took: [Took<Private<u64>>; WAYS],
    schedule: PhantomData<S>,
}

impl<S, const WAYS: usize> Default for Timings<S, WAYS> {
    fn default() -> Self {
        let [timed_from, timed_since, trial] = [(); 3].map(|()| Private::new(0));
        let took = std::array::from_fn(|_| Took::default());
        Self { timed_from, timed_since, trial, took, schedule: PhantomData }
    }
}

impl<S: Schedule, const WAYS: usize> Timings<S, WAYS> {
    /// Notes call `number` of a trial, which goes `way`. An interval of `far_apart` or longer per call is ignored: it
    /// tells nothing. The clock is read at most once in a window. Returns the statistics of each way when a trial
    /// ends.
    pub fn note(
        &self,
        number: u64,
        way: usize,
        far_apart: Duration,
        clock: impl FnOnce() -> u64,
    ) -> Option<[Took<u64>; WAYS]> {
        let window = S::window(number)?;
        let from = self.timed_from.get();
        let before = if from / S::BLOCK == number / S::BLOCK { S::window(from) } else { None };
        if before == Some(window) || before.is_none() && window == S::LAST_WINDOW {
            return None;
        }
        let now = clock();
        if before.is_some() {
            let took = now.saturating_sub(self.timed_since.get());
            self.note_interval(way, took.saturating_mul(1000) / (number - from), far_apart);
        }
        if window < S::LAST_WINDOW {
            self.begin_to_time(number, now);
            return None;
        }
        self.timed_from.set(0);
        S::is_last_block(number).then(|| {
            let took = self.took.each_ref().map(Took::now);
            self.forget();
            took
        })
    }

    /// The statistics of `way` in the trial under way.
    pub fn so_far(&self, way: usize) -> Took<u64> {
        self.took[way].now()
    }

    fn forget(&self) {
        self.took.iter().for_each(|took| took.set(Took::default()));
    }

    fn begin_to_time(&self, number: u64, now: u64) {
        let trial = S::trial(number);
        if self.trial.get() != trial {
            // The trial before may not have come to its end.
            self.trial.set(trial);
            self.forget();
        }
        self.timed_from.set(number);
        self.timed_since.set(now);
    }

    /// Adds an interval that went `way` and took `each` picoseconds per call.
    fn note_interval(&self, way: usize, each: u64, far_apart: Duration) {
        if u128::from(each) < 1000 * far_apart.as_nanos() {
            self.took[way].set(self.so_far(way).and(each));
        }
    }
}

/// One rank's habit in calls on one context, and what it has measured of both ways.
#[derive(Debug)]
pub(super) struct Trials<S> {
    /// Trials, and prior knowledge, that speak for the challenger, less those that speak against it. Above 0 the
    /// challenger is the habit.
    evidence: Private<i32>,
    timings: Timings<S, 2>,
}

impl<S> Default for Trials<S> {
    fn default() -> Self {
        Self { evidence: Private::new(0), timings: Timings::default() }
    }
}

impl<S: TwoWays> Trials<S> {
    /// From here on calls go `way`, as if `trials` trials had shown it to be faster, until trials show the other one
    /// to be faster.
    pub fn begin(&self, way: Arm, trials: i32) {
        self.evidence.set(way.evidence(trials));
    }

    /// The way of calls outside trials.
    #[inline(always)]
    pub fn habit(&self) -> Arm {
        Arm::by(self.evidence())
    }

    /// The way of call `number`, as [`Self::way`]. Outside trials `otherwise` decides as long as the evidence is even.
    pub fn way_or(
        &self,
        number: u64,
        far_apart: Duration,
        clock: impl FnOnce() -> u64,
        otherwise: impl FnOnce() -> Arm,
    ) -> Arm {
        let is_open = !S::has(number) && self.evidence() == 0;
        if is_open { otherwise() } else { self.way(number, far_apart, clock) }
    }

    /// What speaks for the challenger, less what speaks against it.
    #[inline(always)]
    pub fn evidence(&self) -> i32 {
        self.evidence.get()
    }

    /// The way of call `number`. If the call is in a trial, it is noted as in [`Timings::note`].
    #[inline(always)]
    pub fn way(&self, number: u64, far_apart: Duration, clock: impl FnOnce() -> u64) -> Arm {
        if S::has(number) { self.try_out(number, far_apart, clock) } else { self.habit() }
    }

    /// The way of call `number` of a trial, which is noted as in [`Timings::note`].
    #[cold]
    pub fn try_out(&self, number: u64, far_apart: Duration, clock: impl FnOnce() -> u64) -> Arm {
        self.note(number, far_apart, clock);
        S::way(number)
    }

    /// Notes call `number` of a trial as in [`Timings::note`], and ends the trial after its last interval.
    pub fn note(&self, number: u64, far_apart: Duration, clock: impl FnOnce() -> u64) {
        let took = self.timings.note(number, S::way(number) as usize, far_apart, clock);
        if let Some(took) = took {
            self.end(Self::verdict(took));
        }
    }

    /// What the trial under way would show if it ended now: 1 for the challenger, -1 against it, else 0.
    pub fn verdict_so_far(&self) -> i32 {
        Self::verdict([Arm::Baseline, Arm::Challenger].map(|way| self.timings.so_far(way as usize)))
    }

    /// Ends the trial under way: adds `verdict` to the evidence.
    pub fn end(&self, verdict: i32) {
        let [least, most] = S::EVIDENCE;
        self.evidence.set((self.evidence() + verdict).clamp(least, most));
        self.timings.forget();
    }

    fn verdict(took: [Took<u64>; 2]) -> i32 {
        let compared = took.map(S::compared);
        // One of the ways was never timed.
        if compared.contains(&0) {
            return 0;
        }
        let [baseline, challenger] = compared.map(|each| each as f64);
        i32::from(challenger < S::GAIN * baseline) - i32::from(baseline < S::GAIN * challenger)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ways::{Material, Turn, Way, Ways};
    use super::super::writes::{Course, Writes};
    use super::*;
    use crate::types::{Bytes, Collective, SlotStores};
    use std::process::Command;

    struct Every64;

    impl Schedule for Every64 {
        const BLOCK: u64 = 64;
        const UNTIMED: u64 = 32;
        const WINDOW: u64 = 8;
        const INTERVAL: u64 = 24;
        const BLOCKS: u64 = 2;
        const EVERY: u64 = 64;
    }

    fn calls_in_trials() -> usize {
        (0..4 * Every64::PERIOD).filter(|number| Every64::has(*number)).count()
    }

    #[test]
    fn a_process_that_forgoes_trials_has_none() {
        assert_eq!(calls_in_trials(), 4 * 128);
        let mut child = Command::new(std::env::current_exe().unwrap());
        let name = "fabric::shm::trials::tests::forgo_and_count";
        let output = child.args(["--exact", name, "--ignored", "--nocapture"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    #[test]
    #[ignore = "the child process of another test"]
    fn forgo_and_count() {
        forgo_trials();
        assert!(!are_trials_held());
        assert_eq!(calls_in_trials(), 0);
        // Writes go through the caches, and copies as one stream.
        let (writes, ways) = (Writes::default(), Ways::default());
        writes.set(SlotStores::Auto);
        let choose = || ways.of(Collective::Bcast, Material::Slot, Bytes(64 << 20), 64 << 10, None).turn();
        assert!((0..10_000).all(|_| writes.course(4096) == Course::Through && choose() == Turn::Usual(Way::One)));
    }

    #[test]
    fn the_longest_interval_is_left_out_of_the_mean() {
        for (intervals, least, most, mean) in [
            (&[][..], 0, 0, 0),
            (&[7], 7, 7, 7),
            (&[7, 90], 7, 90, 7),
            (&[90, 7], 7, 90, 7),
            (&[4, 100, 6, 2], 2, 100, 4),
            (&[5, 5, 5], 5, 5, 5),
            (&[u64::MAX, 3, u64::MAX], 3, u64::MAX, 0),
        ] {
            let took = intervals.iter().fold(Took::default(), |took, each| took.and(*each));
            assert_eq!([took.least, took.most, took.mean_but_longest()], [least, most, mean], "{intervals:?}");
        }
    }
}
