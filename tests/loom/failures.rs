//! Calls in which some rank takes no part, or another part: what the other ranks conclude.

use crate::program::Call;
use huddle::fabric::explored::{Buffers, Driver, Node, Rank};
use huddle::fabric::shm::Fault;
use huddle::sync::{CallLine, Control, Descriptor};
use huddle::types::{Bytes, Collective, Epoch, NodeRank, Ticket};
use loom::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Runs `one` and `other` as the ranks of a node, in all orders with at most `preemptions` preemptions.
fn two_ranks(preemptions: usize, one: fn(Rank), other: fn(Rank)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let node = Arc::new(Node::new(2, 2, 2, Bytes(16)));
        let rank = |me| Rank::new(Arc::clone(&node), NodeRank(me), Driver::Wary, None);
        let second = rank(1);
        let thread = loom::thread::spawn(move || other(second));
        one(rank(0));
        thread.join().unwrap();
    });
}

/// What this rank gets from a broadcast of `bytes` bytes from rank 1, which sends 7s.
fn receive(rank: &Rank, epoch: u64, bytes: usize) -> Result<Vec<u8>, Fault> {
    bcast(rank, epoch, vec![0; bytes])
}

fn bcast(rank: &Rank, epoch: u64, recv: Vec<u8>) -> Result<Vec<u8>, Fault> {
    let call = Call::new(Collective::Bcast, "flat", recv.len()).rooted(1);
    rank.call(call.row, &call.plan(epoch), Buffers { send: Some(Vec::new()), recv, send_at: 0 })
}

fn send(rank: &Rank, epoch: u64) {
    assert_eq!(bcast(rank, epoch, vec![7; 8]), Ok(vec![7; 8]));
}

const RECEIVED: Result<Vec<u8>, Fault> = Ok(Vec::new());
const PEER_FAILED: Result<Vec<u8>, Fault> = Err(Fault::PeerFailed { rank: NodeRank(1) });

/// `RECEIVED` if this rank gets what was sent, else the fault.
fn outcome(rank: &Rank, epoch: u64) -> Result<Vec<u8>, Fault> {
    receive(rank, epoch, 8).inspect(|data| assert_eq!(*data, [7; 8])).map(|_| Vec::new())
}

#[test]
fn a_failed_call_fails_for_those_who_depend_on_it_and_later_ones_work() {
    two_ranks(
        2,
        |rank| assert_eq!([1, 2].map(|epoch| outcome(&rank, epoch)), [PEER_FAILED, RECEIVED]),
        |rank| {
            rank.fail(Epoch(1));
            send(&rank, 2);
        },
    );
}

#[test]
fn what_was_sent_before_failures_arrives() {
    two_ranks(
        1,
        |rank| assert_eq!([1, 2].map(|epoch| outcome(&rank, epoch)), [RECEIVED, PEER_FAILED]),
        |rank| {
            send(&rank, 1);
            rank.fail(Epoch(2));
        },
    );
}

/// A rank that is far behind may take a good call for a failed one, but it never takes a failed one for good.
#[test]
fn forgotten_failures_are_not_trusted() {
    two_ranks(
        1,
        |rank| {
            let outcomes = [1, 2, 3, 4, 5].map(|epoch| outcome(&rank, epoch));
            assert_eq!(outcomes[..4], [PEER_FAILED; 4]);
            assert_eq!(outcomes[4], RECEIVED);
        },
        |rank| {
            (1..=4).for_each(|epoch| rank.fail(Epoch(epoch)));
            send(&rank, 5);
        },
    );
}

#[test]
fn a_shorter_message_is_a_mismatch_whoever_looks_first() {
    two_ranks(
        2,
        |rank| match receive(&rank, 1, 16) {
            Err(Fault::Mismatch { rank: NodeRank(1), peer }) => assert!(peer.epoch == Epoch(1) && peer.bytes == 8),
            other => panic!("{other:?}"),
        },
        |rank| send(&rank, 1),
    );
}

/// Explores the words of one rank, which one thread writes and another reads.
pub fn watched(write: fn(&Control), watch: fn(&Control)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        // Not loom's `Arc`: loom cannot unwind through its own.
        let control = Arc::new(Control::default());
        // The writer starts first: then the other thread may see each value that each word has had. If the writer
        // itself reads a word, in `fail`, loom does not try to continue it after the other thread has read that word.
        let threads = [write, watch].map(|run| {
            let control = Arc::clone(&control);
            loom::thread::spawn(move || run(&control))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

fn descriptor(epoch: u64) -> Descriptor {
    Descriptor::new(Epoch(epoch), Collective::Bcast, epoch as usize, 0, Bytes(epoch as usize))
}

fn enter(line: &CallLine, epoch: u64) {
    line.enter(Epoch(epoch), descriptor(epoch), Bytes(epoch as usize));
}

pub fn enter_two_calls(control: &Control) {
    (1..=2).for_each(|epoch| enter(&control.call, epoch));
}

pub fn contradicts_nobody(control: &Control) {
    for epoch in [1, 2] {
        assert!(!control.call.contradicts(Epoch(epoch), descriptor(epoch), Bytes(epoch as usize)), "a contradiction");
    }
}

pub fn release_and_leave(control: &Control) {
    control.released.publish(Ticket(5));
    enter(&control.call, 2);
}

pub fn has_released_if_it_has_left(control: &Control) {
    assert!(!control.call.has_left(Epoch(1)) || control.released.reached(Ticket(5)).is_some(), "left without");
}

#[test]
fn a_rank_on_its_way_into_a_call_contradicts_nobody() {
    watched(enter_two_calls, contradicts_nobody);
}

#[test]
fn all_is_visible_of_the_calls_that_a_rank_has_left() {
    watched(release_and_leave, has_released_if_it_has_left);
}

/// Releases call 2, then fails so often that the entry of call 3 is used again.
pub fn release_and_fail(control: &Control) {
    control.released.publish(Ticket(2));
    [3, 5, 7, 9].into_iter().for_each(|epoch| control.fail(Epoch(epoch)));
}

/// Releases call 2, then fails successive calls, which share an entry.
fn release_and_fail_in_a_row(control: &Control) {
    control.released.publish(Ticket(2));
    (3..=6).for_each(|epoch| control.fail(Epoch(epoch)));
}

/// Once a failed call is found, all earlier failed ones are found too, in their entries or among the forgotten.
pub fn finds_failures(control: &Control) {
    let finds = [9, 3].map(|epoch| control.call.has_failed(Epoch(epoch)));
    assert!(finds != [true, false], "a failure got lost");
}

fn finds_failures_in_a_row(control: &Control) {
    let finds = [6, 3].map(|epoch| control.call.has_failed(Epoch(epoch)));
    assert!(finds != [true, false], "a failure got lost");
    assert!(!control.call.has_failed(Epoch(2)), "none of them");
}

/// A call before the failures may be taken for failed, but then all that came before the failures is visible.
pub fn has_released_if_it_has_failed(control: &Control) {
    assert!(!control.call.has_failed(Epoch(2)) || control.released.reached(Ticket(2)).is_some(), "failed before");
}

#[test]
fn no_failure_gets_lost_when_its_entry_is_used_again() {
    watched(release_and_fail, finds_failures);
    watched(release_and_fail_in_a_row, finds_failures_in_a_row);
}

#[test]
fn all_is_visible_that_came_before_failures() {
    watched(release_and_fail, has_released_if_it_has_failed);
}

/// A rank fails a call, and the program then writes to memory that was exposed in it. A peer that finds the new data
/// knows that they do not count.
pub fn fetched_from_a_rank_that_fails() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let shared = Arc::new((Control::default(), AtomicU64::new(0)));
        let of_other = Arc::clone(&shared);
        let failing = loom::thread::spawn(move || {
            of_other.0.fail(Epoch(1));
            of_other.1.store(1, Ordering::Relaxed);
        });
        let fetched = shared.1.load(Ordering::Relaxed);
        assert!(shared.0.call.has_failed_meanwhile(Epoch(1)) || fetched == 0, "data of another time");
        failing.join().unwrap();
    });
}

#[test]
fn what_is_fetched_from_a_rank_that_has_failed_does_not_count() {
    fetched_from_a_rank_that_fails();
}

fn call(epoch: u64) -> Ticket {
    Ticket::new(Epoch(epoch), 0)
}

/// Fails call 1, and says in call 2 what it has of its cells.
pub fn fail_and_join(control: &Control) {
    control.fail(Epoch(1));
    control.tell_of_cells(Bytes(64), true);
    control.tell_of_cells(Bytes(128), false);
    control.joined.publish(call(2));
}

/// A rank in call 1 that finds what was said in call 2 knows that this was no answer for call 1. It also sees what was
/// said.
pub fn finds_what_was_said_and_when(control: &Control) {
    if control.joined.reached(call(1)).is_some() {
        assert!(control.call.has_failed(Epoch(1)), "joined a call that it failed");
        assert_eq!([64, 128].map(|depth| control.has_cells(Bytes(depth))), [Some(true), Some(false)]);
    }
}

#[test]
fn what_is_said_of_cells_in_a_later_call_is_no_answer_in_one_that_failed() {
    watched(fail_and_join, finds_what_was_said_and_when);
}

/// Agrees, before a broadcast of 16 bytes from rank 1, whether both ranks have their cells.
fn agree(rank: &Rank, epoch: u64, is_reserved: bool) -> Result<bool, Fault> {
    let call = Call::new(Collective::Bcast, "flat", 16).rooted(1);
    rank.agree_on_cells(call.row, &call.plan(epoch), Bytes(16), is_reserved)
}

#[test]
fn ranks_agree_on_their_cells() {
    two_ranks(
        2,
        |rank| assert_eq!([1, 2].map(|epoch| agree(&rank, epoch, epoch == 1)), [Ok(true); 2], "what was told stays"),
        |rank| assert_eq!([1, 2].map(|epoch| agree(&rank, epoch, true)), [Ok(true); 2]),
    );
    two_ranks(
        2,
        |rank| assert_eq!(agree(&rank, 1, true), Ok(false)),
        |rank| assert_eq!(agree(&rank, 1, false), Ok(false)),
    );
}

/// Rank 1 may be in its second call, and have said what it has, before rank 0 is in its first.
#[test]
fn ranks_agree_on_no_cells_in_a_call_that_one_failed() {
    two_ranks(
        2,
        |rank| {
            let first = agree(&rank, 1, true);
            assert_eq!([first, agree(&rank, 2, true)], [Err(Fault::PeerFailed { rank: NodeRank(1) }), Ok(false)]);
        },
        |rank| {
            rank.fail(Epoch(1));
            assert_eq!(agree(&rank, 2, false), Ok(false));
        },
    );
}

/// Rank 1 may have failed many calls, and be in its next one, before rank 0 looks at what it said in the first.
#[test]
fn ranks_agree_on_their_cells_however_many_calls_fail_after_that() {
    two_ranks(
        1,
        |rank| assert_eq!([1, 9].map(|epoch| agree(&rank, epoch, true)), [Ok(true); 2]),
        |rank| {
            assert_eq!(agree(&rank, 1, true), Ok(true));
            [2, 4, 6, 8].into_iter().for_each(|epoch| rank.fail(Epoch(epoch)));
            assert_eq!(agree(&rank, 9, true), Ok(true));
        },
    );
}

#[test]
fn who_calls_with_less_has_no_say_in_cells() {
    two_ranks(
        2,
        |rank| match agree(&rank, 1, true) {
            Err(Fault::Mismatch { rank: NodeRank(1), peer }) => assert!(peer.epoch == Epoch(1) && peer.bytes == 8),
            other => panic!("{other:?}"),
        },
        |rank| send(&rank, 1),
    );
}
