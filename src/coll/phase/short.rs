//! Calls on one node whose data fit one slot of each rank, in the flat form: most calls of most programs.
//!
//! They take the steps of [`Flat`](super::Flat) without the loop over pieces. Each collective is one macro. The macro
//! becomes a future on any fabric, which scheduler, loom and simulator run too. For calls that repeat an earlier one it
//! also becomes plain functions on [`ShortCall`], for data in lines, in short pieces or in cells ([`AtOnce`]). The
//! functions depend on the collective alone, not on the row. Where a root may lend its memory in place of filling a
//! slot ([`single`](super::single)), all ranks find out which it does before they take these steps ([`run_in_cells`]).

use super::{Sequence, block_in_slot, combine_in_rank_order, others_than};
use crate::coll::{Knob, Measures, Plan, Tickets, part};
use crate::fabric::shm::known::{self, Known};
use crate::fabric::shm::{Call, Fault, ROTATED, ShortCall};
use crate::fabric::{Fabric, Line, Place, Room, Source};
use crate::sync::Payload;
use crate::types::{Bytes, NodeRank};

/// The short calls of a collective as plain functions.
pub trait AtOnce {
    /// Runs a call whose data move whole.
    ///
    /// # Errors
    /// If a peer failed the call or contradicts it.
    fn whole<K: Known>(fabric: &ShortCall<'_, K>, plan: &Plan) -> Result<(), Fault>;

    /// Runs a call whose data are in cells.
    ///
    /// # Errors
    /// If a peer failed the call or contradicts it.
    fn in_cells(fabric: &ShortCall<'_, known::InCells>, plan: &Plan, moves: CellMoves) -> Result<(), Fault>;
}

/// A short call.
#[derive(Clone, Copy, Debug)]
pub enum Short {
    /// All data of the call fit lines.
    InLines(Payload),
    /// The data of the call are in cells. They move whole, in pieces that are too short to rotate
    /// ([`ROTATED`]), and the root fills its slot.
    InShortPieces,
    /// The data of the call are in cells.
    InCells(CellMoves),
}

/// How the data of a short call move that are in cells.
#[derive(Clone, Copy, Debug)]
pub struct CellMoves {
    /// Whether the data move in halves.
    pub in_halves: bool,
    /// The source with which trials of whether the root lends its memory begin; `None` if the root always fills a slot.
    pub tried: Option<Source>,
}

impl CellMoves {
    /// The line of the first flag, if the last one is on `line`.
    pub fn first_line(self, line: Line) -> Line {
        if self.in_halves { line.other() } else { line }
    }
}

impl Short {
    /// Whether a call is short whose data take `bytes` of a slot, and if so where they lie.
    #[inline]
    pub fn new(plan: &Plan, measures: &Measures, bytes: Bytes) -> Option<Self> {
        let is_short = bytes <= measures.cell && measures.nodes == 1;
        is_short.then(|| match (Room::of(bytes), is_halved(plan)) {
            (Room::Lines, _) => Self::InLines(Payload::of(bytes)),
            (_, false) if bytes < ROTATED => Self::InShortPieces,
            (_, in_halves) => Self::InCells(CellMoves { in_halves, tried: None }),
        })
    }

    /// How the data of the call move if they are in cells.
    pub fn in_cells(self) -> Option<CellMoves> {
        match self {
            Self::InLines(_) => None,
            Self::InShortPieces => Some(CellMoves { in_halves: false, tried: None }),
            Self::InCells(moves) => Some(moves),
        }
    }

    /// Whether a Scatter is short, and if so where its data lie. Its root's slot has a block for every other rank. A
    /// rank alone writes none, but copies one.
    pub fn of_scatter(plan: &Plan, measures: &Measures) -> Option<Self> {
        Self::new(plan, measures, plan.bytes * (measures.ranks - 1).max(1))
    }
}

/// Whether the data of a short call with a root move in halves, so that the reader works on the first while the writer
/// still writes the second. They do if they are longer than a tile and in a cell: a ticket has a flag for each half,
/// but one payload. Ranks that share cores have tiles as long as cells, so they use no halves: each would cost them a
/// switch.
#[inline]
pub fn is_halved(plan: &Plan) -> bool {
    let tile = plan.knobs.set(Knob::Tile).map_or(usize::MAX, |tile| tile as usize);
    plan.bytes.0 > tile && Room::of(plan.bytes) == Room::Cell
}

/// Part of a call's data, with a flag of its own.
struct Part {
    line: Line,
    offset: Bytes,
    length: Bytes,
}

/// The data of a call in one part or in two. Two parts meet between elements and, if elements permit, between cache
/// lines. The flag of the last part, which may be the only one, is on `line`; the flag of the first of two is on the
/// other line.
#[inline(always)]
fn parts<const PARTS: usize>(plan: &Plan, line: Line) -> [Part; PARTS] {
    const { assert!(PARTS == 1 || PARTS == 2, "a rank has two lines for a ticket") };
    let n = plan.bytes;
    let first = Bytes(if PARTS == 1 { 0 } else { part(n, plan.granule, NodeRank(0), 2).len() });
    std::array::from_fn(|index| {
        if index + 1 == PARTS {
            Part { line, offset: first, length: n - first }
        } else {
            Part { line: line.other(), offset: Bytes::ZERO, length: first }
        }
    })
}

/// Takes a step as a future, on places that are named. It ignores hints, also those for data that move whole: they are
/// for plain functions, by which the calls run that have to be fast.
macro_rules! later {
    (at $fabric:ident, $span:expr) => {
        $span
    };
    (hint $fabric:ident.$name:ident($($argument:expr),*)) => {};
    (hint_of_whole $parts:expr, $fabric:ident.$name:ident($($argument:expr),*)) => {};
    ($step:expr) => {
        $step.await
    };
}
pub(in crate::coll) use later;

/// Takes a step as a plain function, on addresses.
macro_rules! at_once {
    (at $fabric:ident, $span:expr) => {
        $fabric.at($span)
    };
    (hint $fabric:ident.$name:ident($($argument:expr),*)) => {
        $fabric.$name($($argument),*)
    };
    (hint_of_whole $parts:expr, $fabric:ident.$name:ident($($argument:expr),*)) => {
        if $parts == 1 {
            $fabric.$name($($argument),*)
        }
    };
    ($step:expr) => {
        $step?
    };
}

/// Whether the root lends its memory, so that its slot is empty. `$lends` says so on the root. The others learn it from
/// the root's first flag, which is on `$line` for `$ticket`.
macro_rules! is_lent {
    ($step:ident, $fabric:ident, $root:ident, $lends:expr, $line:expr, $ticket:expr) => {
        if $fabric.rank() == $root {
            $lends
        } else {
            $step!($fabric.wait($root, $line, $ticket));
            $step!($fabric.is_exposed($root, $line, $ticket))
        }
    };
}
pub(in crate::coll) use is_lent;

/// Every rank combines the operands of all ranks, in rank order.
macro_rules! allreduce {
    ($step:ident, $fabric:ident, $plan:ident) => {
        let (me, n) = ($fabric.rank(), $plan.bytes);
        let ticket = Tickets::of($plan).draw();
        $step!(hint $fabric.expect(Line::Up, ticket));
        let slot = move |rank| $step!(at $fabric, Place::stage(rank, Line::Up, ticket, n).start());
        let from = $step!(at $fabric, Place::SendBuf.start());
        let to = $step!(at $fabric, Place::RecvBuf.start());
        $step!($fabric.claim(ticket, Room::passing(n)));
        $step!($fabric.copy(slot(me), from, n));
        $step!($fabric.publish(Line::Up, ticket));
        if $fabric.size() == 1 {
            $step!($fabric.copy(to, slot(me), n));
        } else {
            // In place the first step overwrites this rank's operand, unless the operand takes part in it. The slot has
            // a copy.
            let sequence = Sequence::of($plan, $fabric.size());
            let own = if sequence.is_after_first_step(me.index()) && $fabric.is_in_place() { slot(me) } else { from };
            let operand = move |rank| if rank == me { own } else { slot(rank) };
            $step!(hint $fabric.prepare_look(Line::Up, ticket, n));
            combine_in_rank_order!($step, $fabric, me, Line::Up, ticket, to, operand, n, sequence);
            $step!(hint $fabric.end_exchange(n));
        }
    };
}

/// The root combines the operands of all ranks, in rank order.
macro_rules! reduce {
    ($step:ident, $fabric:ident, $plan:ident, $parts:expr) => {
        let (me, n) = ($fabric.rank(), $plan.bytes);
        let root = $fabric.layout().place($plan.root).1;
        let ticket = Tickets::of($plan).draw();
        // In place the first step overwrites the root's operand, unless the operand takes part in it.
        let sequence = Sequence::of($plan, $fabric.size());
        let needs_copy = sequence.is_after_first_step(me.index()) && $fabric.is_in_place();
        if me != root {
            $step!(hint_of_whole $parts, $fabric.take_turn(Line::Up, ticket));
        }
        if me != root || needs_copy {
            $step!($fabric.claim(ticket, if needs_copy { Room::of(n) } else { Room::passing(n) }));
        }
        for Part { line, offset, length } in parts::<{ $parts }>($plan, Line::Up) {
            let slot = move |rank| $step!(at $fabric, Place::stage(rank, line, ticket, n).at(offset));
            let from = $step!(at $fabric, Place::SendBuf.at(offset));
            let to = $step!(at $fabric, Place::RecvBuf.at(offset));
            if me != root || needs_copy {
                $step!($fabric.copy(slot(me), from, length));
            }
            if me != root {
                $step!($fabric.publish(line, ticket));
            } else if $fabric.size() > 1 {
                $step!(hint_of_whole $parts, $fabric.await_turn(n));
                let own = if needs_copy { slot(me) } else { from };
                let operand = move |rank| if rank == me { own } else { slot(rank) };
                combine_in_rank_order!($step, $fabric, me, line, ticket, to, operand, length, sequence);
            } else if !$fabric.is_in_place() {
                $step!($fabric.copy(to, from, length));
            }
        }
        if me != root {
            $step!(hint $fabric.expect_next(ticket, n));
        }
    };
}

/// Every other rank reads the root's slot.
macro_rules! bcast {
    ($step:ident, $fabric:ident, $plan:ident, $parts:expr) => {
        let root = $fabric.layout().place($plan.root).1;
        let ticket = Tickets::of($plan).draw();
        if $fabric.rank() == root {
            $step!(hint_of_whole $parts, $fabric.take_turn(Line::Down, ticket));
            $step!($fabric.claim(ticket, Room::passing($plan.bytes)));
        }
        for Part { line, offset, length } in parts::<{ $parts }>($plan, Line::Down) {
            let slot = Place::stage(root, line, ticket, $plan.bytes).at(offset);
            let buffer = $step!(at $fabric, Place::RecvBuf.at(offset));
            if $fabric.rank() == root {
                $step!($fabric.copy($step!(at $fabric, slot), buffer, length));
                $step!($fabric.publish(line, ticket));
            } else {
                $step!(hint_of_whole $parts, $fabric.await_turn($plan.bytes));
                $step!($fabric.wait(root, line, ticket));
                $step!($fabric.copy(buffer, $step!(at $fabric, slot), length));
            }
        }
        if $fabric.rank() == root {
            $step!(hint $fabric.expect_next(ticket, $plan.bytes));
        }
    };
}

/// Every rank reads all slots.
macro_rules! allgather {
    ($step:ident, $fabric:ident, $plan:ident) => {
        let (me, n) = ($fabric.rank(), $plan.bytes);
        let ticket = Tickets::of($plan).draw();
        $step!(hint $fabric.expect(Line::Up, ticket));
        let slot = move |rank| $step!(at $fabric, Place::stage(rank, Line::Up, ticket, n).start());
        let from = $step!(at $fabric, Place::SendBuf.start());
        let block = move |rank: NodeRank| $step!(at $fabric, Place::RecvBuf.at(n * rank.index()));
        $step!($fabric.claim(ticket, Room::passing(n)));
        $step!($fabric.copy(slot(me), from, n));
        $step!($fabric.publish(Line::Up, ticket));
        if !$fabric.is_in_place() {
            $step!($fabric.copy(block(me), from, n));
        }
        $step!(hint $fabric.prepare_look(Line::Up, ticket, n));
        for rank in others_than(me, $fabric.size()) {
            $step!($fabric.wait(rank, Line::Up, ticket));
            $step!($fabric.copy(block(rank), slot(rank), n));
        }
        $step!(hint $fabric.end_exchange(n));
    };
}

/// Every other rank reads its block in the root's slot, which holds the blocks of all of them.
macro_rules! scatter {
    ($step:ident, $fabric:ident, $plan:ident, $parts:expr) => {
        let (me, n) = ($fabric.rank(), $plan.bytes);
        let root = $fabric.layout().place($plan.root).1;
        let ticket = Tickets::of($plan).draw();
        let size = $fabric.size();
        let all = n * (size - 1);
        if me == root {
            $step!(hint_of_whole $parts, $fabric.take_turn(Line::Down, ticket));
            $step!($fabric.claim(ticket, Room::passing(all)));
        }
        for Part { line, offset, length } in parts::<{ $parts }>($plan, Line::Down) {
            let stage = Place::stage(root, line, ticket, all);
            let staged = move |rank| $step!(at $fabric, stage.at(n * block_in_slot(root, rank, size) + offset));
            let block = move |rank: NodeRank| $step!(at $fabric, Place::SendBuf.at(n * rank.index() + offset));
            if me == root {
                for rank in others_than(me, size) {
                    $step!($fabric.copy(staged(rank), block(rank), length));
                }
                $step!($fabric.publish(line, ticket));
            } else {
                $step!(hint_of_whole $parts, $fabric.await_turn(n));
                $step!($fabric.wait(root, line, ticket));
                $step!($fabric.copy($step!(at $fabric, Place::RecvBuf.at(offset)), staged(me), length));
            }
        }
        if me == root {
            $step!(hint $fabric.expect_next(ticket, all));
            if !$fabric.is_in_place() {
                let own = $step!(at $fabric, Place::SendBuf.at(n * me.index()));
                $step!($fabric.copy($step!(at $fabric, Place::RecvBuf.start()), own, n));
            }
        }
    };
}

/// Every rank waits for the flags of all others.
macro_rules! barrier {
    ($step:ident, $fabric:ident, $plan:ident) => {
        let ticket = Tickets::of($plan).draw();
        $step!(hint $fabric.expect(Line::Up, ticket));
        $step!($fabric.publish(Line::Up, ticket));
        $step!(hint $fabric.prepare_look(Line::Up, ticket, Bytes::ZERO));
        for rank in others_than($fabric.rank(), $fabric.size()) {
            $step!($fabric.wait(rank, Line::Up, ticket));
        }
        $step!(hint $fabric.end_exchange(Bytes::ZERO));
    };
}

/// The functions of each collective. Those with a root take the number of parts in which data move.
macro_rules! functions {
    ($($collective:ident: $name:ident $(<$parts:ident>)?;)*) => {
        $(
            #[doc = concat!("MPI_", stringify!($collective), ", as a future.")]
            #[inline]
            pub async fn $name<F: Fabric>(fabric: &F, plan: &Plan) {
                $(
                    if is_halved(plan) {
                        const $parts: usize = 2;
                        $name!(later, fabric, plan, $parts);
                        return;
                    }
                    const $parts: usize = 1;
                )?
                $name!(later, fabric, plan $(, $parts)?);
            }

            #[doc = concat!("MPI_", stringify!($collective), ", as plain functions.")]
            pub struct $collective;

            impl AtOnce for $collective {
                #[inline(always)]
                fn whole<K: Known>(fabric: &ShortCall<'_, K>, plan: &Plan) -> Result<(), Fault> {
                    $(const $parts: usize = 1;)?
                    $name!(at_once, fabric, plan $(, $parts)?);
                    Ok(())
                }

                #[inline(always)]
                fn in_cells(
                    fabric: &ShortCall<'_, known::InCells>,
                    plan: &Plan,
                    moves: CellMoves,
                ) -> Result<(), Fault> {
                    $(
                        if moves.in_halves {
                            const $parts: usize = 2;
                            $name!(at_once, fabric, plan, $parts);
                            return Ok(());
                        }
                    )?
                    let _ = moves;
                    Self::whole(fabric, plan)
                }
            }
        )*
    };
}

functions! {
    Allreduce: allreduce;
    Allgather: allgather;
    Barrier: barrier;
    Reduce: reduce<PARTS>;
    Bcast: bcast<PARTS>;
    Scatter: scatter<PARTS>;
}

/// Runs a call in cells that was entered, and leaves it. If its root lends its memory, `run`, which is that of its row,
/// continues the call: it begins with the same flag.
///
/// # Errors
/// If a peer contradicts the call or failed it. Then this rank has failed the call too, and its peers can see that.
#[inline(always)]
pub fn run_in_cells<C: AtOnce>(
    call: ShortCall<'_, known::InCells>,
    plan: &Plan,
    moves: CellMoves,
    run: impl FnOnce(&Call<'_>, &Plan) -> Result<(), Fault>,
) -> Result<(), Fault> {
    if let Some(first) = moves.tried {
        let source = call.choose_source(plan.bytes, first);
        match finds_lent(&call, plan, moves, source) {
            Ok(false) => {}
            Ok(true) => return run(&call.into_call(source), plan),
            Err(fault) => return call.finish(Err(fault)),
        }
    }
    call.finish(C::in_cells(&call, plan, moves))
}

/// Whether the root of a call lends its memory. `source` is this rank's choice if it is the root.
#[inline]
fn finds_lent(
    fabric: &ShortCall<'_, known::InCells>,
    plan: &Plan,
    moves: CellMoves,
    source: Source,
) -> Result<bool, Fault> {
    let (root, ticket) = (fabric.layout().place(plan.root).1, Tickets::of(plan).draw());
    let line = moves.first_line(Line::Down);
    Ok(is_lent!(at_once, fabric, root, source == Source::Memory, line, ticket))
}

#[cfg(test)]
#[path = "short_tests.rs"]
mod tests;
