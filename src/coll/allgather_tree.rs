//! Allgather by a tree: for many ranks and small blocks.
//!
//! Source: Nishtala 2009, §6.2 (gather and broadcast trees).
//!
//! 1. A rank collects the blocks of its subtree in its slot. The root copies them to their places in its buffer.
//! 2. Between nodes the leaders exchange the blocks of their nodes.
//! 3. The root broadcasts all blocks along the tree.
//!
//! p = 5, radix 2: `2→1 4→3, 1→0 3→0`, then back with all blocks.
//! Cost: 2·⌈log_k p⌉ steps instead of p − 1.
//! Flags: Up by each rank but the root, read by its parent; Down by each inner rank, read by its children.
//! Epochs: a leaf may write for e + 1 while its parent is in e. It writes in another slot, or after a claim that waits
//! for the parent's release of e.
//! Limits: a cell holds a piece of every block of the node, so it has at least a byte for each rank.

use super::cost::{self, Way};
use super::phase::{Tree, composed};
use super::{Algorithm, Knob, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct AllgatherTree;

impl Algorithm for AllgatherTree {
    const COLLECTIVE: Collective = Collective::Allgather;
    const NAME: &'static str = "tree";
    const SUMMARY: &'static str = "gathers along a tree over the node's hierarchy, then broadcasts along it";
    const SOURCE: &'static str = "Nishtala 2009, section 6.2";
    const COST: &'static str = "2·⌈log_k p⌉ steps instead of p − 1";
    const DRAWING: &'static str = "\
up    2->1    4->3    a rank appends its children's blocks to its own
up    12->0   34->0
down  01234->1  01234->3
down  01234->2  01234->4";
    const KNOBS: &'static [Knob] = &[Knob::Radix, Knob::Class, Knob::Stages, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::StagedBlocks;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Tree, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::allgather(fabric, plan, Tree::of(plan)).await;
    }
}
