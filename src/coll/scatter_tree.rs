//! Scatter by a tree: the two-stage scatter, for any number of levels.
//!
//! Source: Li, Hoefler, Hu, Snir 2014, §2.6 (two-stage scatter).
//!
//! 1. The root copies a piece of every block into its slot.
//! 2. An inner rank copies the blocks of its subtree into its own slot and takes its own.
//!
//! p = 5, radix 2: `0→{1,2} 0→{3,4}, 1→2 3→4`.
//! Cost: ⌈log_k p⌉ copies of shrinking length; borders between caches are crossed once.
//! Flags: Down by each inner rank, read by its children.
use super::phase::{Tree, composed};
use super::{Algorithm, Knob, Plan};
use crate::fabric::Fabric;
use crate::types::Collective;

/// See the module.
pub struct ScatterTree;

impl Algorithm for ScatterTree {
    const COLLECTIVE: Collective = Collective::Scatter;
    const NAME: &'static str = "tree";
    const SUMMARY: &'static str = "passes blocks along a tree over the node's hierarchy";
    const SOURCE: &'static str = "Li, Hoefler, Hu, Snir 2014, section 2.6";
    const KNOBS: &'static [Knob] = &[Knob::Radix];
    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::scatter(fabric, plan, Tree { radix: plan.knobs.radix() }).await;
    }
}
