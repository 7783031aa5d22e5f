//! Bcast by a tree: k-ary or k-nomial of any radix, a chain, or in one, two or more stages over the hierarchy.
//!
//! Source: Li, Hoefler, Hu, Snir 2014, §2.2 (one-stage, two-stage); Nishtala 2009, §5.1.2 (k-nomial).
//!
//! 1. The root copies a piece into its slot.
//! 2. An inner rank copies its parent's slot into its own slot, then into its buffer. A leaf copies it into its buffer.
//!
//! p = 5, radix 2: `0→1 0→3, 1→2 3→4`.
//! Cost: one copy per level, but only `radix` readers per slot, and borders between caches are crossed once.
//! Flags: Down by each inner rank, read by its children.
//! Epochs: a rank that has passed on a piece may be in e + 1 while its children read: it claims a slot again only when
//! all have released it.
//! Limits: an inner rank copies each byte twice.

use super::cost::{self, Way};
use super::phase::{Tree, composed};
use super::{Algorithm, Knob, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct BcastTree;

impl Algorithm for BcastTree {
    const COLLECTIVE: Collective = Collective::Bcast;
    const NAME: &'static str = "tree";
    const SUMMARY: &'static str = "copies along a tree over the node's hierarchy";
    const SOURCE: &'static str = "Li, Hoefler, Hu, Snir 2014, section 2.2";
    const COST: &'static str =
        "one copy per level, but only radix readers per slot, and borders between caches are crossed once";
    const DRAWING: &'static str = "\
down  0->1  0->3   radix 2; with stages=1 0->1 0->2 0->3 0->4
down  1->2  3->4";
    const KNOBS: &'static [Knob] = &[Knob::Radix, Knob::Class, Knob::Stages, Knob::Segment, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::StagedSegments;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Tree, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::bcast(fabric, plan, Tree::of(plan)).await;
    }
}
