//! Erroneous programs, whose ranks are in different calls at a time: some rank that waits notices, and no rank gets
//! wrong data.

use crate::case::Case;
use crate::world::{SLEEPING, SPINNING, Signal, World};
use huddle::coll::{REGISTRY, find};
use huddle::fabric::INLINE;
use huddle::fabric::checked::Random;
use huddle::fabric::shm::{Fault, PeerCall, Waiting};
use huddle::types::{Collective, CommRank, Epoch, NodeRank, OperandOrder};

type Outcome = Result<(), Fault>;
/// A call of an algorithm by name, with root and length.
pub type Shape = (Collective, &'static str, u32, usize);

/// All ranks make the call `usual`, but `odd` makes `other`.
pub fn run(world: &World, usual: &Case, other: &Case, odd: usize, waiting: &'static Waiting) {
    let call_of = |rank| if rank == odd { other } else { usual };
    let outcomes: Vec<Outcome> = world.run(|rank| call_of(rank.me.index()).call(&rank, waiting));
    let size = world.size();
    let differs = |left, right| (left == odd) != (right == odd);
    let is_misled = |rank| (0..size).any(|peer| differs(rank, peer) && call_of(rank).depends(rank, peer));
    let what = || {
        let name = |case: &Case| format!("{:?} {} {:?}", case.collective(), REGISTRY[case.row].name, case.plan);
        format!("{} but on rank {odd} {}: {outcomes:?}", name(usual), name(other))
    };
    for rank in (0..size).filter(|rank| is_misled(*rank)) {
        assert!(outcomes[rank].is_err(), "{}", what());
    }
    let is_noticed = outcomes.iter().any(|outcome| matches!(outcome, Err(Fault::Mismatch { .. })));
    assert!(is_noticed || !(0..size).any(is_misled), "{}", what());
}

#[test]
fn calls_that_differ_are_noticed() {
    all_pairs(&World::single(3, 2, 128), &[8, INLINE.0, 128, 400]);
}

/// In some of these calls peers tell each other where their cells are.
#[test]
fn long_calls_that_differ_are_noticed() {
    all_pairs(&World::single(3, 2, 8192), &[8, 4000, 5000, 20_000]);
}

fn all_pairs(world: &World, lengths: &[usize]) {
    let random = &mut Random::new(1);
    let mut pairs = 0;
    for row in 0..REGISTRY.len() {
        for other in 0..REGISTRY.len() {
            for odd in 0..world.size() {
                let waiting = if random.one_in(2) { &SPINNING } else { &SLEEPING };
                let mut case = |row| {
                    let root = CommRank(random.below(3) as u32);
                    Case::new(world, row, (Epoch(1), root, random.pick(lengths)), random)
                };
                let (usual, odd_one) = (case(row), case(other));
                let same = |left: &Case, right: &Case| {
                    let key = |case: &Case| (case.row, case.plan.root.0, case.plan.bytes.0);
                    key(left) == key(right)
                };
                if !same(&usual, &odd_one) {
                    run(world, &usual, &odd_one, odd, waiting);
                    pairs += 1;
                }
            }
        }
    }
    println!("{pairs} pairs");
}

const BYTES: usize = 120;

pub fn case(world: &World, (collective, name, root, bytes): Shape, epoch: u64) -> Case {
    let row = find(collective, name).expect("a row of the registry");
    let shape = (Epoch(epoch), CommRank(root), bytes);
    Case::with_order(world, row, shape, (OperandOrder::Any, 4), &mut Random::new(epoch + bytes as u64))
}

fn late(early: &[Shape], late: Shape) -> Outcome {
    let world = World::single(3, 2, 128);
    let early: Vec<Case> = early.iter().zip(1..).map(|(call, epoch)| case(&world, *call, epoch)).collect();
    come_late(&world, &early, &case(&world, late, 1))
}

/// Rank 2 makes the call `late` after the others have gone through `early`, as far as they get without it.
pub fn come_late(world: &World, early: &[Case], late: &Case) -> Outcome {
    let done = Signal::default();
    let outcomes = world.run(|rank| {
        if rank.me.0 == 2 {
            done.wait_for(2);
            return late.call(&rank, &SPINNING);
        }
        for case in early {
            if case.collective() == Collective::Barrier {
                // The barrier can't end, because rank 2 is not in it; but this rank has arrived.
                announce_arrival(case, &rank);
            } else {
                assert_eq!(case.call(&rank, &SPINNING), Ok(()));
            }
        }
        done.give();
        Ok(())
    });
    outcomes[2]
}

/// Enters a barrier and leaves it unfinished.
fn announce_arrival(case: &Case, rank: &crate::world::Rank) {
    use huddle::fabric::shm::{Buffers, Call};
    use std::task::{Context, Waker};
    let (row, buffers) = (&REGISTRY[case.row], Buffers::NONE);
    // SAFETY: a barrier has no buffers.
    let call = unsafe { Call::enter(&rank.context, &SPINNING, Collective::Barrier, case.row, &case.plan, buffers) };
    let call = call.to_be_polled();
    let mut running = (row.start)(&call, &case.plan);
    assert!(running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

fn is_mismatch(outcome: &Outcome, by: u32) -> bool {
    matches!(outcome, Err(Fault::Mismatch { rank: NodeRank(rank), .. }) if *rank == by)
}

/// Rank 1 was a reader in call 1. In its third call it uses the slot that rank 2 looks at.
#[test]
fn data_of_a_later_call_are_not_taken_for_those_of_an_earlier_one() {
    use Collective::Bcast;
    let early = [(Bcast, "flat", 0, BYTES), (Bcast, "flat", 1, BYTES), (Bcast, "flat", 1, BYTES)];
    let outcome = late(&early, (Bcast, "flat", 1, BYTES));
    assert!(is_mismatch(&outcome, 1), "{outcome:?}");
}

/// Like the test before, but the flag is that of a barrier, which claims no slot.
#[test]
fn a_barrier_does_not_pass_for_data() {
    use Collective::{Barrier, Bcast, Reduce};
    let early = [(Bcast, "flat", 0, BYTES), (Bcast, "flat", 0, BYTES), (Barrier, "flat", 0, 0)];
    let outcome = late(&early, (Reduce, "flat", 2, BYTES));
    assert!(matches!(outcome, Err(Fault::Mismatch { .. })), "{outcome:?}");
}

/// Rank 1 did write the slot, but fewer bytes; a barrier has used its flag again.
#[test]
fn data_of_another_length_are_noticed_behind_a_barrier() {
    use Collective::{Barrier, Reduce};
    let early = [(Reduce, "flat", 2, 20), (Reduce, "flat", 2, 20), (Barrier, "flat", 0, 0)];
    let outcome = late(&early, (Reduce, "flat", 2, 24));
    let told = PeerCall { epoch: Epoch(1), collective: Some(Collective::Reduce), root: 2, bytes: 20 };
    assert!(
        matches!(outcome, Err(Fault::Mismatch { peer, .. }) if peer == told || peer.epoch == Epoch(3)),
        "{outcome:?}"
    );
}

/// The right data are still found behind a barrier.
#[test]
fn data_behind_a_barrier_are_found() {
    use Collective::{Barrier, Reduce};
    let early = [(Reduce, "flat", 2, 20), (Reduce, "flat", 2, 20), (Barrier, "flat", 0, 0)];
    assert_eq!(late(&early, (Reduce, "flat", 2, 20)), Ok(()));
}

/// Rank 0 has gone on without publishing what rank 2 waits for, and it waits for nobody: its data fit a flag's line, so
/// they move whole and it never writes the other line.
#[test]
fn a_rank_that_has_gone_on_is_noticed() {
    use Collective::{Allreduce, Bcast};
    let early = [(Bcast, "flat", 0, 40), (Bcast, "flat", 0, 40)];
    let outcome = late(&early, (Allreduce, "flat", 0, 40));
    assert!(is_mismatch(&outcome, 0), "{outcome:?}");
    let Err(Fault::Mismatch { peer, .. }) = outcome else { return };
    assert_eq!(peer.epoch, Epoch(2));
}

/// The report is about the call in question, even if the peer has gone on.
#[test]
fn the_report_names_the_call_of_the_peer() {
    use Collective::Bcast;
    let early = [(Bcast, "flat", 0, BYTES), (Bcast, "flat", 0, BYTES)];
    let outcome = late(&early, (Bcast, "flat", 0, 2 * BYTES));
    let told = PeerCall { epoch: Epoch(1), collective: Some(Bcast), root: 0, bytes: BYTES as u64 };
    assert_eq!(outcome, Err(Fault::Mismatch { rank: NodeRank(0), peer: told }));
}
