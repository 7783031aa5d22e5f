//! Allreduce, tiled: each rank combines its part of all operands, then every rank collects all parts.
//!
//! Source: Li, Hoefler, Hu, Snir 2014, §2.4 (tiled-reduce-broadcast), on one level: the naive form of its Fig. 16.
//!
//! 1. A rank copies its next piece into its slot, except for its own part.
//! 2. One piece behind, it combines part k of all slots, in rank order, into its buffer, and copies that into its slot.
//! 3. One more piece behind, it copies the parts of the others into its buffer.
//! 4. Several nodes: tiled reduce to the leader, Allreduce of the leaders, tiled broadcast.
//!
//! p = 5: part k of `0…4 → k`, then `k → 0…4`.
//! Cost: copy in + m/p·(p − 1) combined per rank + copy out; every byte is combined once.
//! Flags: Up by all, read by all; Down by all, read by all.
//! Epochs: the pieces ahead, in e or in e + 1, use the next slots of the ring. A rank claims each before it writes it:
//! all have then released what it held. With two slots a rank collects a piece before it publishes the next one.
//! Limits: an element has to fit a cell; ranks without an element of their own only copy.

use super::cost::{self, Way};
use super::phase::{Sharing, Tiled, tiled};
use super::{Algorithm, Knob, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct AllreduceTiled;

impl Algorithm for AllreduceTiled {
    const COLLECTIVE: Collective = Collective::Allreduce;
    const NAME: &'static str = "tiled";
    const SUMMARY: &'static str = "every rank combines its part of all operands, then collects the parts of all ranks";
    const SOURCE: &'static str = "Li, Hoefler, Hu, Snir 2014, section 2.4";
    const COST: &'static str = "copy in + m/p·(p − 1) combined per rank + copy out; every byte is combined once";
    const DRAWING: &'static str = "\
all   0 1 2 3 4 -> slots, in parts a b c d e
all   0: all a's   1: all b's   2: all c's   3: all d's   4: all e's
all   each rank copies a from 0, b from 1, c from 2, d from 3, e from 4";
    const KNOBS: &'static [Knob] = &[Knob::Tile, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::Tiles;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Tiled, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        tiled::allreduce(fabric, plan, Tiled::new(Sharing::Naive)).await;
    }
}
