//! Exchanges on one node in which every rank reads every slot.

use super::composed::block_of;
use super::{Local, others};
use crate::coll::{Plan, pieces_between};
use crate::fabric::{Fabric, Line, Place};
use crate::types::{Bytes, CommRank, NodeRank, Ticket};

/// Allgather on one node, at most `most` bytes of each block at a time. A rank publishes one piece ahead of the one
/// that it collects.
pub async fn allgather<F: Fabric>(fabric: &F, plan: &Plan, most: Bytes) {
    let mut local = Local::new(fabric, plan);
    let mut ahead = None;
    for (offset, n) in pieces_between(fabric.size(), plan.bytes, most, Bytes(1)) {
        let ticket = local.tickets.draw();
        local.publish_copy(Line::Up, ticket, Place::SendBuf.at(offset), n).await;
        if let Some((ticket, offset, n)) = ahead.replace((ticket, offset, n)) {
            collect(&local, ticket, offset, n).await;
        }
    }
    if let Some((ticket, offset, n)) = ahead {
        collect(&local, ticket, offset, n).await;
    }
}

async fn collect<F: Fabric>(local: &Local<'_, F>, ticket: Ticket, offset: Bytes, n: Bytes) {
    let fabric = local.fabric;
    let block = |rank: NodeRank| block_of(local.plan, CommRank(rank.0)).plus(offset);
    if !fabric.is_in_place() {
        fabric.copy(block(fabric.rank()), Place::SendBuf.at(offset), n).await;
    }
    for rank in others(fabric) {
        local.receive(rank, Line::Up, ticket, block(rank), n).await;
    }
    fabric.release(ticket).await;
}
