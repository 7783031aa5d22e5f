//! The tiled form: long messages move in tiles that stay in the cache between writer and reader, and in reductions every
//! rank combines its own part of all operands (tiled-reduce of Li et al. 2014, §2.4).

use super::flat::{bcast_in_pieces, copy_unless_same, gather_in_pieces};
use super::{Blocks, Flat, Form, Local, others, ranks};
use crate::coll::{part, pieces};
use crate::fabric::{Fabric, Line, Place, Span};
use crate::types::{Bytes, NodeRank, Ticket};
use std::ops::Range;

/// Tiles of `tile` bytes, or the length of a cell where that is less.
#[derive(Clone, Copy, Debug)]
pub struct Tiled {
    /// At least one element.
    pub tile: Bytes,
}

impl Tiled {
    fn piece<F: Fabric>(&self, local: &Local<'_, F>) -> Bytes {
        Bytes(self.tile.0.max(local.plan.granule.0)).min(local.fabric.cell_bytes())
    }

    /// Bytes that take one ticket of a tiled reduction: a tile for each rank, as far as a cell reaches.
    pub fn reduction_piece<F: Fabric>(&self, local: &Local<'_, F>) -> Bytes {
        (self.piece(local) * local.fabric.size()).min(local.fabric.cell_bytes())
    }
}

impl Form for Tiled {
    async fn reduce_to<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, to: Span, from: Span, n: Bytes) {
        let fabric = local.fabric;
        if fabric.size() == 1 {
            return copy_unless_same(fabric, to, from, n).await;
        }
        // One piece is published ahead of the one that is combined.
        let mut ahead = None;
        for (offset, length) in pieces(n, self.reduction_piece(local), local.plan.granule) {
            let ticket = local.tickets.draw();
            publish_operand(local, ticket, from.plus(offset), length).await;
            if let Some((ticket, offset, length)) = ahead.replace((ticket, offset, length)) {
                combine_and_collect(local, ticket, root, to.plus(offset), from.plus(offset), length).await;
            }
        }
        if let Some((ticket, offset, length)) = ahead {
            combine_and_collect(local, ticket, root, to.plus(offset), from.plus(offset), length).await;
        }
    }

    async fn bcast_from<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, from: Span, to: Span, n: Bytes) {
        let piece = self.piece(local);
        bcast_in_pieces(local, root, from, to, n, piece).await;
    }

    async fn gather_to<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, to: Span, from: Span, n: Bytes) {
        let piece = self.piece(local);
        gather_in_pieces(local, root, to, from, n, piece).await;
    }

    /// One ticket per tile and receiver, so that the root writes the next while this one is read.
    async fn scatter_from<F: Fabric>(
        &self,
        local: &mut Local<'_, F>,
        root: NodeRank,
        from: Blocks,
        to: Option<Span>,
        n: Bytes,
    ) {
        let fabric = local.fabric;
        let me = fabric.rank();
        for (offset, length) in pieces(n, self.piece(local), Bytes(1)) {
            for rank in ranks(fabric).filter(|rank| *rank != root) {
                let ticket = local.tickets.draw();
                if me == root {
                    local.publish_copy(Line::Down, ticket, from.of(rank, offset), length).await;
                } else if me == rank {
                    fabric.wait(root, Line::Down, ticket).await;
                    if let Some(to) = to {
                        let stage = Place::stage(root, Line::Down, ticket, length).start();
                        fabric.copy(to.plus(offset), stage, length).await;
                    }
                }
                fabric.release(ticket).await;
            }
            if let (true, Some(to)) = (me == root, to) {
                fabric.copy(to.plus(offset), from.of(me, offset), length).await;
            }
        }
    }

    async fn arrive<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank) {
        Flat.arrive(local, root).await;
    }

    async fn depart<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank) {
        Flat.depart(local, root).await;
    }
}

fn own_part<F: Fabric>(local: &Local<'_, F>, n: Bytes) -> Range<usize> {
    part(n, local.plan.granule, local.fabric.rank(), local.fabric.size())
}

/// What follows once an operand is published: this rank's part is combined, the root collects all parts.
async fn combine_and_collect<F: Fabric>(
    local: &Local<'_, F>,
    ticket: Ticket,
    root: NodeRank,
    to: Span,
    from: Span,
    n: Bytes,
) {
    combine_part(local, ticket, from, n).await;
    if local.fabric.rank() == root {
        collect_parts(local, ticket, to, n).await;
    }
    local.fabric.release(ticket).await;
}

/// Copies this rank's operand into its cell, but for the part that it combines itself, and publishes it.
pub async fn publish_operand<F: Fabric>(local: &Local<'_, F>, ticket: Ticket, from: Span, n: Bytes) {
    let fabric = local.fabric;
    let cell = Place::Cell { rank: fabric.rank(), ticket }.start();
    let own = own_part(local, n);
    fabric.claim(ticket).await;
    for range in [0..own.start, own.end..n.0] {
        if !range.is_empty() {
            let at = Bytes(range.start);
            fabric.copy(cell.plus(at), from.plus(at), Bytes(range.len())).await;
        }
    }
    fabric.publish(Line::Up, ticket).await;
}

/// Combines this rank's part of all operands, in rank order, into its own cell and publishes it.
pub async fn combine_part<F: Fabric>(local: &Local<'_, F>, ticket: Ticket, from: Span, n: Bytes) {
    let fabric = local.fabric;
    let me = fabric.rank();
    let own = own_part(local, n);
    let (at, length) = (Bytes(own.start), Bytes(own.len()));
    if length > Bytes::ZERO {
        let cell = |rank| Place::Cell { rank, ticket }.at(at);
        // This rank's own operand comes from its buffer: its cell is where the result grows.
        let operand = |rank| {
            if rank == me { from.plus(at) } else { cell(rank) }
        };
        let mut left = operand(NodeRank(0));
        for rank in ranks(fabric) {
            if rank != me {
                fabric.wait(rank, Line::Up, ticket).await;
            }
            if rank.0 > 0 {
                fabric.reduce(cell(me), left, operand(rank), length).await;
                left = cell(me);
            }
        }
    }
    fabric.publish(Line::Down, ticket).await;
}

/// Copies all combined parts to `to`, this rank's own first.
pub async fn collect_parts<F: Fabric>(local: &Local<'_, F>, ticket: Ticket, to: Span, n: Bytes) {
    let fabric = local.fabric;
    let me = fabric.rank();
    for rank in std::iter::once(me).chain(others(fabric)) {
        let range = part(n, local.plan.granule, rank, fabric.size());
        if range.is_empty() {
            continue;
        }
        if rank != me {
            fabric.wait(rank, Line::Down, ticket).await;
        }
        let at = Bytes(range.start);
        fabric.copy(to.plus(at), Place::Cell { rank, ticket }.at(at), Bytes(range.len())).await;
    }
}
