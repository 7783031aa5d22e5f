//! Scatter by a tree: k-ary or k-nomial of any radix, or in one, two or more stages over the hierarchy.
//!
//! Source: Li, Hoefler, Hu, Snir 2014, §2.6 (one-stage and two-stage scatter); Nishtala 2009, §5.1.2.
//!
//! 1. The root copies a piece of every block into its slot.
//! 2. An inner rank copies the blocks of its subtree into its own slot, and its own block into its buffer.
//!
//! p = 5, radix 2: `0→{1,2} 0→{3,4}, 1→2 3→4`.
//! Cost: ⌈log_k p⌉ copies of shrinking length; borders between caches are crossed once.
//! Flags: Down by each inner rank, read by its children.
//! Epochs: a rank that has passed on its subtree's blocks may be in e + 1 while its children read: it claims a slot
//! again only when all have released it.
//! Limits: a cell holds a piece of every block of the node, so it has at least a byte for each rank.

use super::cost::{self, Way};
use super::phase::{Tree, composed};
use super::{Algorithm, Knob, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct ScatterTree;

impl Algorithm for ScatterTree {
    const COLLECTIVE: Collective = Collective::Scatter;
    const NAME: &'static str = "tree";
    const SUMMARY: &'static str = "passes blocks along a tree over the node's hierarchy";
    const SOURCE: &'static str = "Li, Hoefler, Hu, Snir 2014, section 2.6";
    const COST: &'static str = "⌈log_k p⌉ copies of shrinking length; borders between caches are crossed once";
    const DRAWING: &'static str = "\
down  0: 12->1   34->3   a rank copies the blocks of its subtree
down  1: 2->2    3: 4->4";
    const KNOBS: &'static [Knob] = &[Knob::Radix, Knob::Class, Knob::Stages, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::StagedBlocks;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Tree, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::scatter(fabric, plan, Tree::of(plan)).await;
    }
}
