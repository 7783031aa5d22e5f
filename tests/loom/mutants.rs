//! Mistakes that must be found: a missing ordering, an operation that is left out or comes too early.

use crate::failures::{
    contradicts_nobody, enter_two_calls, fail_and_join, fetched_from_a_rank_that_fails, finds_failures,
    finds_what_was_said_and_when, has_released_if_it_has_failed, has_released_if_it_has_left, release_and_fail,
    release_and_leave, watched,
};
use crate::primitives::a_sleeper_wakes;
use crate::program::{Call, KNOBS, Program};
use huddle::coll::{Knob, TRY_MEMORY};
use huddle::fabric::Line;
use huddle::fabric::checked::{Change, Kind, Mutation};
use huddle::sync::{Pair, Side, weakened};
use huddle::types::Collective::{Allgather, Allreduce, Bcast, Reduce, Scatter};

/// Whether loom or an assertion objects to `run`. It runs on a thread of its own, which the objection ends.
fn is_found(run: impl FnOnce() + Send + 'static) -> bool {
    std::thread::spawn(run).join().is_err()
}

fn three_broadcasts() {
    let call = Call::new(Bcast, "flat", 8);
    Program::of([call; 3]).explore();
}

#[test]
fn every_ordering_is_needed() {
    use Pair::{Busy, Call, Event, Exposed, Failed, Flag, Forgotten};
    use Side::{Acquire, Release};
    let needed: [(Pair, Side, fn()); 16] = [
        (Flag, Release, three_broadcasts),
        (Flag, Acquire, three_broadcasts),
        (Flag, Release, || watched(fail_and_join, finds_what_was_said_and_when)),
        (Flag, Acquire, || watched(fail_and_join, finds_what_was_said_and_when)),
        (Call, Release, || watched(enter_two_calls, contradicts_nobody)),
        (Call, Acquire, || watched(release_and_leave, has_released_if_it_has_left)),
        (Busy, Release, || watched(enter_two_calls, contradicts_nobody)),
        (Busy, Acquire, || watched(enter_two_calls, contradicts_nobody)),
        (Failed, Release, || watched(release_and_fail, has_released_if_it_has_failed)),
        (Failed, Acquire, || watched(release_and_fail, has_released_if_it_has_failed)),
        (Forgotten, Release, || watched(release_and_fail, finds_failures)),
        (Forgotten, Acquire, || watched(release_and_fail, finds_failures)),
        (Event, Release, fetched_from_a_rank_that_fails),
        (Exposed, Acquire, fetched_from_a_rank_that_fails),
        (Event, Release, a_sleeper_wakes),
        (Event, Acquire, a_sleeper_wakes),
    ];
    let is_missed = |(pair, side, run): &(Pair, Side, fn())| {
        let (pair, side, run) = (*pair, *side, *run);
        is_found(move || weakened(pair, side, run))
    };
    let not_missed: Vec<_> = needed.iter().filter(|ordering| !is_missed(ordering)).map(|of| (of.0, of.1)).collect();
    assert!(not_missed.is_empty(), "nobody misses {not_missed:?}");
}

/// A Bcast of two tiles, and of two halves of another tile, in one cell.
fn train() -> Call {
    Call { knobs: KNOBS.with(Knob::Tile, 16), ..Call::new(Bcast, "tiled", 48) }
}

/// A Scatter whose root lends its memory.
fn single() -> Call {
    Call { knobs: KNOBS.with(Knob::Tile, 64), ..Call::new(Scatter, "single", 56) }
}

/// Mistakes, each with a call in which it shows.
fn mistakes() -> Vec<(Change, Call)> {
    // This call moves in halves: a tile is shorter than its data.
    let bcast = Call::new(Bcast, "flat", 64);
    let whole = Call { knobs: KNOBS.with(Knob::Tile, 64), ..bcast };
    let piece_by_piece = Call::new(Bcast, "tiled", 24);
    let allreduce = Call::new(Allreduce, "flat", 8);
    let parts = Call::new(Allreduce, "tiled", 16);
    let relay = Call::new(Allreduce, "relay", 16);
    let reduce = Call::new(Reduce, "tree", 8);
    let (train, single) = (train(), single());
    let tried = Call { knobs: single.knobs.with(Knob::Try, TRY_MEMORY), ..single };
    vec![
        (Change::Drop(Kind::Claim), bcast),
        (Change::Drop(Kind::Claim), piece_by_piece),
        (Change::Drop(Kind::Claim), reduce),
        (Change::Drop(Kind::Wait(Line::Down)), train),
        (Change::Postpone(Kind::CopyIn), train),
        (Change::ClaimLines, bcast),
        (Change::ClaimLines, whole),
        (Change::ReleaseBefore(Kind::CopyOut), bcast),
        (Change::ReleaseBefore(Kind::CopyOut), Call::new(Scatter, "tree", 32)),
        (Change::ReleaseBefore(Kind::Reduce), reduce),
        (Change::Drop(Kind::Wait(Line::Up)), bcast),
        (Change::Drop(Kind::Wait(Line::Down)), bcast),
        (Change::Drop(Kind::Wait(Line::Down)), whole),
        (Change::Drop(Kind::Wait(Line::Down)), Call::new(Reduce, "flat", 64)),
        (Change::Drop(Kind::Wait(Line::Up)), allreduce),
        (Change::Drop(Kind::Wait(Line::Down)), parts),
        (Change::Drop(Kind::Wait(Line::Up)), relay),
        (Change::Drop(Kind::Wait(Line::Down)), relay),
        (Change::Drop(Kind::Claim), relay),
        (Change::Drop(Kind::Wait(Line::Up)), Call::new(Allgather, "flat", 8)),
        (Change::Postpone(Kind::CopyIn), bcast),
        (Change::Postpone(Kind::CopyIn), allreduce),
        (Change::Postpone(Kind::Wait(Line::Up)), reduce),
        (Change::Drop(Kind::Publish), bcast),
        (Change::Drop(Kind::Wait(Line::Up)), single),
        (Change::Drop(Kind::Wait(Line::Down)), single),
        (Change::Postpone(Kind::Expose), single),
        (Change::Postpone(Kind::Answer), single),
        (Change::Drop(Kind::Wait(Line::Up)), tried),
        (Change::Drop(Kind::Wait(Line::Down)), tried),
        (Change::Postpone(Kind::Expose), tried),
        (Change::Postpone(Kind::Answer), tried),
        // Only a whole call: one in halves has flags on both lines, so awaiting the last one first is no mistake.
        (Change::OtherLine, whole),
    ]
}

#[test]
fn every_mistake_is_found() {
    let is_caught = |(change, call): &(Change, Call)| {
        let mutation = Some(Mutation { change: *change, rank: None, period: 1 });
        // With as many lines as cells it makes no difference whether a claim waits for lines or for cells.
        let lines = if *change == Change::ClaimLines { 4 } else { 2 };
        let slots = if call.knobs == train().knobs { 4 } else { 2 };
        let usual = Program::of([*call; 3]);
        // Where lending is not tried, a piece is at most half a cell. A piece that fits a line is not lent, so this
        // cell is longer.
        let cell = if call.knobs == single().knobs { 128 } else { usual.cell };
        let program = Program { mutation, lines: lines.max(slots), slots, cell, ..usual };
        is_found(move || program.explore())
    };
    let missed: Vec<_> = mistakes().into_iter().filter(|mistake| !is_caught(mistake)).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
