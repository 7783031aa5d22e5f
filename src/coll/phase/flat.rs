//! The flat form: every rank works with every other directly. It has the fewest steps, but the root touches all slots.

use super::{Blocks, Dealing, Form, Local, Sequence, block_in_slot, combine_in_rank_order, later, others};
use crate::coll::{Knob, pieces, pieces_between};
use crate::fabric::{Fabric, Line, Place, Room, Span};
use crate::types::{Bytes, NodeRank, Ticket};

/// No hierarchy, one piece per cell.
#[derive(Clone, Copy, Debug)]
pub struct Flat;

impl Form for Flat {
    async fn reduce_to<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, to: Span, from: Span, n: Bytes) {
        let fabric = local.fabric;
        for (offset, length) in pieces_between(fabric.size(), n, fabric.cell_bytes(), local.plan.granule) {
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
        let most = piece_of_block(local.fabric);
        deal_in_pieces(local, root, from, to, n, most).await;
    }
}

/// Scatters in pieces. The root lays a piece of at most `most` bytes of every other rank's block in one slot; each rank
/// copies its own piece out.
pub(super) async fn deal_in_pieces<F: Fabric>(
    local: &mut Local<'_, F>,
    root: NodeRank,
    from: Blocks,
    to: Option<Span>,
    n: Bytes,
    most: Bytes,
) {
    let fabric = local.fabric;
    let (me, size) = (fabric.rank(), fabric.size());
    for (offset, length) in pieces_between(size, n, most, Bytes(1)) {
        let ticket = local.tickets.draw();
        let all = length * (size - 1);
        let stage = Place::stage(root, Line::Down, ticket, all);
        let staged = |rank| stage.at(length * block_in_slot(root, rank, size));
        if me != root {
            fabric.wait(root, Line::Down, ticket).await;
        } else if size > 1 {
            fabric.claim(ticket, Room::passing(all)).await;
            for rank in others(fabric) {
                fabric.copy(staged(rank), from.of(rank, offset), length).await;
            }
            fabric.publish(Line::Down, ticket).await;
        }
        if let Some(to) = to {
            let own = if me == root { from.of(me, offset) } else { staged(me) };
            fabric.copy(to.plus(offset), own, length).await;
        }
        fabric.release(ticket).await;
    }
}

/// Bytes of each block that one ticket moves: a cell holds that much for each rank.
pub(super) fn piece_of_block<F: Fabric>(fabric: &F) -> Bytes {
    Bytes(fabric.cell_bytes().0 / fabric.size())
}

/// `to` = the operands of all ranks, combined in rank order. The other ranks publish theirs; this rank's own is at
/// `from`.
async fn combine_all<F: Fabric>(local: &Local<'_, F>, root: NodeRank, to: Span, from: Span, ticket: Ticket, n: Bytes) {
    let fabric = local.fabric;
    if fabric.size() == 1 {
        return copy_unless_same(fabric, to, from, n).await;
    }
    // The first step overwrites `to`. If that is also `from` and a later step uses the operand, it moves to the slot
    // first.
    let sequence = Sequence::of(local.plan, fabric.size());
    let own = if sequence.is_after_first_step(root.index()) && fabric.is_in_place() {
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
    combine_in_rank_order!(later, fabric, root, Line::Up, ticket, to, operand, n, sequence);
}

/// Copies, unless source and destination are known to be the same memory.
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

/// Broadcasts in pieces: all ranks read the root's slots. The root has at most as many pieces under way as the plan
/// sets buffers.
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
    for (offset, length) in pieces_between(fabric.size(), n, piece, Bytes(1)) {
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

/// Gathers in pieces: the root reads all slots.
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
