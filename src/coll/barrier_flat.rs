//! Barrier, flat: every rank waits for the flags of all others.
//!
//! Source: the dissemination of Nishtala 2009, §7.1, of radix p.
//!
//! 1. Every rank raises its flag and waits for those of all others.
//! 2. Several nodes: all ranks signal to the leader, the leaders run a barrier, the leader raises the flag to depart.
//!
//! p = 5: every pair.
//! Cost: one line transfer of latency, p − 1 lines read by each rank.
//! Flags: Up by all, read by all (one node); Down by the leader, read by all (several).
//! Epochs: no rank raises a flag of e + 1 before all have raised theirs of e. Values only grow, so a rank in e + 1
//! satisfies the waits of e. No slot is written, so none is claimed.
//! Limits: none; p² lines are read in all.

use super::cost::{self, Way};
use super::phase::short;
use super::phase::{Flat, composed};
use super::{Algorithm, Measures, Plan, Reach, Short};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::{Bytes, Collective};

/// See the module.
pub struct BarrierFlat;

impl Algorithm for BarrierFlat {
    const COLLECTIVE: Collective = Collective::Barrier;
    const NAME: &'static str = "flat";
    const SUMMARY: &'static str = "every rank waits for the flags of all others";
    const SOURCE: &'static str = "Nishtala 2009, section 7.1";
    const COST: &'static str = "one line transfer of latency, p − 1 lines read by each rank";
    const DRAWING: &'static str = "\
all   each rank raises its flag and awaits those of the others";
    const REACH: Reach = Reach::Staged;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Flat, Self::COLLECTIVE, plan, scene)
    }

    fn short(plan: &Plan, measures: &Measures) -> Option<Short> {
        Short::new(plan, measures, Bytes::ZERO)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        if fabric.layout().nodes() > 1 {
            return composed::barrier(fabric, plan, Flat).await;
        }
        short::barrier(fabric, plan).await;
    }
}
