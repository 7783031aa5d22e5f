//! Barrier by dissemination: the number of ranks that a rank knows to have entered grows by the radix in each step.
//!
//! Source: Nishtala 2009, §7.1 and §6 (an Exchange of no bytes), of any radix.
//!
//! 1. In step i a rank raises its flag and waits for the flags of the ranks k^i, 2·k^i … positions before it.
//! 2. Several nodes: arrival along a tree, dissemination of the leaders by messages, departure along a tree.
//!
//! p = 5, radix 2: distances 1, 2 and 4.
//! Cost: ⌈log_k p⌉ line transfers of latency, p·(k − 1) in each step.
//! Flags: Up by all, in another slot for each step, read by the k − 1 ranks after it.
//! A flag's value only grows, so a rank that is already in a later call satisfies the waits of this one.

use super::cost::{self, Way};
use super::phase::{Between, Tree, composed, dissemination};
use super::{Algorithm, Knob, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct BarrierDissemination;

impl Algorithm for BarrierDissemination {
    const COLLECTIVE: Collective = Collective::Barrier;
    const NAME: &'static str = "dissemination";
    const SUMMARY: &'static str =
        "in each step every rank waits for some others, and learns of all ranks of whose arrival these know";
    const SOURCE: &'static str = "Nishtala 2009, section 7.1";
    const COST: &'static str = "⌈log_k p⌉ line transfers of latency, p·(k − 1) in each step";
    const DRAWING: &'static str = "\
step  0->1  1->2  2->3  3->4  4->0   radix 2
step  0->2  1->3  2->4  3->0  4->1
step  0->4  1->0  2->1  3->2  4->3";
    const KNOBS: &'static [Knob] = &[Knob::Radix];
    const HAS_ROUNDS: bool = true;
    const REACH: Reach = Reach::Staged;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Dissemination, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        if fabric.layout().nodes() > 1 {
            return composed::barrier_by(fabric, plan, Tree::of(plan), Between::dissemination(plan)).await;
        }
        dissemination::barrier(fabric, plan).await;
    }
}
