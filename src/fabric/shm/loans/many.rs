//! What ranks find out together. Where ranks share cores, their turns there show in the time of calls, so that some
//! ranks find what others do not. So each rank goes by what all have found. Their clocks run within calls only,
//! because the time that a program spends between calls varies, and a trial of long calls has few of them.

use super::super::context::Context;
use super::super::trials::{Arm, Schedule, Took, TwoWays};
use super::{Alike, Counted, Lending, source};
use crate::fabric::Source;
use crate::fabric::words::Words;
use crate::sync::{Finding, Private};
use crate::types::NodeRank;
use std::time::Duration;

/// What each rank has found, by subject: evidence for memory, less evidence against it.
pub trait Findings {
    /// How many ranks there are.
    fn ranks(&self) -> usize;
    /// Publishes what this rank has found.
    fn tell(&self, subject: usize, finding: Finding);
    /// The sum of what all ranks have found. Some may not yet have published the result of their last trial.
    fn of_all(&self, subject: usize) -> Finding;
}

impl Findings for Context {
    fn ranks(&self) -> usize {
        self.geometry().ranks
    }

    fn tell(&self, subject: usize, finding: Finding) {
        let control = self.control(self.rank());
        // Every rank has this line in its cache, so this rank writes it only when it changes.
        if control.finding(subject) != finding {
            control.tell_finding(subject, finding);
        }
    }

    fn of_all(&self, subject: usize) -> Finding {
        let of = |rank| self.control(NodeRank(rank)).finding(subject);
        (0..self.geometry().ranks as u32).map(of).fold(Finding::default(), Finding::and)
    }
}

/// A subject of the findings, and where to find what ranks have found.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub number: usize,
    pub found: &'a dyn Findings,
}

/// A rank's call in a trial: when it began, in nanoseconds, and its subject. Relaxed, as all here.
#[derive(Debug, Default)]
pub(super) struct Stay {
    /// 0 if there is no such call.
    since: Private<u64>,
    subject: Private<usize>,
}

impl Stay {
    fn begin(&self, subject: usize, now: u64) {
        self.since.set(now.max(1));
        self.subject.set(subject);
    }

    #[inline]
    pub fn is_timed(&self) -> bool {
        self.since.get() != 0
    }

    /// Ends the call that is timed, if there is one. Returns its subject, and how long it took.
    pub fn end(&self, clock: impl FnOnce() -> u64) -> Option<(usize, u64)> {
        let since = self.since.get();
        self.forget();
        (since > 0).then(|| (self.subject.get(), clock().saturating_sub(since)))
    }

    pub fn forget(&self) {
        self.since.set(0);
    }
}

/// What one rank knows of calls of one length, and what it knew of the other ranks when it last asked.
#[derive(Debug, Default)]
pub(super) struct LendingOfMany {
    own: Lending<CallsOfMany>,
    /// The sum of all ranks' evidence when this rank last asked.
    of_all: Private<i32>,
    /// What the first half of the trial under way has shown this rank.
    verdict: Private<i32>,
    /// The first trial that has not been ended early.
    doubtful: Private<u64>,
    /// Total time of the calls of trials that are over, in nanoseconds.
    stayed: Private<u64>,
}

impl LendingOfMany {
    /// Calls from one question about all ranks' findings to the next, since it reads a line of each rank. The first
    /// call after a trial asks.
    const ASKS: u64 = {
        let asks = 16;
        assert!(CallsOfMany::CALLS.is_multiple_of(asks));
        asks
    };
    /// Trials of data of 2^`MAY_END_EARLY_FROM` bytes and more may end early, if at most `MAY_END_EARLY_TO` ranks take
    /// turns as roots. Then each root has been once round in its slots when half of the trial is over, so that the
    /// result does not come from memory that nobody has touched.
    const MAY_END_EARLY_FROM: u32 = 18;
    const MAY_END_EARLY_TO: usize = (CallsOfMany::BLOCK / 2) as usize;

    /// As [`Lending::decide`].
    #[inline(always)]
    pub fn decide(&self, subject: Subject<'_>, calls: Alike, stay: &Stay, clock: impl FnOnce() -> u64) -> Source {
        let before = self.own.count_call();
        let number = Lending::<CallsOfMany>::number_in_trial(before, calls)
            .filter(|number| CallsOfMany::trial(*number) >= self.doubtful.get());
        let tried = number.and_then(|number| {
            stay.begin(subject.number, clock());
            self.try_out(subject, number, calls)
        });
        if before % Self::ASKS == calls.before_trials() % Self::ASKS {
            self.of_all.set(subject.found.of_all(subject.number).evidence);
        }
        source(tried.unwrap_or(self.usual(subject, calls)))
    }

    /// The way of calls outside trials.
    fn usual(&self, subject: Subject<'_>, calls: Alike) -> Arm {
        Arm::by(calls.prior(subject.found.ranks()) + self.of_all.get())
    }

    /// The way of call `number` of a trial; `None` if the trial has just ended.
    #[cold]
    fn try_out(&self, subject: Subject<'_>, number: u64, calls: Alike) -> Option<Arm> {
        let stayed = self.stayed.get();
        let trials = &self.own.trials;
        let far_apart = if is_new(number, subject.found.ranks()) { Duration::ZERO } else { calls.far_apart() };
        let way = trials.try_out(number, far_apart, || stayed);
        let since_half = since_half(number);
        let verdict = match since_half {
            None => 0,
            Some(0) => {
                let verdict = trials.verdict_so_far();
                self.verdict.set(verdict);
                verdict
            }
            Some(_) => self.verdict.get(),
        };
        subject.found.tell(subject.number, Finding { evidence: trials.evidence(), verdict });
        // Peers may be some calls behind.
        let may_end = since_half.is_some_and(|since| since < CallsOfMany::BLOCK);
        if may_end && self.is_settled(subject, calls) {
            trials.end(verdict);
            self.doubtful.set(CallsOfMany::trial(number) + 1);
            subject.found.tell(subject.number, Finding { evidence: trials.evidence(), verdict });
            return None;
        }
        Some(way)
    }

    /// Whether the first half of a trial has settled it: the ranks to which it showed that the usual way is the faster
    /// one, less those to which it showed the contrary, are more than half of all. So a way that is clearly slower is
    /// tried half as often.
    fn is_settled(&self, subject: Subject<'_>, calls: Alike) -> bool {
        let ranks = subject.found.ranks();
        if calls.exponent < Self::MAY_END_EARLY_FROM || ranks > Self::MAY_END_EARLY_TO {
            return false;
        }
        let Finding { verdict, .. } = subject.found.of_all(subject.number);
        let for_usual = if self.usual(subject, calls) == Arm::Challenger { verdict } else { -verdict };
        2 * for_usual > ranks as i32
    }

    /// A call of a trial is over; it took `took` nanoseconds.
    pub fn note_stay(&self, took: u64) {
        self.stayed.set(self.stayed.get() + took);
    }
}

/// Whether the interval that ends with call `number` began before each of `ranks` ranks in turn had been the root of a
/// call through slots. A root's first calls find memory that nobody has touched, and take up to twice as long for
/// that.
fn is_new(number: u64, ranks: usize) -> bool {
    let at = number % CallsOfMany::BLOCK;
    let is_first_block = CallsOfMany::trial(number) == 0
        && number % CallsOfMany::CALLS / CallsOfMany::BLOCK == 1
        && CallsOfMany::way(number) == Arm::Baseline;
    is_first_block && at < CallsOfMany::INTERVAL + ranks as u64 - 1
}

/// How many calls precede call `number` in the second half of its trial; `None` in the first half. In each half both
/// ways have the same number of blocks.
fn since_half(number: u64) -> Option<u64> {
    const { assert!(CallsOfMany::BLOCKS >= 4) };
    (number % CallsOfMany::CALLS).checked_sub(CallsOfMany::CALLS / 2)
}

/// Long calls, whose roots may take turns, of ranks that share cores: a rank that has just got the core completes two
/// calls at once.
#[derive(Debug)]
pub(super) struct CallsOfMany;

impl Schedule for CallsOfMany {
    const BLOCK: u64 = 16;
    const UNTIMED: u64 = 3;
    const WINDOW: u64 = 1;
    const INTERVAL: u64 = 4;
    const BLOCKS: u64 = 4;
    /// Of 4096 calls 64 are tried.
    const EVERY: u64 = 256;
}

impl TwoWays for CallsOfMany {
    const GAIN: f64 = 0.95;

    /// Turns of ranks make some intervals short by luck, and few very long.
    fn compared(took: Took<u64>) -> u64 {
        took.mean_but_longest()
    }
}

impl Counted for CallsOfMany {}

#[cfg(test)]
#[path = "many_tests.rs"]
mod tests;
