//! Allreduce by two relays, from either end of the ranks: each rank combines its operand in the cell that the one
//! before used.
//!
//! Source: chains are those of Nishtala 2009, §7.2. To combine operands in one place, and from both ends, is huddle's
//! own.
//!
//! 1. Every other piece ascends. The first rank copies its operand into its cell, and each further rank combines its
//!    own there. Ranks follow by position, or by rank where operands keep their order.
//! 2. The other pieces descend from the last rank to the first.
//! 3. Every rank copies the complete pieces, a stint behind.
//! 4. Several nodes: relay to the leader, Allreduce of the leaders, tiled broadcast.
//!
//! p = 5: `0→1→2→3→4` in a cell of 0, `4→3→2→1→0` in a cell of 4, then all copy both.
//! Cost: m combined per rank, in place + copy out. Data that the ranks of a core share reach it once. Waits per stint
//! and per rank.
//! Flags: Up by all ranks in the relay that ascends, Down in the other; read by the next rank, that of the last by all.
//! Epochs: a rank in e + 1 has collected all of e, so all have combined their operands. The first rank of a relay
//! claims a cell again when all have released it.
//! Limits: an element has to fit a cell; each rank waits for all before it. Chosen only on one node whose ranks share
//! cores.

use super::phase::relay;
use super::{Algorithm, Knob, Plan, Reach, cost};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct AllreduceRelay;

impl Algorithm for AllreduceRelay {
    const COLLECTIVE: Collective = Collective::Allreduce;
    const NAME: &'static str = "relay";
    const SUMMARY: &'static str = "ranks combine their operands one after the other in the cell of the first; two such relays start at opposite ends";
    const SOURCE: &'static str = "Nishtala 2009, section 7.2 (chains)";
    const COST: &'static str = "each rank combines m bytes, in place + copy out";
    const DRAWING: &'static str = "\
half  0 -> 1 -> 2 -> 3 -> 4   each combines its operand in the cell of 0
half  4 -> 3 -> 2 -> 1 -> 0   each combines its operand in the cell of 4
all   each rank copies both";
    const KNOBS: &'static [Knob] = &[Knob::Tile, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::RelayedTiles;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of_relay(Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        relay::allreduce(fabric, plan).await;
    }
}
