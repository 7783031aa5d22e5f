//! Waits that last are reported, with what is awaited and from whom.

use crate::case::Case;
use crate::world::{Rank, World};
use huddle::coll::find;
use huddle::fabric::checked::Random;
use huddle::fabric::shm::{Awaited, PeerCall, Stall, Traffic, Waiting};
use huddle::fabric::{Line, Room};
use huddle::types::{Collective, CommRank, Epoch, NodeRank, OperandOrder, Ticket};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const AFTER: Duration = Duration::from_millis(50);
/// How late the late rank is.
const LATE: Duration = Duration::from_millis(330);
const NOTHING_YET: PeerCall = PeerCall { epoch: Epoch(0), collective: None, root: 0, bytes: 0 };

/// A way to wait whose reports go to a list.
macro_rules! reporting {
    ($waiting:ident, $stalls:ident, $is_oversubscribed:literal) => {
        static $stalls: Mutex<Vec<Stall>> = Mutex::new(Vec::new());
        static $waiting: Waiting = Waiting {
            is_oversubscribed: $is_oversubscribed,
            stall: Some(AFTER),
            progress: || {},
            keep_pace: |_, _| {},
            traffic: || Traffic::Absent,
            patience: Waiting::PATIENCE,
            report: |stall| $stalls.lock().unwrap().push(*stall),
        };
    };
}

fn case(world: &World, (collective, root, bytes): (Collective, u32, usize), epoch: u64) -> Case {
    let row = find(collective, "flat").expect("a row of the registry");
    let shape = (Epoch(epoch), CommRank(root), bytes);
    Case::with_order(world, row, shape, (OperandOrder::Any, 4), &mut Random::new(epoch))
}

/// Runs all calls. Rank `late` begins the first one only after its peers have reported enough. Returns their reports.
fn stalls(
    world: &World,
    calls: &[(Collective, u32, usize)],
    late: u32,
    waiting: &'static Waiting,
    stalls: &Mutex<Vec<Stall>>,
) -> Vec<Stall> {
    let calls: Vec<Case> = calls.iter().zip(1..).map(|(call, epoch)| case(world, *call, epoch)).collect();
    let started = Instant::now();
    world.run(|rank: Rank| {
        while rank.me.0 == late && (started.elapsed() < LATE || !has_repeated(&stalls.lock().unwrap())) {
            std::thread::sleep(AFTER / 10);
        }
        calls.iter().for_each(|case| assert_eq!(case.call(&rank, waiting), Ok(())));
    });
    assert!(started.elapsed() >= LATE);
    std::mem::take(&mut *stalls.lock().unwrap())
}

/// Whether every peer that waits has reported again: each kind of wait has at least two reports.
fn has_repeated(stalls: &[Stall]) -> bool {
    let alike = |stall: &Stall| stalls.iter().filter(|other| other.awaited == stall.awaited).count();
    !stalls.is_empty() && stalls.iter().all(|stall| alike(stall) >= 2)
}

/// Checks that reports come after the time that was set, and again each time that long.
fn check_times(stalls: &[Stall]) {
    for (stall, number) in stalls.iter().zip(1..) {
        assert!(stall.waited >= AFTER * number, "{stalls:?}");
    }
    assert!(stalls.len() >= 2, "{stalls:?}");
}

#[test]
fn the_awaited_flag_is_reported() {
    reporting!(SPINNING, SPINNING_STALLS, false);
    reporting!(SLEEPING, SLEEPING_STALLS, true);
    let world = World::single(3, 2, 128);
    for (waiting, list) in [(&SPINNING, &SPINNING_STALLS), (&SLEEPING, &SLEEPING_STALLS)] {
        let stalls = stalls(&world, &[(Collective::Reduce, 0, 8)], 2, waiting, list);
        check_times(&stalls);
        for stall in stalls {
            let awaited = Awaited::Flag { rank: NodeRank(2), line: Line::Up, ticket: Ticket::new(Epoch(1), 0) };
            assert_eq!((stall.collective, stall.epoch, stall.awaited), (Collective::Reduce, Epoch(1), awaited));
            assert_eq!(stall.peer, Some((CommRank(2), NOTHING_YET)));
        }
    }
}

#[test]
fn the_peer_is_named_by_its_rank_in_the_communicator() {
    reporting!(WAITING, STALLS, false);
    let world = World { labels: vec![0, 1, 0, 1, 1], ..World::single(5, 2, 128) };
    // On both nodes ranks wait for their leaders; the leader of the other node waits at the bridge.
    let stalls = stalls(&world, &[(Collective::Barrier, 0, 0)], 3, &WAITING, &STALLS);
    let flag = |rank, line| matches!(line, Awaited::Flag { rank: NodeRank(found), .. } if found == rank);
    let of_late: Vec<Stall> = stalls.iter().filter(|stall| flag(1, stall.awaited)).copied().collect();
    assert!(of_late.iter().all(|stall| stall.peer == Some((CommRank(3), NOTHING_YET))), "{stalls:?}");
    check_times(&of_late);
    let at_bridge = stalls.iter().filter(|stall| stall.awaited == Awaited::Bridge);
    assert!(at_bridge.clone().count() > 0 && at_bridge.clone().all(|stall| stall.peer.is_none()), "{stalls:?}");
    let at_leader: Vec<&Stall> = stalls.iter().filter(|stall| flag(0, stall.awaited)).collect();
    let barrier = PeerCall { epoch: Epoch(1), collective: Some(Collective::Barrier), root: 0, bytes: 0 };
    let leaders = [Some((CommRank(0), barrier)), Some((CommRank(1), barrier))];
    assert!(at_leader.iter().all(|stall| leaders.contains(&stall.peer)), "{stalls:?}");
}

#[test]
fn a_claim_reports_the_peer_that_has_not_released() {
    a_root_runs_ahead(120, 2, Room::Passed);
}

#[test]
fn what_fits_a_line_runs_ahead_as_far_as_lines_reach() {
    a_root_runs_ahead(8, 4, Room::Lines);
}

/// The root runs ahead as far as the ring reaches. In the next call the root waits, as does its other reader.
fn a_root_runs_ahead(bytes: usize, calls: usize, room: Room) {
    reporting!(SPINNING, SPINNING_STALLS, false);
    reporting!(SLEEPING, SLEEPING_STALLS, true);
    let world = World::single(3, 2, 128);
    let epoch = Epoch(calls as u64 + 1);
    for (waiting, list) in [(&SPINNING, &SPINNING_STALLS), (&SLEEPING, &SLEEPING_STALLS)] {
        let all = stalls(&world, &vec![(Collective::Bcast, 0, bytes); calls + 1], 1, waiting, list);
        let (stalls, of_reader): (Vec<Stall>, Vec<Stall>) =
            all.into_iter().partition(|stall| !matches!(stall.awaited, Awaited::Flag { .. }));
        assert!(of_reader.iter().all(|stall| stall.peer.map(|(rank, _)| rank) == Some(CommRank(0))), "{of_reader:?}");
        check_times(&stalls);
        for stall in stalls {
            assert_eq!(stall.awaited, Awaited::Slot { ticket: Ticket::new(epoch, 0), room });
            assert_eq!(stall.epoch, epoch);
            assert_eq!(stall.peer, Some((CommRank(1), NOTHING_YET)));
        }
    }
}
