//! Reduce by a tree rooted at the root.
//!
//! Source: Li, Hoefler, Hu, Snir 2014, §2.2 (the reduction phase).
//!
//! 1. A rank combines its children's slots with its own operand, in rank order, into its slot, the root into its buffer.
//!
//! p = 5, radix 2: `2→1 4→3, 1→0 3→0`.
//! Cost: (a + b·m)·⌈log_k p⌉.
//! Flags: Up by each rank but the root, read by its parent.
use super::phase::{Tree, composed};
use super::{Algorithm, Knob, Plan};
use crate::fabric::Fabric;
use crate::types::Collective;

/// See the module.
pub struct ReduceTree;

impl Algorithm for ReduceTree {
    const COLLECTIVE: Collective = Collective::Reduce;
    const NAME: &'static str = "tree";
    const SUMMARY: &'static str = "combines along a tree over the node's hierarchy";
    const SOURCE: &'static str = "Li, Hoefler, Hu, Snir 2014, section 2.2";
    const KNOBS: &'static [Knob] = &[Knob::Radix];
    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::reduce(fabric, plan, Tree { radix: plan.knobs.radix() }).await;
    }
}
