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

mod many;

use self::many::{Findings, HabitOfMany, Stay, Subject};
use super::clock;
use super::trials::{Arm, Schedule, Trials, TwoWays};
use crate::fabric::Source;
use crate::sync::Control;
use crate::types::{Bytes, Collective};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Whose calls these are.
#[derive(Clone, Copy)]
pub(super) enum Ranks<'a> {
    /// Two that have a core each.
    Pair,
    /// All others. Where they share cores turns show in what calls take, so that some find what others do not: each goes by what all have found.
    Many(&'a dyn Findings),
}

/// The collectives in which ranks lend memory.
const COLLECTIVES: [Collective; 3] = [Collective::Bcast, Collective::Allgather, Collective::Scatter];
/// Lengths from a power of two to the next one, from 16 KiB to 8 MiB; the first and the last class reach further.
const EXPONENTS: [u32; 2] = [14, 23];
const CLASSES: usize = (EXPONENTS[1] - EXPONENTS[0] + 1) as usize;

/// By collective and length.
type Habits<H> = [[H; CLASSES]; COLLECTIVES.len()];

const _: () = assert!(COLLECTIVES.len() * CLASSES <= Control::SUBJECTS);

/// The habits of one rank on one context. Relaxed throughout: as [`Trials`].
#[derive(Debug, Default)]
pub(super) struct Loans {
    /// Between two ranks with cores of their own.
    of_pair: Habits<Habit<CallsOfPair>>,
    /// Among more, or two that share cores.
    of_many: Habits<HabitOfMany>,
    /// In a call of a trial among these.
    stay: Stay,
    /// A peer could not fetch what this rank lent, or in an Allgather any rank, and hardly could the next time.
    are_refused: AtomicBool,
}

impl Loans {
    /// Out of what peers copy data of `n` bytes in the call that begins, among such ranks; the first one of its length says with what to begin.
    /// To be asked once in a call.
    pub fn decide(&self, ranks: Ranks<'_>, collective: Collective, n: Bytes, first: Source) -> Source {
        self.decide_by(clock::now, ranks, collective, n, first)
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
        let alike = |copies| Alike { n, first, exponent, copies };
        let source = match ranks {
            Ranks::Pair => self.of_pair[at][class].decide(alike(1), clock),
            Ranks::Many(found) => {
                let subject = Subject { number: at * CLASSES + class, found };
                self.of_many[at][class].decide(subject, alike(found.ranks()), &self.stay, clock)
            }
        };
        if self.are_refused.load(Ordering::Relaxed) { Source::Slots } else { source }
    }

    /// The call that was decided on last is over. To be told of all calls of others than [`Ranks::Pair`].
    #[inline]
    pub fn leave(&self) {
        if self.is_timed() {
            self.leave_by(clock::now);
        }
    }

    /// Whether a call is under way whose time counts.
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.stay.is_timed()
    }

    #[cold]
    fn leave_by(&self, clock: impl FnOnce() -> u64) {
        if let Some((subject, took)) = self.stay.end(clock) {
            self.of_many[subject / CLASSES][subject % CLASSES].note_stay(took);
        }
    }

    /// It has failed.
    #[cold]
    pub fn fail(&self) {
        self.stay.forget();
    }

    /// A peer could not fetch what this rank lent, or in an Allgather any rank.
    #[cold]
    pub fn refuse(&self) {
        self.are_refused.store(true, Ordering::Relaxed);
    }
}

/// Of shorter data there is a trial for so many bytes, in place of one for so many calls: that is as much time, and a trial of the slower
/// way costs as large a part of it.
const BYTES_PER_TRIAL: u64 = 1 << 30;

/// Calls from the beginning of one trial to that of the next, of data of two to the power of this and more.
fn trials_apart<S: Schedule>(exponent: u32) -> u64 {
    (BYTES_PER_TRIAL >> exponent).max(S::PERIOD)
}

/// The schedule of trials of calls that are counted, from the first one of their length on. Trials are not always a period apart.
trait Counted: TwoWays {
    /// Calls from the beginning of the first trial to that of the second: as many as pieces of 16 KiB have been once round in all that a rank's
    /// slots may take.
    const EARLY: u64 = {
        let early = 16 * Self::CALLS;
        assert!(early < Self::PERIOD);
        early
    };

    /// The number of the call that is `since` calls after the beginning of the first trial, if it is in a trial; as if trials were a period
    /// apart. From the beginning of one to that of the next there are `apart` calls, a power of two and at least [`Self::PERIOD`]. Before as
    /// many were made a trial begins after [`Self::EARLY`] calls, and whenever there were four times as many as at the one before: the first ones
    /// use memory that nobody has touched, which may take longer than the slower way does later on, so what they show must not last.
    #[inline(always)]
    fn number_in_trial(since: u64, apart: u64) -> Option<u64> {
        debug_assert!(apart.is_power_of_two() && apart >= Self::PERIOD);
        let (trial, at) = match since / apart {
            0 => match (since / Self::EARLY).checked_ilog2() {
                None => (0, since),
                Some(log) => (1 + u64::from(log / 2), since - (Self::EARLY << (log / 2 * 2))),
            },
            times => (u64::from(u64::BITS) + times, since % apart),
        };
        (at < Self::CALLS).then(|| Self::CALLS + trial * Self::PERIOD + at)
    }
}

/// What calls of one length have in common, as the one at hand says.
#[derive(Clone, Copy, Debug)]
struct Alike {
    /// Bytes of the message or block.
    n: Bytes,
    /// With what the first one begins.
    first: Source,
    /// They have as many bytes as two to the power of this, or more.
    exponent: u32,
    /// Ranks that may copy `n` bytes in turn.
    copies: usize,
}

impl Alike {
    /// The evidence with which they begin, among ranks that go by what so many have found: as if half had found so.
    fn prior(&self, ranks: usize) -> i32 {
        arm(self.first).evidence(ranks.div_ceil(2) as i32)
    }

    /// How many there are before the first trial: programs make few long ones. Such as go through slots have been once round by then, also where two
    /// roots take turns: those that find memory that nobody has touched take up to five times as long, and what a trial shows of them would last, since
    /// calls out of memory touch no more of it.
    fn before_trials(&self) -> u64 {
        const LEAST: u64 = 8;
        /// The longest ring.
        const RING: u64 = 2 << 20;
        if self.first == Source::Slots { LEAST.max(2 * (RING >> self.exponent)) } else { LEAST }
    }

    /// Calls tell nothing that take more than a nanosecond for each byte that ranks copy: these take 0.02 to 0.2.
    fn far_apart(&self) -> Duration {
        /// As if so many copied, where fewer do: programs compute between calls. Assumed.
        const COPIES: usize = 20;
        Duration::from_nanos((self.n.0 as u64).saturating_mul(self.copies.max(COPIES) as u64))
    }
}

/// What is known of calls of one length. The other way of its trials is to lend.
#[derive(Debug)]
struct Habit<S> {
    count: AtomicU64,
    trials: Trials<S>,
}

impl<S> Default for Habit<S> {
    fn default() -> Self {
        Self { count: AtomicU64::default(), trials: Trials::default() }
    }
}

impl<S: Counted> Habit<S> {
    #[inline(always)]
    fn decide(&self, calls: Alike, clock: impl FnOnce() -> u64) -> Source {
        let before = self.count_call();
        if before == 0 {
            self.trials.begin(arm(calls.first), 1);
        }
        let tried =
            Self::number_in_trial(before, calls).map(|number| self.trials.try_out(number, calls.far_apart(), clock));
        source(tried.unwrap_or(self.trials.habit()))
    }

    /// -> how many calls there were before this one
    fn count_call(&self) -> u64 {
        let before = self.count.load(Ordering::Relaxed);
        self.count.store(before + 1, Ordering::Relaxed);
        before
    }

    /// The number of the call after so many, if it is in a trial.
    #[inline(always)]
    fn number_in_trial(before: u64, calls: Alike) -> Option<u64> {
        S::number_in_trial(before.checked_sub(calls.before_trials())?, trials_apart::<S>(calls.exponent))
    }
}

fn arm(source: Source) -> Arm {
    if source == Source::Memory { Arm::Other } else { Arm::One }
}

/// The other way is to lend.
fn source(way: Arm) -> Source {
    if way == Arm::Other { Source::Memory } else { Source::Slots }
}

/// Long calls between two ranks: they take long compared with reading a clock.
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
}

impl TwoWays for CallsOfPair {
    const GAIN: f64 = 0.95;
}

impl Counted for CallsOfPair {}

#[cfg(test)]
#[path = "loans_tests.rs"]
mod tests;
