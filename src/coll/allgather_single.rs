//! Allgather by single copies: every rank takes the blocks out of the memories of the others.
//!
//! Source: Ma, Bosilca, Bouteiller, Goglin, Squyres, Dongarra 2011, kernel assisted collective intra-node MPI communication.
//!
//! 1. Every rank says where its block is, or lays it out in slots.
//! 2. Every rank finds which with the first flags, and copies the blocks of the others, by process_vm_readv out of memory and piece by piece
//!    out of slots, and answers those who lent memory whether it could.
//! 3. Where one could not, all who lent memory lay their blocks out in slots.
//!
//! p = 5: each of `0…4` reads from all others.
//! Cost: p copies of a block per rank, what the system takes to find its pages p − 1 times, and p − 1 answers.
//! Flags: Up by every rank, with process and address beside the first one; Down by each, with its answer, where others lent memory.
//! Epochs: who lent memory leaves when all have answered; who answered claims that line again only when all have released it.
//! Limits: ranks must be allowed to read each other's memory; who has data with holes, or such as the system does not read for others, uses
//! slots, so memory for these is reserved, and their tickets are drawn, in any case, those of the third step too. Several nodes: as
//! `flat`. No formula: this only runs where it is forced or tried.

use super::phase::single;
use super::{Algorithm, Knob, Need, Plan, Reach};
use crate::fabric::Fabric;
use crate::types::Collective;

/// See the module.
pub struct AllgatherSingle;

impl Algorithm for AllgatherSingle {
    const COLLECTIVE: Collective = Collective::Allgather;
    const NAME: &'static str = "single";
    const SUMMARY: &'static str = "every rank copies the blocks out of the memories of all ranks, or their slots";
    const SOURCE: &'static str = "Ma et al. 2011 (kernel assisted collectives)";
    const COST: &'static str =
        "p copies of a block per rank, what the system takes to find their pages, and p − 1 answers";
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
