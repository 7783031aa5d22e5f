//! The tickets of a call: how its ranks draw them, and how many there may be.

use super::phase::{Between, bridge_block};
use super::{Measures, Plan, Row};
use crate::types::{Bytes, Epoch, Ticket};

/// The tickets of one call, in order. All ranks of a node draw the same number.
#[derive(Debug)]
pub struct Tickets {
    epoch: Epoch,
    next: u64,
}

impl Tickets {
    /// All tickets of the call.
    #[inline]
    pub fn of(plan: &Plan) -> Self {
        Self { epoch: plan.epoch, next: 0 }
    }

    /// Draws the next ticket.
    #[inline]
    pub fn draw(&mut self) -> Ticket {
        let ticket = self.peek();
        self.next += 1;
        ticket
    }

    /// The ticket that the next `draw` returns.
    #[inline]
    pub fn peek(&self) -> Ticket {
        Ticket::new(self.epoch, self.next)
    }

    /// Draws `count` tickets, at least one, and returns the last of them. This rank reads no data of these tickets.
    #[inline]
    pub fn skip(&mut self, count: u64) -> Ticket {
        self.next += count - 1;
        self.draw()
    }
}

/// The most phases of a call that may pass over all of its data: before and after the step between nodes, each with a
/// detour over a leader that is not the root.
const PASSES: usize = 4;
/// Where steps between nodes cut tickets short, chunks count as no longer than this.
const COUNTED_CHUNK: Bytes = Bytes(64 << 10);

/// What a call moves on a node.
struct Moves {
    /// Ranks whose blocks the node deals with one by one; 1 in a collective without blocks.
    dealt: usize,
    /// Bytes that the node passes on as a whole, from and to its leader: the blocks of all ranks, where there are
    /// several nodes.
    whole: usize,
    /// The most tickets for each piece.
    each: usize,
}

impl Moves {
    fn of(row: &Row, plan: &Plan, measures: &Measures, largest_node: usize) -> Self {
        let (dealt, whole) = match (row.collective.has_blocks(), measures.nodes) {
            (false, _) => (1, 0),
            (true, 1) => (largest_node, 0),
            (true, _) => (largest_node, plan.bytes.0.saturating_mul(measures.ranks)),
        };
        // Each round of an exchange on one node takes a ticket; before and after it there are runs of ranks.
        let has_rounds = row.has_rounds && measures.nodes == 1;
        let rounds = if has_rounds { largest_node.next_power_of_two().ilog2() as usize + 2 } else { 0 };
        Self { dealt, whole, each: rounds.max(2 * PASSES) }
    }

    /// The most tickets, if the message, or each block, goes in `steps` steps to and from other nodes or other ranks,
    /// and a ticket moves at least `piece` bytes of the whole.
    fn tickets(&self, steps: usize, piece: usize) -> u64 {
        let steps = steps.saturating_add(1);
        let passed_on = (self.whole / piece).saturating_add(if self.whole > 0 { steps } else { 0 });
        steps.saturating_mul(self.dealt).saturating_add(passed_on).saturating_mul(self.each) as u64
    }
}

/// Whether a call might draw more tickets than there are.
pub fn may_exceed_tickets(row: &Row, plan: &Plan, measures: &Measures, largest_node: usize) -> bool {
    // Most calls could move single bytes without reaching the bound: this spares them the divisions.
    let by_bytes = Moves::of(row, plan, measures, largest_node).tickets(plan.bytes.0, 1);
    by_bytes >= Ticket::STEPS && most_tickets(row, plan, measures, largest_node) >= Ticket::STEPS
}

/// The most tickets that a call may draw on any node, of which the largest has `largest_node` ranks: a bound for all
/// rows, to which the checking scheduler holds every call.
///
/// A ticket moves at least a tile (a cell is no shorter than a tile) or, for each rank of the node, its share of a cell
/// in whole bytes. Two ranks may cut their pieces evenly, which takes no more tickets. A ticket moves less only at the
/// end of a block, of a train or of a step between nodes, and at the start of a message.
pub fn most_tickets(row: &Row, plan: &Plan, measures: &Measures, largest_node: usize) -> u64 {
    let moves = Moves::of(row, plan, measures, largest_node);
    let block = if moves.whole > 0 { bridge_block(plan, measures.ranks) } else { COUNTED_CHUNK };
    let between = if row.has_rounds { Between::dissemination(plan) } else { Between::Native };
    let shares = if moves.dealt > 1 { measures.cell.round_down_to(Bytes(moves.dealt)) } else { measures.cell };
    let piece = plan.tile(measures.cell).min(plan.segment(measures.cell)).min(shares);
    let step = piece.min(block).min(between.area(plan, measures.nodes));
    moves.tickets(plan.bytes.0 / step.0.max(1), piece.0.max(1))
}
