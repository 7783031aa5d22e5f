//! Allreduce, tiled within each group of the outermost level and by a tree over the groups.
//!
//! Source: Li, Hoefler, Hu, Snir 2014, §2.4 (tiled-reduce-broadcast) and Fig. 16.
//!
//! 1. A rank copies its next piece into its slot, except for its own part.
//! 2. One piece behind, it combines its part of all slots of its group, in the order of positions. It then combines the
//!    same part of other groups along a binary tree. The result is in its buffer, and it copies that into its slot.
//! 3. One more piece behind, it copies the parts of the others into its buffer.
//! 4. Several nodes: hierarchical reduction to the leader, Allreduce of the leaders, tiled broadcast.
//!
//! p = 5 in groups `0 1 2 | 3 4`: two parts; `a: 0…2 → 0, 3 4 → 3, 3 → 0`, `b: 0…2 → 1, 3 4 → 4, 4 → 1`.
//! Cost: (8) + (9) of the paper, a·q + B·q·m in a group and (a + B·m)·⌈log2 s⌉ over s groups, and its broadcast (4).
//! Flags: Up by all, read by the workers of the same group; Down by workers, read by their parents, and by all if the
//! worker is in the first group. The pieces ahead use the next slots of the ring. A rank claims each before it writes
//! it.
//! Limits: there is one group if a group has less than half the ranks of another, or if operands have to stay in rank
//! order and the hierarchy is not in that order.

use super::cost::{self, Way};
use super::phase::{Sharing, Tiled, tiled};
use super::{Algorithm, Knob, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct AllreduceHierarchical;

impl Algorithm for AllreduceHierarchical {
    const COLLECTIVE: Collective = Collective::Allreduce;
    const NAME: &'static str = "hierarchical";
    const SUMMARY: &'static str =
        "tiled within each group of the machine's outermost level, then along a tree over the groups";
    const SOURCE: &'static str = "Li, Hoefler, Hu, Snir 2014, section 2.4";
    const COST: &'static str = "a·q + B·q·m in a group, (a + B·m)·⌈log2 s⌉ over s groups, and the copies out";
    const DRAWING: &'static str = "\
all   groups 0 1 2 and 3 4, parts a b
all   0: a of 0 1 2   1: b of 0 1 2   3: a of 3 4   4: b of 3 4
tree  3->0 (a)  4->1 (b)
all   each rank copies a from 0, b from 1; with stages=2 3 and 4 pass them on in their group";
    const KNOBS: &'static [Knob] = &[Knob::Tile, Knob::Stages, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::Tiles;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Hierarchical, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        tiled::allreduce(fabric, plan, Tiled::new(Sharing::Hierarchical)).await;
    }
}
