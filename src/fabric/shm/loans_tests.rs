//! Tests of the decision to lend.

use super::*;

const N: Bytes = Bytes(256 << 10);

const BOTH: [Source; 2] = [Source::Slots, Source::Memory];

fn of_pair(first: Source) -> Alike {
    Alike { n: N, first, exponent: N.0.ilog2(), copies: 1 }
}

/// Makes `times` calls, which take `slots` or `memory` nanoseconds. Returns how many lent.
fn call(lending: &Lending<CallsOfPair>, times: u64, first: Source, [slots, memory]: [u64; 2]) -> u64 {
    let mut now = 0;
    let lent = (0..times).map(|_| {
        let lends = lending.decide(of_pair(first), || now) == Source::Memory;
        now += if lends { memory } else { slots };
        u64::from(lends)
    });
    lent.sum()
}

const TRIED: u64 = CallsOfPair::CALLS;
/// Calls of [`N`] through slots before the first trial.
const USUAL: u64 = 16;

/// Calls of `n` bytes through slots before the first trial.
fn usual(n: Bytes) -> u64 {
    let exponent = n.0.ilog2().max(EXPONENTS[0]);
    Alike { n, exponent, ..of_pair(Source::Slots) }.before_trials()
}

#[test]
fn memory_is_lent_where_that_is_faster() {
    for first in BOTH {
        let lending = Lending::<CallsOfPair>::default();
        let before = if first == Source::Memory { USUAL } else { 0 };
        assert_eq!(call(&lending, USUAL + TRIED, first, [20_000, 9000]), before + TRIED / 2);
        assert_eq!(call(&lending, 100, first, [20_000, 9000]), 100);
    }
}

/// How many trials after the first one begin before `calls` calls.
fn early_trials(calls: u64) -> u64 {
    (0..).map(|times| CallsOfPair::EARLY << (2 * times)).take_while(|begin| *begin < calls).count() as u64
}

/// A program that uses its memory for the first time: calls of either kind touch it, and until then slots are slow.
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
        let late = lent.skip((usual(n) + CallsOfPair::EARLY + TRIED) as usize).sum::<u64>();
        assert_eq!(late, 0, "{n:?}, the first {untouched} calls");
    }
}

/// The first calls through slots find memory that nobody has touched, however many calls out of memory lie between
/// them. For each root these are as many calls as go once round in 2 MiB.
#[test]
fn slots_that_nobody_has_touched_do_not_decide() {
    for (kib, roots) in [(16, 1), (16, 2), (32, 1), (32, 2), (64, 2), (256, 2), (1024, 1)] {
        let (loans, mut now, mut touched) = (Loans::default(), 0, 0);
        let n = Bytes(kib << 10);
        let lent = (0..2000).map(|_| {
            let lends = loans.decide_by(|| now, Ranks::Pair, Collective::Bcast, n, Source::Slots) == Source::Memory;
            let is_new = !lends && touched < roots * (2 << 10) / kib;
            touched += usize::from(!lends);
            now += if lends {
                2500
            } else if is_new {
                3300
            } else {
                600
            };
            u64::from(lends)
        });
        assert!(lent.sum::<u64>() <= 2 * TRIED, "{kib} KiB, {roots} roots");
    }
}

#[test]
fn slots_are_used_where_that_is_faster_and_little_else_is_tried() {
    for first in BOTH {
        let lending = Lending::<CallsOfPair>::default();
        call(&lending, USUAL + TRIED, first, [15_000, 26_000]);
        let lent = call(&lending, CallsOfPair::PERIOD, first, [15_000, 26_000]);
        assert_eq!(lent, (early_trials(CallsOfPair::PERIOD) + 1) * TRIED / 2, "{first:?}");
    }
}

/// `gap` tells the nanoseconds between the call of a number and the next one.
fn finds_the_faster_way(gap: impl Fn(u64) -> u64, periods: u64) {
    for [slots, memory] in [[15_000, 26_000], [26_000, 15_000]] {
        let other = if memory < slots { Source::Slots } else { Source::Memory };
        let (lending, mut now) = (Lending::<CallsOfPair>::default(), 0);
        for at in 0..USUAL + TRIED + periods * CallsOfPair::PERIOD {
            let source = lending.decide(of_pair(other), || now);
            now += if source == Source::Memory { memory } else { slots };
            now += gap(at);
        }
        assert_eq!(lending.trials.habit() == Arm::Challenger, memory < slots);
    }
}

/// The system takes the core away in every `every`-th call.
#[test]
fn interruptions_do_not_count() {
    (5..50).for_each(|every| finds_the_faster_way(|at| if at % every == 0 { 1_000_000 } else { 0 }, 0));
}

/// Programs that make so many long calls in a round, and then compute.
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
        let lending = Lending::<CallsOfPair>::default();
        call(&lending, USUAL + TRIED, first, [10_000, 10_200]);
        assert_eq!(call(&lending, 100, first, [10_000, 10_200]), if first == Source::Memory { 100 } else { 0 });
        // Intervals so long that they do not count.
        let lending = Lending::<CallsOfPair>::default();
        call(&lending, USUAL + TRIED, first, [10_000_000, 20_000_000]);
        assert_eq!(call(&lending, 100, first, [1, 1]), if first == Source::Memory { 100 } else { 0 });
    }
}

/// A program whose data stay the same for a while, and then change in each call.
#[test]
fn habits_follow_the_program() {
    let lending = Lending::<CallsOfPair>::default();
    let (resting, changing) = ([20_000, 9000], [15_000, 26_000]);
    call(&lending, 2 * CallsOfPair::PERIOD, Source::Slots, resting);
    assert_eq!(lending.trials.habit(), Arm::Challenger);
    call(&lending, 4 * CallsOfPair::PERIOD, Source::Slots, changing);
    assert_eq!(lending.trials.habit(), Arm::Baseline);
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
    assert!(lends(Collective::Allgather, longer, Source::Memory) && lends(Collective::Allgather, long, Source::Slots));
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
        let (loans, usual) = (Loans::default(), usual(Bytes(kib << 10)));
        let decide = |_| loans.decide_by(|| 0, Ranks::Pair, Collective::Scatter, Bytes(kib << 10), Source::Slots);
        let lent = (0..3 * apart).map(decide).zip(0..).filter(|(source, _)| *source == Source::Memory);
        let tried: Vec<u64> = lent.map(|(_, at)| at).collect();
        assert_eq!(tried.len() as u64, (1 + early_trials(apart) + 2) * TRIED / 2, "{kib} KiB");
        let late = tried.iter().filter(|at| **at >= usual + apart);
        assert!(late.into_iter().all(|at| (at - usual) % apart < TRIED), "{kib} KiB: {tried:?}");
    }
}

/// All ranks count alike, so all try the same way at a time: in blocks, not in single calls.
#[test]
fn calls_are_tried_in_blocks() {
    let lending = Lending::<CallsOfPair>::default();
    call(&lending, USUAL, Source::Slots, [1, 1]);
    let ways: Vec<u64> = (0..TRIED).map(|_| call(&lending, 1, Source::Slots, [1, 1])).collect();
    let blocks: Vec<&[u64]> = ways.chunks(CallsOfPair::BLOCK as usize).collect();
    assert!(blocks.iter().all(|block| block.iter().all(|way| *way == block[0])));
    assert_eq!(blocks.iter().map(|block| block[0]).sum::<u64>(), CallsOfPair::BLOCKS / 2);
}
