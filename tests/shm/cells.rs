//! The memory of the cells, on which the ranks of a node agree in the first call that needs it.

use crate::mismatches::case;
use crate::world::{Rank, SLEEPING, SPINNING, Signal, World};
use huddle::fabric::shm::{Fault, Waiting};
use huddle::types::{Bytes, Collective, Epoch, NodeRank};

type Agreed = Result<bool, Fault>;

/// In call `epoch`, a Bcast of `bytes` from rank 0, which needs as much of a cell.
fn agree(world: &World, rank: &Rank, (epoch, bytes): (u64, usize), is_reserved: bool, waiting: &Waiting) -> Agreed {
    let case = case(world, (Collective::Bcast, "flat", 0, bytes), epoch);
    rank.context.agree_on_cells((Bytes(bytes), is_reserved), waiting, (case.collective(), case.row), &case.plan)
}

#[test]
fn all_ranks_have_cells_where_all_could_reserve_theirs() {
    let world = World::single(3, 2, 256);
    for waiting in [&SPINNING, &SLEEPING] {
        for poor in [None, Some(0), Some(1), Some(2)] {
            let outcomes = world.run(|rank| {
                let could = rank.context.reserve_cells(Bytes(200)).is_ok();
                assert!(could);
                agree(&world, &rank, (1, 200), could && poor != Some(rank.me.index()), waiting)
            });
            assert_eq!(outcomes, [Ok(poor.is_none()); 3], "{poor:?}");
        }
    }
}

#[test]
fn what_a_rank_has_said_stays() {
    let world = World::single(2, 2, 256);
    let outcomes = world.run(|rank| {
        let first = agree(&world, &rank, (1, 200), rank.me.0 == 0, &SPINNING);
        [first, agree(&world, &rank, (2, 200), true, &SPINNING)]
    });
    assert_eq!(outcomes, [[Ok(false); 2]; 2]);
}

/// The arguments of one rank are rejected in the first call that needs cells; the next one is as if it were the first.
#[test]
fn a_rank_that_fails_is_noticed_and_asked_again() {
    let world = World::single(3, 2, 256);
    for waiting in [&SPINNING, &SLEEPING] {
        for failed in 0..3 {
            let others_know = Signal::default();
            let outcomes = world.run(|rank| {
                let first = if rank.me.index() == failed {
                    rank.context.fail(Epoch(1));
                    others_know.wait_for(2);
                    None
                } else {
                    let first = agree(&world, &rank, (1, 200), true, waiting);
                    others_know.give();
                    Some(first)
                };
                let second = agree(&world, &rank, (2, 200), true, waiting);
                let bcast = case(&world, (Collective::Bcast, "flat", 0, 200), 2);
                assert_eq!(bcast.call(&rank, waiting), Ok(()));
                (first, second)
            });
            for (first, second) in outcomes {
                assert_eq!(second, Ok(true));
                assert!(matches!(first, None | Some(Err(Fault::PeerFailed { .. }))), "{first:?}");
            }
        }
    }
}

/// One rank calls with a message that fits a line, so it knows nothing of cells.
#[test]
fn a_call_that_needs_no_cells_is_a_mismatch() {
    let world = World::single(2, 2, 256);
    for odd in 0..2 {
        let outcomes = world.run(|rank| {
            if rank.me.0 == odd {
                case(&world, (Collective::Bcast, "flat", 0, 8), 1).call(&rank, &SPINNING)
            } else {
                agree(&world, &rank, (1, 200), true, &SPINNING).map(drop)
            }
        });
        let culprit = NodeRank(odd);
        let outcome = &outcomes[1 - odd as usize];
        assert!(matches!(outcome, Err(Fault::Mismatch { rank, .. }) if *rank == culprit), "{odd}: {outcomes:?}");
    }
}
