//! Allgather by single copies: every rank copies the blocks out of the memories of the others.
//!
//! Source: Ma, Bosilca, Bouteiller, Goglin, Squyres, Dongarra 2011, kernel assisted collective intra-node MPI
//! communication.
//!
//! 1. Every rank tells where its block is, or lays it out in slots.
//! 2. Every rank learns from the first flags which of the two each other rank did. It copies their blocks out of memory
//!    by process_vm_readv, or out of slots piece by piece. It answers those that lent memory whether it could fetch.
//! 3. If one rank could not, all lenders lay their blocks out in slots.
//!
//! p = 5: each of `0…4` reads from all others.
//! Cost: p copies of a block per rank, p − 1 times the time of the system to find a block's pages, and p − 1 answers.
//! Flags: Up by every rank, the first one with process and address; Down by each rank to which others lent memory, with
//! its answer.
//! Epochs: a lender leaves when all have answered; a rank that answered claims that line again only when all have
//! released it.
//! Limits: ranks must be allowed to read each other's memory. A rank uses slots if its data have holes, or if the
//! system does not read them for others. So memory for slots is reserved, and their tickets are drawn, in any case,
//! those of the third step too. Several nodes: as `flat`. No formula: this only runs where it is forced or tried.

use super::phase::single;
use super::{Algorithm, Knob, Need, Plan, Reach};
use crate::fabric::Fabric;
use crate::types::Collective;

/// See the module.
pub struct AllgatherSingle;

impl Algorithm for AllgatherSingle {
    const COLLECTIVE: Collective = Collective::Allgather;
    const NAME: &'static str = "single";
    const SUMMARY: &'static str =
        "every rank copies the blocks of all ranks out of their memory, or out of their slots";
    const SOURCE: &'static str = "Ma et al. 2011 (kernel assisted collectives)";
    const COST: &'static str =
        "p copies of a block per rank, the time of the system to find their pages, and p − 1 answers";
    const DRAWING: &'static str = "\
up    0 1 2 3 4 -> where their blocks are
      each copies the blocks of all others out of their memories
down  0 1 2 3 4 -> whether they could; if not, the blocks go through slots";
    const NEEDS: &'static [Need] = &[Need::SingleCopy];
    const KNOBS: &'static [Knob] = &[Knob::Try, Knob::Tile, Knob::Chunk, Knob::Leaders];
    const TRIED_FOR: &'static [&'static str] = &["flat", "tiled"];
    const REACH: Reach = Reach::StagedTiles;

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        single::allgather(fabric, plan).await;
    }
}
