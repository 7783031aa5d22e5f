//! Scatter by single copies: every rank copies its block out of the root's memory.
//!
//! Source: Ma, Bosilca, Bouteiller, Goglin, Squyres, Dongarra 2011, kernel assisted collective intra-node MPI
//! communication: in a Scatter receivers read.
//!
//! 1. The root tells where its blocks are, or lays them out in slots, as in `flat`.
//! 2. Every rank learns from the first flag which of the two the root did. It copies its own block out of memory by
//!    process_vm_readv, or out of a slot. If the root lent memory, the rank answers whether it could fetch.
//! 3. If one rank could not, the root lays all blocks out in slots.
//!
//! p = 5: `0→1 0→2 0→3 0→4`, all at once.
//! Cost: one copy of a block, the time of the system to find its pages, and p − 1 answers; through slots that of
//! `flat`.
//! Flags: Down by the root. The first one carries process and address; it is Up in a call that `flat` would move in
//! halves. Up by each receiver, with its answer, if memory was lent.
//! Epochs: a root that lent memory leaves when all have answered; a receiver in e + 1 claims its line of the answer
//! again only when the root has released it.
//! Limits: ranks must be allowed to read each other's memory. A root uses slots if its data have holes, or lie in
//! memory that the system does not read for others. So memory for slots is reserved, and their tickets are drawn, in
//! any case. A receiver whose data have holes fetches 16 KiB at a time. A root that lent memory depends on all ranks:
//! it fails if one of them does.

use super::cost::{self, Way};
use super::phase::single;
use super::{Algorithm, Knob, Measures, Need, Plan, Reach, Short};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct ScatterSingle;

impl Algorithm for ScatterSingle {
    const COLLECTIVE: Collective = Collective::Scatter;
    const NAME: &'static str = "single";
    const SUMMARY: &'static str = "every rank copies its block out of the root's memory, or out of its slots";
    const SOURCE: &'static str = "Ma et al. 2011 (kernel assisted collectives)";
    const COST: &'static str = "one copy of a block, the time of the system to find its pages, and p − 1 answers";
    const DRAWING: &'static str = "\
down  0 -> where its blocks are
      1 2 3 4 each copy their own out of the memory of 0
up    1 2 3 4 -> whether they could; if not, the blocks go through slots";
    const NEEDS: &'static [Need] = &[Need::SingleCopy];
    const KNOBS: &'static [Knob] = &[Knob::Try, Knob::Chunk, Knob::Leaders];
    const TRIED_FOR: &'static [&'static str] = &["flat", "tiled", "single"];
    const REACH: Reach = Reach::StagedOthersBlocks;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        let way = if single::fits_line(plan.bytes * (scene.local_ranks - 1)) { Way::Flat } else { Way::Single };
        cost::of(way, Self::COLLECTIVE, plan, scene)
    }

    fn short(plan: &Plan, measures: &Measures) -> Option<Short> {
        single::short_scatter(plan, measures)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        single::scatter(fabric, plan).await;
    }
}
