//! Reduce, tiled: all ranks share the work of combining.
//!
//! Source: Li, Hoefler, Hu, Snir 2014, §2.4 (tiled reduce).
//!
//! 1. A rank copies its next piece into its slot, except for its own part.
//! 2. One piece behind, it combines part k of all slots, in rank order, into its slot; the root into its buffer.
//! 3. The root copies the parts of the others.
//!
//! p = 5: part k of `0…4 → k`, then `k → root`.
//! Cost: copy in + m/p·(p − 1) combined per rank + copy out of m by the root.
//! Flags: Up by all, read by all; Down by all, read by the root.
//! Epochs: a rank leaves e while others read its part: it claims a slot again only when all have released it.
//! Limits: an element has to fit a cell; ranks without an element of their own only copy.

use super::cost::{self, Way};
use super::phase::{Sharing, Tiled, composed};
use super::{Algorithm, Knob, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct ReduceTiled;

impl Algorithm for ReduceTiled {
    const COLLECTIVE: Collective = Collective::Reduce;
    const NAME: &'static str = "tiled";
    const SUMMARY: &'static str = "every rank combines its part of all operands; the root collects the parts";
    const SOURCE: &'static str = "Li, Hoefler, Hu, Snir 2014, section 2.4";
    const COST: &'static str = "copy in + m/p·(p − 1) combined per rank + copy out of m by the root";
    const DRAWING: &'static str = "\
all   0 1 2 3 4 -> slots, in parts a b c d e
all   0: all a's   1: all b's   2: all c's   3: all d's   4: all e's
up    the root copies a from 0, b from 1, c from 2, d from 3, e from 4";
    const KNOBS: &'static [Knob] = &[Knob::Tile, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::Tiles;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Tiled, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::reduce(fabric, plan, Tiled::new(Sharing::Naive)).await;
    }
}
