//! Whether a rank that has long data for others lends them its memory, out of which the system copies the data, or
//! lays the data out in slots.
//!
//! Through slots data are copied twice, by loops that suit the processor well; out of memory once, by a system call
//! that finds and pins each page. Which is faster depends on how long the data are, on what the caches hold, on the
//! cost of the system call, and on the program: a rank that fetches data which have not changed since the last call
//! finds them in its own caches. On an Intel Xeon a Scatter of 256 KiB between two ranks takes 1.7 times as long out
//! of memory as through slots if data change. If they do not, it takes a third as long (docs/PERFORMANCE.md, "Tried").
//! So ranks try both, for each collective and length. Peers see whether a rank lends, so each rank decides for itself;
//! where ranks share cores it goes by what all have found. All ranks count the calls of a communicator alike, unless
//! one left out a call because of its arguments. While they do, they try the same at the same time; otherwise their
//! trials find less.

mod many;

use self::many::{Findings, LendingOfMany, Stay, Subject};
use super::clock;
use super::trials::{Arm, Schedule, Trials, TwoWays};
use crate::fabric::Source;
use crate::sync::{Control, Private};
use crate::types::{Bytes, Collective};
use std::time::Duration;

/// The ranks whose calls these are.
#[derive(Clone, Copy)]
pub(super) enum Ranks<'a> {
    /// Two ranks that have a core each.
    Pair,
    /// All others. Where ranks share cores, their turns show in the time of calls, so that some ranks find what others
    /// do not. Each goes by what all have found.
    Many(&'a dyn Findings),
}

/// The collectives in which ranks lend memory.
const COLLECTIVES: [Collective; 3] = [Collective::Bcast, Collective::Allgather, Collective::Scatter];
/// A class has lengths from one power of two to the next, from 16 KiB to 8 MiB; the first and the last class reach
/// further.
const EXPONENTS: [u32; 2] = [14, 23];
const CLASSES: usize = (EXPONENTS[1] - EXPONENTS[0] + 1) as usize;

/// By collective and length.
type ByClass<H> = [[H; CLASSES]; COLLECTIVES.len()];

const _: () = assert!(COLLECTIVES.len() * CLASSES <= Control::SUBJECTS);

/// What one rank knows of its calls on one context.
#[derive(Debug, Default)]
pub(super) struct Loans {
    /// Between two ranks with cores of their own.
    of_pair: ByClass<Lending<CallsOfPair>>,
    /// Among more ranks, or two that share cores.
    of_many: ByClass<LendingOfMany>,
    /// The call of a trial in `of_many` that this rank is in.
    stay: Stay,
    /// A peer could not fetch what this rank lent (in an Allgather: what any rank lent), and probably could not the
    /// next time.
    are_refused: Private<bool>,
}

impl Loans {
    /// The source out of which peers copy data of `n` bytes in the call that begins. The first call of a length begins
    /// with `first`. To be called once in each call.
    pub fn decide(&self, ranks: Ranks<'_>, collective: Collective, n: Bytes, first: Source) -> Source {
        self.decide_by(clock::now, ranks, collective, n, first)
    }

    /// As `decide`, with the clock that trials read.
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
        if self.are_refused.get() {
            return Source::Slots;
        }
        let [least, most] = EXPONENTS;
        let exponent = n.0.max(1).ilog2().clamp(least, most);
        let class = (exponent - least) as usize;
        let alike = |copies| Alike { n, first, exponent, copies };
        match ranks {
            Ranks::Pair => self.of_pair[at][class].decide(alike(1), clock),
            Ranks::Many(found) => {
                let subject = Subject { number: at * CLASSES + class, found };
                self.of_many[at][class].decide(subject, alike(found.ranks()), &self.stay, clock)
            }
        }
    }

    /// The call that was decided on last is over. To be called after each call, except among [`Ranks::Pair`].
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

    /// The call that was decided on last has failed.
    #[cold]
    pub fn fail(&self) {
        self.stay.forget();
    }

    /// A peer could not fetch what this rank lent (in an Allgather: what any rank lent).
    #[cold]
    pub fn refuse(&self) {
        self.are_refused.set(true);
    }
}

/// Shorter data have one trial for this many bytes, not for a number of calls: this takes as much time as for longer
/// data, and a trial of the slower way costs the same fraction of it.
const BYTES_PER_TRIAL: u64 = 1 << 30;

/// Calls from the beginning of one trial to that of the next, for data of 2^`exponent` bytes and more, up to the next
/// power of two.
fn trials_apart<S: Schedule>(exponent: u32) -> u64 {
    (BYTES_PER_TRIAL >> exponent).max(S::PERIOD)
}

/// The schedule of trials of calls that are counted from the first one of their length on. Trials are not always a
/// period apart.
trait Counted: TwoWays {
    /// Calls from the beginning of the first trial to that of the second: by then pieces of 16 KiB have been once
    /// round in all the memory that a rank's slots may take.
    const EARLY: u64 = {
        let early = 16 * Self::CALLS;
        assert!(early < Self::PERIOD);
        early
    };

    /// The number, as if trials were a period apart, of the call that is `since` calls after the beginning of the
    /// first trial, if it is in a trial. From the beginning of one trial to that of the next there are `apart` calls,
    /// a power of two and at least [`Self::PERIOD`]. Before `apart` calls were made, a trial begins after
    /// [`Self::EARLY`] calls, and then each time the number of calls is four times that at the last trial. The first
    /// calls use memory that nobody has touched, and may take longer for that than the slower way does later on, so
    /// what they show must not last.
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

/// What the present call says of all calls of its length.
#[derive(Clone, Copy, Debug)]
struct Alike {
    /// Bytes of the message or block.
    n: Bytes,
    /// The source with which the first call begins.
    first: Source,
    /// The calls have 2^`exponent` bytes or more.
    exponent: u32,
    /// How many ranks may copy `n` bytes in turn.
    copies: usize,
}

impl Alike {
    /// The evidence with which these calls begin, where each rank goes by what `ranks` ranks have found: as if half of
    /// them had found `first` to be faster.
    fn prior(&self, ranks: usize) -> i32 {
        arm(self.first).evidence(ranks.div_ceil(2) as i32)
    }

    /// Calls before the first trial: few, since programs make few long calls. Calls through slots have been once round
    /// by then, even if two roots take turns. Calls that find memory that nobody has touched take up to five times as
    /// long. What a trial of those shows would last, since calls out of memory touch no more of the slots.
    fn before_trials(&self) -> u64 {
        const LEAST: u64 = 8;
        /// The longest ring.
        const RING: u64 = 2 << 20;
        if self.first == Source::Slots { LEAST.max(2 * (RING >> self.exponent)) } else { LEAST }
    }

    /// Calls that take longer are ignored: a nanosecond for each byte that ranks copy, where a copy takes 0.02 to 0.2.
    fn far_apart(&self) -> Duration {
        /// If fewer ranks copy, this many count, since programs compute between calls. Assumed.
        const COPIES: usize = 20;
        Duration::from_nanos((self.n.0 as u64).saturating_mul(self.copies.max(COPIES) as u64))
    }
}

/// What is known of calls of one length. The challenger of the trials is to lend.
#[derive(Debug)]
struct Lending<S> {
    count: Private<u64>,
    trials: Trials<S>,
}

impl<S> Default for Lending<S> {
    fn default() -> Self {
        Self { count: Private::default(), trials: Trials::default() }
    }
}

impl<S: Counted> Lending<S> {
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

    /// Counts a call. Returns how many there were before it.
    fn count_call(&self) -> u64 {
        let before = self.count.get();
        self.count.set(before + 1);
        before
    }

    /// The number of the call that `before` calls precede, if it is in a trial.
    #[inline(always)]
    fn number_in_trial(before: u64, calls: Alike) -> Option<u64> {
        S::number_in_trial(before.checked_sub(calls.before_trials())?, trials_apart::<S>(calls.exponent))
    }
}

fn arm(source: Source) -> Arm {
    if source == Source::Memory { Arm::Challenger } else { Arm::Baseline }
}

/// The challenger is to lend.
fn source(way: Arm) -> Source {
    if way == Arm::Challenger { Source::Memory } else { Source::Slots }
}

/// Long calls between two ranks: they take long compared with reading a clock.
#[derive(Debug)]
struct CallsOfPair;

impl Schedule for CallsOfPair {
    /// The first call of a block finds what those before it have left in the caches. The others are timed in pairs,
    /// from the beginning of one pair to that of the next. If two ranks are the root in turn, each is the root of one
    /// call of a pair. If a program makes three calls in a round, and something else between rounds, some pairs lie
    /// within a round.
    const BLOCK: u64 = 8;
    const UNTIMED: u64 = 1;
    const WINDOW: u64 = 1;
    const INTERVAL: u64 = 2;
    const BLOCKS: u64 = 4;
    /// Of 4096 calls 32 are tried, half of them the slower way; of shorter calls fewer ([`BYTES_PER_TRIAL`]).
    const EVERY: u64 = 512;
}

impl TwoWays for CallsOfPair {
    const GAIN: f64 = 0.95;
}

impl Counted for CallsOfPair {}

#[cfg(test)]
#[path = "loans_tests.rs"]
mod tests;
