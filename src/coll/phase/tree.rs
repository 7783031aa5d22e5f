//! The tree form: data moves along a tree of any radix over the hierarchy of the node (`topo::Levels::tree`). No rank
//! touches more than a few slots per level, and data seldom cross borders between caches.

use super::flat::copy_unless_same;
use super::{Blocks, Dealing, Form, Local, Sequence};
use crate::coll::knobs::{KNOMIAL, PUSH};
use crate::coll::{Knob, Plan, pieces, pieces_between};
use crate::fabric::{Fabric, Line, Place, Room, Span};
use crate::topo::{Levels, TreeClass, TreeNode};
use crate::types::{Bytes, NodeRank, OperandOrder, Ticket};
use std::ops::Range;

/// Trees of the plan's class. Messages move segment by segment.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    /// The class for data that moves towards the root, and for signals in both directions.
    pub up: TreeClass,
    /// The class for data that moves away from the root.
    pub down: TreeClass,
    pushes_up: bool,
    pushes_down: bool,
}

impl Tree {
    /// The trees that the knobs of the plan set.
    pub fn of(plan: &Plan) -> Self {
        let knobs = &plan.knobs;
        let up = match knobs.radix() {
            radix if radix > 1 && knobs.get(Knob::Class) == KNOMIAL => TreeClass::Knomial { radix },
            radix => TreeClass::Kary { radix },
        };
        let down = knobs.set(Knob::Stages).map_or(up, |stages| TreeClass::Stages { stages });
        let pushes = |direction| knobs.get(direction) == PUSH;
        Self { up, down, pushes_up: pushes(Knob::Up), pushes_down: pushes(Knob::Down) }
    }

    fn up<'a, F: Fabric>(&self, local: &Local<'a, F>, order: OperandOrder, root: NodeRank) -> &'a TreeNode {
        local.fabric.levels().tree(self.up, order, root)
    }

    fn down<'a, F: Fabric>(&self, local: &Local<'a, F>, root: NodeRank) -> &'a TreeNode {
        local.fabric.levels().tree(self.down, OperandOrder::Any, root)
    }
}

impl Form for Tree {
    async fn reduce_to<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, to: Span, from: Span, n: Bytes) {
        let fabric = local.fabric;
        let node = self.up(local, local.plan.order, root);
        for (offset, length) in
            pieces_between(fabric.size(), n, local.plan.segment(fabric.cell_bytes()), local.plan.granule)
        {
            let ticket = local.tickets.draw();
            let (to, from) = (to.plus(offset), from.plus(offset));
            if node.parent.is_none() {
                combine_subtree(local, node, to, from, ticket, length).await;
            } else {
                let stage = Place::stage(fabric.rank(), Line::Up, ticket, length).start();
                fabric.claim(ticket, Room::passing(length)).await;
                combine_subtree(local, node, stage, from, ticket, length).await;
                fabric.publish(Line::Up, ticket).await;
            }
            fabric.release(ticket).await;
        }
    }

    async fn bcast_from<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, from: Span, to: Span, n: Bytes) {
        let fabric = local.fabric;
        let node = self.down(local, root);
        for (offset, length) in pieces_between(fabric.size(), n, local.plan.segment(fabric.cell_bytes()), Bytes(1)) {
            let ticket = local.tickets.draw();
            let stage = |rank| Place::stage(rank, Line::Down, ticket, length).start();
            let Some(parent) = node.parent else {
                if fabric.size() > 1 {
                    local.publish_copy(Line::Down, ticket, from.plus(offset), length).await;
                }
                fabric.release(ticket).await;
                continue;
            };
            fabric.wait(parent, Line::Down, ticket).await;
            if !node.children.is_empty() {
                // The children come before this rank's buffer: they are further from the root.
                local.publish_copy(Line::Down, ticket, stage(parent), length).await;
            }
            fabric.copy(to.plus(offset), stage(parent), length).await;
            fabric.release(ticket).await;
        }
    }

    async fn gather_to<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, to: Span, from: Span, n: Bytes) {
        let fabric = local.fabric;
        let node = self.up(local, OperandOrder::Any, root);
        for (offset, length) in pieces(n, Bytes(fabric.cell_bytes().0 / fabric.size()), Bytes(1)) {
            let ticket = local.tickets.draw();
            let from = from.plus(offset);
            if node.parent.is_none() {
                copy_unless_same(fabric, to.plus(n * root.index() + offset), from, length).await;
                for child in &node.children {
                    fabric.wait(child.rank, Line::Up, ticket).await;
                    let blocks = subtree_stage(child.rank, &child.covers, Line::Up, ticket, length);
                    for (index, rank) in ranks_at(fabric.levels(), &child.covers).enumerate() {
                        fabric.copy(to.plus(n * rank.index() + offset), blocks.plus(length * index), length).await;
                    }
                }
            } else {
                gather_subtree(local, node, from, ticket, length).await;
            }
            fabric.release(ticket).await;
        }
    }

    /// Pulled: a child raises its own flag, which its parent polls. Pushed: it writes to a line that only the parent
    /// polls.
    async fn arrive<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank) {
        let fabric = local.fabric;
        let node = self.up(local, OperandOrder::Any, root);
        let ticket = local.tickets.draw();
        for child in &node.children {
            match self.pushes_up {
                true => fabric.wait_post(child.rank, ticket).await,
                false => fabric.wait(child.rank, Line::Up, ticket).await,
            }
        }
        match node.parent {
            Some(parent) if self.pushes_up => fabric.post(parent, ticket).await,
            Some(_) => fabric.publish(Line::Up, ticket).await,
            None => {}
        }
    }

    /// Pulled: all children poll their parent's flag. Pushed: each child polls a line of its own. The parent writes
    /// those of the farthest children first, whose subtrees are the largest.
    async fn depart<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank) {
        let fabric = local.fabric;
        let node = self.up(local, OperandOrder::Any, root);
        let ticket = local.tickets.draw();
        if let Some(parent) = node.parent {
            match self.pushes_down {
                true => fabric.wait_post(parent, ticket).await,
                false => fabric.wait(parent, Line::Down, ticket).await,
            }
        }
        if self.pushes_down {
            let (before, after) = node.children.split_at(node.children_before);
            for child in before.iter().chain(after.iter().rev()) {
                fabric.post(child.rank, ticket).await;
            }
        } else if !node.children.is_empty() {
            fabric.publish(Line::Down, ticket).await;
        }
    }
}

impl Dealing for Tree {
    async fn scatter_from<F: Fabric>(
        &self,
        local: &mut Local<'_, F>,
        root: NodeRank,
        from: Blocks,
        to: Option<Span>,
        n: Bytes,
    ) {
        let fabric = local.fabric;
        let node = self.down(local, root);
        for (offset, length) in pieces(n, Bytes(fabric.cell_bytes().0 / fabric.size()), Bytes(1)) {
            let ticket = local.tickets.draw();
            let to = to.map(|to| to.plus(offset));
            if node.parent.is_none() {
                scatter_root(local, node, from, to, ticket, offset, length).await;
            } else {
                scatter_subtree(local, node, root, to, ticket, length).await;
            }
            fabric.release(ticket).await;
        }
    }
}

/// `to` = the operands of this rank's subtree, combined by position.
async fn combine_subtree<F: Fabric>(
    local: &Local<'_, F>,
    node: &TreeNode,
    to: Span,
    from: Span,
    ticket: Ticket,
    n: Bytes,
) {
    let fabric = local.fabric;
    let stage = |rank| Place::stage(rank, Line::Up, ticket, n).start();
    if node.children.is_empty() {
        return copy_unless_same(fabric, to, from, n).await;
    }
    let sequence = Sequence::of(local.plan, node.children.len() + 1);
    // The first step overwrites `to`. If that is also `from` and a later step uses the operand, it moves to the slot
    // first.
    let own = if node.parent.is_none() && fabric.is_in_place() && sequence.is_after_first_step(node.children_before) {
        fabric.claim(ticket, Room::of(n)).await;
        fabric.copy(stage(fabric.rank()), from, n).await;
        stage(fabric.rank())
    } else {
        from
    };
    let mut combined = None;
    for index in (0..=node.children.len()).map(|turn| sequence.place_at(turn)) {
        let operand = match index.cmp(&node.children_before) {
            std::cmp::Ordering::Equal => own,
            order => {
                let child = &node.children[index - usize::from(order.is_gt())];
                fabric.wait(child.rank, Line::Up, ticket).await;
                stage(child.rank)
            }
        };
        match combined {
            None => combined = Some(operand),
            Some(before) => {
                let [left, right] = sequence.sorted(before, operand);
                fabric.reduce(to, left, right, n).await;
                combined = Some(to);
            }
        }
    }
}

/// Where `rank` stages its subtree: `n` bytes for each rank that the subtree covers, by position.
fn subtree_stage(rank: NodeRank, covers: &Range<u32>, line: Line, ticket: Ticket, n: Bytes) -> Span {
    Place::stage(rank, line, ticket, n * covers.len()).start()
}

fn ranks_at<'a>(levels: &'a Levels, covers: &Range<u32>) -> impl Iterator<Item = NodeRank> + Send + use<'a> {
    covers.clone().map(|position| levels.rank_at(position))
}

/// Collects the blocks of this rank's subtree in its slot.
async fn gather_subtree<F: Fabric>(local: &Local<'_, F>, node: &TreeNode, from: Span, ticket: Ticket, n: Bytes) {
    let fabric = local.fabric;
    let me = fabric.rank();
    let stage = subtree_stage(me, &node.covers, Line::Up, ticket, n);
    let at = |position: u32| stage.plus(n * (position - node.covers.start) as usize);
    fabric.claim(ticket, Room::passing(n * node.covers.len())).await;
    fabric.copy(at(fabric.levels().position_of(me)), from, n).await;
    for child in &node.children {
        fabric.wait(child.rank, Line::Up, ticket).await;
        let blocks = subtree_stage(child.rank, &child.covers, Line::Up, ticket, n);
        fabric.copy(at(child.covers.start), blocks, n * child.covers.len()).await;
    }
    fabric.publish(Line::Up, ticket).await;
}

/// Lays out the blocks of all other ranks in the root's slot, by position, and copies the root's own to `to`.
async fn scatter_root<F: Fabric>(
    local: &Local<'_, F>,
    node: &TreeNode,
    from: Blocks,
    to: Option<Span>,
    ticket: Ticket,
    offset: Bytes,
    n: Bytes,
) {
    let fabric = local.fabric;
    let me = fabric.rank();
    if !node.children.is_empty() {
        let stage = subtree_stage(me, &node.covers, Line::Down, ticket, n);
        fabric.claim(ticket, Room::passing(n * node.covers.len())).await;
        for (index, rank) in ranks_at(fabric.levels(), &node.covers).enumerate() {
            if rank != me {
                fabric.copy(stage.plus(n * index), from.of(rank, offset), n).await;
            }
        }
        fabric.publish(Line::Down, ticket).await;
    }
    if let Some(to) = to {
        fabric.copy(to, from.of(me, offset), n).await;
    }
}

/// Takes the blocks of this rank's subtree from its parent's slot and passes them on.
async fn scatter_subtree<F: Fabric>(
    local: &Local<'_, F>,
    node: &TreeNode,
    root: NodeRank,
    to: Option<Span>,
    ticket: Ticket,
    n: Bytes,
) {
    let fabric = local.fabric;
    let Some(parent) = node.parent else { return };
    let parent_stage = subtree_stage(parent, &node.parent_covers, Line::Down, ticket, n);
    let blocks = parent_stage.plus(n * (node.covers.start - node.parent_covers.start) as usize);
    debug_assert_ne!(fabric.rank(), root);
    fabric.wait(parent, Line::Down, ticket).await;
    if !node.children.is_empty() {
        let stage = subtree_stage(fabric.rank(), &node.covers, Line::Down, ticket, n);
        fabric.claim(ticket, Room::passing(n * node.covers.len())).await;
        fabric.copy(stage, blocks, n * node.covers.len()).await;
        fabric.publish(Line::Down, ticket).await;
    }
    if let Some(to) = to {
        let own = fabric.levels().position_of(fabric.rank()) - node.covers.start;
        fabric.copy(to, blocks.plus(n * own as usize), n).await;
    }
}
