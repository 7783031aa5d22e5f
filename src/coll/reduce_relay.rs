//! Reduce by two relays: each rank adds its operand to what the one before it hands on, from either end of the row of ranks.
//!
//! Source: chains are those of Nishtala 2009, §7.2; that operands grow in one place, and from both ends, is huddle's own.
//!
//! 1. Half of the pieces ascend: the first rank copies its operand into its cell, each further one adds its own there, in rank order.
//! 2. The others descend from the last rank to the first.
//! 3. The root, wherever it is in the row, copies what is complete, a stint of pieces behind.
//! 4. Several nodes: relay to the leader, Reduce of the leaders.
//!
//! p = 5: `0→1→2→3→4` in a cell of 0, `4→3→2→1→0` in a cell of 4, then the root copies both.
//! Cost: m combined per rank, where it lies + copy out at the root.
//! Flags: Up by all, read by the next one; that of the last one by the root.
//! Epochs: a rank that has added its operands may be in e + 1; an end of the row claims a cell again when all have released it.
//! Limits: an element has to fit a cell; each rank waits for all before it.

use super::phase::{Relay, composed};
use super::{Algorithm, Knob, Plan, Reach, cost};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct ReduceRelay;

impl Algorithm for ReduceRelay {
    const COLLECTIVE: Collective = Collective::Reduce;
    const NAME: &'static str = "relay";
    const SUMMARY: &'static str = "each rank adds its operand where the one before it did, from both ends of the row";
    const SOURCE: &'static str = "Nishtala 2009, section 7.2 (chains)";
    const COST: &'static str = "m combined per rank, in one place + copy out at the root";
    const DRAWING: &'static str = "\
half  0 -> 1 -> 2 -> 3 -> 4   each adds its operand in the cell of 0
half  4 -> 3 -> 2 -> 1 -> 0   each adds its operand in the cell of 4
root  copies both";
    const KNOBS: &'static [Knob] = &[Knob::Tile, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::RelayedTiles;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of_relay(Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::reduce(fabric, plan, Relay).await;
    }
}
