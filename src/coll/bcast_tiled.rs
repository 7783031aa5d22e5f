//! Bcast, tiled: as flat, in tiles that stay in the cache, so that copying in and copying out overlap.
//!
//! Source: Tu, Fan, Zhan, Zhao 2009, §6 (data tiling).
//!
//! 1. The root copies tile i + 1 into the ring.
//! 2. Meanwhile every other rank copies tile i out.
//!
//! Between two ranks tiles lie one behind the other in a cell, so that one claim serves several. The first is half as
//! long.
//!
//! p = 5: `0→1 0→2 0→3 0→4`, once per tile.
//! Cost: max(copy in, copy out) + one tile.
//! Flags: Down by the root, read by all.
//! Epochs: as flat; the ring lets the root run ahead, within a call and into the next.
//! Limits: a ticket for each tile.

use super::cost::{self, Way};
use super::phase::{Sharing, Tiled, composed};
use super::{Algorithm, Knob, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct BcastTiled;

impl Algorithm for BcastTiled {
    const COLLECTIVE: Collective = Collective::Bcast;
    const NAME: &'static str = "tiled";
    const SUMMARY: &'static str = "all ranks read the root's slots, tile by tile, while the root writes the next tile";
    const SOURCE: &'static str = "Tu et al. 2009, section 6";
    const COST: &'static str = "max(copy in, copy out) + one tile";
    const DRAWING: &'static str = "\
tile 1  0->1  0->2  0->3  0->4
tile 2  0->1  0->2  0->3  0->4   while the root writes tile 3";
    const KNOBS: &'static [Knob] = &[Knob::Tile, Knob::Buffers, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::StagedTrains;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Tiled, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::bcast(fabric, plan, Tiled::new(Sharing::Naive)).await;
    }
}
