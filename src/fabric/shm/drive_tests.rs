//! Tests of how calls are driven to their ends, and of their waits.

use super::*;
use crate::coll::{Knobs, Plan};
use crate::fabric::shm::context::tests::two_ranks;
use crate::fabric::shm::{Buffers, Context, Ends, ShortCall, known};
use crate::fabric::{Fabric, Lending, Line, Source};
use crate::sync::{Descriptor, Payload, Room};
use crate::types::{Bytes, OperandOrder};
use std::ptr::null_mut;
use std::sync::Mutex;

/// For ranks that have their cores to themselves.
pub(in super::super) const WAITING: Waiting = Waiting {
    is_oversubscribed: false,
    stall: None,
    progress: || {},
    keep_pace: |_, _| {},
    traffic: || Traffic::Absent,
    patience: Waiting::PATIENCE,
    report: |stall| panic!("{stall:?}"),
};

fn plan(epoch: u64) -> Plan {
    Plan {
        epoch: Epoch(epoch),
        bytes: Bytes(8),
        granule: Bytes(1),
        root: CommRank(0),
        order: OperandOrder::Any,
        knobs: Knobs::UNSET,
        scratch: Bytes::ZERO,
        reach: Bytes::ZERO,
    }
}

fn enter(context: &Context, epoch: u64) -> Call<'_> {
    enter_to_wait(context, &WAITING, epoch)
}

fn enter_to_wait<'a>(context: &'a Context, waiting: &'a Waiting, epoch: u64) -> Call<'a> {
    // SAFETY: these calls touch no buffers.
    unsafe { Call::enter(context, waiting, Collective::Reduce, 0, &plan(epoch), Buffers::NONE) }
}

/// Where ranks share cores, a wait asks the library before it yields, if it is time for that. It asks in any case as
/// often as it would sleep, and before it sleeps. It does not sleep before its patience is over.
#[test]
fn waits_ask_before_they_sleep() {
    static ASKED: Mutex<Vec<(Instant, Asking)>> = Mutex::new(Vec::new());
    static SHARING: Waiting = Waiting {
        is_oversubscribed: true,
        keep_pace: |now, asking| ASKED.lock().unwrap().push((now, asking)),
        patience: Duration::from_millis(2),
        ..WAITING
    };
    let [me, peer] = two_ranks();
    let call = enter_to_wait(&me, &SHARING, 1);
    let ticket = Ticket::new(Epoch(1), 0);
    let started = Instant::now();
    let awaited = Awaited::Flag { rank: NodeRank(1), line: Line::Up, ticket };
    call.outlast(awaited, &|| {
        // On a busy machine each yield may take milliseconds.
        let has_asked = || {
            ASKED
                .lock()
                .unwrap()
                .iter()
                .any(|(when, asking)| *asking == Asking::Now && *when - started >= SHARING.patience)
        };
        let waited = started.elapsed();
        let has_come = waited > Duration::from_millis(10) && (has_asked() || waited > Duration::from_secs(10));
        if has_come {
            drop(enter(&peer, 1));
        }
        Ok(has_come)
    })
    .unwrap();
    let asked = ASKED.lock().unwrap();
    // The wait began a little after the test.
    let forced = asked.iter().filter(|(_, asking)| *asking == Asking::Now);
    let forced: Vec<Duration> = forced.map(|(when, _)| *when - started).collect();
    assert!(forced[0] >= NAP, "{forced:?}");
    assert!(forced.iter().any(|when| *when >= SHARING.patience), "{forced:?}");
    let is_sparse = |pair: &[Duration]| pair[1] - pair[0] >= NAP || pair[1] >= SHARING.patience;
    assert!(forced.windows(2).all(is_sparse), "{forced:?}");
}

#[test]
fn waits_sleep_once_they_have_yielded_often_and_for_long_enough() {
    let may_sleep = |bytes, pauses, waited| {
        let wait = Wait { pauses, ..Wait::of(Awaited::Nothing) };
        wait.may_sleep(bytes, Waiting::PATIENCE, waited)
    };
    for (bytes, least) in [(Bytes(8), YIELDS[0]), (LONG, YIELDS[1])] {
        assert!(!may_sleep(bytes, least - 1, Waiting::PATIENCE));
        assert!(!may_sleep(bytes, least, Waiting::PATIENCE - Duration::from_nanos(1)));
        assert!(may_sleep(bytes, least, Waiting::PATIENCE));
    }
}

/// Where each rank has a core, a wait that has lasted for a while asks the library once, if it is time for that.
#[test]
fn waits_of_ranks_with_cores_ask_when_they_last() {
    static ASKED: Mutex<Vec<(Instant, Asking)>> = Mutex::new(Vec::new());
    static PACED: Waiting = Waiting { keep_pace: |now, asking| ASKED.lock().unwrap().push((now, asking)), ..WAITING };
    let [me, _peer] = two_ranks();
    let awaited = Awaited::Flag { rank: NodeRank(1), line: Line::Up, ticket: Ticket::new(Epoch(1), 0) };
    let asked_in_wait_of = |looks: u32| {
        ASKED.lock().unwrap().clear();
        let call = enter_to_wait(&me, &PACED, 1);
        let looked = std::cell::Cell::new(0);
        let has_come = || {
            looked.set(looked.get() + 1);
            Ok(looked.get() == looks)
        };
        call.outlast(awaited, &has_come).unwrap();
        ASKED.lock().unwrap().iter().map(|(_, asking)| *asking).collect::<Vec<_>>()
    };
    let pauses = pauses_in(ASKS_AFTER);
    let none: Vec<Asking> = Vec::new();
    assert_eq!([1, pauses].map(asked_in_wait_of), [none.clone(), none], "a short wait");
    assert_eq!([pauses + 1, pauses + 500].map(asked_in_wait_of), [vec![Asking::WhenDue], vec![Asking::WhenDue]]);
}

/// Rank 0 finds nothing; then rank 1 publishes and does `then`. Returns whether rank 0 notices trouble.
fn is_trouble_after(then: impl FnOnce(&Context)) -> bool {
    let [me, peer] = two_ranks();
    let ticket = Ticket::new(Epoch(1), 0);
    let mut task = TaskContext::from_waker(Waker::noop());
    let call = enter(&me, 1);
    assert!(pin!(call.wait(NodeRank(1), Line::Up, ticket)).poll(&mut task).is_pending());
    let theirs = enter(&peer, 1);
    assert!(pin!(theirs.publish(Line::Up, ticket)).poll(&mut task).is_ready());
    then(&peer);
    call.notice_trouble()
}

/// How a rank would look next at an awaited peer that is in no call here.
fn look_elsewhere(context: &Context) -> Look {
    context.hopes.look(Epoch(1), Kind::WithRoot, || Traffic::Absent, || false)
}

/// A rank looks at a peer that is in a call here as long as that has its core, and at other peers as long as there is
/// hope.
#[test]
fn looks_at_peers_elsewhere_end_when_they_were_in_vain() {
    let [me, _peer] = two_ranks();
    let call = enter(&me, 1);
    let awaited = Awaited::Flag { rank: NodeRank(1), line: Line::Up, ticket: Ticket::new(Epoch(1), 0) };
    (0..40).for_each(|_| assert!(!call.has_come_from_work(awaited, NodeRank(1))));
    assert_eq!(look_elsewhere(&me), Look::Once, "in no call: in vain");
    let [me, peer] = two_ranks();
    let (call, _theirs) = (enter(&me, 1), enter(&peer, 1));
    (0..40).for_each(|_| assert!(!call.has_come_from_work(awaited, NodeRank(1))));
    assert_eq!(look_elsewhere(&me), Look::Anywhere, "in the call: no matter");
}

/// A peer that has given its core away in a call of another communicator is not looked at, if the ranks of both
/// communicators tell that in one place.
#[test]
fn who_is_away_elsewhere_is_away_here() {
    let awaited = Awaited::Flag { rank: NodeRank(0), line: Line::Up, ticket: Ticket::new(Epoch(1), 0) };
    let ([home, other], [mut here, _peer]) = (two_ranks(), two_ranks());
    // The ranks are in another order here.
    here.set_presences(other.own_presences().among([NodeRank(1), NodeRank(0)].into_iter()));
    assert!(!here.presence(NodeRank(0)).is_away());
    let other_call = enter(&home, 1);
    other_call.leave_core(|| assert!(!here.presence(NodeRank(0)).is_away() && here.presence(NodeRank(1)).is_away()));
    let other_call = enter(&other, 1);
    other_call.leave_core(|| {
        assert!(here.presence(NodeRank(0)).is_away());
        let call = enter(&here, 1);
        (0..40).for_each(|_| assert!(!call.has_come_from_work(awaited, NodeRank(0))));
        assert_eq!(look_elsewhere(&here), Look::Anywhere, "no hope was lost");
    });
}

#[test]
fn waits_for_a_peer_that_has_gone_on_end() {
    for is_oversubscribed in [false, true] {
        let waiting = Waiting { is_oversubscribed, ..WAITING };
        let [me, peer] = two_ranks();
        let ticket = Ticket::new(Epoch(1), 0);
        drop(enter(&peer, 2));
        let call = enter_to_wait(&me, &waiting, 1);
        let of_polls = call.drive(call.wait(NodeRank(1), Line::Up, ticket));
        assert!(matches!(of_polls, Err(Fault::Mismatch { .. })), "{of_polls:?}");
        drop(call);
        let call = enter_to_wait(&me, &waiting, 1);
        let awaited = Awaited::Flag { rank: NodeRank(1), line: Line::Up, ticket };
        let looks = std::cell::Cell::new(0);
        let of_looks = call.outlast(awaited, &|| {
            looks.set(looks.get() + 1);
            assert!(looks.get() < 2000, "nobody asks for trouble");
            Ok(false)
        });
        assert!(matches!(of_looks, Err(Fault::Mismatch { .. })), "{of_looks:?}");
    }
}

#[test]
fn what_was_published_before_failures_counts() {
    assert!(!is_trouble_after(|_| {}));
    assert!(!is_trouble_after(|peer| peer.fail(Epoch(1))));
    assert!(!is_trouble_after(|peer| (2..=9).for_each(|epoch| peer.fail(Epoch(epoch)))));
    assert!(!is_trouble_after(|peer| drop(enter(peer, 2))));
}

#[test]
fn calls_a_ring_apart_are_told_apart() {
    let [me, peer] = two_ranks();
    let [first, next, last] = [1, 257, 513].map(|epoch| Ticket::new(Epoch(epoch), 0));
    let flag = me.line(NodeRank(1), Line::Up, first);
    let publish = |collective, ticket: Ticket| {
        let descriptor = Descriptor::new(ticket.epoch(), collective, 0, 0, Bytes(8));
        let needs_claim = collective != Collective::Barrier;
        assert!(!needs_claim || peer.claim_lines(ticket, descriptor));
        peer.line(NodeRank(1), Line::Up, ticket).publish(ticket, descriptor.word());
    };
    publish(Collective::Reduce, first);
    let found = flag.reached(first);
    publish(Collective::Barrier, next);
    // Between this rank's looks at the flag and at the descriptor the peer has come round: that is no contradiction.
    let verified = me.verify(&enter(&me, 1).entered, NodeRank(1), flag, first, found.unwrap());
    assert_eq!(verified, Ok(()));
    // The peer claimed its line in call 1, but not in call 257, which is like it.
    publish(Collective::Barrier, last);
    let verified = me.verify(&enter(&me, 257).entered, NodeRank(1), flag, next, last.0);
    assert!(matches!(verified, Err(Fault::Mismatch { .. })));
}

/// Peers that learnt of a mismatch would end the job themselves, before the rank that knows the reason has told it.
#[test]
fn peers_do_not_learn_of_a_mismatch_but_of_failures() {
    let has_failed_after = |then: fn(&Context)| {
        let [me, peer] = two_ranks();
        then(&peer);
        let (call, ticket) = (enter(&me, 1), Ticket::new(Epoch(1), 0));
        let fault = call.drive(call.wait(NodeRank(1), Line::Up, ticket)).unwrap_err();
        let ends = Ends { send: null_mut(), recv: null_mut(), is_in_place: false };
        let again = (&call.entered, Epoch(2), CommRank(0));
        // SAFETY: this call touches no buffers.
        let plain = unsafe {
            ShortCall::<known::InLines>::enter(&me, &WAITING, again, Bytes(1), ends, None, Payload::BesideFlag)
        };
        assert_eq!(plain.finish(Err(fault)), Err(fault));
        (
            matches!(fault, Fault::Mismatch { .. }),
            [1, 2].map(|epoch| peer.control(NodeRank(0)).call.has_failed(Epoch(epoch))),
        )
    };
    assert_eq!(has_failed_after(|peer| drop(enter(peer, 2))), (true, [false; 2]));
    assert_eq!(has_failed_after(|peer| peer.fail(Epoch(1))), (false, [true; 2]));
}

/// A peer that has joined a later call took part in this one if it agreed on cells here. If not, it failed this call,
/// or was in another one.
#[test]
fn what_is_said_of_cells_in_a_later_call_tells_of_this_one() {
    let found_after = |before: fn(&Context)| {
        let [me, peer] = two_ranks();
        before(&peer);
        peer.mine().tell_of_cells(Bytes(16), true);
        peer.mine().joined.publish(Ticket::new(Epoch(2), 0));
        me.cells_of(&enter(&me, 1).entered, NodeRank(1), Bytes(16))
    };
    let agree = |peer: &Context| peer.mine().agreed.publish(Ticket::new(Epoch(1), 0));
    assert_eq!(found_after(agree), Ok(Some(true)));
    assert_eq!(found_after(|peer| peer.fail(Epoch(1))), Err(Fault::PeerFailed { rank: NodeRank(1) }));
    assert!(matches!(found_after(|peer| drop(enter(peer, 2))), Err(Fault::Mismatch { rank: NodeRank(1), .. })));
}

#[test]
fn who_has_gone_on_or_failed_without_publishing_is_noticed() {
    let fault_after = |then: fn(&Context)| {
        let [me, peer] = two_ranks();
        let mut task = TaskContext::from_waker(Waker::noop());
        let call = enter(&me, 1);
        assert!(pin!(call.wait(NodeRank(1), Line::Up, Ticket::new(Epoch(1), 0))).poll(&mut task).is_pending());
        then(&peer);
        call.notice_trouble().then(|| call.fault.get().copied()).flatten()
    };
    let failed = Some(Fault::PeerFailed { rank: NodeRank(1) });
    assert_eq!(fault_after(|_| {}), None);
    assert_eq!(fault_after(|peer| drop(enter(peer, 1))), None);
    assert_eq!(fault_after(|peer| peer.fail(Epoch(1))), failed);
    assert_eq!(fault_after(|peer| (1..=9).for_each(|epoch| peer.fail(Epoch(epoch)))), failed);
    assert!(matches!(fault_after(|peer| drop(enter(peer, 2))), Some(Fault::Mismatch { .. })));
}

/// Once a rank has given its core away, others have had the core to take what it published in calls before.
#[test]
fn who_gave_its_core_away_looks_on() {
    static SHARING: Waiting = Waiting { is_oversubscribed: true, ..WAITING };
    let [me, peer] = two_ranks();
    let awaited = |epoch| Awaited::Flag { rank: NodeRank(1), line: Line::Up, ticket: Ticket::new(Epoch(epoch), 0) };
    let claim = |epoch| {
        let mut task = TaskContext::from_waker(Waker::noop());
        let call = enter_to_wait(&me, &SHARING, epoch);
        assert!(pin!(call.claim(Ticket::new(Epoch(epoch), 0), Room::Lines)).poll(&mut task).is_ready());
        drop(call);
        drop(enter(&peer, epoch));
    };
    claim(1);
    let call = enter_to_wait(&me, &SHARING, 2);
    assert!(call.decide_to_give_way(awaited(2)), "it published");
    assert!(call.decide_to_give_way(awaited(2)), "nobody had its core since");
    call.yield_once(awaited(2));
    assert!(!call.decide_to_give_way(awaited(2)), "others had its core");
}

/// Among ranks that share cores, or more than two, calls of trials are timed from their decision to their end.
#[test]
fn calls_of_trials_are_timed_to_their_ends() {
    static SHARING: Waiting = Waiting { is_oversubscribed: true, ..WAITING };
    const USUAL: u64 = 8;
    let [me, peer] = two_ranks();
    let (n, ends) = (Bytes(1 << 20), Ends { send: null_mut(), recv: null_mut(), is_in_place: false });
    let scatter = |epoch| {
        // SAFETY: these calls touch no buffers.
        unsafe { Call::enter(&me, &SHARING, Collective::Scatter, 0, &plan(epoch), Buffers::NONE) }
    };
    let direct = |like, epoch| {
        let again = (like, Epoch(epoch), CommRank(0));
        // SAFETY: as above.
        unsafe { ShortCall::<known::InCells>::enter(&me, &SHARING, again, Bytes(1), ends, None, Payload::BeyondFlag) }
    };
    let (mut failed, like) = (Fault::PeerFailed { rank: NodeRank(1) }, scatter(1).entered);
    for epoch in 1..=USUAL + 6 {
        let is_tried = epoch > USUAL;
        if epoch % 2 == 1 {
            let call = scatter(epoch);
            call.decide_to_lend(None, n, Lending::Tried(Source::Slots));
            assert_eq!(me.loans().is_some_and(|loans| loans.is_timed()), is_tried, "call {epoch}");
            // The last one fails.
            if epoch == USUAL + 5 {
                peer.fail(Epoch(epoch));
                failed = call.drive(call.wait(NodeRank(1), Line::Up, Ticket::new(Epoch(epoch), 0))).unwrap_err();
            } else {
                assert_eq!(call.drive(std::future::ready(())), Ok(()));
            }
        } else {
            let call = direct(&like, epoch);
            call.choose_source(n, Source::Slots);
            assert_eq!(me.loans().is_some_and(|loans| loans.is_timed()), is_tried, "call {epoch}");
            let result = if epoch == USUAL + 6 { Err(failed) } else { Ok(()) };
            assert_eq!(call.finish(result), result);
        }
        assert!(!me.loans().is_some_and(|loans| loans.is_timed()), "call {epoch} is over");
    }
}
