//! Barrier by a tree.
//!
//! Source: Nishtala 2009, §7.1 (pull on both ways).
//!
//! 1. Up: a rank waits for its children, then raises its flag.
//! 2. Between nodes the leaders meet.
//! 3. Down: a rank waits for its parent, then raises its flag.
//!
//! p = 5, radix 2: `2→1 4→3, 1→0 3→0`, then back.
//! Cost: 2·⌈log_k p⌉ line transfers.
//! Flags: Up by each rank but the root, read by its parent; Down by each inner rank, read by its children.
use super::cost::{self, Way};
use super::phase::{Tree, composed};
use super::{Algorithm, Knob, Plan};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct BarrierTree;

impl Algorithm for BarrierTree {
    const COLLECTIVE: Collective = Collective::Barrier;
    const NAME: &'static str = "tree";
    const SUMMARY: &'static str = "arrives and departs along a tree over the node's hierarchy";
    const SOURCE: &'static str = "Nishtala 2009, section 7.1";
    const COST: &'static str = "2·⌈log_k p⌉ line transfers";
    const DRAWING: &'static str = "\
up    2->1  4->3
up    1->0  3->0
down  0->1  0->3
down  1->2  3->4";
    const KNOBS: &'static [Knob] = &[Knob::Radix, Knob::Shape];

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Tree, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::barrier(fabric, plan, Tree::of(plan)).await;
    }
}
