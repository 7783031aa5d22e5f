//! The flat form: every rank deals with every other directly. Fewest steps; the root touches all slots.

use super::{Blocks, Dealing, Form, Local, block_in_slot, combine_in_rank_order, later, others};
use crate::coll::{Knob, part, pieces};
use crate::fabric::{Fabric, Line, Place, Room, Span};
use crate::types::{Bytes, NodeRank, Ticket};
use std::ops::Range;

/// No hierarchy, one piece per cell.
#[derive(Clone, Copy, Debug)]
pub struct Flat;

impl Form for Flat {
    async fn reduce_to<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, to: Span, from: Span, n: Bytes) {
        let fabric = local.fabric;
        for (offset, length) in pieces(n, fabric.cell_bytes(), local.plan.granule) {
            let ticket = local.tickets.draw();
            let (to, from) = (to.plus(offset), from.plus(offset));
            if fabric.rank() == root {
                combine_all(local, root, to, from, ticket, length).await;
            } else {
                local.publish_copy(Line::Up, ticket, from, length).await;
            }
            fabric.release(ticket).await;
        }
    }

    async fn bcast_from<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, from: Span, to: Span, n: Bytes) {
        bcast_in_pieces(local, root, from, to, n, local.fabric.cell_bytes()).await;
    }

    async fn gather_to<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, to: Span, from: Span, n: Bytes) {
        gather_in_pieces(local, root, to, from, n, local.fabric.cell_bytes()).await;
    }

    async fn arrive<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank) {
        let fabric = local.fabric;
        let ticket = local.tickets.draw();
        if fabric.rank() == root {
            for rank in others(fabric) {
                fabric.wait(rank, Line::Up, ticket).await;
            }
        } else {
            fabric.publish(Line::Up, ticket).await;
        }
    }

    async fn depart<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank) {
        let ticket = local.tickets.draw();
        if local.fabric.rank() == root {
            local.fabric.publish(Line::Down, ticket).await;
        } else {
            local.fabric.wait(root, Line::Down, ticket).await;
        }
    }
}

impl Dealing for Flat {
    async fn scatter_from<F: Fabric>(
        &self,
        local: &mut Local<'_, F>,
        root: NodeRank,
        from: Blocks,
        to: Option<Span>,
        n: Bytes,
    ) {
        let how = Pieces::of_cell(local.fabric.cell_bytes(), local.fabric.size());
        deal_in_pieces(local, root, from, to, n, (how, FirstFlag::Plain)).await;
    }
}

/// How a root deals blocks through its slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    /// Bytes of each block that take one ticket.
    pub most: Bytes,
    /// Who reads works on the first half of a piece while the other is still written: that has a flag of its own, on the other line.
    pub in_halves: bool,
}

/// What a rank says with the first flag of a call in which peers ask whether it exposed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstFlag {
    /// Nothing: they don't ask.
    Plain,
    /// That it did not.
    TellsUnexposed,
}

impl Pieces {
    /// Whole ones, of which a cell holds one for each of so many ranks.
    pub fn of_cell(cell: Bytes, ranks: usize) -> Self {
        Self { most: Bytes(cell.0 / ranks), in_halves: false }
    }

    /// The line of the first flag.
    pub fn first_line(&self) -> Line {
        if self.in_halves { Line::Up } else { Line::Down }
    }

    /// The flags of a piece of `n` bytes, and what of it comes with each.
    fn parts(&self, n: Bytes, granule: Bytes) -> impl Iterator<Item = (Line, Range<usize>)> + Send + use<> {
        let half = if self.in_halves { part(n, granule, NodeRank(0), 2).len() } else { 0 };
        let parts = [(Line::Up, 0..half), (Line::Down, half..n.0)];
        parts.into_iter().skip(usize::from(!self.in_halves))
    }
}

/// A piece of every other rank's block in one slot, each of which copies its own.
pub(super) async fn deal_in_pieces<F: Fabric>(
    local: &mut Local<'_, F>,
    root: NodeRank,
    from: Blocks,
    to: Option<Span>,
    n: Bytes,
    (how, first_flag): (Pieces, FirstFlag),
) {
    let fabric = local.fabric;
    let (me, size) = (fabric.rank(), fabric.size());
    for (offset, length) in pieces(n, how.most, Bytes(1)) {
        let ticket = local.tickets.draw();
        let all = length * (size - 1);
        if me == root && size > 1 {
            fabric.claim(ticket, Room::passing(all)).await;
        }
        for (line, part) in how.parts(length, local.plan.granule) {
            let (at, part) = (Bytes(part.start), Bytes(part.len()));
            let stage = Place::stage(root, line, ticket, all);
            let staged = |rank| stage.at(length * block_in_slot(root, rank, size) + at);
            if me == root {
                for rank in others(fabric) {
                    fabric.copy(staged(rank), from.of(rank, offset + at), part).await;
                }
                let is_first = offset + at == Bytes::ZERO;
                if is_first && first_flag == FirstFlag::TellsUnexposed {
                    fabric.expose(line, ticket, None).await;
                }
                fabric.publish(line, ticket).await;
            } else {
                fabric.wait(root, line, ticket).await;
                if let Some(to) = to {
                    fabric.copy(to.plus(offset + at), staged(me), part).await;
                }
            }
        }
        if let (true, Some(to)) = (me == root, to) {
            fabric.copy(to.plus(offset), from.of(me, offset), length).await;
        }
        fabric.release(ticket).await;
    }
}

/// `to` = the operands of all ranks in rank order; those of the others as published, this rank's own at `from`.
async fn combine_all<F: Fabric>(local: &Local<'_, F>, root: NodeRank, to: Span, from: Span, ticket: Ticket, n: Bytes) {
    let fabric = local.fabric;
    if fabric.size() == 1 {
        return copy_unless_same(fabric, to, from, n).await;
    }
    // The first step overwrites `to`; where that is `from`, an operand that comes later is moved out of the way.
    let own = if root.0 >= 2 && fabric.is_in_place() {
        let own = Place::stage(root, Line::Up, ticket, n).start();
        fabric.claim(ticket, Room::of(n)).await;
        fabric.copy(own, from, n).await;
        own
    } else {
        from
    };
    let operand = |rank| {
        if rank == root { own } else { Place::stage(rank, Line::Up, ticket, n).start() }
    };
    combine_in_rank_order!(later, fabric, root, Line::Up, ticket, to, operand, n);
}

/// Copies, where source and destination are not known to be the same memory.
pub(super) async fn copy_unless_same<F: Fabric>(fabric: &F, to: Span, from: Span, n: Bytes) {
    if !are_same_memory(fabric, to, from) {
        fabric.copy(to, from, n).await;
    }
}

/// Whether two spans are known to be the same memory.
pub(super) fn are_same_memory<F: Fabric>(fabric: &F, to: Span, from: Span) -> bool {
    let is_own_buffer = |place| matches!(place, Place::SendBuf | Place::RecvBuf);
    to == from || fabric.is_in_place() && is_own_buffer(to.place) && is_own_buffer(from.place)
}

/// All read the root's slots, of which it has no more in use than the plan gives it buffers.
pub(super) async fn bcast_in_pieces<F: Fabric>(
    local: &mut Local<'_, F>,
    root: NodeRank,
    from: Span,
    to: Span,
    n: Bytes,
    piece: Bytes,
) {
    let fabric = local.fabric;
    if fabric.size() == 1 {
        return;
    }
    for (offset, length) in pieces(n, piece, Bytes(1)) {
        let ticket = local.tickets.draw();
        if fabric.rank() == root {
            if let Some(buffers) = local.plan.knobs.set(Knob::Buffers) {
                fabric.drain((buffers as usize).min(fabric.slots())).await;
            }
            local.publish_copy(Line::Down, ticket, from.plus(offset), length).await;
        } else {
            local.receive(root, Line::Down, ticket, to.plus(offset), length).await;
        }
        fabric.release(ticket).await;
    }
}

/// The root reads all slots.
pub(super) async fn gather_in_pieces<F: Fabric>(
    local: &mut Local<'_, F>,
    root: NodeRank,
    to: Span,
    from: Span,
    n: Bytes,
    piece: Bytes,
) {
    let fabric = local.fabric;
    for (offset, length) in pieces(n, piece, Bytes(1)) {
        let ticket = local.tickets.draw();
        if fabric.rank() == root {
            copy_unless_same(fabric, to.plus(n * root.index() + offset), from.plus(offset), length).await;
            for rank in others(fabric) {
                local.receive(rank, Line::Up, ticket, to.plus(n * rank.index() + offset), length).await;
            }
        } else {
            local.publish_copy(Line::Up, ticket, from.plus(offset), length).await;
        }
        fabric.release(ticket).await;
    }
}
