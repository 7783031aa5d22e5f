//! When the ranks of a pair look for each other's flag first, in calls in which both publish and then wait.
//!
//! A look at a line that its writer has yet to write takes it from the writer: it then lies in both caches, and has to be taken back before it
//! can be written, so that the flag comes after two ways between the caches. Both ranks of an exchange publish at about the same
//! time. Loads overtake stores, so both look before either flag is written, and both flags come late. Who looks *late* waits until its
//! own flag is written ([`kernel::stores::settle`](crate::kernel::clock::settle_stores)); by then the peer's is too. On an Intel Xeon
//! that saves a fifth to a third of calls of up to 512 bytes (docs/PERFORMANCE.md, "Tried").
//!
//! No processor tells whether that pays, nor do ranks know how far apart they arrive. So in a few of all calls both ways are tried in turn,
//! and the faster one becomes the habit. It is each rank's own affair: peers find the same flags. Which calls try which way follows from
//! their epochs, so that both ranks try the same.

use crate::types::{Bytes, Epoch, FirstLook};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Instant;

/// When this rank looks first in calls on one context, and what it has seen of both ways. Relaxed throughout: only this rank uses it, one call
/// at a time; these are atomics so that a context may move between threads.
#[derive(Debug, Default)]
pub(super) struct FirstLooks {
    is_late: AtomicBool,
    /// Whether both ways are tried in trials.
    is_tried: AtomicBool,
    /// Trials that late looks have won, less those that they have lost.
    evidence: AtomicI32,
    /// The call with which the block under way of a trial began to count, and when that was, in nanoseconds.
    started: [AtomicU64; 2],
    /// Of the trial under way, early and late: the least picoseconds that the calls of a block took each, with all that lay between; 0 for
    /// none.
    least: [AtomicU64; 2],
}

impl FirstLooks {
    /// Longer pieces take so long to write and to read that nothing is gained.
    pub const LONGEST: Bytes = Bytes(512);
    /// A way is faster that takes so many times as long as the other one, or less.
    const GAIN: f64 = 0.98;
    /// How far evidence goes to either side: one trial does not undo what several have shown.
    const MOST: i32 = 2;
    /// Calls that are farther apart, in picoseconds, have more to do than to wait.
    const FAR_APART: u64 = 10_000_000;

    /// Settles for one way, or for none where ranks are a pair that has a core each. Others look early: on shared cores a look gives way to
    /// the awaited rank, and more ranks have not been measured.
    pub fn set(&self, look: FirstLook, is_pair_with_cores: bool) {
        self.is_tried.store(look == FirstLook::Auto && is_pair_with_cores, Ordering::Relaxed);
        self.is_late.store(look != FirstLook::Early && is_pair_with_cores, Ordering::Relaxed);
    }

    /// Whether late looks are the habit.
    #[inline(always)]
    pub fn are_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// Whether the call of `epoch` looks late.
    #[inline(always)]
    pub fn is_late_in(&self, epoch: Epoch) -> bool {
        if Trial::has(epoch) { self.is_late_in_trial(epoch) } else { self.are_late() }
    }

    #[cold]
    fn is_late_in_trial(&self, Epoch(epoch): Epoch) -> bool {
        if self.is_tried.load(Ordering::Relaxed) { Trial::is_late(epoch) } else { self.are_late() }
    }

    /// The exchange in the call of `epoch` is over.
    #[inline(always)]
    pub fn note(&self, epoch: Epoch) {
        if Trial::has(epoch) {
            self.note_in_trial(epoch, nanoseconds);
        }
    }

    /// The same in a trial. The clock is read twice in a block, and not between a flag and a look: that alone makes an early look a late one.
    #[cold]
    fn note_in_trial(&self, Epoch(epoch): Epoch, clock: impl FnOnce() -> u64) {
        let [first, started] = self.started.each_ref().map(|started| started.load(Ordering::Relaxed));
        let is_counted = Trial::block(first) == Trial::block(epoch);
        if !self.is_tried.load(Ordering::Relaxed) || is_counted != Trial::ends_block(epoch) {
            return;
        }
        if !is_counted {
            if Trial::begins_to_count(epoch) {
                self.started[0].store(epoch, Ordering::Relaxed);
                self.started[1].store(clock(), Ordering::Relaxed);
            }
            return;
        }
        self.started[0].store(0, Ordering::Relaxed);
        let least = &self.least[usize::from(Trial::is_late(epoch))];
        let took = 1000 * clock().saturating_sub(started) / (epoch - first);
        let before = least.load(Ordering::Relaxed);
        if took < Self::FAR_APART && (before == 0 || took < before) {
            least.store(took, Ordering::Relaxed);
        }
        if Trial::ends(epoch) {
            self.judge();
        }
    }

    /// Takes the trial under way for ended.
    fn judge(&self) {
        let [early, late] = self.least.each_ref().map(|least| least.swap(0, Ordering::Relaxed) as f64);
        if early == 0.0 || late == 0.0 {
            return;
        }
        let verdict = i32::from(late < Self::GAIN * early) - i32::from(early < Self::GAIN * late);
        let evidence = (self.evidence.load(Ordering::Relaxed) + verdict).clamp(-Self::MOST, Self::MOST);
        self.evidence.store(evidence, Ordering::Relaxed);
        self.is_late.store(evidence >= 0, Ordering::Relaxed);
    }
}

/// On a clock of this process.
fn nanoseconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Which calls are tried, and which way. Numbers are powers of two, so that a call finds with one comparison that it is none of these.
struct Trial;

impl Trial {
    /// Calls of one.
    const CALLS: u64 = 8 * Self::BLOCK;
    /// From one to the next: 1.6 % of all calls are tried.
    const EVERY: u64 = 64 * Self::CALLS;
    /// Where the first one begins.
    const FIRST: u64 = Self::CALLS;
    /// Calls that go one way before others go another. What a call leaves in the caches counts for those that come round to its lines: so the
    /// first half is not counted, which is as long as the ring of these.
    const BLOCK: u64 = 64;
    /// Where so few calls of a block are left the first exchange ends what is counted.
    const END: u64 = 8;

    #[inline(always)]
    const fn has(Epoch(epoch): Epoch) -> bool {
        epoch & (Self::EVERY - Self::CALLS) == Self::FIRST
    }

    const fn block(epoch: u64) -> u64 {
        epoch / Self::BLOCK
    }

    const fn begins_to_count(epoch: u64) -> bool {
        epoch % Self::BLOCK >= Self::BLOCK / 2 && epoch % Self::BLOCK < Self::BLOCK / 2 + Self::END
    }

    const fn ends_block(epoch: u64) -> bool {
        epoch % Self::BLOCK >= Self::BLOCK - Self::END
    }

    const fn ends(epoch: u64) -> bool {
        Self::block(epoch) % 8 == 7
    }

    /// Blocks take turns by the sequence of Thue and Morse, which keeps step with no rhythm of a program.
    const fn is_late(epoch: u64) -> bool {
        Self::block(epoch).count_ones() % 2 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    /// The ranks of a pair in so many calls, every so many of which is an exchange; `takes` tells the nanoseconds of a call that looks late, or
    /// early. -> how many looked late
    fn exchange(looks: &FirstLooks, epochs: Range<u64>, every: usize, takes: impl Fn(u64, bool) -> u64) -> usize {
        let mut now = 0;
        let is_late = |epoch: u64| {
            let is_late = looks.is_late_in(Epoch(epoch));
            now += takes(epoch, is_late);
            if Trial::has(Epoch(epoch)) {
                looks.note_in_trial(Epoch(epoch), || now);
            }
            is_late
        };
        epochs.step_by(every).map(is_late).filter(|is_late| *is_late).count()
    }

    /// As [`exchange`], in each call of a trial with that number.
    fn try_out(looks: &FirstLooks, number: u64, [early, late]: [u64; 2]) {
        let first = number * Trial::EVERY + Trial::FIRST;
        exchange(looks, first..first + Trial::CALLS, 1, |_, is_late| if is_late { late } else { early });
    }

    fn of_pair() -> FirstLooks {
        let looks = FirstLooks::default();
        looks.set(FirstLook::Auto, true);
        looks
    }

    #[test]
    fn the_faster_way_becomes_the_habit() {
        let looks = of_pair();
        assert!(looks.are_late());
        try_out(&looks, 0, [100, 101]);
        assert!(looks.are_late(), "too little");
        try_out(&looks, 1, [100, 110]);
        assert!(!looks.are_late());
        try_out(&looks, 2, [101, 100]);
        assert!(!looks.are_late(), "too little");
        try_out(&looks, 3, [150, 100]);
        assert!(looks.are_late());
        (4..9).for_each(|number| try_out(&looks, number, [150, 100]));
        try_out(&looks, 9, [100, 500]);
        assert!(looks.are_late(), "one trial against many");
    }

    #[test]
    fn few_calls_are_tried_and_half_of_them_each_way() {
        let looks = of_pair();
        let all = 3 * Trial::EVERY;
        let tried = (0..all).filter(|epoch| Trial::has(Epoch(*epoch))).count() as u64;
        assert_eq!(tried, 3 * Trial::CALLS);
        let late = exchange(&looks, 0..all, 1, |_, is_late| if is_late { 150 } else { 100 }) as u64;
        assert_eq!(late, Trial::FIRST + 3 * Trial::CALLS / 2, "until the first verdict, then half of the trials");
    }

    /// Programs that call in a rhythm of their own, long and short in turn, do not make a way look slow.
    #[test]
    fn rhythms_of_programs_do_not_count() {
        for (period, loser) in
            [2, 8, 16, 48, 64, 128, 256].into_iter().flat_map(|period| [(period, true), (period, false)])
        {
            let looks = of_pair();
            let takes =
                |epoch, is_late| if epoch % period < period / 2 { 400 } else { 100 } + 30 * u64::from(is_late == loser);
            exchange(&looks, Trial::FIRST..Trial::FIRST + Trial::CALLS, 1, takes);
            assert_eq!(looks.are_late(), !loser, "a period of {period} calls");
        }
    }

    #[test]
    fn calls_that_are_far_apart_say_nothing() {
        let looks = of_pair();
        try_out(&looks, 0, [20_000, 50_000]);
        assert!(looks.are_late());
    }

    #[test]
    fn one_call_in_three_suffices() {
        let looks = of_pair();
        exchange(&looks, Trial::FIRST..Trial::FIRST + Trial::CALLS, 3, |_, is_late| if is_late { 300 } else { 100 });
        assert!(!looks.are_late());
    }

    /// The system takes the core for something else in half of all blocks.
    #[test]
    fn interruptions_do_not_count() {
        let looks = of_pair();
        let takes = |epoch, is_late| if epoch % 128 == 40 { 5000 } else { 100 } + if is_late { 20 } else { 0 };
        exchange(&looks, Trial::FIRST..Trial::FIRST + Trial::CALLS, 1, takes);
        assert!(!looks.are_late());
    }

    #[test]
    fn nothing_is_tried_where_the_way_is_set_or_there_is_none() {
        use FirstLook::{Auto, Early, Late};
        let is_late_always = |looks: &FirstLooks| {
            let calls = 3 * Trial::CALLS;
            let late = exchange(looks, 0..calls, 1, |_, is_late| if is_late { 300 } else { 100 }) as u64;
            assert!(late == 0 || late == calls, "{looks:?}");
            late == calls
        };
        assert!(!is_late_always(&FirstLooks::default()));
        for (look, is_pair, is_late) in
            [(Early, true, false), (Late, true, true), (Auto, false, false), (Late, false, false)]
        {
            let looks = FirstLooks::default();
            looks.set(look, is_pair);
            assert_eq!(is_late_always(&looks), is_late, "{look:?}, {is_pair}");
        }
    }
}
