//! Allreduce by dissemination: all ranks combine in each step, in steps of any radix.
//!
//! Source: Li, Hoefler, Hu, Snir 2014, §2.3; the radix: Nishtala 2009, §6.
//!
//! 1. Every rank copies its operand into its slot. If the number of ranks is no product of factors up to the radix,
//!    runs of ranks have a head, which first combines the operands of its run.
//! 2. In each step a head combines the slots of the heads that differ from it in one digit of their position, into its
//!    next slot. Inner groups come first, so that only the last steps cross the outermost level. All get the same bits.
//! 3. Heads hand the result to their run.
//! 4. Several nodes: reduction to the leader along a tree, dissemination of the leaders by messages,
//!    broadcast along a tree.
//!
//! p = 5, radix 2: `4→3, 0↔1 2↔3, 0↔2 1↔3, 3→4`.
//! Cost: (a + B·q·m)·⌈log_k p⌉, and two steps more where p is no product of such factors: few steps, p operands in
//! each.
//! Flags: Up by all, read by partners; Down by heads, read by their runs.
//! A rank claims a slot again only when all partners have released the step that read it.
//! Limits: operands are combined by position, not by rank, so the operation has to be commutative.

use super::cost::{self, Way};
use super::phase::{Between, Tree, composed, dissemination};
use super::{Algorithm, Knob, Measures, Need, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::{Bytes, Collective};

/// See the module.
pub struct AllreduceDissemination;

impl Algorithm for AllreduceDissemination {
    const COLLECTIVE: Collective = Collective::Allreduce;
    const NAME: &'static str = "dissemination";
    const SUMMARY: &'static str = "in each step every rank combines its partial result with those of some others";
    const SOURCE: &'static str = "Li, Hoefler, Hu, Snir 2014, section 2.3";
    const COST: &'static str = "(a + B·q·m)·⌈log_k p⌉, and two steps more where p is no product of factors up to k: few steps, p operands in each";
    const DRAWING: &'static str = "\
run   4->3            radix 2: two times two ranks are heads
step  0<->1  2<->3    each combines both slots
step  0<->2  1<->3
run   3->4";
    const NEEDS: &'static [Need] = &[Need::Commutative];
    const KNOBS: &'static [Knob] = &[Knob::Radix, Knob::Chunk, Knob::Leaders];
    const HAS_ROUNDS: bool = true;
    const REACH: Reach = Reach::Staged;

    fn scratch(plan: &Plan, measures: &Measures) -> Bytes {
        Between::dissemination(plan).scratch(plan, measures.nodes)
    }

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Dissemination, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        if fabric.layout().nodes() > 1 {
            return composed::allreduce_by(fabric, plan, Tree::of(plan), Between::dissemination(plan)).await;
        }
        dissemination::allreduce(fabric, plan).await;
    }
}
