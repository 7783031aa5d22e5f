//! Scatter, flat: one stage.
//!
//! Source: Li, Hoefler, Hu, Snir 2014, §2.6 (one-stage scatter).
//!
//! 1. The root copies a piece of every other rank's block into one slot, beginning with that of its successor.
//! 2. Every rank copies its own piece out.
//!
//! p = 5: `0→1 0→2 0→3 0→4`.
//! Cost: copy in of all blocks, then concurrent reads.
//! Flags: Down by the root, read by all; in a call that fits a slot but not a tile also Up, after the first half.
//! Epochs: the root may be in e + 1 while receivers are in e, until its ring is full: it claims a slot again only when
//! all have released it.
//! Limits: a cell holds a piece of every block of the node, so it has at least a byte for each rank.

use super::cost::{self, Way};
use super::phase::short;
use super::phase::{Flat, composed};
use super::{Algorithm, Knob, Measures, Plan, Reach, Short};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct ScatterFlat;

impl Algorithm for ScatterFlat {
    const COLLECTIVE: Collective = Collective::Scatter;
    const NAME: &'static str = "flat";
    const SUMMARY: &'static str = "every rank reads its block in the root's slot";
    const SOURCE: &'static str = "Li, Hoefler, Hu, Snir 2014, section 2.6";
    const COST: &'static str = "copy in of all blocks, then concurrent reads";
    const DRAWING: &'static str = "\
down  0 -> one slot with blocks 1 2 3 4
down  each rank copies its own";
    const KNOBS: &'static [Knob] = &[Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::StagedOthersBlocks;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Flat, Self::COLLECTIVE, plan, scene)
    }

    fn short(plan: &Plan, measures: &Measures) -> Option<Short> {
        Short::of_scatter(plan, measures)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        if Self::short(plan, &Measures::of(fabric)).is_some() {
            return short::scatter(fabric, plan).await;
        }
        composed::scatter(fabric, plan, Flat).await;
    }
}
