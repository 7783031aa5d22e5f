//! Reduce, tiled within each group of the outermost level and by a tree over the groups.
//!
//! Source: Li, Hoefler, Hu, Snir 2014, §2.4 (tiled-reduce-broadcast) and Fig. 16.
//!
//! 1. A rank copies its next piece into its slot, but for its own part, one piece ahead of
//! 2. combining its part of the slots of its group in the order of positions, then of its like in other groups along a
//!    binary tree, into its slot, the root into its buffer.
//! 3. The root copies the parts of the others.
//! 4. Several nodes: the same to the leader, the leaders, from there to the root.
//!
//! p = 5 in groups `0 1 2 | 3 4`: two parts; `a: 0…2 → 0, 3 4 → 3, 3 → 0`, `b: 0…2 → 1, 3 4 → 4, 4 → 1`.
//! Cost: (8) + (9) of the paper, a·q + B·q·m in a group and (a + B·m)·⌈log2 s⌉ over s groups, and the copy
//! out by the root.
//! Flags: Up by all, read by the workers of its group; Down by workers, read by their parents and, of the first group, by the root.
//! The piece ahead uses the next slot of the ring, which is claimed before it is written.
//! Limits: where one group has less than half the ranks of another, or operands have to stay in rank order and the
//! hierarchy is not in that order, there is one group.

use super::allreduce_hierarchical::AllreduceHierarchical;
use super::cost::{self, Way};
use super::phase::{Sharing, Tiled, composed};
use super::{Algorithm, Knob, Plan, Reach};
use crate::fabric::Fabric;
use crate::model::{Nanos, Scene};
use crate::types::Collective;

/// See the module.
pub struct ReduceHierarchical;

impl Algorithm for ReduceHierarchical {
    const COLLECTIVE: Collective = Collective::Reduce;
    const NAME: &'static str = AllreduceHierarchical::NAME;
    const SUMMARY: &'static str = AllreduceHierarchical::SUMMARY;
    const SOURCE: &'static str = AllreduceHierarchical::SOURCE;
    const COST: &'static str = "a·q + B·q·m in a group, (a + B·m)·⌈log2 s⌉ over s groups, and the copy out by the root";
    const DRAWING: &'static str = "\
all   groups 0 1 2 and 3 4, parts a b
all   0: a of 0 1 2   1: b of 0 1 2   3: a of 3 4   4: b of 3 4
tree  3->0 (a)  4->1 (b)
up    the root copies a from 0, b from 1";
    const KNOBS: &'static [Knob] = &[Knob::Tile, Knob::Chunk, Knob::Leaders];
    const REACH: Reach = Reach::Tiles;

    fn cost(plan: &Plan, scene: &Scene) -> Option<Nanos> {
        cost::of(Way::Hierarchical, Self::COLLECTIVE, plan, scene)
    }

    async fn run<F: Fabric>(fabric: &F, plan: &Plan) {
        composed::reduce(fabric, plan, Tiled::new(Sharing::Hierarchical)).await;
    }
}
