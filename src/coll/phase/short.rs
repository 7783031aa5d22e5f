//! Calls on one node whose data fit one slot of each rank, in the flat form: most calls of most programs.
//!
//! They do what [`Flat`](super::Flat) does, without the loop over pieces, so that the compiler makes one function of driver,
//! algorithm and fabric: nested futures are moved through memory, which takes longer than all the rest.

use super::composed::block_of;
use super::{combine_in_rank_order, others};
use crate::coll::{Plan, Tickets};
use crate::fabric::{Fabric, Line, Place, Room};
use crate::types::{Bytes, CommRank, NodeRank};

/// Whether a call is one of these, where one slot of a rank holds `bytes`.
#[inline]
pub fn is_short<F: Fabric>(fabric: &F, bytes: Bytes) -> bool {
    bytes <= fabric.cell_bytes() && fabric.layout().nodes() == 1
}

/// Every rank combines the operands of all, in rank order.
#[inline]
pub async fn allreduce<F: Fabric>(fabric: &F, plan: &Plan) {
    let (me, n) = (fabric.rank(), plan.bytes);
    let ticket = Tickets::of(plan).draw();
    let slot = |rank| Place::stage(rank, Line::Up, ticket, n).start();
    let (from, to) = (Place::SendBuf.start(), Place::RecvBuf.start());
    fabric.claim(ticket, Room::of(n)).await;
    fabric.copy(slot(me), from, n).await;
    fabric.publish(Line::Up, ticket).await;
    if fabric.size() == 1 {
        return fabric.copy(to, slot(me), n).await;
    }
    // In place the first step overwrites this rank's operand, unless it takes part in it; the slot has a copy.
    let own = if me.0 >= 2 && fabric.is_in_place() { slot(me) } else { from };
    let operand = |rank| if rank == me { own } else { slot(rank) };
    combine_in_rank_order!(fabric, me, ticket, to, operand, n);
}

/// The root combines the operands of all, in rank order.
#[inline]
pub async fn reduce<F: Fabric>(fabric: &F, plan: &Plan) {
    let (me, n) = (fabric.rank(), plan.bytes);
    let root = root_of(fabric, plan);
    let ticket = Tickets::of(plan).draw();
    let slot = |rank| Place::stage(rank, Line::Up, ticket, n).start();
    let (from, to) = (Place::SendBuf.start(), Place::RecvBuf.start());
    // In place the first step overwrites the root's operand, unless it takes part in it.
    let needs_copy = me.0 >= 2 && fabric.is_in_place();
    if me != root || needs_copy {
        fabric.claim(ticket, Room::of(n)).await;
        fabric.copy(slot(me), from, n).await;
    }
    if me != root {
        return fabric.publish(Line::Up, ticket).await;
    }
    if fabric.size() == 1 {
        if !fabric.is_in_place() {
            fabric.copy(to, from, n).await;
        }
        return;
    }
    let own = if needs_copy { slot(me) } else { from };
    let operand = |rank| if rank == me { own } else { slot(rank) };
    combine_in_rank_order!(fabric, me, ticket, to, operand, n);
}

/// Everyone reads the root's slot.
#[inline]
pub async fn bcast<F: Fabric>(fabric: &F, plan: &Plan) {
    let root = root_of(fabric, plan);
    let ticket = Tickets::of(plan).draw();
    let slot = Place::stage(root, Line::Down, ticket, plan.bytes).start();
    let buffer = Place::RecvBuf.start();
    if fabric.rank() == root {
        fabric.claim(ticket, Room::of(plan.bytes)).await;
        fabric.copy(slot, buffer, plan.bytes).await;
        fabric.publish(Line::Down, ticket).await;
    } else {
        fabric.wait(root, Line::Down, ticket).await;
        fabric.copy(buffer, slot, plan.bytes).await;
    }
}

/// Everyone reads all slots.
#[inline]
pub async fn allgather<F: Fabric>(fabric: &F, plan: &Plan) {
    let (me, n) = (fabric.rank(), plan.bytes);
    let ticket = Tickets::of(plan).draw();
    let slot = |rank| Place::stage(rank, Line::Up, ticket, n).start();
    let block = |rank: NodeRank| block_of(plan, CommRank(rank.0));
    fabric.claim(ticket, Room::of(n)).await;
    fabric.copy(slot(me), Place::SendBuf.start(), n).await;
    fabric.publish(Line::Up, ticket).await;
    if !fabric.is_in_place() {
        fabric.copy(block(me), Place::SendBuf.start(), n).await;
    }
    for rank in others(fabric) {
        fabric.wait(rank, Line::Up, ticket).await;
        fabric.copy(block(rank), slot(rank), n).await;
    }
}

/// Everyone reads its block in the root's slot, which holds the blocks of all ranks.
#[inline]
pub async fn scatter<F: Fabric>(fabric: &F, plan: &Plan) {
    let (me, n) = (fabric.rank(), plan.bytes);
    let root = root_of(fabric, plan);
    let ticket = Tickets::of(plan).draw();
    let stage = Place::stage(root, Line::Down, ticket, n * fabric.size());
    let (blocks, to) = (Place::SendBuf, Place::RecvBuf.start());
    if me != root {
        fabric.wait(root, Line::Down, ticket).await;
        return fabric.copy(to, stage.at(n * me.index()), n).await;
    }
    fabric.claim(ticket, Room::of(n * fabric.size())).await;
    for rank in others(fabric) {
        fabric.copy(stage.at(n * rank.index()), blocks.at(n * rank.index()), n).await;
    }
    fabric.publish(Line::Down, ticket).await;
    if !fabric.is_in_place() {
        fabric.copy(to, blocks.at(n * me.index()), n).await;
    }
}

/// The root on this one node.
#[inline]
fn root_of<F: Fabric>(fabric: &F, plan: &Plan) -> NodeRank {
    fabric.layout().place(plan.root).1
}
