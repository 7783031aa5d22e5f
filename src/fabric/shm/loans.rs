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
use super::trials::{Arm, Schedule, Trials};
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
                let subject = at * CLASSES + class;
                self.of_many[at][class].decide_with(found, subject, calls(found.ranks()), clock)
            }
        };
        if self.are_refused.load(Ordering::Relaxed) { Source::Slots } else { source }
    }

    /// A peer could not fetch what this rank lent.
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
}

impl<S> Default for Habit<S> {
    fn default() -> Self {
        Self { calls: AtomicU64::default(), trials: Trials::default(), of_all: AtomicI32::default() }
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

    #[inline(always)]
    fn decide(&self, calls: Calls, clock: impl FnOnce() -> u64) -> Source {
        let before = self.count();
        if before == 0 {
            self.trials.begin(Arm::by(calls.prior(1)), 1);
        }
        source(self.try_out(before, calls, clock).unwrap_or(self.trials.habit()))
    }

    /// The same where ranks go by what all have found.
    fn decide_with(&self, found: &dyn Evidence, subject: usize, calls: Calls, clock: impl FnOnce() -> u64) -> Source {
        let before = self.count();
        let tried = self.try_out(before, calls, clock);
        if tried.is_some() {
            found.tell(subject, self.trials.evidence());
        }
        if before % Self::ASKS == Self::USUAL % Self::ASKS {
            self.of_all.store(found.of_all(subject), Ordering::Relaxed);
        }
        let evidence = calls.prior(found.ranks()) + self.of_all.load(Ordering::Relaxed);
        source(tried.unwrap_or(Arm::by(evidence)))
    }

    /// -> how many calls there were before this one
    fn count(&self) -> u64 {
        let before = self.calls.load(Ordering::Relaxed);
        self.calls.store(before + 1, Ordering::Relaxed);
        before
    }

    /// The way of the call after so many, if it is in a trial.
    #[inline(always)]
    fn try_out(&self, before: u64, calls: Calls, clock: impl FnOnce() -> u64) -> Option<Arm> {
        let Calls { n, exponent, copies, .. } = calls;
        let since = before.checked_sub(Self::USUAL)?;
        let number = S::number_in_trial(since, trials_apart::<S>(exponent))?;
        let copied = (n.0 as u64).saturating_mul(Self::COPIES.max(copies as u64));
        Some(self.trials.try_out(number, Self::FAR_APART.saturating_mul(copied), clock))
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: Bytes = Bytes(256 << 10);

    const BOTH: [Source; 2] = [Source::Slots, Source::Memory];

    fn of_pair(n: Bytes, first: Source) -> Calls {
        Calls { n, first, exponent: EXPONENTS[1], copies: 1 }
    }

    /// So many calls of `n` bytes, which take so many nanoseconds out of slots, and out of memory; how many were lent.
    fn call(habit: &Habit<CallsOfPair>, times: u64, n: Bytes, first: Source, [slots, memory]: [u64; 2]) -> u64 {
        let mut now = 0;
        let lent = (0..times).map(|_| {
            let lends = habit.decide(of_pair(n, first), || now) == Source::Memory;
            now += if lends { memory } else { slots };
            u64::from(lends)
        });
        lent.sum()
    }

    const TRIED: u64 = CallsOfPair::CALLS;
    const USUAL: u64 = Habit::<CallsOfPair>::USUAL;

    #[test]
    fn memory_is_lent_where_that_is_faster() {
        for first in BOTH {
            let habit = Habit::<CallsOfPair>::default();
            let before = if first == Source::Memory { USUAL } else { 0 };
            assert_eq!(call(&habit, USUAL + TRIED, N, first, [20_000, 9000]), before + TRIED / 2);
            assert_eq!(call(&habit, 100, N, first, [20_000, 9000]), 100);
        }
    }

    /// Trials after the first one, and before so many calls.
    fn early_trials(calls: u64) -> u64 {
        (0..).map(|times| CallsOfPair::EARLY << (2 * times)).take_while(|begin| *begin < calls).count() as u64
    }

    /// Slots that nobody has used before take as long as memory, or longer.
    #[test]
    fn what_first_calls_take_does_not_last() {
        for (untouched, n) in [40, 80, 128, 300].into_iter().flat_map(|calls| [(calls, Bytes(16 << 10)), (calls, N)]) {
            let (loans, mut now) = (Loans::default(), 0);
            let lent = (0..2 * CallsOfPair::EARLY).map(|at| {
                let decide = || loans.decide_by(|| now, Ranks::Pair, Collective::Bcast, n, Source::Slots);
                let lends = decide() == Source::Memory;
                now += if lends {
                    2500
                } else if at < untouched {
                    3300
                } else {
                    600
                };
                u64::from(lends)
            });
            let late = lent.skip((USUAL + CallsOfPair::EARLY + TRIED) as usize).sum::<u64>();
            assert_eq!(late, 0, "{n:?}, the first {untouched} calls");
        }
    }

    #[test]
    fn slots_are_used_where_that_is_faster_and_little_else_is_tried() {
        for first in BOTH {
            let habit = Habit::<CallsOfPair>::default();
            call(&habit, USUAL + TRIED, N, first, [15_000, 26_000]);
            let lent = call(&habit, CallsOfPair::PERIOD, N, first, [15_000, 26_000]);
            assert_eq!(lent, (early_trials(CallsOfPair::PERIOD) + 1) * TRIED / 2, "{first:?}");
        }
    }

    /// `gap` tells what lies between the calls before that number and after it, in nanoseconds.
    fn finds_the_faster_way(gap: impl Fn(u64) -> u64, periods: u64) {
        for [slots, memory] in [[15_000, 26_000], [26_000, 15_000]] {
            let other = if memory < slots { Source::Slots } else { Source::Memory };
            let (habit, mut now) = (Habit::<CallsOfPair>::default(), 0);
            for at in 0..USUAL + TRIED + periods * CallsOfPair::PERIOD {
                let source = habit.decide(of_pair(N, other), || now);
                now += if source == Source::Memory { memory } else { slots };
                now += gap(at);
            }
            assert_eq!(habit.trials.habit() == Arm::Other, memory < slots);
        }
    }

    /// The system takes the core every so many calls.
    #[test]
    fn interruptions_do_not_count() {
        (5..50).for_each(|every| finds_the_faster_way(|at| if at % every == 0 { 1_000_000 } else { 0 }, 0));
    }

    /// Programs with so many long calls in a round, after which they compute.
    #[test]
    fn rhythms_of_programs_do_not_count() {
        for (calls, phase) in (1..12).flat_map(|calls| (0..calls).map(move |phase| (calls, phase))) {
            finds_the_faster_way(|at| if at % calls == phase { 50_000 } else { 0 }, 5);
            finds_the_faster_way(|at| if at % calls == phase && calls > 2 { 5_000_000 } else { 0 }, 5);
        }
    }

    #[test]
    fn what_makes_no_difference_changes_no_habit() {
        for first in BOTH {
            let habit = Habit::<CallsOfPair>::default();
            call(&habit, USUAL + TRIED, N, first, [10_000, 10_200]);
            assert_eq!(call(&habit, 100, N, first, [10_000, 10_200]), if first == Source::Memory { 100 } else { 0 });
            // Far apart, so that it does not count.
            let habit = Habit::<CallsOfPair>::default();
            call(&habit, USUAL + TRIED, N, first, [10_000_000, 20_000_000]);
            assert_eq!(call(&habit, 100, N, first, [1, 1]), if first == Source::Memory { 100 } else { 0 });
        }
    }

    /// A program whose data rest for a while, and then change.
    #[test]
    fn habits_follow_the_program() {
        let habit = Habit::<CallsOfPair>::default();
        let (resting, changing) = ([20_000, 9000], [15_000, 26_000]);
        call(&habit, 2 * CallsOfPair::PERIOD, N, Source::Slots, resting);
        assert_eq!(habit.trials.habit(), Arm::Other);
        call(&habit, 4 * CallsOfPair::PERIOD, N, Source::Slots, changing);
        assert_eq!(habit.trials.habit(), Arm::One);
    }

    #[test]
    fn collectives_and_lengths_have_habits_of_their_own() {
        let loans = Loans::default();
        let lends = |collective, kib: usize, first| {
            loans.decide(Ranks::Pair, collective, Bytes(kib << 10), first) == Source::Memory
        };
        assert!(lends(Collective::Scatter, 64, Source::Memory) && !lends(Collective::Bcast, 64, Source::Slots));
        assert!(lends(Collective::Scatter, 127, Source::Slots), "as those before");
        assert!(!lends(Collective::Scatter, 128, Source::Slots));
        let (long, longer) = (8 << 10, 1 << 20);
        assert!(
            lends(Collective::Allgather, longer, Source::Memory) && lends(Collective::Allgather, long, Source::Slots)
        );
        assert!(lends(Collective::Allgather, 0, Source::Memory) && lends(Collective::Allgather, 16, Source::Slots));
    }

    #[test]
    fn what_was_refused_is_not_lent_again() {
        let loans = Loans::default();
        assert_eq!(loans.decide(Ranks::Pair, Collective::Scatter, N, Source::Memory), Source::Memory);
        loans.refuse();
        let calls = 2 * CallsOfPair::CALLS;
        assert!((0..calls).all(|_| loans.decide(Ranks::Pair, Collective::Scatter, N, Source::Memory) == Source::Slots));
    }

    #[test]
    fn shorter_data_are_tried_less_often() {
        for (kib, apart) in [(12, 65_536), (16, 65_536), (47, 32_768), (128, 8192), (256, 4096), (8192, 4096)] {
            let loans = Loans::default();
            let decide = |_| loans.decide_by(|| 0, Ranks::Pair, Collective::Scatter, Bytes(kib << 10), Source::Slots);
            let lent = (0..3 * apart).map(decide).zip(0..).filter(|(source, _)| *source == Source::Memory);
            let tried: Vec<u64> = lent.map(|(_, at)| at).collect();
            assert_eq!(tried.len() as u64, (1 + early_trials(apart) + 2) * TRIED / 2, "{kib} KiB");
            let late = tried.iter().filter(|at| **at >= USUAL + apart);
            assert!(late.into_iter().all(|at| (at - USUAL) % apart < TRIED), "{kib} KiB: {tried:?}");
        }
    }

    /// All ranks count alike, so all try the same: blocks, and not single calls.
    #[test]
    fn calls_are_tried_in_blocks() {
        let habit = Habit::<CallsOfPair>::default();
        call(&habit, USUAL, N, Source::Slots, [1, 1]);
        let ways: Vec<u64> = (0..TRIED).map(|_| call(&habit, 1, N, Source::Slots, [1, 1])).collect();
        let blocks: Vec<&[u64]> = ways.chunks(CallsOfPair::BLOCK as usize).collect();
        assert!(blocks.iter().all(|block| block.iter().all(|way| *way == block[0])));
        assert_eq!(blocks.iter().map(|block| block[0]).sum::<u64>(), CallsOfPair::BLOCKS / 2);
    }

    /// What ranks have found, of which `me` is one.
    struct Found<'a> {
        all: &'a [AtomicI32],
        me: usize,
    }

    impl Evidence for Found<'_> {
        fn ranks(&self) -> usize {
            self.all.len()
        }

        fn tell(&self, subject: usize, evidence: i32) {
            assert!(subject < Control::SUBJECTS);
            self.all[self.me].store(evidence, Ordering::Relaxed);
        }

        fn of_all(&self, _: usize) -> i32 {
            self.all.iter().map(|found| found.load(Ordering::Relaxed)).sum()
        }
    }

    /// So many ranks make a trial of Scatters of 1 MiB blocks, of which each takes so many nanoseconds out of slots, and out of memory, as far as
    /// `finds` says that a rank sees it; two calls in turn are over at once, and those after them take twice as long. How many lend from then on.
    fn lend_after_a_trial(ranks: usize, first: Source, costs: [u64; 2], finds: impl Fn(usize) -> bool) -> usize {
        let all: Vec<AtomicI32> = (0..ranks).map(|_| AtomicI32::new(0)).collect();
        let loans: Vec<Loans> = (0..ranks).map(|_| Loans::default()).collect();
        let mut now = 0;
        let decide = |me: usize, at: u64, now: u64| {
            let found = Found { all: &all, me };
            let seen = if finds(me) { now } else { at };
            loans[me].decide_by(|| seen, Ranks::Many(&found), Collective::Scatter, Bytes(1 << 20), first)
        };
        for at in 0..USUAL + CallsOfMany::CALLS {
            let sources: Vec<Source> = (0..ranks).map(|me| decide(me, at, now)).collect();
            let usual = costs[usize::from(sources[at as usize % ranks] == Source::Memory)];
            now += if matches!(at % 4, 1 | 2) { 10_000 } else { 2 * usual * ranks as u64 };
        }
        (0..ranks).filter(|me| decide(*me, USUAL + CallsOfMany::CALLS, now) == Source::Memory).count()
    }

    #[test]
    fn turns_of_ranks_that_share_cores_do_not_count() {
        for ranks in [2, 4, 8, 100, 500] {
            assert_eq!(lend_after_a_trial(ranks, Source::Slots, [100_000, 50_000], |_| true), ranks);
            assert_eq!(lend_after_a_trial(ranks, Source::Memory, [50_000, 100_000], |_| true), 0, "{ranks} ranks");
        }
    }

    #[test]
    fn what_some_ranks_find_the_others_go_by() {
        for (ranks, few, some) in [(4, 1, 2), (8, 3, 4), (32, 15, 16)] {
            let lend = |first, costs, finders| lend_after_a_trial(ranks, first, costs, |me| me < finders);
            assert_eq!(lend(Source::Memory, [50_000, 100_000], some), 0);
            assert_eq!(lend(Source::Memory, [50_000, 100_000], few), ranks, "{few} of {ranks} may be mistaken");
            assert_eq!(lend(Source::Slots, [100_000, 50_000], some), ranks);
            assert_eq!(lend(Source::Slots, [100_000, 50_000], few), 0);
        }
    }
}
