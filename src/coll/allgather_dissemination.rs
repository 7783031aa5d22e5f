//! Allgather by dissemination: the number of blocks that a rank has grows by the radix in each step.
//!
//! Source: Nishtala 2009, §6.2 (gather-to-all).
//!
//! 1. Every rank copies a piece of its block into its slot.
//! 2. In step i it copies the blocks that the ranks k^i, 2·k^i … positions further on have by then, with its own, into
//!    its next slot.
//! 3. In the last step it copies all blocks from its own slot and those of these ranks into its buffer.
//! 4. Several nodes: gather to the leader along a tree, dissemination of the leaders by messages,
//!    broadcast along a tree.
//!
//! p = 5, radix 2: 0 takes 1; 01 takes 23 from 2; 0123 takes 4 from 4.
//! Cost: λ·(L + o + g) + G·B·p, λ = ⌈log_k p⌉: few steps, each byte copied up to k/(k − 1) times more.
//! Flags: Up by all, read by the ranks before them.
//! A rank claims a slot again only when all have released the step that read it.
//! Limits: a piece of all blocks has to fit a cell.

use super::cost::{self, Way};
use super::phase::{Between, Tree, composed, dissemination};
use super::{Algorithm, Knob, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct AllgatherDissemination;

impl Algorithm for AllgatherDissemination {
    const COLLECTIVE: Collective = Collective::Allgather;
    const NAME: &'static str = "dissemination";
    const SUMMARY: &'static str = "in each step every rank copies all blocks that some others have by then";
    const SOURCE: &'static str = "Nishtala 2009, section 6.2";
    const COST: &'static str =
        "λ·(L + o + g) + G·B·p, λ = ⌈log_k p⌉: few steps, each byte copied up to k/(k − 1) times more";
    const DRAWING: &'static str = "\
step  1->0  2->1  3->2  4->3  0->4             radix 2: one block each
step  23->0  34->1  40->2  01->3  12->4        two blocks each
step  4->0  0->1  1->2  2->3  3->4             what is left";
    const KNOBS: &'static [Knob] = &[Knob::Radix, Knob::Chunk, Knob::Leaders];
    const HAS_ROUNDS: bool = true;
    const REACH: Reach = Reach::StagedBlocks;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Dissemination, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        if fabric.layout().nodes() > 1 {
            return composed::allgather_by(fabric, plan, Tree::of(plan), Between::dissemination(plan)).await;
        }
        dissemination::allgather(fabric, plan).await;
    }
}
