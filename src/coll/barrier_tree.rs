//! Barrier by a tree, with signals that are pulled or pushed in each direction.
//!
//! Source: Nishtala 2009, §7.1 (four forms of a k-nomial tree). Where he pushes up, children count on one word of their
//! parent. Here each child has a word of its own beside its siblings', so that a rank that failed a call leaves no
//! wrong count.
//!
//! 1. Up: a rank waits for its children, then signals its parent. Pulled: on its own line; pushed: on a line of the
//!    parent.
//! 2. Between nodes the leaders run a barrier.
//! 3. Down: a rank waits for its parent, then signals its children. Pulled: once, on its own line; pushed: on a line of
//!    each child, the farthest first.
//!
//! p = 5, radix 2: `2→1 4→3, 1→0 3→0`, then back.
//! Cost: 2·⌈log_k p⌉ line transfers.
//! Flags: Up by each rank but the root, read by its parent; Down by each inner rank, read by its children; posts
//! between the same pairs in their place.
//! Epochs: values only grow, so a rank that is already in e + 1 satisfies the waits of e; no slot is written or
//! claimed.
//! Limits: none.

use super::cost::{self, Way};
use super::phase::{Tree, composed};
use super::{Algorithm, Knob, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct BarrierTree;

impl Algorithm for BarrierTree {
    const COLLECTIVE: Collective = Collective::Barrier;
    const NAME: &'static str = "tree";
    const SUMMARY: &'static str = "signals of arrival and of departure go along a tree over the node's hierarchy";
    const SOURCE: &'static str = "Nishtala 2009, section 7.1";
    const COST: &'static str = "2·⌈log_k p⌉ line transfers";
    const DRAWING: &'static str = "\
up    2->1  4->3
up    1->0  3->0
down  0->1  0->3
down  1->2  3->4";
    const KNOBS: &'static [Knob] = &[Knob::Radix, Knob::Class, Knob::Up, Knob::Down];
    const REACH: Reach = Reach::Staged;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Tree, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::barrier(fabric, plan, Tree::of(plan)).await;
    }
}
