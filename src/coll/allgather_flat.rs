//! Allgather, flat: every rank reads all slots.
//!
//! Source: Nishtala 2009, §6.2 (flat gather-to-all).
//!
//! 1. A rank copies the next piece of its block into its slot.
//! 2. One piece behind, it copies the current piece of all ranks into its buffer.
//! 3. Several nodes: gather to the leader, Allgather of the leaders, broadcast.
//!
//! p = 5: every rank reads every slot.
//! Cost: copy in, then p − 1 copies out per rank.
//! Flags: Up by all, read by all.
//! Epochs: a rank leaves e when it has all blocks, while others still read its slots. It claims each slot again only
//! when all have released it, so e + 1 overwrites nothing of e.
//! Limits: p² slots are read in all; a cell holds a byte of each block of the node.

use super::cost::{self, Way};
use super::phase::short;
use super::phase::{Flat, composed, exchange};
use super::{Algorithm, Knob, Measures, Plan, Reach, Short};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct AllgatherFlat;

impl Algorithm for AllgatherFlat {
    const COLLECTIVE: Collective = Collective::Allgather;
    const NAME: &'static str = "flat";
    const SUMMARY: &'static str = "every rank reads the slots of all ranks";
    const SOURCE: &'static str = "Nishtala 2009, section 6.2";
    const COST: &'static str = "copy in, then p − 1 copies out per rank";
    const DRAWING: &'static str = "\
all   0 1 2 3 4 -> slots
all   each rank copies slots 0 1 2 3 4";
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
            return short::allgather(fabric, plan).await;
        }
        if fabric.layout().nodes() > 1 {
            return composed::allgather(fabric, plan, Flat).await;
        }
        exchange::allgather(fabric, plan, fabric.cell_bytes()).await;
    }
}
