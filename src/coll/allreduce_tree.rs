//! Allreduce by a tree: "reduce-broadcast".
//!
//! Source: Li, Hoefler, Hu, Snir 2014, §2.2; k-nomial trees and chains: Nishtala 2009, §5.1.2 and §7.2; several nodes:
//! Tanase et al. 2012, §4.
//!
//! 1. Up: a rank combines its children's slots with its own operand, in rank order, into its own slot.
//! 2. Between nodes the leaders combine their results.
//! 3. Down: a rank copies its parent's slot into its buffer, but first into its own slot if it has children. The way
//!    down is along the same tree, or in one stage or two.
//!
//! p = 5, radix 2: `2→1 4→3, 1→0 3→0`, then back.
//! Cost: (a + b·m)·⌈log_k p⌉ for the combination and the same for the way back.
//! Flags: Up by each rank but the root, read by its parent; Down by each inner rank, read by its children.
//! Epochs: a rank enters e + 1 when it has its result; it claims a slot again only when all have released it.
//! Limits: an element has to fit a cell; where operands have to stay in rank order the tree keeps to it.

use super::cost::{self, Way};
use super::phase::{Tree, composed};
use super::{Algorithm, Knob, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct AllreduceTree;

impl Algorithm for AllreduceTree {
    const COLLECTIVE: Collective = Collective::Allreduce;
    const NAME: &'static str = "tree";
    const SUMMARY: &'static str = "combines along a tree over the node's hierarchy, then broadcasts along it";
    const SOURCE: &'static str = "Li, Hoefler, Hu, Snir 2014, section 2.2";
    const COST: &'static str = "(a + b·m)·⌈log_k p⌉ for the combination and the same for the way back";
    const DRAWING: &'static str = "\
up    2->1  4->3   a rank combines its children's slots and its own operand
up    1->0  3->0
down  0->1  0->3   a rank copies its parent's slot
down  1->2  3->4";
    const KNOBS: &'static [Knob] = &[Knob::Radix, Knob::Class, Knob::Stages, Knob::Segment, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::StagedSegmentsOfCells;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Tree, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::allreduce(fabric, plan, Tree::of(plan)).await;
    }
}
