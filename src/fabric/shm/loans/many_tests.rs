//! Tests of what ranks find out together.

use super::super::{Loans, Ranks};
use super::*;
use crate::sync::Control;
use crate::types::{Bytes, Collective};
use std::cell::RefCell;

/// Calls before the first trial, for blocks of 512 KiB and more, and for all calls that begin out of memory.
const BEFORE: u64 = 8;
const TRIED: u64 = CallsOfMany::CALLS;
const SLOTS: Source = Source::Slots;
const MEMORY: Source = Source::Memory;

/// What a rank publishes, by subject.
type Told = [Finding; Control::SUBJECTS];

/// Ranks that take turns as roots of Scatters, by a clock that the test moves.
struct Job {
    findings: RefCell<Vec<Told>>,
    loans: Vec<Loans>,
    calls: u64,
    now: u64,
}

/// What all ranks have found, as rank `me` sees it.
struct Found<'a> {
    all: &'a RefCell<Vec<Told>>,
    me: usize,
}

impl Findings for Found<'_> {
    fn ranks(&self) -> usize {
        self.all.borrow().len()
    }

    fn tell(&self, subject: usize, finding: Finding) {
        self.all.borrow_mut()[self.me][subject] = finding;
    }

    fn of_all(&self, subject: usize) -> Finding {
        self.all.borrow().iter().map(|told| told[subject]).fold(Finding::default(), Finding::and)
    }
}

impl Job {
    fn new(ranks: usize) -> Self {
        let loans = (0..ranks).map(|_| Loans::default()).collect();
        Self { findings: RefCell::new(vec![Told::default(); ranks]), loans, calls: 0, now: 1000 }
    }

    /// What the root of the next call decides for blocks of `n` bytes. For ranks that `sees` excludes no time goes by.
    fn decide(&self, n: Bytes, first: Source, sees: &dyn Fn(usize) -> bool) -> Source {
        let decide = |me: usize| {
            let found = Found { all: &self.findings, me };
            let clock = || if sees(me) { self.now } else { self.calls };
            self.loans[me].decide_by(clock, Ranks::Many(&found), Collective::Scatter, n, first)
        };
        let decided: Vec<Source> = (0..self.loans.len()).map(decide).collect();
        decided[self.calls as usize % self.loans.len()]
    }

    /// Makes `calls` of these calls; `took` tells the nanoseconds of a call by its number and source. Returns how many
    /// lent.
    fn run(
        &mut self,
        calls: u64,
        n: Bytes,
        first: Source,
        took: impl Fn(u64, Source) -> u64,
        sees: impl Fn(usize) -> bool,
    ) -> u64 {
        let mut lent = 0;
        for _ in 0..calls {
            let source = self.decide(n, first, &sees);
            lent += u64::from(source == MEMORY);
            self.now += took(self.calls, source);
            for (me, loans) in self.loans.iter().enumerate() {
                loans.stay.is_timed().then(|| loans.leave_by(|| if sees(me) { self.now } else { self.calls }));
            }
            // The program does something else between calls, in some cases for long.
            self.now += [0, 10_000, 3_000_000, 0, 0, 700_000, 20_000_000][self.calls as usize % 7];
            self.calls += 1;
        }
        lent
    }
}

/// What calls take out of slots, and out of memory: two successive calls are over at once, and the two after them take
/// twice as long.
fn in_turns([slots, memory]: [u64; 2]) -> impl Fn(u64, Source) -> u64 {
    move |at, source| if matches!(at % 4, 1 | 2) { 10_000 } else { 2 * if source == MEMORY { memory } else { slots } }
}

const MEMORY_IS_FASTER: [u64; 2] = [800_000, 400_000];
const SLOTS_ARE_FASTER: [u64; 2] = [400_000, 800_000];
const LONG: Bytes = Bytes(1 << 20);

/// How many of 100 calls lend after a trial in which only `finders` ranks see the time.
fn lent_after_a_trial(ranks: usize, first: Source, costs: [u64; 2], finders: usize) -> u64 {
    let mut job = Job::new(ranks);
    job.run(BEFORE + TRIED, LONG, first, in_turns(costs), |me| me < finders);
    job.run(100, LONG, first, in_turns(costs), |me| me < finders)
}

#[test]
fn turns_of_ranks_that_share_cores_do_not_count() {
    for ranks in [2, 4, 8, 100, 500] {
        assert_eq!(lent_after_a_trial(ranks, SLOTS, MEMORY_IS_FASTER, ranks), 100);
        assert_eq!(lent_after_a_trial(ranks, MEMORY, SLOTS_ARE_FASTER, ranks), 0, "{ranks} ranks");
    }
}

#[test]
fn what_some_ranks_find_the_others_go_by() {
    for (ranks, few, some) in [(4, 1, 2), (8, 3, 4), (32, 15, 16)] {
        let lent = |first, costs, finders| lent_after_a_trial(ranks, first, costs, finders);
        assert_eq!(lent(MEMORY, SLOTS_ARE_FASTER, some), 0);
        assert_eq!(lent(MEMORY, SLOTS_ARE_FASTER, few), 100, "{few} of {ranks} may be mistaken");
        assert_eq!(lent(SLOTS, MEMORY_IS_FASTER, some), 100);
        assert_eq!(lent(SLOTS, MEMORY_IS_FASTER, few), 0);
    }
}

/// Slots that nobody has touched take longer, once for each root.
#[test]
fn first_calls_of_roots_do_not_count() {
    for ranks in [2, 4, 8] {
        let mut job = Job::new(ranks);
        let first = BEFORE + CallsOfMany::BLOCK;
        let took = |at: u64, source| match source {
            SLOTS if at < first + ranks as u64 => 2_000_000,
            SLOTS => 400_000,
            MEMORY => 450_000,
        };
        job.run(BEFORE + TRIED, LONG, MEMORY, took, |_| true);
        assert_eq!(job.run(100, LONG, MEMORY, took, |_| true), 0, "{ranks} ranks");
    }
}

/// One interval of the slower way is short by luck, and one of the faster way is long.
#[test]
fn neither_luck_nor_its_contrary_counts() {
    for (first, costs, lucky) in [(MEMORY, SLOTS_ARE_FASTER, MEMORY), (SLOTS, MEMORY_IS_FASTER, SLOTS)] {
        let mut job = Job::new(4);
        // The trial begins with memory, and goes on with slots.
        let [of_memory, of_slots] = [0, 1].map(|block| BEFORE + block * CallsOfMany::BLOCK + CallsOfMany::UNTIMED);
        let usual = in_turns(costs);
        let took = |at: u64, source| match source {
            MEMORY if at.wrapping_sub(of_memory) >= CallsOfMany::INTERVAL => usual(at, source),
            SLOTS if at.wrapping_sub(of_slots) >= CallsOfMany::INTERVAL => usual(at, source),
            _ if source == lucky => 1000,
            _ => 8_000_000,
        };
        job.run(BEFORE + TRIED, LONG, first, took, |_| true);
        let lent = job.run(100, LONG, first, in_turns(costs), |_| true);
        assert_eq!(lent, if lucky == MEMORY { 0 } else { 100 }, "{lucky:?} is lucky");
    }
}

#[test]
fn what_is_clearly_slower_is_tried_half_as_often() {
    let quarter = TRIED / 4;
    for ranks in [2, 4, 8] {
        // In the first trial and in the next one; plus at most the one call in which not all ranks have published
        // their verdict.
        for (first, costs) in [(MEMORY, MEMORY_IS_FASTER), (SLOTS, SLOTS_ARE_FASTER)] {
            let mut job = Job::new(ranks);
            for calls in [BEFORE + TRIED, CallsOfMany::EARLY - TRIED + TRIED] {
                let lent = job.run(calls, LONG, first, in_turns(costs), |_| true);
                let slower = if first == MEMORY { calls - lent } else { lent };
                assert!((quarter..=quarter + 1).contains(&slower), "{slower} of {calls}, {ranks} ranks, {first:?}");
            }
        }
        // Where a trial has changed what is usual, the next one ends early too.
        for (first, costs) in [(SLOTS, MEMORY_IS_FASTER), (MEMORY, SLOTS_ARE_FASTER)] {
            let mut job = Job::new(ranks);
            job.run(BEFORE, LONG, first, in_turns(costs), |_| true);
            assert_eq!(job.run(TRIED, LONG, first, in_turns(costs), |_| true), TRIED / 2, "the whole one");
            let calls = CallsOfMany::EARLY;
            let lent = job.run(calls, LONG, first, in_turns(costs), |_| true);
            let slower = if first == MEMORY { lent } else { calls - lent };
            assert!((quarter..=quarter + 1).contains(&slower), "{slower} of {calls}, {ranks} ranks, {first:?}");
        }
    }
}

#[test]
fn what_few_see_and_what_slots_have_not_shown_yet_takes_a_whole_trial() {
    let lent = |ranks, kib: usize, finders| {
        let mut job = Job::new(ranks);
        job.run(BEFORE, Bytes(kib << 10), MEMORY, in_turns(MEMORY_IS_FASTER), |me| me < finders);
        job.run(TRIED, Bytes(kib << 10), MEMORY, in_turns(MEMORY_IS_FASTER), |me| me < finders)
    };
    for (ranks, kib, finders) in [(4, 1024, 2), (8, 1024, 4), (4, 128, 4), (9, 1024, 9), (100, 1024, 100)] {
        assert_eq!(lent(ranks, kib, finders), TRIED / 2, "{finders} of {ranks} ranks, {kib} KiB");
    }
    assert!(lent(8, 1024, 5) > TRIED / 2 && lent(8, 256, 8) > TRIED / 2);
}

/// A trial that ended early is not the last one.
#[test]
fn ranks_that_share_cores_follow_the_program() {
    let mut job = Job::new(4);
    let mut lent = |calls, costs| job.run(calls, LONG, MEMORY, in_turns(costs), |_| true);
    lent(BEFORE + TRIED + 2 * CallsOfMany::PERIOD, MEMORY_IS_FASTER);
    assert_eq!(lent(100, MEMORY_IS_FASTER), 100);
    lent(8 * CallsOfMany::PERIOD, SLOTS_ARE_FASTER);
    assert_eq!(lent(100, SLOTS_ARE_FASTER), 0);
}

/// Calls of another length take long too, and do not count for these.
#[test]
fn lengths_have_clocks_of_their_own() {
    let mut job = Job::new(4);
    let both = [(LONG, in_turns(MEMORY_IS_FASTER)), (Bytes(300 << 10), in_turns([20_000, 40_000]))];
    for _ in 0..BEFORE + TRIED {
        for (n, took) in &both {
            job.run(1, *n, MEMORY, |at, source| took(at / 2, source), |_| true);
        }
    }
    let [long, short] = both.map(|(n, took)| job.run(20, n, MEMORY, took, |_| true));
    assert_eq!([long, short], [20, 0]);
}

#[test]
fn calls_that_failed_are_forgotten() {
    let stay = Stay::default();
    assert_eq!(stay.end(|| 7), None);
    stay.begin(3, 100);
    assert!(stay.is_timed());
    assert_eq!(stay.end(|| 170), Some((3, 70)));
    stay.begin(3, 100);
    stay.forget();
    assert!(!stay.is_timed());
    assert_eq!(stay.end(|| 170), None);
    // A clock may begin at 0.
    stay.begin(0, 0);
    assert!(stay.is_timed());
}
