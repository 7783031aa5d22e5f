//! The checking scheduler finds mistakes: every [`Change`] to the operations of every algorithm that it concerns.
//!
//! A program calls one algorithm again and again; on one rank, or on all, some operations are changed. The mistake must
//! be found within [`WITHIN`] such programs. `tests/broken.rs` has algorithms that are wrong by themselves.

use huddle::coll::{Need, REGISTRY, Row};
use huddle::fabric::Line;
use huddle::fabric::checked::{Change, Kind, Mutation, Program, Random, Violation};
use huddle::types::{Collective, CommRank};
use std::iter;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Every mistake shows within this many programs.
const WITHIN: u64 = 64;

/// The mistakes.
const CHANGES: &[Change] = &[
    Change::Drop(Kind::Claim),
    Change::Drop(Kind::Release),
    Change::Drop(Kind::Publish),
    Change::Drop(Kind::Wait(Line::Up)),
    Change::Drop(Kind::Wait(Line::Down)),
    Change::Drop(Kind::WaitPost),
    Change::Drop(Kind::CopyIn),
    Change::Drop(Kind::CopyOut),
    Change::Drop(Kind::Reduce),
    Change::Drop(Kind::Expose),
    Change::Drop(Kind::Fetch),
    Change::Drop(Kind::Answer),
    Change::Drop(Kind::Bridge),
    Change::Drop(Kind::BridgeEnd),
    Change::Postpone(Kind::Claim),
    Change::Postpone(Kind::Wait(Line::Up)),
    Change::Postpone(Kind::Wait(Line::Down)),
    Change::Postpone(Kind::WaitPost),
    Change::Postpone(Kind::CopyIn),
    Change::Postpone(Kind::CopyOut),
    Change::Postpone(Kind::Reduce),
    Change::Postpone(Kind::Expose),
    Change::Postpone(Kind::Answer),
    Change::ReleaseBefore(Kind::Wait(Line::Up)),
    Change::ReleaseBefore(Kind::Wait(Line::Down)),
    Change::ReleaseBefore(Kind::CopyOut),
    Change::ReleaseBefore(Kind::Reduce),
    Change::ReleaseBefore(Kind::Fetch),
    Change::ClaimAtOnce,
    Change::ClaimLines,
    Change::OtherLine,
    Change::EarlierTicket,
    Change::MissingTicket,
    Change::SwapOperands,
    Change::ShortCopy,
    Change::PayloadForCell,
    Change::OthersSlot,
];

/// Barriers read no slots, so they may release them at any time. Operands that may be combined in any order may be
/// swapped.
fn is_harmless(change: Change, row: &Row) -> bool {
    match change {
        Change::ReleaseBefore(_) => row.collective == Collective::Barrier,
        Change::SwapOperands => row.needs.contains(&Need::Commutative),
        _ => false,
    }
}

/// The changes for which an algorithm's programs offer an occasion.
fn occasions(row: usize) -> Vec<Change> {
    let mut found = Vec::new();
    for seed in 1..=WITHIN {
        let sought: Vec<_> = CHANGES.iter().copied().filter(|change| !found.contains(change)).collect();
        found.extend(Program::random_of(seed, &[row]).occasions(seed, &sought).expect("an algorithm without mistakes"));
    }
    found
}

/// The program of `seed` with one algorithm, and a mistake on one of its ranks or on all.
fn mutant(seed: u64, row: usize, change: Change) -> Program {
    let mut program = Program::random_of(seed, &[row]);
    let mut random = Random::new(seed);
    let one_rank = CommRank(random.below(program.labels.len()) as u32);
    let rank = (!random.one_in(4)).then_some(one_rank);
    program.mutation = Some(Mutation { change, rank, period: random.pick(&[1, 2, 3]) });
    program
}

/// The first seed whose program shows the mistake. `None` if the change is harmless, or if no rank that was to make it
/// had an occasion.
fn first_catch(row: usize, change: Change) -> Option<(u64, Violation)> {
    let mut changed = 0;
    for seed in 1..=WITHIN {
        match mutant(seed, row, change).run(seed) {
            Ok(stats) => changed += stats.mutated,
            Err(violation) => return Some((seed, violation)),
        }
    }
    let Row { collective, name, .. } = &REGISTRY[row];
    assert!(changed == 0 || is_harmless(change, &REGISTRY[row]), "{change:?} in {collective:?} {name}: not found");
    None
}

#[test]
fn every_mistake_is_found_in_every_algorithm() {
    let next = AtomicUsize::new(0);
    let worker = || {
        let rows = iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed))).take_while(|row| *row < REGISTRY.len());
        rows.flat_map(|row| occasions(row).into_iter().map(move |change| (change, first_catch(row, change)))).collect()
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let catches: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| -> Vec<_> { worker.join().unwrap() }).collect()
    });
    for change in CHANGES {
        let found: Vec<_> =
            catches.iter().filter(|(made, _)| made == change).filter_map(|(_, catch)| catch.as_ref()).collect();
        let latest = found.iter().map(|(seed, _)| seed).max();
        let first = found.first().map(|(_, violation)| violation.to_string()).unwrap_or_default();
        println!("{change:?}: in {} algorithms, within {latest:?} programs, as in\n    {first}", found.len());
        assert!(!found.is_empty(), "{change:?} concerns no algorithm");
    }
}

/// Which broken rule is seen first may depend on the turns, but not whether one is seen.
#[test]
fn the_verdict_does_not_depend_on_the_turns() {
    let mut found = 0;
    for seed in 1..=1000 {
        let mut random = Random::new(!seed);
        let program = mutant(seed, random.below(REGISTRY.len()), random.pick(CHANGES));
        let verdicts = [1, 2, 3].map(|turns| program.run_in_turns(seed, turns).is_ok());
        assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "seed {seed}: {verdicts:?}");
        found += u32::from(!verdicts[0]);
    }
    assert!(found > 300, "{found} mistakes");
}
