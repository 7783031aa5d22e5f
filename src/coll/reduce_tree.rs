//! Reduce by a tree rooted at the root.
//!
//! Source: Li, Hoefler, Hu, Snir 2014, §2.2 (the reduction phase); Nishtala 2009, §5.1.2 (k-nomial) and §7.2 (a chain,
//! of radix 1, for calls that follow each other: a rank is in the next call while the data of this one travel on).
//!
//! 1. A rank combines its children's slots with its own operand, in rank order, into its slot; the root into its
//!    buffer.
//!
//! p = 5, radix 2: `2→1 4→3, 1→0 3→0`.
//! Cost: (a + b·m)·⌈log_k p⌉.
//! Flags: Up by each rank but the root, read by its parent.
//! Epochs: a rank that has published may be in e + 1 while its parent is in e; it claims a slot again only when all
//! have released it.
//! Limits: an element has to fit a cell; where operands have to stay in rank order the tree keeps to it.

use super::cost::{self, Way};
use super::phase::{Tree, composed};
use super::{Algorithm, Knob, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct ReduceTree;

impl Algorithm for ReduceTree {
    const COLLECTIVE: Collective = Collective::Reduce;
    const NAME: &'static str = "tree";
    const SUMMARY: &'static str = "combines along a tree over the node's hierarchy";
    const SOURCE: &'static str = "Li, Hoefler, Hu, Snir 2014, section 2.2";
    const COST: &'static str = "(a + b·m)·⌈log_k p⌉";
    const DRAWING: &'static str = "\
up    2->1  4->3   a rank combines its children's slots and its own operand
up    1->0  3->0";
    const KNOBS: &'static [Knob] = &[Knob::Radix, Knob::Class, Knob::Segment, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::StagedSegments;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Tree, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::reduce(fabric, plan, Tree::of(plan)).await;
    }
}
