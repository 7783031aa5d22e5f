//! Bcast by single copies: every rank copies the message out of the root's memory.
//!
//! Source: Ma, Bosilca, Bouteiller, Goglin, Squyres, Dongarra 2011, kernel assisted collective intra-node MPI
//! communication.
//!
//! 1. The root tells where the message is, or lays it out in slots. Slots are used as in `tiled`. If memory is tried
//!    and the message has at most two tiles (one tile on more than two ranks), they are used as in `flat`.
//! 2. Every rank learns from the first flag which of the two the root did. It copies the message out of memory by
//!    process_vm_readv, or out of slots piece by piece. If the root lent memory, the rank answers whether it could
//!    fetch.
//! 3. If one rank could not, the root lays the whole message out in slots.
//!
//! p = 5: `0→1 0→2 0→3 0→4`, all at once.
//! Cost: one copy of the message, the time of the system to find its pages, and p − 1 answers; through slots that of
//! `tiled` or `flat`.
//! Flags: Down by the root. The first one carries process and address; it is Up where the message moves in halves: as
//! in `flat`, if it has more than one tile. Up by each receiver, with its answer, if memory was lent.
//! Epochs: a root that lent memory leaves when all have answered; a receiver in e + 1 claims its line of the answer
//! again only when the root has released it.
//! Limits: those of the Scatter `single`. Several nodes: as `tiled`. No formula: to copy out of memory that has changed
//! takes longer on all machines that were measured, so this only runs where it is forced or tried.

use super::phase::single;
use super::{Algorithm, Knob, Measures, Need, Plan, Reach, Short};
use crate::fabric::Fabric;
use crate::types::Collective;

/// See the module.
pub struct BcastSingle;

impl Algorithm for BcastSingle {
    const COLLECTIVE: Collective = Collective::Bcast;
    const NAME: &'static str = "single";
    const SUMMARY: &'static str = "every rank copies the message out of the root's memory, or out of its slots";
    const SOURCE: &'static str = "Ma et al. 2011 (kernel assisted collectives)";
    const COST: &'static str = "one copy of the message, the time of the system to find its pages, and p − 1 answers";
    const DRAWING: &'static str = "\
down  0 -> where the message is
      1 2 3 4 each copy it out of the memory of 0
up    1 2 3 4 -> whether they could; if not, the message goes through slots";
    const NEEDS: &'static [Need] = &[Need::SingleCopy];
    const KNOBS: &'static [Knob] = &[Knob::Try, Knob::Tile, Knob::Chunk, Knob::Leaders];
    const TRIED_FOR: &'static [&'static str] = &["tiled", "flat"];
    const REACH: Reach = Reach::StagedTrains;

    fn short(plan: &Plan, measures: &Measures) -> Option<Short> {
        single::short_bcast(plan, measures)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        single::bcast(fabric, plan).await;
    }
}
