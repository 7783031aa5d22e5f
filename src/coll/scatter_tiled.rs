//! Scatter, tiled: one slot per tile and receiver.
//!
//! Source: Tu, Fan, Zhan, Zhao 2009, §6 (data tiling).
//!
//! 1. The root copies a tile of the next receiver's block into the ring.
//! 2. Meanwhile earlier receivers copy their tiles out.
//!
//! p = 5: `0→1 0→2 0→3 0→4`, once per tile.
//! Cost: copy in of all blocks + one tile.
//! Flags: Down by the root, read by the receiver of the tile.
//! Epochs: as flat. Each ticket has one receiver, but all ranks release it: the root's claim would wait for ever
//! otherwise.
//! Limits: a ticket for each tile of each receiver.

use super::cost::{self, Way};
use super::phase::{Sharing, Tiled, composed};
use super::{Algorithm, Knob, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct ScatterTiled;

impl Algorithm for ScatterTiled {
    const COLLECTIVE: Collective = Collective::Scatter;
    const NAME: &'static str = "tiled";
    const SUMMARY: &'static str = "every rank reads its block tile by tile, while the root writes the next tile";
    const SOURCE: &'static str = "Tu et al. 2009, section 6";
    const COST: &'static str = "copy in of all blocks + one tile";
    const DRAWING: &'static str = "\
tile 1  0->1  0->2  0->3  0->4   a slot for each, read while the next is written
tile 2  0->1  0->2  0->3  0->4";
    const KNOBS: &'static [Knob] = &[Knob::Tile, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::StagedTiles;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Tiled, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::scatter(fabric, plan, Tiled::new(Sharing::Naive)).await;
    }
}
