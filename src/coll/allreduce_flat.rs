//! Allreduce, flat: every rank combines all operands itself.
//!
//! Source: the base case of Li, Hoefler, Hu, Snir 2014, §2.6; payload beside the flag up to 96 bytes.
//!
//! 1. A rank copies its next piece into its slot.
//! 2. One piece behind, it combines the current piece of all ranks, in rank order, so that all ranks get the same bits.
//! 3. Several nodes: reduce to the leader, Allreduce of the leaders, broadcast.
//!
//! p = 5: every rank reads every slot.
//! Cost: one line transfer of latency; p − 1 operands read and combined by each rank.
//! Flags: Up by all, read by all.
//! Epochs: the piece ahead, in e or in e + 1, uses the next slot of the ring. A rank claims that slot before it writes
//! it: all have then released what it held.
//! Limits: an element has to fit a cell; p² operands are read in all.

use super::cost::{self, Way};
use super::phase::short;
use super::phase::{Flat, Local, Sequence, combine_in_rank_order, composed, later};
use super::{Algorithm, Knob, Measures, Plan, Reach, Short, pieces_between};
use crate::fabric::{Fabric, Line, Place};
use crate::model::{Nanos, Scene};
use crate::types::{Bytes, Collective, Ticket};

/// See the module.
pub struct AllreduceFlat;

impl Algorithm for AllreduceFlat {
    const COLLECTIVE: Collective = Collective::Allreduce;
    const NAME: &'static str = "flat";
    const SUMMARY: &'static str = "every rank combines the slots of all ranks";
    const SOURCE: &'static str = "Li, Hoefler, Hu, Snir 2014, section 2.6";
    const COST: &'static str = "one line transfer of latency; p − 1 operands read and combined by each rank";
    const DRAWING: &'static str = "\
all   0 1 2 3 4 -> slots
all   each rank combines slots 0 1 2 3 4";
    const KNOBS: &'static [Knob] = &[Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::Staged;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Flat, Self::COLLECTIVE, plan, scene)
    }

    fn short(plan: &Plan, measures: &Measures) -> Option<Short> {
        Short::new(plan, measures, plan.bytes)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        if Self::short(plan, &Measures::of(fabric)).is_some() {
            return short::allreduce(fabric, plan).await;
        }
        if fabric.layout().nodes() > 1 {
            return composed::allreduce(fabric, plan, Flat).await;
        }
        let mut local = Local::new(fabric, plan);
        let mut ahead = None;
        for (offset, n) in pieces_between(fabric.size(), plan.bytes, fabric.cell_bytes(), plan.granule) {
            // 1.
            let ticket = local.tickets.draw();
            local.publish_copy(Line::Up, ticket, Place::SendBuf.at(offset), n).await;
            // 2.
            if let Some((ticket, offset, n)) = ahead.replace((ticket, offset, n)) {
                combine(&local, ticket, offset, n).await;
            }
        }
        if let Some((ticket, offset, n)) = ahead {
            combine(&local, ticket, offset, n).await;
        }
    }
}

async fn combine<F: Fabric>(local: &Local<'_, F>, ticket: Ticket, offset: Bytes, n: Bytes) {
    let fabric = local.fabric;
    let me = fabric.rank();
    let slot = |rank| Place::stage(rank, Line::Up, ticket, n).start();
    let (from, to) = (Place::SendBuf.at(offset), Place::RecvBuf.at(offset));
    if fabric.size() == 1 {
        return fabric.copy(to, slot(me), n).await;
    }
    // In place the first step overwrites this rank's operand, unless the operand takes part in it. The slot has a copy.
    let sequence = Sequence::of(local.plan, fabric.size());
    let own = if sequence.is_after_first_step(me.index()) && fabric.is_in_place() { slot(me) } else { from };
    let operand = |rank| if rank == me { own } else { slot(rank) };
    combine_in_rank_order!(later, fabric, me, Line::Up, ticket, to, operand, n, sequence);
    fabric.release(ticket).await;
}
