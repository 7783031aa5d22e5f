//! Collectives over several nodes, composed of a form's phases on each node and steps of the leaders between nodes, piece
//! by piece, so that scratch memory stays bounded. Each has the same meaning on one node, where it is the phases alone.

use super::{Blocks, Form, Local, bridge_block};
use crate::coll::{Plan, pieces};
use crate::fabric::{BridgeStep, Fabric, Place, Span};
use crate::types::{Bytes, CommRank, NodeIndex, NodeRank};

const LEADER: NodeRank = NodeRank::LEADER;

/// What this rank does in a composed call.
struct Role {
    is_leader: bool,
    is_root: bool,
    root_node: NodeIndex,
    /// The root's rank on its node.
    root: NodeRank,
    on_root_node: bool,
}

impl Role {
    fn of<F: Fabric>(fabric: &F, plan: &Plan) -> Self {
        let (root_node, root) = fabric.layout().place(plan.root);
        let on_root_node = fabric.layout().my_node() == root_node;
        Self {
            is_leader: fabric.rank() == LEADER,
            is_root: on_root_node && fabric.rank() == root,
            root_node,
            root,
            on_root_node,
        }
    }
}

fn is_one_node<F: Fabric>(fabric: &F) -> bool {
    fabric.layout().nodes() == 1
}

/// Reduce on each node, Allreduce of the leaders, broadcast on each node.
pub async fn allreduce<F: Fabric>(fabric: &F, plan: &Plan, form: impl Form + Send) {
    let mut local = Local::new(fabric, plan);
    let one_node = is_one_node(fabric);
    let most = if one_node { fabric.cell_bytes() } else { plan.scratch };
    for (offset, n) in pieces(plan.bytes, most, plan.granule) {
        let (from, to) = (Place::SendBuf.at(offset), Place::RecvBuf.at(offset));
        if one_node {
            form.reduce_to(&mut local, LEADER, to, from, n).await;
        } else {
            let at = Place::Scratch.start();
            form.reduce_to(&mut local, LEADER, at, from, n).await;
            if fabric.rank() == LEADER {
                fabric.bridge(BridgeStep::Allreduce { at, n }).await;
                fabric.copy(to, at, n).await;
            }
        }
        form.bcast_from(&mut local, LEADER, to, to, n).await;
    }
}

/// Reduce on each node to the leader, Reduce of the leaders, and from there to the root.
pub async fn reduce<F: Fabric>(fabric: &F, plan: &Plan, form: impl Form + Send) {
    let mut local = Local::new(fabric, plan);
    let role = Role::of(fabric, plan);
    if is_one_node(fabric) {
        let (from, to) = (Place::SendBuf.start(), Place::RecvBuf.start());
        return form.reduce_to(&mut local, role.root, to, from, plan.bytes).await;
    }
    let at = Place::Scratch.start();
    for (offset, n) in pieces(plan.bytes, plan.scratch, plan.granule) {
        form.reduce_to(&mut local, LEADER, at, Place::SendBuf.at(offset), n).await;
        if role.is_leader {
            fabric.bridge(BridgeStep::Reduce { at, n, root: role.root_node }).await;
        }
        if !role.on_root_node {
            continue;
        }
        let to = Place::RecvBuf.at(offset);
        if role.root != LEADER {
            local.send(LEADER, at, role.root, to, n).await;
        } else if role.is_root {
            fabric.copy(to, at, n).await;
        }
    }
}

/// Broadcast on the root's node, broadcast of the leaders, broadcast on the other nodes.
pub async fn bcast<F: Fabric>(fabric: &F, plan: &Plan, form: impl Form + Send) {
    let mut local = Local::new(fabric, plan);
    let role = Role::of(fabric, plan);
    if is_one_node(fabric) {
        let buffer = Place::RecvBuf.start();
        return form.bcast_from(&mut local, role.root, buffer, buffer, plan.bytes).await;
    }
    let at = Place::Scratch.start();
    for (offset, n) in pieces(plan.bytes, plan.scratch, Bytes(1)) {
        let buffer = Place::RecvBuf.at(offset);
        let step = BridgeStep::Bcast { at, n, root: role.root_node };
        if !role.on_root_node {
            if role.is_leader {
                fabric.bridge(step).await;
                fabric.copy(buffer, at, n).await;
            }
            form.bcast_from(&mut local, LEADER, at, buffer, n).await;
            continue;
        }
        // A root that leads sends to the other nodes first: they wait longest.
        if role.is_leader && role.is_root {
            fabric.copy(at, buffer, n).await;
            fabric.bridge(step).await;
        }
        form.bcast_from(&mut local, role.root, buffer, buffer, n).await;
        if role.is_leader && !role.is_root {
            fabric.copy(at, buffer, n).await;
            fabric.bridge(step).await;
        }
    }
}

/// Arrive on each node, barrier of the leaders, depart on each node.
pub async fn barrier<F: Fabric>(fabric: &F, plan: &Plan, form: impl Form + Send) {
    let mut local = Local::new(fabric, plan);
    form.arrive(&mut local, LEADER).await;
    if !is_one_node(fabric) && fabric.rank() == LEADER {
        fabric.bridge(BridgeStep::Barrier).await;
    }
    form.depart(&mut local, LEADER).await;
}

/// Where the block of `rank` lies in the receive buffer of an Allgather.
pub fn block_of(plan: &Plan, rank: CommRank) -> Span {
    Place::RecvBuf.at(plan.bytes * rank.index())
}

/// Gather on each node, Allgather of the leaders, broadcast on each node.
pub async fn allgather<F: Fabric>(fabric: &F, plan: &Plan, form: impl Form + Send) {
    let mut local = Local::new(fabric, plan);
    let layout = fabric.layout();
    if is_one_node(fabric) {
        form.gather_to(&mut local, LEADER, Place::RecvBuf.start(), Place::SendBuf.start(), plan.bytes).await;
        let all = Place::RecvBuf.start();
        return form.bcast_from(&mut local, LEADER, all, all, plan.bytes * layout.size()).await;
    }
    let at = Place::Scratch.start();
    for (offset, n) in pieces(plan.bytes, bridge_block(plan, layout.size()), Bytes(1)) {
        let own_node = at.plus(n * layout.first(layout.my_node()));
        form.gather_to(&mut local, LEADER, own_node, Place::SendBuf.at(offset), n).await;
        if fabric.rank() == LEADER {
            fabric.bridge(BridgeStep::Allgather { at, block: n }).await;
        }
        form.bcast_from(&mut local, LEADER, at, at, n * layout.size()).await;
        for (index, rank) in layout.in_node_order().iter().enumerate() {
            fabric.copy(block_of(plan, *rank).plus(offset), at.plus(n * index), n).await;
        }
    }
}

/// From the root to its leader, Scatter of the leaders, scatter on each node.
pub async fn scatter<F: Fabric>(fabric: &F, plan: &Plan, form: impl Form + Send) {
    let mut local = Local::new(fabric, plan);
    let role = Role::of(fabric, plan);
    let layout = fabric.layout();
    // In place the root's block stays where it is, in a buffer that may be read-only.
    let to = (!(role.is_root && fabric.is_in_place())).then(|| Place::RecvBuf.start());
    if is_one_node(fabric) {
        let from = Blocks { start: Place::SendBuf.start(), stride: plan.bytes };
        return form.scatter_from(&mut local, role.root, from, to, plan.bytes).await;
    }
    let at = Place::Scratch.start();
    for (offset, n) in pieces(plan.bytes, bridge_block(plan, layout.size()), Bytes(1)) {
        if role.is_root {
            for (index, rank) in layout.in_node_order().iter().enumerate() {
                let from = Place::SendBuf.at(plan.bytes * rank.index() + offset);
                fabric.copy(at.plus(n * index), from, n).await;
            }
        }
        if role.on_root_node && role.root != LEADER {
            local.send(role.root, at, LEADER, at, n * layout.size()).await;
        }
        if role.is_leader {
            fabric.bridge(BridgeStep::Scatter { at, block: n, root: role.root_node }).await;
        }
        let from = Blocks { start: at.plus(n * layout.first(layout.my_node())), stride: n };
        let to = to.map(|to| to.plus(offset));
        form.scatter_from(&mut local, LEADER, from, to, n).await;
    }
}
