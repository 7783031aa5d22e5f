//! Ranks whose arguments are rejected: ranks that depend on them fail, all others have their results, and the next call
//! works.

use crate::case::Case;
use crate::world::{Rank, SLEEPING, SPINNING, Signal, World};
use huddle::coll::phase::Tree;
use huddle::coll::{REGISTRY, find};
use huddle::fabric::INLINE;
use huddle::fabric::checked::Random;
use huddle::fabric::shm::{Fault, Waiting};
use huddle::topo::Levels;
use huddle::types::{Collective, CommRank, Epoch, NodeRank, OperandOrder};

const REDUCE_FLAT: (Collective, &str) = (Collective::Reduce, "flat");

fn row((collective, name): (Collective, &str)) -> usize {
    find(collective, name).expect("a row of the registry")
}

fn peer_failed(rank: usize) -> Result<(), Fault> {
    Err(Fault::PeerFailed { rank: NodeRank(rank as u32) })
}

/// Whether data or flags reach `rank` through `other` in the tree of the call.
fn is_downstream(world: &World, case: &Case, rank: usize, other: usize) -> bool {
    let tree = Tree::of(&case.plan);
    let shape = if case.collective() == Collective::Reduce { tree.up } else { tree.down };
    let parent = |rank: usize, order| {
        let levels: Levels = world.levels(CommRank(rank as u32));
        levels.tree(shape, order, NodeRank(case.plan.root.0)).parent.map(NodeRank::index)
    };
    let is_above = |above: usize, below: usize, order| {
        std::iter::successors(parent(below, order), |rank| parent(*rank, order)).any(|rank| rank == above)
    };
    match case.collective() {
        Collective::Bcast | Collective::Scatter => is_above(other, rank, OperandOrder::Any),
        Collective::Reduce => is_above(rank, other, case.plan.order),
        _ => case.depends(rank, other),
    }
}

/// Whether `rank` fails because `failed` does; `None` if it may or may not.
fn must_fail(world: &World, case: &Case, rank: usize, failed: usize) -> Option<bool> {
    let (collective, name) = (case.collective(), REGISTRY[case.row].name);
    match name {
        "flat" => Some(case.depends(rank, failed)),
        "tree" => Some(is_downstream(world, case, rank, failed)),
        "single" if case.depends(rank, failed) => Some(true),
        // A root that has lent its memory waits for everyone's answer. What others fetch after it has failed does not
        // count.
        "single" if case.is_root(rank) => case.is_lent(world.cell),
        "single" => None,
        _ if case.depends(rank, failed) => Some(true),
        _ if collective == Collective::Reduce => None,
        _ => Some(false),
    }
}

fn check(world: &World, case: &Case, rank: usize, failed: usize, outcome: Result<(), Fault>) {
    let what = format!("rank {rank} of {:?} without {failed}", case);
    match (must_fail(world, case, rank, failed), outcome) {
        (Some(true) | None, Err(Fault::PeerFailed { rank: culprit })) => {
            assert_ne!(culprit.index(), rank, "{what}");
            let is_direct = REGISTRY[case.row].name == "flat" && case.collective() != Collective::Barrier;
            assert!(!is_direct || culprit.index() == failed || case.depends(culprit.index(), failed), "{what}");
        }
        (Some(false) | None, Ok(())) => {}
        (_, outcome) => panic!("{what}: {outcome:?}"),
    }
}

/// Each rank fails every algorithm once, and a call that works follows each time.
fn each_rank_fails(world: &World, waiting: &'static Waiting, lengths: &[usize]) {
    let random = &mut Random::new(world.size() as u64);
    let mut calls = Vec::new();
    for row in 0..REGISTRY.len() {
        for failed in 0..world.size() {
            let root = CommRank(random.below(world.size()) as u32);
            let shape = |epoch, length| (Epoch(epoch), root, length);
            let epoch = 2 * calls.len() as u64 + 1;
            let case = Case::new(world, row, shape(epoch, random.pick(lengths)), random);
            let next = random.below(REGISTRY.len());
            let next = Case::new(world, next, shape(epoch + 1, random.pick(lengths)), random);
            calls.push((failed, case, next));
        }
    }
    world.run(|rank| {
        let me = rank.me.index();
        for (failed, case, next) in &calls {
            if *failed == me {
                rank.context.fail(case.plan.epoch);
            } else {
                check(world, case, me, *failed, case.call(&rank, waiting));
            }
            assert_eq!(next.call(&rank, waiting), Ok(()), "{next:?}");
        }
    });
}

#[test]
fn dependents_fail_and_the_others_do_not() {
    for size in [2, 3, 5] {
        for (slots, waiting) in [(2, &SPINNING), (8, &SPINNING), (2, &SLEEPING)] {
            let paths = (0..size as u32).map(|rank| vec![rank % 2]).collect();
            let world = World { paths, ..World::single(size, slots, 128) };
            each_rank_fails(&world, waiting, &[1, INLINE.0, 120, 128, 600]);
        }
    }
}

/// What rank 1 does in a call of which rank 0 is the only dependent.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    Run,
    Fail,
}

/// Rank 1 takes all its turns before rank 0 enters the first call. Each turn is a flat Reduce to rank 0.
fn outcomes_of_the_late(turns: &[Turn], slots: usize) -> Vec<Result<(), Fault>> {
    let world = World::single(2, slots, 128);
    let random = &mut Random::new(turns.len() as u64);
    let case = |epoch, random: &mut _| {
        let shape = (Epoch(epoch), CommRank(0), 128);
        Case::with_order(&world, row(REDUCE_FLAT), shape, (OperandOrder::Any, 4), random)
    };
    let calls: Vec<Case> = (1..=turns.len() as u64).map(|epoch| case(epoch, random)).collect();
    let done = Signal::default();
    let outcomes = world.run(|rank: Rank| {
        if rank.me.0 == 0 {
            done.wait_for(1);
            return calls.iter().map(|case| case.call(&rank, &SPINNING)).collect();
        }
        for (case, turn) in calls.iter().zip(turns) {
            match turn {
                Turn::Run => assert_eq!(case.call(&rank, &SPINNING), Ok(())),
                Turn::Fail => rank.context.fail(case.plan.epoch),
            }
        }
        done.give();
        Vec::new()
    });
    outcomes.into_iter().next().expect("rank 0")
}

fn expected(turns: &[Turn]) -> Vec<Result<(), Fault>> {
    turns.iter().map(|turn| if *turn == Turn::Run { Ok(()) } else { peer_failed(1) }).collect()
}

#[test]
fn many_failures_in_a_row_are_all_noticed() {
    for failures in [1, 2, 3, 4, 5, 20, 300] {
        let mut turns = vec![Turn::Fail; failures];
        turns.push(Turn::Run);
        assert_eq!(outcomes_of_the_late(&turns, 2), expected(&turns), "{failures} failures");
    }
}

#[test]
fn results_from_before_and_between_failures_count() {
    use Turn::{Fail, Run};
    for turns in [
        vec![Run, Fail, Fail, Fail, Fail, Fail, Fail, Run],
        vec![Run, Run, Fail, Fail, Fail, Fail, Run, Run],
        vec![Fail, Run, Fail, Run, Fail, Run, Fail, Run],
    ] {
        assert_eq!(outcomes_of_the_late(&turns, 8), expected(&turns));
    }
}

/// The slot of the failed call is already in use again when the late rank looks for it.
#[test]
fn a_slot_that_is_used_again_does_not_pass_for_an_earlier_one() {
    use Turn::{Fail, Run};
    let turns = [Fail, Run, Run];
    assert_eq!(outcomes_of_the_late(&turns, 2), expected(&turns));
}
