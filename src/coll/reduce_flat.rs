//! Reduce, flat: the root combines all operands.
//!
//! Source: the base case of Li, Hoefler, Hu, Snir 2014, §2.6.
//!
//! 1. Every rank but the root copies its operand into its slot.
//! 2. The root combines the slots and its own operand in rank order.
//!
//! p = 5: `1→0 2→0 3→0 4→0`.
//! Cost: copy in, then p − 1 combinations by one rank.
//! Flags: Up by each rank but the root, read by the root; in a call that fits a slot but not a tile also Down, after
//! the first half.
//! Epochs: a rank that has published its operand may be in e + 1 while the root is in e; it claims a slot again only
//! when the root has released it.
//! Limits: an element has to fit a cell; the root does all the work.

use super::cost::{self, Way};
use super::phase::short;
use super::phase::{Flat, composed};
use super::{Algorithm, Knob, Measures, Plan, Reach, Short};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct ReduceFlat;

impl Algorithm for ReduceFlat {
    const COLLECTIVE: Collective = Collective::Reduce;
    const NAME: &'static str = "flat";
    const SUMMARY: &'static str = "the root combines the slots of all ranks";
    const SOURCE: &'static str = "Li, Hoefler, Hu, Snir 2014, section 2.6";
    const COST: &'static str = "copy in, then p − 1 combinations by one rank";
    const DRAWING: &'static str = "\
up    1 2 3 4 -> slots
up    0 combines its operand and slots 1 2 3 4";
    const KNOBS: &'static [Knob] = &[Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::Staged;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Flat, Self::COLLECTIVE, plan, scene)
    }

    fn short(plan: &Plan, measures: &Measures) -> Option<Short> {
        Short::new(plan, measures, plan.bytes)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        if Self::short(plan, &Measures::of(fabric)).is_some() {
            return short::reduce(fabric, plan).await;
        }
        composed::reduce(fabric, plan, Flat).await;
    }
}
