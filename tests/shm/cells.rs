//! The memory of the cells, on which the ranks of a node agree in the first call that needs it.

use crate::mismatches::case;
use crate::world::{Rank, SLEEPING, SPINNING, Signal, World};
use huddle::fabric::INLINE;
use huddle::fabric::shm::{Fault, Waiting};
use huddle::types::{Bytes, Collective, CommRank, Epoch, NodeRank};
use std::sync::Arc;

type Agreed = Result<bool, Fault>;

/// What a rank finds when it reserves memory.
#[derive(Clone, Copy)]
enum Memory {
    Enough,
    None,
}

/// Agrees on cells in call `epoch`, a Bcast of `bytes` bytes from rank 0, which needs that much of a cell.
fn agree(world: &World, rank: &Rank, (epoch, bytes): (u64, usize), memory: Memory, waiting: &Waiting) -> Agreed {
    let case = case(world, (Collective::Bcast, "flat", 0, bytes), epoch);
    let reserve = || match memory {
        Memory::Enough => rank.context.reserve_cells(Bytes(bytes)).is_ok(),
        Memory::None => false,
    };
    let call = (case.collective(), case.row);
    rank.context.agree_on_cells(Bytes(bytes), reserve, waiting, call, &case.plan)
}

fn is_peer_failed(outcome: &Agreed) -> bool {
    matches!(outcome, Err(Fault::PeerFailed { .. }))
}

#[test]
fn all_ranks_have_cells_where_all_could_reserve_theirs() {
    let world = World::single(3, 2, 256);
    for waiting in [&SPINNING, &SLEEPING] {
        for poor in [None, Some(0), Some(1), Some(2)] {
            let outcomes = world.run(|rank| {
                let memory = if poor == Some(rank.me.index()) { Memory::None } else { Memory::Enough };
                agree(&world, &rank, (1, 200), memory, waiting)
            });
            assert_eq!(outcomes, [Ok(poor.is_none()); 3], "{poor:?}");
        }
    }
}

/// A refused call goes to the native library. A rank may leave that call before others, and its context may go to a
/// later communicator.
#[test]
fn a_context_is_idle_once_all_ranks_have_left_a_call_that_was_refused() {
    static WAITS: Signal = Signal::new();
    static GOES_ON: Signal = Signal::new();
    static HELD: Waiting = Waiting {
        keep_pace: |_, _| {
            WAITS.give();
            GOES_ON.wait_for(1);
        },
        ..SPINNING
    };
    let world = World::single(2, 2, 256);
    let contexts = world.contexts();
    let outcomes = world.run_on(contexts.clone(), |rank| {
        if rank.me.0 == 1 {
            return agree(&world, &rank, (1, 200), Memory::None, &HELD);
        }
        WAITS.wait_for(1);
        let outcome = agree(&world, &rank, (1, 200), Memory::Enough, &SPINNING);
        assert!(!rank.context.is_idle(), "rank 1 is in the call");
        GOES_ON.give();
        outcome
    });
    assert_eq!(outcomes, [Ok(false); 2]);
    assert!(contexts.iter().all(|context| context.is_idle()));
}

#[test]
fn less_than_what_was_refused_may_be_had() {
    let world = World::single(2, 2, 256);
    let outcomes = world.run(|rank| {
        let memory = |bytes| if bytes > 100 && rank.me.0 == 0 { Memory::None } else { Memory::Enough };
        let calls = [(1, 64), (2, 256), (3, 100), (4, 200), (5, 100)];
        calls.map(|(epoch, bytes)| agree(&world, &rank, (epoch, bytes), memory(bytes), &SPINNING))
    });
    assert_eq!(outcomes, [[Ok(true), Ok(false), Ok(true), Ok(false), Ok(true)]; 2]);
}

/// The arguments of one rank are rejected in the first call that needs cells; the next call behaves like a first one.
#[test]
fn a_rank_that_fails_is_noticed_and_asked_again() {
    let world = World::single(3, 2, 256);
    for waiting in [&SPINNING, &SLEEPING] {
        for failed in 0..3 {
            let outcomes = world.run(|rank| {
                let first = if rank.me.index() == failed {
                    rank.context.fail(Epoch(1));
                    None
                } else {
                    Some(agree(&world, &rank, (1, 200), Memory::Enough, waiting))
                };
                let second = agree(&world, &rank, (2, 200), Memory::Enough, waiting);
                let bcast = case(&world, (Collective::Bcast, "flat", 0, 200), 2);
                assert_eq!(bcast.call(&rank, waiting), Ok(()));
                (first, second)
            });
            for (first, second) in outcomes {
                assert_eq!(second, Ok(true));
                assert!(first.as_ref().is_none_or(is_peer_failed), "{first:?}");
            }
        }
    }
}

/// What a rank says in a later call is no answer in a call that it failed: no other rank would go the same way.
#[test]
fn a_rank_that_comes_late_to_a_call_that_a_peer_failed_fails_too() {
    let world = World::single(2, 2, 256);
    for memory in [Memory::Enough, Memory::None] {
        let is_further = Signal::default();
        let outcomes = world.run(|rank| {
            if rank.me.0 == 1 {
                rank.context.fail(Epoch(1));
                let call = case(&world, (Collective::Bcast, "flat", 0, 200), 2);
                let reserve = || {
                    // From here on rank 0 sees only what rank 1 says of its cells, and may take it for an answer in
                    // call 1.
                    is_further.give();
                    matches!(memory, Memory::Enough)
                };
                let what = (call.collective(), call.row);
                return [Ok(true), rank.context.agree_on_cells(Bytes(200), reserve, &SPINNING, what, &call.plan)];
            }
            is_further.wait_for(1);
            std::thread::sleep(std::time::Duration::from_millis(20));
            let first = agree(&world, &rank, (1, 200), Memory::Enough, &SPINNING);
            [first, agree(&world, &rank, (2, 200), Memory::Enough, &SPINNING)]
        });
        let expected = Ok(matches!(memory, Memory::Enough));
        assert!(is_peer_failed(&outcomes[0][0]), "{outcomes:?}");
        assert_eq!([outcomes[0][1], outcomes[1][1]], [expected; 2]);
    }
}

/// One rank calls with a message that fits a line, so it knows nothing of cells; or with one that needs less of them.
#[test]
fn a_call_that_needs_less_of_cells_is_a_mismatch() {
    let world = World::single(2, 2, 256);
    for (odd, bytes) in [(0, 8), (1, 8), (0, 120), (1, 120)] {
        let outcomes = world.run(|rank| {
            if rank.me.0 != odd {
                agree(&world, &rank, (1, 200), Memory::Enough, &SPINNING).map(drop)
            } else if bytes > INLINE.0 {
                agree(&world, &rank, (1, bytes), Memory::Enough, &SPINNING).map(drop)
            } else {
                case(&world, (Collective::Bcast, "flat", 0, bytes), 1).call(&rank, &SPINNING)
            }
        });
        let (culprit, outcome) = (NodeRank(odd), &outcomes[1 - odd as usize]);
        assert!(matches!(outcome, Err(Fault::Mismatch { rank, .. }) if *rank == culprit), "{odd}: {outcomes:?}");
    }
}

/// A context keeps the cells that it had with another communicator.
#[test]
fn renewed_contexts_keep_their_cells() {
    let world = World::single(2, 2, 256);
    let contexts = world.contexts();
    world.run_on(contexts.clone(), |rank| {
        assert_eq!(agree(&world, &rank, (1, 200), Memory::Enough, &SPINNING), Ok(true))
    });
    let renewed: Vec<_> = contexts
        .into_iter()
        .enumerate()
        .map(|(me, context)| {
            let mut context = Arc::into_inner(context).expect("no other owner");
            context.renew(world.layout(CommRank(me as u32)));
            Arc::new(context)
        })
        .collect();
    renewed[0].clear();
    world.run_on(renewed, |rank| {
        assert_eq!(agree(&world, &rank, (1, 200), Memory::Enough, &SPINNING), Ok(true));
        assert_eq!(case(&world, (Collective::Bcast, "flat", 0, 200), 1).call(&rank, &SPINNING), Ok(()));
    });
}
