//! Allreduce, tiled and cyclic: as tiled, but each rank visits the operands from its own on.
//!
//! Source: Mamidala et al. as in Li, Hoefler, Hu, Snir 2014, §3.2 and Fig. 16.
//!
//! 1. A rank copies its next piece into its slot, except for its own part.
//! 2. One piece behind, it combines part k of all slots, from slot k on, into its buffer, and copies that into its
//!    slot.
//! 3. One more piece behind, it copies the parts of the others into its buffer.
//! 4. Several nodes: cyclic reduction to the leader, Allreduce of the leaders, tiled broadcast.
//!
//! p = 5: part k of `k…4, 0…k − 1 → k`, then `k → 0…4`.
//! Cost: as tiled, but no slot has p readers at a time.
//! Flags: Up by all, read by all; Down by all, read by all.
//! The pieces ahead use the next slots of the ring. A rank claims each before it writes it.
//! Limits: the operation has to be commutative. Every part is combined once, so all ranks get the same bits.

use super::cost::{self, Way};
use super::phase::{Sharing, Tiled, tiled};
use super::{Algorithm, Knob, Need, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct AllreduceCyclic;

impl Algorithm for AllreduceCyclic {
    const COLLECTIVE: Collective = Collective::Allreduce;
    const NAME: &'static str = "cyclic";
    const SUMMARY: &'static str = "as tiled, but each rank starts at its own slot and goes round those of the others";
    const SOURCE: &'static str = "Li, Hoefler, Hu, Snir 2014, section 3.2";
    const COST: &'static str = "as tiled, but no slot has p readers at a time";
    const DRAWING: &'static str = "\
all   0 1 2 3 4 -> slots, in parts a b c d e
all   0: a of 0 1 2 3 4   1: b of 1 2 3 4 0   2: c of 2 3 4 0 1   and so on
all   each rank copies a from 0, b from 1, c from 2, d from 3, e from 4";
    const NEEDS: &'static [Need] = &[Need::Commutative];
    const KNOBS: &'static [Knob] = &[Knob::Tile, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::Tiles;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Tiled, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        tiled::allreduce(fabric, plan, Tiled::new(Sharing::Cyclic)).await;
    }
}
