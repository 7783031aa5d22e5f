//! Allgather, tiled: as flat, in tiles that stay in the cache.
//!
//! Source: Tu, Fan, Zhan, Zhao 2009, §6 (data tiling).
//!
//! 1. A rank copies the next piece of its block into its slot.
//! 2. One piece behind, it copies the current piece of all ranks into its buffer.
//! 3. Several nodes: gather to the leader, Allgather of the leaders, broadcast.
//!
//! p = 5: every rank reads every slot.
//! Cost: copy in, then p − 1 copies out per rank.
//! Flags: Up by all, read by all.
//! Epochs: a rank leaves e when it has all blocks, while others still read its slots. It claims each slot again only
//! when all have released it, so e + 1 overwrites nothing of e.
//! Limits: as flat, and a ticket for each tile.

use super::cost::{self, Way};
use super::phase::{Sharing, Tiled, composed, exchange};
use super::{Algorithm, Knob, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct AllgatherTiled;

impl Algorithm for AllgatherTiled {
    const COLLECTIVE: Collective = Collective::Allgather;
    const NAME: &'static str = "tiled";
    const SUMMARY: &'static str =
        "every rank reads the slots of all ranks tile by tile; each rank publishes one tile ahead";
    const SOURCE: &'static str = "Tu et al. 2009, section 6";
    const COST: &'static str = "copy in, then p − 1 copies out per rank";
    const DRAWING: &'static str = "\
tile 1  0 1 2 3 4 -> slots; each rank copies them all
tile 2  the same, published while tile 1 is copied";
    const KNOBS: &'static [Knob] = &[Knob::Tile, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::StagedTiles;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Tiled, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        if fabric.layout().nodes() > 1 {
            return composed::allgather(fabric, plan, Tiled::new(Sharing::Naive)).await;
        }
        exchange::allgather(fabric, plan, plan.tile(fabric.cell_bytes())).await;
    }
}
