//! Reduce, tiled within each group of the outermost level and by a tree over the groups.
//!
//! Source: Li, Hoefler, Hu, Snir 2014, §2.4 (tiled-reduce-broadcast) and Fig. 16.
//!
//! 1. A rank copies its next piece into its slot, except for its own part.
//! 2. One piece behind, it combines its part of all slots of its group, in the order of positions. It then combines the
//!    same part of other groups along a binary tree. The result is in its slot; that of the root is in its buffer.
//! 3. The root copies the parts of the others.
//! 4. Several nodes: hierarchical reduction to the leader, Reduce of the leaders, then from the leader to the root.
//!
//! p = 5 in groups `0 1 2 | 3 4`: two parts; `a: 0…2 → 0, 3 4 → 3, 3 → 0`, `b: 0…2 → 1, 3 4 → 4, 4 → 1`.
//! Cost: (8) + (9) of the paper, a·q + B·q·m in a group and (a + B·m)·⌈log2 s⌉ over s groups, and the copy
//! out by the root.
//! Flags: Up by all, read by the workers of the same group; Down by workers, read by their parents, and by the root if
//! the worker is in the first group. The piece ahead uses the next slot of the ring. A rank claims that slot before it
//! writes it.
//! Limits: there is one group if a group has less than half the ranks of another, or if operands have to stay in rank
//! order and the hierarchy is not in that order.

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
