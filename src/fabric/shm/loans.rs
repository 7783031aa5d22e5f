//! Whether a rank that has long data for others lends them the memory in which they lie, out of which the system copies, or lays them out
//! in slots.
//!
//! In slots data are copied twice, by loops that the processor knows well; out of memory once, by a system call that finds and pins each
//! page. Which is faster depends on how long the data are and what the caches hold, on what the system call takes, and on the
//! program: who fetched data that did not change since finds them in its own caches. On an Intel Xeon a Scatter of 256 KiB between two
//! ranks takes 1.7 times as long out of memory as through slots if data change, and a third as long if they do not (docs/PERFORMANCE.md,
//! "Tried"). So both are tried, for each collective and length. Peers see what a rank lends, so it is its own affair, though where ranks share
//! cores it goes by what all have found. Ranks that count the
//! calls of a communicator alike, as all do unless one of them left one out for its arguments, try the same at the same time; if they do
//! not they find less.

use super::context::Context;
use super::trials::{Arm, Schedule, Took, Trials};
use super::writes::nanoseconds;
use crate::fabric::Source;
use crate::fabric::words::Words;
use crate::sync::Control;
use crate::types::{Bytes, Collective, NodeRank};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Instant;

/// Whose calls these are.
#[derive(Clone, Copy)]
pub(super) enum Ranks<'a> {
    /// Two that have a core each.
    Pair,
    /// Such as share cores, whose turns there show in what calls take, so that some find what others do not: each goes by what all have found.
    Many(&'a dyn Evidence),
}

/// What ranks have found, each for itself, by subject: for memory, less against it.
pub(super) trait Evidence {
    /// How many ranks there are.
    fn ranks(&self) -> usize;
    /// This one has found so much.
    fn tell(&self, subject: usize, evidence: i32);
    /// All together have; of some what they found before their last trial.
    fn of_all(&self, subject: usize) -> i32;
}

impl Evidence for Context {
    fn ranks(&self) -> usize {
        self.geometry().ranks
    }

    fn tell(&self, subject: usize, evidence: i32) {
        let control = self.control(self.rank());
        // All have the line.
        if control.evidence(subject) != evidence {
            control.tell_evidence(subject, evidence);
        }
    }

    fn of_all(&self, subject: usize) -> i32 {
        let of = |rank| self.control(NodeRank(rank)).evidence(subject);
        (0..self.geometry().ranks as u32).map(of).sum()
    }
}

/// The collectives in which ranks lend memory.
const COLLECTIVES: [Collective; 3] = [Collective::Bcast, Collective::Allgather, Collective::Scatter];
/// Lengths from a power of two to the next one, from 16 KiB to 8 MiB; the first and the last class reach further.
const EXPONENTS: [u32; 2] = [14, 23];
const CLASSES: usize = (EXPONENTS[1] - EXPONENTS[0] + 1) as usize;

/// By collective and length.
type Habits<S> = [[Habit<S>; CLASSES]; COLLECTIVES.len()];

const _: () = assert!(COLLECTIVES.len() * CLASSES <= Control::SUBJECTS);

/// The habits of one rank on one context. Relaxed throughout: as [`Trials`].
#[derive(Debug, Default)]
pub(super) struct Loans {
    /// Between two ranks with cores of their own.
    of_pair: Habits<CallsOfPair>,
    /// Among more, or two that share cores.
    of_many: Habits<CallsOfMany>,
    /// How long this rank is in calls of trials among these.
    stays: Stays,
    /// A peer could not fetch what this rank lent, and hardly could the next time.
    are_refused: AtomicBool,
}

impl Loans {
    /// Out of what peers copy data of `n` bytes in the call that begins, among such ranks; the first one of its length says with what to begin.
    /// To be asked once in a call.
    pub fn decide(&self, ranks: Ranks<'_>, collective: Collective, n: Bytes, first: Source) -> Source {
        self.decide_by(|| nanoseconds(Instant::now()), ranks, collective, n, first)
    }

    /// The same with another clock, which trials look at.
    #[inline(always)]
    fn decide_by(
        &self,
        clock: impl FnOnce() -> u64,
        ranks: Ranks<'_>,
        collective: Collective,
        n: Bytes,
        first: Source,
    ) -> Source {
        let Some(at) = COLLECTIVES.iter().position(|one| *one == collective) else { return Source::Slots };
        let [least, most] = EXPONENTS;
        let exponent = n.0.max(1).ilog2().clamp(least, most);
        let class = (exponent - least) as usize;
        let calls = |copies| Calls { n, first, exponent, copies };
        let source = match ranks {
            Ranks::Pair => self.of_pair[at][class].decide(calls(1), clock),
            Ranks::Many(found) => {
                let (subject, clock) = (at * CLASSES + class, || self.stays.enter(clock()));
                self.of_many[at][class].decide_with(found, subject, calls(found.ranks()), clock)
            }
        };
        if self.are_refused.load(Ordering::Relaxed) { Source::Slots } else { source }
    }

    /// The call that was decided on last is over. To be told where ranks share cores.
    #[inline]
    pub fn leave(&self) {
        if self.stays.is_timed() {
            self.leave_at(nanoseconds(Instant::now()));
        }
    }

    #[cold]
    fn leave_at(&self, now: u64) {
        self.stays.leave(now);
    }

    /// A peer could not fetch what this rank lent.
    #[cold]
    pub fn refuse(&self) {
        self.are_refused.store(true, Ordering::Relaxed);
    }
}

/// A clock that runs while its rank is in calls of trials: what a program does between its calls takes now this long, now that long, and where
/// ranks share cores a few stretches of calls are all that a trial has.
#[derive(Debug, Default)]
struct Stays {
    /// How long those that are over took, in nanoseconds.
    over: AtomicU64,
    /// When the one under way began; 0 for none.
    since: AtomicU64,
}

impl Stays {
    /// One begins. -> how long those before it took
    fn enter(&self, now: u64) -> u64 {
        self.since.store(now.max(1), Ordering::Relaxed);
        self.over.load(Ordering::Relaxed)
    }

    #[inline]
    fn is_timed(&self) -> bool {
        self.since.load(Ordering::Relaxed) != 0
    }

    fn leave(&self, now: u64) {
        let took = now.saturating_sub(self.since.load(Ordering::Relaxed));
        self.over.store(self.over.load(Ordering::Relaxed) + took, Ordering::Relaxed);
        self.since.store(0, Ordering::Relaxed);
    }
}

/// Of shorter data there is a trial for so many bytes, in place of one for so many calls: that is as much time, and a trial of the slower
/// way costs as large a part of it.
const BYTES_PER_TRIAL: u64 = 1 << 30;

/// Calls from the beginning of one trial to that of the next, of data of two to the power of this and more.
fn trials_apart<S: Schedule>(exponent: u32) -> u64 {
    (BYTES_PER_TRIAL >> exponent).max(S::PERIOD)
}

/// What matters in a call for those of its length.
#[derive(Clone, Copy, Debug)]
struct Calls {
    /// Bytes of the message or block.
    n: Bytes,
    /// With what the first one begins.
    first: Source,
    /// They have as many bytes as two to the power of this, or more.
    exponent: u32,
    /// Ranks that may copy `n` bytes in turn.
    copies: usize,
}

impl Calls {
    /// The evidence with which they begin, among ranks that go by what so many have found: as if half had found so.
    fn prior(&self, ranks: usize) -> i32 {
        let half = ranks.div_ceil(2) as i32;
        if self.first == Source::Memory { half } else { 1 - half }
    }
}

/// What is known of calls of one length. The other way of its trials is to lend.
#[derive(Debug)]
struct Habit<S> {
    calls: AtomicU64,
    trials: Trials<S>,
    /// What all ranks had found when this one asked last, where it does.
    of_all: AtomicI32,
    /// The first trial that may still be in doubt.
    doubtful: AtomicU64,
}

impl<S> Default for Habit<S> {
    fn default() -> Self {
        let (calls, doubtful) = Default::default();
        Self { calls, trials: Trials::default(), of_all: AtomicI32::default(), doubtful }
    }
}

impl<S: Schedule> Habit<S> {
    /// Calls before the first trial: programs make few long ones.
    const USUAL: u64 = 8;
    /// Calls tell nothing that are farther apart than so many picoseconds for each byte that ranks copy: these take 20 to 200.
    const FAR_APART: u64 = 1000;
    /// As if so many copied, where fewer do.
    const COPIES: u64 = 20;
    /// Calls from one question what all ranks have found to the next: a line of each. The first one after a trial asks.
    const ASKS: u64 = 16;
    /// Trials of data of two to the power of this and more may be over when they are half made: by then what each root has put into its slots
    /// has been round there, so that no call finds some that nobody has touched.
    const MAY_END_EARLY_FROM: u32 = 18;

    #[inline(always)]
    fn decide(&self, calls: Calls, clock: impl FnOnce() -> u64) -> Source {
        let before = self.count();
        if before == 0 {
            self.trials.begin(Arm::by(calls.prior(1)), 1);
        }
        let tried = Self::number_in_trial(before, calls).map(|number| self.try_out(number, calls, clock));
        source(tried.unwrap_or(self.trials.habit()))
    }

    /// The same where ranks go by what all have found.
    fn decide_with(&self, found: &dyn Evidence, subject: usize, calls: Calls, clock: impl FnOnce() -> u64) -> Source {
        let before = self.count();
        let number = Self::number_in_trial(before, calls);
        let tried = number.and_then(|number| self.try_out_with(found, subject, number, calls, clock));
        if before % Self::ASKS == Self::USUAL % Self::ASKS {
            self.of_all.store(found.of_all(subject), Ordering::Relaxed);
        }
        let evidence = calls.prior(found.ranks()) + self.of_all.load(Ordering::Relaxed);
        source(tried.unwrap_or(Arm::by(evidence)))
    }

    /// The way of that call of a trial, if that is in doubt. It is not if it is half made and ranks have found together as much as if more than all
    /// of them had found one way to be faster: so a way that is clearly slower is tried half as often.
    fn try_out_with(
        &self,
        found: &dyn Evidence,
        subject: usize,
        number: u64,
        calls: Calls,
        clock: impl FnOnce() -> u64,
    ) -> Option<Arm> {
        let trial = S::trial(number);
        if trial < self.doubtful.load(Ordering::Relaxed) {
            return None;
        }
        let now = clock();
        let way = self.try_out(number, calls, || now);
        if S::is_half_made(number) {
            found.tell(subject, self.trials.evidence_so_far());
            let (ranks, of_all) = (found.ranks(), found.of_all(subject));
            let evidence = calls.prior(ranks) + of_all;
            let one_way = if evidence > 0 { evidence } else { 1 - evidence };
            if calls.exponent >= Self::MAY_END_EARLY_FROM && one_way as usize > ranks {
                self.trials.conclude();
                self.doubtful.store(trial + 1, Ordering::Relaxed);
                self.of_all.store(of_all, Ordering::Relaxed);
                return None;
            }
        }
        Some(way)
    }

    /// -> how many calls there were before this one
    fn count(&self) -> u64 {
        let before = self.calls.load(Ordering::Relaxed);
        self.calls.store(before + 1, Ordering::Relaxed);
        before
    }

    /// The number of the call after so many, if it is in a trial.
    #[inline(always)]
    fn number_in_trial(before: u64, calls: Calls) -> Option<u64> {
        S::number_in_trial(before.checked_sub(Self::USUAL)?, trials_apart::<S>(calls.exponent))
    }

    /// The way of that call of a trial.
    #[inline(always)]
    fn try_out(&self, number: u64, calls: Calls, clock: impl FnOnce() -> u64) -> Arm {
        let copied = (calls.n.0 as u64).saturating_mul(Self::COPIES.max(calls.copies as u64));
        self.trials.try_out(number, Self::FAR_APART.saturating_mul(copied), clock)
    }
}

/// The other way is to lend.
fn source(way: Arm) -> Source {
    if way == Arm::Other { Source::Memory } else { Source::Slots }
}

/// Long calls between two ranks: they take long beside what a clock shows.
#[derive(Debug)]
struct CallsOfPair;

impl Schedule for CallsOfPair {
    /// The first of a block finds what those before have left in the caches. The others are timed by twos, from their beginnings: where two
    /// ranks are the root in turn each has one of them, and of programs that make three in a round, and something else between rounds, some
    /// two lie in one round.
    const BLOCK: u64 = 8;
    const UNTIMED: u64 = 1;
    const WINDOW: u64 = 1;
    const INTERVAL: u64 = 2;
    const BLOCKS: u64 = 4;
    /// Of 4096 calls 32 are tried, half of them the slower way; of shorter ones fewer ([`BYTES_PER_TRIAL`]).
    const EVERY: u64 = 512;
    const GAIN: f64 = 0.95;
}

/// The same among more ranks, whose roots may take turns, or of two that share cores: one that has just got the core has two calls done
/// at once.
#[derive(Debug)]
struct CallsOfMany;

impl Schedule for CallsOfMany {
    const BLOCK: u64 = 16;
    const UNTIMED: u64 = 3;
    const WINDOW: u64 = 1;
    const INTERVAL: u64 = 4;
    const BLOCKS: u64 = 4;
    const EVERY: u64 = 256;
    const GAIN: f64 = 0.95;

    /// Turns of ranks make some intervals short by luck. What lies between calls is left out ([`Stays`]), so most of the others tell too.
    fn compared(took: Took<u64>) -> u64 {
        took.usual()
    }
}

#[cfg(test)]
#[path = "loans_tests.rs"]
mod tests;
