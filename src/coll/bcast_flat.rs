//! Bcast, flat: one-stage broadcast.
//!
//! Source: Li, Hoefler, Hu, Snir 2014, §2.2 (one-stage); with one buffer, two alternating buffers or a ring of them:
//! Tanase et al. 2012, §3.4.
//!
//! 1. The root copies a piece into its slot. It may be ahead of its slowest reader by as many pieces as it has buffers:
//!    the whole ring, or as few as the knob `buffers` sets. With one buffer it waits until all have read the piece
//!    before.
//! 2. Every other rank copies the piece out.
//!
//! p = 5: `0→1 0→2 0→3 0→4`.
//! Cost: copy in, then p − 1 concurrent reads of one slot.
//! Flags: Down by the root, read by all; in a call that fits a slot but not a tile also Up, after the first half.
//! Epochs: the root may be in e + 1 while readers are in e, until its ring is full: it claims a slot again only when
//! all have released it.
//! Limits: none; all readers take their lines from one core.

use super::cost::{self, Way};
use super::phase::short;
use super::phase::{Flat, composed};
use super::{Algorithm, Knob, Measures, Plan, Reach, Short};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct BcastFlat;

impl Algorithm for BcastFlat {
    const COLLECTIVE: Collective = Collective::Bcast;
    const NAME: &'static str = "flat";
    const SUMMARY: &'static str = "all ranks read the root's slots";
    const SOURCE: &'static str = "Li, Hoefler, Hu, Snir 2014, section 2.2";
    const COST: &'static str = "copy in, then p − 1 concurrent reads of one slot";
    const DRAWING: &'static str = "\
down  0->1  0->2  0->3  0->4   piece after piece, the root ahead of its readers";
    const KNOBS: &'static [Knob] = &[Knob::Buffers, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::Staged;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Flat, Self::COLLECTIVE, plan, scene)
    }

    fn short(plan: &Plan, measures: &Measures) -> Option<Short> {
        // With this knob the root waits for its buffers, even where one piece is the whole message.
        match plan.knobs.set(Knob::Buffers) {
            Some(_) => None,
            None => Short::new(plan, measures, plan.bytes),
        }
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        if Self::short(plan, &Measures::of(fabric)).is_some() {
            return short::bcast(fabric, plan).await;
        }
        composed::bcast(fabric, plan, Flat).await;
    }
}
