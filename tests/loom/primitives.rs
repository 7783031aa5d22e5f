//! Flags, lines and events by themselves, and the slot protocol on top of them, written out.
//!
//! loom reports an access to a payload or a cell that is not ordered with another one, so the tests only have to follow
//! the protocol as it stands in `huddle::fabric`. The checking scheduler takes over above the flags.
//!
//! Events: a sleep never times out here, so a lost wake-up is a deadlock. loom orders fences, but takes accesses that
//! are `SeqCst` by themselves for weaker ones; an event has none of these.

use huddle::sync::{Event, Flag, FlagLine};
use huddle::types::{Epoch, Ticket};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::time::Duration;

const SLOTS: usize = 2;

/// The memory of one rank.
struct Slots {
    lines: [FlagLine; SLOTS],
    cells: [UnsafeCell<[u64; 2]>; SLOTS],
    released: Flag,
}

// SAFETY: cells are accessed as the slot protocol says, which is what loom checks here.
unsafe impl Sync for Slots {}
// SAFETY: cells are accessed as the slot protocol says, which is what loom checks here.
unsafe impl Send for Slots {}

impl Slots {
    fn new() -> Self {
        Self {
            lines: [(); SLOTS].map(|()| FlagLine::new()),
            cells: [(); SLOTS].map(|()| UnsafeCell::new([0; 2])),
            released: Flag::new(),
        }
    }

    /// Writes the slot of `ticket`, payload and cell, and publishes it.
    fn write(&self, ticket: Ticket, value: u8) {
        let position = ticket.position(SLOTS);
        // SAFETY: this rank is the only writer; readers have released the slot's ticket before this one.
        self.lines[position].write_payload(|payload| unsafe { *payload = [value; FlagLine::PAYLOAD] });
        // SAFETY: this rank is the only writer; readers have released the slot's ticket before this one.
        self.cells[position].with_mut(|cell| unsafe { *cell = [u64::from(value); 2] });
        self.lines[position].publish(ticket, descriptor(value));
    }

    /// Waits for the slot of `ticket` and checks that it holds `value` and nothing else.
    fn read(&self, ticket: Ticket, value: u8) {
        let position = ticket.position(SLOTS);
        until(|| self.lines[position].reached(ticket).is_some());
        // SAFETY: published for this ticket, not released by this reader.
        self.lines[position].read_payload(|payload| assert_eq!(unsafe { *payload }, [value; FlagLine::PAYLOAD]));
        // SAFETY: published for this ticket, not released by this reader.
        self.cells[position].with(|cell| assert_eq!(unsafe { *cell }, [u64::from(value); 2]));
    }
}

fn descriptor(value: u8) -> u64 {
    u64::from(value) << 32
}

fn until(is_true: impl Fn() -> bool) {
    while !is_true() {
        thread::yield_now();
    }
}

fn ticket(call: u64) -> Ticket {
    Ticket::new(Epoch(call), 0)
}

/// Waits until `peer` has released what this rank wrote last in the slot of `call`.
fn claim(peer: &Slots, call: u64) {
    if call > SLOTS as u64 {
        until(|| peer.released.reached(ticket(call - SLOTS as u64)).is_some());
    }
}

/// One rank of an exchange in which both write and both read, in successive calls without other synchronisation.
fn exchange(mine: &Slots, theirs: &Slots, me: u8, calls: u64) {
    for call in 1..=calls {
        claim(theirs, call);
        mine.write(ticket(call), 2 * call as u8 + me);
        theirs.read(ticket(call), 2 * call as u8 + (1 - me));
        mine.released.publish(Ticket::last_of(Epoch(call)));
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Writer {
    Claims,
    Overruns,
}

/// Rank 0 writes in successive calls and rank 1 reads, so rank 0 runs ahead as far as claims let it.
fn broadcast(mine: &Slots, theirs: &Slots, me: u8, writer: Writer) {
    for call in 1..=4 {
        if me == 1 {
            theirs.read(ticket(call), call as u8);
        } else {
            if writer == Writer::Claims {
                claim(theirs, call);
            }
            mine.write(ticket(call), call as u8);
        }
        mine.released.publish(Ticket::last_of(Epoch(call)));
    }
}

fn two_ranks(preemptions: Option<usize>, run: fn(&Slots, &Slots, u8)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        let slots = Arc::new([Slots::new(), Slots::new()]);
        let peer = Arc::clone(&slots);
        let other = thread::spawn(move || run(&peer[1], &peer[0], 1));
        run(&slots[0], &slots[1], 0);
        other.join().unwrap();
    });
}

#[test]
fn flag_payload_and_descriptor_arrive_together() {
    two_ranks(None, |mine, theirs, me| {
        exchange(mine, theirs, me, 1);
        let line = &theirs.lines[ticket(1).position(SLOTS)];
        assert_eq!(line.descriptor(), descriptor(2 + (1 - me)));
    });
}

#[test]
fn a_ring_of_two_lasts_for_three_calls() {
    two_ranks(Some(3), |mine, theirs, me| exchange(mine, theirs, me, 3));
}

#[test]
fn a_writer_may_run_ahead_by_the_ring() {
    two_ranks(Some(3), |mine, theirs, me| broadcast(mine, theirs, me, Writer::Claims));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_claims_loom_sees_the_race() {
    two_ranks(Some(3), |mine, theirs, me| broadcast(mine, theirs, me, Writer::Overruns));
}

#[test]
fn flags_without_data_need_no_claim_and_order_what_came_before() {
    two_ranks(Some(3), |mine, theirs, me| {
        let meet = |call| {
            let position = ticket(call).position(SLOTS);
            mine.lines[position].publish(ticket(call), 0);
            until(|| theirs.lines[position].reached(ticket(call)).is_some());
        };
        // Each rank writes its cell once, outside of any slot protocol, and reads the peer's after barriers that wrap
        // the ring.
        // SAFETY: the first barrier orders this write before the peer's read.
        mine.cells[0].with_mut(|cell| unsafe { *cell = [7 + u64::from(me); 2] });
        (1..=3).for_each(meet);
        // SAFETY: the first barrier orders the peer's write before this read; nobody writes any more.
        theirs.cells[0].with(|cell| assert_eq!(unsafe { *cell }, [8 - u64::from(me); 2]));
    });
}

/// A flag and the event that announces it.
#[derive(Default)]
struct Announced {
    flag: Flag,
    event: Event,
}

impl Announced {
    fn announce(&self, call: u64) {
        self.flag.publish(ticket(call));
        self.event.announce();
    }

    fn has_come(&self, call: u64) -> bool {
        self.flag.reached(ticket(call)).is_some()
    }

    fn sleep_until(&self, call: u64) {
        while !self.has_come(call) {
            self.event.sleep_unless(|| self.has_come(call), Duration::MAX);
        }
    }
}

/// Explores `sleepers` threads that sleep while this thread announces.
fn sleepers(sleepers: usize, preemptions: Option<usize>, sleep: fn(&Announced), announce: fn(&Announced)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        // Not loom's `Arc`: loom cannot unwind from a deadlock through its own.
        let shared = std::sync::Arc::new(Announced::default());
        let others: Vec<_> = (0..sleepers)
            .map(|_| {
                let shared = std::sync::Arc::clone(&shared);
                thread::spawn(move || sleep(&shared))
            })
            .collect();
        announce(&shared);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn no_wake_up_is_lost() {
    a_sleeper_wakes();
}

pub fn a_sleeper_wakes() {
    sleepers(1, None, |shared| shared.sleep_until(1), |shared| shared.announce(1));
}

#[test]
fn no_wake_up_is_lost_among_two_sleepers() {
    sleepers(2, Some(3), |shared| shared.sleep_until(1), |shared| shared.announce(1));
}

#[test]
fn no_wake_up_is_lost_in_a_row() {
    let sleep = |shared: &Announced| (1..=2).for_each(|call| shared.sleep_until(call));
    sleepers(1, Some(4), sleep, |shared| (1..=2).for_each(|call| shared.announce(call)));
}
