//! Reduce, tiled and cyclic: as tiled, but each rank visits the operands from its own on.
//!
//! Source: Mamidala et al. as in Li, Hoefler, Hu, Snir 2014, §3.2 and Fig. 16.
//!
//! 1. A rank copies its next piece into its slot, except for its own part.
//! 2. One piece behind, it combines part k of all slots, from slot k on, into its slot; the root into its buffer.
//! 3. The root copies the parts of the others.
//! 4. Several nodes: cyclic reduction to the leader, Reduce of the leaders, then from the leader to the root.
//!
//! p = 5: part k of `k…4, 0…k − 1 → k`, then `k → root`.
//! Cost: as tiled, but no slot has p readers at a time.
//! Flags: Up by all, read by all; Down by all, read by the root.
//! The piece ahead uses the next slot of the ring. A rank claims that slot before it writes it.
//! Limits: the operation has to be commutative. Every part is combined by one rank, in the order that its number gives.

use super::allreduce_cyclic::AllreduceCyclic;
use super::cost::{self, Way};
use super::phase::{Sharing, Tiled, composed};
use super::{Algorithm, Knob, Need, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct ReduceCyclic;

impl Algorithm for ReduceCyclic {
    const COLLECTIVE: Collective = Collective::Reduce;
    const NAME: &'static str = AllreduceCyclic::NAME;
    const SUMMARY: &'static str = AllreduceCyclic::SUMMARY;
    const SOURCE: &'static str = AllreduceCyclic::SOURCE;
    const COST: &'static str = AllreduceCyclic::COST;
    const DRAWING: &'static str = "\
all   0 1 2 3 4 -> slots, in parts a b c d e
all   0: a of 0 1 2 3 4   1: b of 1 2 3 4 0   2: c of 2 3 4 0 1   and so on
up    the root copies a from 0, b from 1, c from 2, d from 3, e from 4";
    const NEEDS: &'static [Need] = AllreduceCyclic::NEEDS;
    const KNOBS: &'static [Knob] = AllreduceCyclic::KNOBS;
    const REACH: Reach = Reach::Tiles;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Tiled, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::reduce(fabric, plan, Tiled::new(Sharing::Cyclic)).await;
    }
}
