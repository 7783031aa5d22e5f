//! Dissemination of any radix on one node. In each step a rank takes what some others have, until all ranks have
//! everything.

use super::composed::block_of;
use super::{Local, copy_unless_same};
use crate::coll::{Plan, pieces, pieces_between};
use crate::fabric::{Fabric, Line, Place, Room, Span};
use crate::types::{Bytes, CommRank, NodeRank, Ticket};

/// The ranks that exchange in a step, this rank included; at least 2.
fn radix(plan: &Plan) -> u32 {
    plan.knobs.radix().max(2)
}

/// Allreduce: every rank gets the operands of all, combined by position in the hierarchy; see
/// [`Exchange`](crate::topo::Exchange).
pub async fn allreduce<F: Fabric>(fabric: &F, plan: &Plan) {
    let mut local = Local::new(fabric, plan);
    if fabric.size() == 1 {
        return copy_unless_same(fabric, Place::RecvBuf.start(), Place::SendBuf.start(), plan.bytes).await;
    }
    for (offset, n) in pieces_between(fabric.size(), plan.bytes, fabric.cell_bytes(), plan.granule) {
        combine_piece(&mut local, offset, n).await;
    }
}

async fn combine_piece<F: Fabric>(local: &mut Local<'_, F>, offset: Bytes, n: Bytes) {
    let fabric = local.fabric;
    let exchange = fabric.levels().exchange(radix(local.plan));
    let is_head = exchange.is_head(fabric.rank());
    let to = Place::RecvBuf.at(offset);
    // 1. Publish the operand.
    let mut ticket = local.tickets.draw();
    // The cell is not passed: this rank may still read its own operand from it, to combine it, after it has published
    // it.
    local.publish_copy_in(Room::of(n), Line::Up, ticket, Place::SendBuf.at(offset), n).await;
    // 2. Heads combine the operands of their run, then exchange. The result of the last step goes to the buffer.
    let steps = exchange.steps.len();
    for index in usize::from(!exchange.has_runs())..=steps {
        let partners = if index == 0 { &exchange.run } else { &exchange.steps[index - 1] };
        let is_last = index == steps;
        if is_last {
            if is_head {
                combine(local, ticket, partners, to, n).await;
            }
            break;
        }
        let next = local.tickets.draw();
        if is_head {
            let stage = Place::stage(fabric.rank(), Line::Up, next, n).start();
            fabric.claim(next, Room::of(n)).await;
            combine(local, ticket, partners, stage, n).await;
            fabric.publish(Line::Up, next).await;
        }
        fabric.release(ticket).await;
        ticket = next;
    }
    fabric.release(ticket).await;
    // 3. Heads hand the result to their run.
    if exchange.has_runs() {
        let ticket = local.tickets.draw();
        if !is_head {
            local.receive(exchange.run[0], Line::Down, ticket, to, n).await;
        } else if exchange.run.len() > 1 {
            local.publish_copy(Line::Down, ticket, to, n).await;
        }
        fabric.release(ticket).await;
    }
}

/// `to` = the operands that `ranks` published for `ticket`, combined in that order.
async fn combine<F: Fabric>(local: &Local<'_, F>, ticket: Ticket, ranks: &[NodeRank], to: Span, n: Bytes) {
    let fabric = local.fabric;
    let slot = |rank| Place::stage(rank, Line::Up, ticket, n).start();
    let mut left = slot(ranks[0]);
    for (index, rank) in ranks.iter().enumerate() {
        if *rank != fabric.rank() {
            fabric.wait(*rank, Line::Up, ticket).await;
        }
        if index > 0 {
            fabric.reduce(to, left, slot(*rank), n).await;
            left = to;
        }
    }
    if ranks.len() == 1 {
        fabric.copy(to, left, n).await;
    }
}

/// Barrier. In step `i` a rank's flag signals the ranks at distances up to `radix - 1` times `radix^i`.
pub async fn barrier<F: Fabric>(fabric: &F, plan: &Plan) {
    let mut local = Local::new(fabric, plan);
    let (size, radix) = (fabric.size(), radix(plan) as usize);
    let mut distance = 1;
    while distance < size {
        let ticket = local.tickets.draw();
        fabric.publish(Line::Up, ticket).await;
        for times in (1..radix).take_while(|times| times * distance < size) {
            fabric.wait(behind(fabric, times * distance), Line::Up, ticket).await;
        }
        distance *= radix;
    }
}

/// The rank `distance` positions before this one, in the ring of all positions.
fn behind<F: Fabric>(fabric: &F, distance: usize) -> NodeRank {
    ahead(fabric, fabric.size() - distance)
}

/// The rank `distance` positions after this one, in the ring of all positions.
fn ahead<F: Fabric>(fabric: &F, distance: usize) -> NodeRank {
    let position = fabric.levels().position_of(fabric.rank()) as usize;
    fabric.levels().rank_at(((position + distance) % fabric.size()) as u32)
}

/// Allgather: every rank gets the blocks of all. In step `i` a rank takes the blocks that the ranks up to `radix - 1`
/// times `radix^i` positions after it have by then.
pub async fn allgather<F: Fabric>(fabric: &F, plan: &Plan) {
    let mut local = Local::new(fabric, plan);
    let own = block_of(plan, CommRank(fabric.rank().0));
    copy_unless_same(fabric, own, Place::SendBuf.start(), plan.bytes).await;
    if fabric.size() == 1 {
        return;
    }
    for (offset, n) in pieces(plan.bytes, Bytes(fabric.cell_bytes().0 / fabric.size()), Bytes(1)) {
        gather_piece(&mut local, offset, n).await;
    }
}

async fn gather_piece<F: Fabric>(local: &mut Local<'_, F>, offset: Bytes, n: Bytes) {
    let fabric = local.fabric;
    let (me, size, radix) = (fabric.rank(), fabric.size(), radix(local.plan) as usize);
    let mut ticket = local.tickets.draw();
    local.publish_copy(Line::Up, ticket, Place::SendBuf.at(offset), n).await;
    // Blocks that every rank has in its slot by now: its own and those of the ranks after it.
    let mut held = 1;
    while held * radix < size {
        let next = local.tickets.draw();
        let blocks = |rank, ticket, held| Place::stage(rank, Line::Up, ticket, n * held).start();
        let stage = blocks(me, next, held * radix);
        fabric.claim(next, Room::of(n * (held * radix))).await;
        fabric.copy(stage, blocks(me, ticket, held), n * held).await;
        for times in 1..radix {
            let partner = ahead(fabric, times * held);
            fabric.wait(partner, Line::Up, ticket).await;
            fabric.copy(stage.plus(n * (times * held)), blocks(partner, ticket, held), n * held).await;
        }
        fabric.publish(Line::Up, next).await;
        fabric.release(ticket).await;
        ticket = next;
        held *= radix;
    }
    for distance in 1..size {
        let holder = ahead(fabric, distance - distance % held);
        if distance.is_multiple_of(held) {
            fabric.wait(holder, Line::Up, ticket).await;
        }
        let block = Place::stage(holder, Line::Up, ticket, n * held).at(n * (distance % held));
        let source = CommRank(ahead(fabric, distance).0);
        fabric.copy(block_of(local.plan, source).plus(offset), block, n).await;
    }
    fabric.release(ticket).await;
}
