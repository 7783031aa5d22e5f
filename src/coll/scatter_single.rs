//! Scatter by single copies: every rank takes its block out of the root's memory.
//!
//! Source: Ma, Bosilca, Bouteiller, Goglin, Squyres, Dongarra 2011, kernel assisted collective intra-node MPI communication: in a
//! Scatter receivers read.
//!
//! 1. The root says where its blocks are.
//! 2. Every rank copies its own from there, by process_vm_readv, and says whether it could.
//! 3. Who could not gets it in tiles, as in `tiled`.
//!
//! p = 5: `0→1 0→2 0→3 0→4`, all at once.
//! Cost: one copy of a block, what the system takes to find its pages, and p − 1 answers.
//! Flags: Down by the root, with process and address beside it, then as `tiled` for who needs tiles; Up by each receiver, with its
//! answer.
//! Epochs: the root leaves when all have answered and it has written all tiles that are needed; a receiver in e + 1 claims its line of
//! the answer again only when the root has released it.
//! Limits: ranks must be allowed to read each other's memory; a root whose data have holes, or lie in memory that the
//! system does not read for others, serves everyone in tiles, so memory for these is reserved, and their tickets are drawn, in any
//! case; a receiver whose data have holes fetches 16 KiB at a time. The root depends on all: it fails where one does.

use super::cost::{self, Way};
use super::phase::{Single, composed};
use super::{Algorithm, Knob, Need, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct ScatterSingle;

impl Algorithm for ScatterSingle {
    const COLLECTIVE: Collective = Collective::Scatter;
    const NAME: &'static str = "single";
    const SUMMARY: &'static str = "every rank copies its block out of the root's memory";
    const SOURCE: &'static str = "Ma et al. 2011 (kernel assisted collectives)";
    const COST: &'static str = "one copy of a block, what the system takes to find its pages, and p - 1 answers";
    const DRAWING: &'static str = "\
down  0 -> where its blocks are
      1 2 3 4 each copy their own out of the memory of 0
up    1 2 3 4 -> whether they could; the others get tiles";
    const NEEDS: &'static [Need] = &[Need::SingleCopy];
    const KNOBS: &'static [Knob] = &[Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::StagedTiles;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Single, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::scatter(fabric, plan, Single).await;
    }
}
