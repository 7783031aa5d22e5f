//! Every algorithm of the registry in successive calls, which use rings of two slots again.

use crate::program::{Call, KNOBS, Program};
use huddle::coll::{Knob, REGISTRY, TRY_SLOTS};
use huddle::fabric::explored::Driver;
use huddle::types::Collective::{Allgather, Allreduce, Barrier, Bcast, Reduce, Scatter};

/// More than a line holds, and less than a cell.
const SINGLE: usize = 56;

/// Explores `calls` calls of each algorithm with `bytes` bytes, with roots in turn, in a program adapted by `change`.
fn each(calls: u32, bytes: fn(&str) -> usize, change: impl Fn(Program) -> Program) {
    for (row, algorithm) in REGISTRY.iter().enumerate() {
        let bytes = if algorithm.collective == Barrier { 0 } else { bytes(algorithm.name) };
        // Blocks that fit a line are never copied singly.
        let (bytes, knobs) = match algorithm.name {
            "single" => (SINGLE, KNOBS.with(Knob::Tile, 64)),
            _ => (bytes, KNOBS),
        };
        let call = |at| Call { row, bytes, root: at % 2, is_in_place: false, knobs };
        change(Program::of((0..calls).map(call).collect::<Vec<_>>())).explore();
    }
}

#[test]
fn payloads_survive_three_calls() {
    each(3, |_| 8, |program| program);
}

/// Three pieces of a cell each, or four tiles.
#[test]
fn cells_survive_calls_of_several_pieces() {
    let bytes = |name: &str| if matches!(name, "tiled" | "relay") { 32 } else { 192 };
    each(1, bytes, |program| Program { preemptions: Some(1), ..program });
}

#[test]
fn three_ranks_get_along() {
    each(1, |_| 8, |program| Program { ranks: 3, cell: 72, preemptions: Some(0), ..program });
}

/// No rank believes that its peer failed or contradicts, however far the peer has gone on.
#[test]
fn nobody_is_accused() {
    each(2, |_| 8, |program| Program { driver: Driver::Wary, preemptions: Some(1), ..program });
}

#[test]
fn operands_may_be_results() {
    for collective in [Allreduce, Reduce, Allgather] {
        for name in ["flat", "tree", "tiled"] {
            let call = Call::new(collective, name, 16).in_place();
            Program { preemptions: Some(1), ..Program::of([call, call.rooted(u32::from(collective == Reduce))]) }
                .explore();
        }
    }
}

/// A claim waits for what the ranks did with the slot last, in whatever collective.
#[test]
fn collectives_follow_each_other() {
    let programs = [
        [
            Call::new(Bcast, "flat", 64),
            Call::new(Scatter, "flat", 32).rooted(1),
            Call::new(Bcast, "tree", 64).rooted(1),
        ],
        [Call::new(Allreduce, "flat", 8), Call::new(Barrier, "flat", 0), Call::new(Bcast, "flat", 8).rooted(1)],
        [Call::new(Barrier, "tree", 0), Call::new(Bcast, "tiled", 16), Call::new(Reduce, "tiled", 16)],
        [Call::new(Allgather, "flat", 64), Call::new(Reduce, "flat", 64), Call::new(Allreduce, "tiled", 16)],
        [Call::new(Scatter, "tiled", 8), Call::new(Barrier, "flat", 0), Call::new(Allgather, "tree", 8)],
    ];
    programs.into_iter().for_each(|calls| Program::of(calls).explore());
}

/// Twice as many lines as cells: a message that fits a line waits for no reader of a cell, and a longer one waits for
/// all.
#[test]
fn lines_reach_further_than_cells() {
    let (line, cell) = (Call::new(Bcast, "flat", 8), Call::new(Bcast, "flat", 64));
    let whole = Call { knobs: KNOBS.with(Knob::Tile, 64), ..cell };
    let programs = [
        vec![line; 5],
        vec![cell, line, cell, line],
        vec![line, cell, line, cell],
        vec![cell; 3],
        vec![whole, line, cell, line],
        vec![whole; 3],
    ];
    for calls in programs {
        Program { lines: 4, ..Program::of(calls) }.explore();
    }
}

/// Between two ranks a broadcast's tiles lie one after the other in a cell, each with a flag of its own.
#[test]
fn tiles_share_a_cell() {
    let tiled = Call { knobs: KNOBS.with(Knob::Tile, 16), ..Call::new(Bcast, "tiled", 64) };
    let preemptions = Some(1);
    for calls in [vec![tiled; 2], vec![tiled, tiled.rooted(1)]] {
        Program { slots: 4, lines: 4, preemptions, ..Program::of(calls) }.explore();
    }
}

/// A rank that waits only for the one before it finds the first rank's cell, with all that the ranks before it left
/// there. On two ranks a stint has two tickets, of which the last has one piece.
#[test]
fn operands_are_relayed() {
    for collective in [Allreduce, Reduce] {
        let preemptions = Some(0);
        Program { ranks: 3, preemptions, ..Program::of([Call::new(collective, "relay", 16)]) }.explore();
        let longer = Call::new(collective, "relay", 24);
        Program { slots: 4, lines: 4, preemptions, ..Program::of([longer]) }.explore();
        Program { preemptions, ..Program::of([longer.in_place(); 2]) }.explore();
    }
}

/// The data are longer than a tile, and longer than a line holds.
#[test]
fn blocks_move_in_halves() {
    let scatter = Call::new(Scatter, "flat", 56);
    Program { cell: 128, ..Program::of([scatter, scatter.rooted(1), scatter]) }.explore();
}

/// Signals on lines of the ranks that await them, followed by data that the signals order.
#[test]
fn signals_may_be_pushed() {
    let pushed = KNOBS.with(Knob::Up, 2).with(Knob::Down, 2);
    let barrier = Call { knobs: pushed, ..Call::new(Barrier, "tree", 0) };
    Program { driver: Driver::Wary, ..Program::of([barrier; 2]) }.explore();
    Program::of([barrier, Call::new(Bcast, "flat", 8), barrier]).explore();
}

/// Single copies of more than a line holds: of one cell, in one piece or in halves, and of two cells.
fn singles() -> impl Iterator<Item = Program> {
    let calls = [
        (Scatter, 56, 64),
        (Scatter, 56, 8),
        (Bcast, 56, 64),
        (Bcast, 56, 32),
        (Allgather, 56, 64),
        (Bcast, 112, 64),
        (Allgather, 112, 64),
    ];
    calls.into_iter().map(|(collective, bytes, tile)| {
        let knobs = KNOBS.with(Knob::Tile, tile).with(Knob::Try, TRY_SLOTS);
        let call = Call { knobs, ..Call::new(collective, "single", bytes) };
        let second = call.rooted(u32::from(collective != Allgather));
        let program = Program { preemptions: Some(1), ..Program::of([call, second]) };
        // Two tiles share a cell if there are more than two slots.
        let are_two = collective == Bcast && tile < 64;
        if are_two { Program { slots: 4, lines: 4, ..program } } else { program }
    })
}

#[test]
fn memory_is_lent() {
    singles().for_each(Program::explore);
}

/// A rank that can't fetch gets its block through slots.
#[test]
fn ranks_that_may_not_read_each_other_have_their_blocks_too() {
    singles().for_each(|program| Program { may_fetch: false, ..program }.explore());
}

/// Each rank decides for itself whether it lends.
#[test]
fn memory_is_lent_by_one_and_not_by_the_other() {
    for (lenders, may_fetch) in [(0, true), (1, true), (1, false)] {
        singles().for_each(|program| Program { lenders, may_fetch, ..program }.explore());
    }
}
