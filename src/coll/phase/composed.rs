//! Collectives over several nodes: a form's phases on each node and steps of the leaders between nodes, chunk by chunk,
//! so that scratch memory stays bounded. On one node each function has the same meaning and runs the phases alone.
//!
//! Chunks go to the leaders of a node in turn. While a leader's step is under way, all ranks go on with the chunks of
//! the other leaders. So the phases on the nodes and the steps between them overlap (pipeline chaining of Tanase et al.
//! 2012, section 4; several leaders as in Zhou et al. 2020, section 6). With one leader nothing overlaps.

use super::between::Between;
use super::{Blocks, Dealing, Form, Local, bridge_block};
use crate::coll::{Knob, Plan, pieces, pieces_between};
use crate::fabric::{BridgeStep, Fabric, Place, Span};
use crate::types::{Bytes, CommRank, NodeIndex, NodeRank};
use std::future::Future;

const LEADER: NodeRank = NodeRank::LEADER;

fn is_one_node<F: Fabric>(fabric: &F) -> bool {
    fabric.layout().nodes() == 1
}

/// Part of a message, and the leader that takes it to the other nodes.
#[derive(Clone, Copy)]
struct Chunk {
    offset: Bytes,
    n: Bytes,
    leader: NodeRank,
    is_mine: bool,
}

/// What the ranks of a node do with a chunk before and after the step between nodes.
trait Course: Sync {
    /// The phases before the step, and the beginning of the step.
    fn begin<F: Fabric>(&self, local: &mut Local<'_, F>, chunk: Chunk) -> impl Future<Output = ()> + Send;
    /// The end of the step, and the phases after it.
    fn end<F: Fabric>(&self, local: &mut Local<'_, F>, chunk: Chunk) -> impl Future<Output = ()> + Send;
}

/// Takes a message through its course in chunks of at most `most` bytes. Each leader has one chunk under way at a time.
async fn take<F: Fabric>(local: &mut Local<'_, F>, most: Bytes, granule: Bytes, course: impl Course + Send) {
    let (fabric, total) = (local.fabric, local.plan.bytes);
    let layout = fabric.layout();
    let leaders = (local.plan.knobs.get(Knob::Leaders) as usize).clamp(1, layout.leaders());
    let chunks = || {
        pieces(total, most, granule).enumerate().map(move |(index, (offset, n))| {
            let leader = layout.leader(layout.my_node(), index % leaders * layout.leaders() / leaders);
            Chunk { offset, n, leader, is_mine: leader == fabric.rank() }
        })
    };
    let mut begun = chunks();
    for (index, chunk) in chunks().enumerate() {
        if index >= leaders
            && let Some(before) = begun.next()
        {
            course.end(local, before).await;
        }
        course.begin(local, chunk).await;
    }
    for chunk in begun {
        course.end(local, chunk).await;
    }
}

/// The root of a call, as seen by this rank.
#[derive(Clone, Copy)]
pub(super) struct Rooted {
    node: NodeIndex,
    /// The root's rank on its node.
    pub(super) rank: NodeRank,
    is_here: bool,
    pub(super) is_me: bool,
}

impl Rooted {
    pub(super) fn of<F: Fabric>(fabric: &F, plan: &Plan) -> Self {
        let (node, rank) = fabric.layout().place(plan.root);
        let is_here = fabric.layout().my_node() == node;
        Self { node, rank, is_here, is_me: is_here && fabric.rank() == rank }
    }

    /// Where this rank's block of a Scatter goes. `None` for a root in place: its block stays in a buffer that may be
    /// read-only.
    pub(super) fn own_block<F: Fabric>(&self, fabric: &F) -> Option<Span> {
        (!(self.is_me && fabric.is_in_place())).then(|| Place::RecvBuf.start())
    }
}

/// Reduce on each node, Allreduce of the leaders, broadcast on each node.
pub async fn allreduce<F: Fabric>(fabric: &F, plan: &Plan, form: impl Form + Send) {
    allreduce_by(fabric, plan, form, Between::Native).await;
}

/// The same as `allreduce`, with the steps between nodes that `between` names.
pub async fn allreduce_by<F: Fabric>(fabric: &F, plan: &Plan, form: impl Form + Send, between: Between) {
    let mut local = Local::new(fabric, plan);
    if !is_one_node(fabric) {
        let most = between.area(plan, fabric.layout().nodes());
        return take(&mut local, most, plan.granule, Allreduce { form, between }).await;
    }
    for (offset, n) in pieces_between(fabric.size(), plan.bytes, fabric.cell_bytes(), plan.granule) {
        let (from, to) = (Place::SendBuf.at(offset), Place::RecvBuf.at(offset));
        form.reduce_to(&mut local, LEADER, to, from, n).await;
        form.bcast_from(&mut local, LEADER, to, to, n).await;
    }
}

struct Allreduce<X> {
    form: X,
    between: Between,
}

impl<X: Form + Send> Course for Allreduce<X> {
    async fn begin<F: Fabric>(&self, local: &mut Local<'_, F>, chunk: Chunk) {
        let at = Place::Scratch.start();
        self.form.reduce_to(local, chunk.leader, at, Place::SendBuf.at(chunk.offset), chunk.n).await;
        if chunk.is_mine {
            self.between.begin_allreduce(local, chunk.n).await;
        }
    }

    async fn end<F: Fabric>(&self, local: &mut Local<'_, F>, chunk: Chunk) {
        let to = Place::RecvBuf.at(chunk.offset);
        if chunk.is_mine {
            self.between.end(local).await;
            local.fabric.copy(to, Place::Scratch.start(), chunk.n).await;
        }
        self.form.bcast_from(local, chunk.leader, to, to, chunk.n).await;
    }
}

/// Reduce on each node to the leader, Reduce of the leaders, then a copy from the leader on the root's node to the
/// root.
pub async fn reduce<F: Fabric>(fabric: &F, plan: &Plan, form: impl Form + Send) {
    let mut local = Local::new(fabric, plan);
    let root = Rooted::of(fabric, plan);
    if is_one_node(fabric) {
        let (from, to) = (Place::SendBuf.start(), Place::RecvBuf.start());
        return form.reduce_to(&mut local, root.rank, to, from, plan.bytes).await;
    }
    take(&mut local, plan.scratch, plan.granule, Reduce { form, root }).await;
}

struct Reduce<X> {
    form: X,
    root: Rooted,
}

impl<X: Form + Send> Course for Reduce<X> {
    async fn begin<F: Fabric>(&self, local: &mut Local<'_, F>, chunk: Chunk) {
        let at = Place::Scratch.start();
        self.form.reduce_to(local, chunk.leader, at, Place::SendBuf.at(chunk.offset), chunk.n).await;
        if chunk.is_mine {
            local.fabric.bridge_begin(BridgeStep::Reduce { at, n: chunk.n, root: self.root.node }).await;
        }
    }

    async fn end<F: Fabric>(&self, local: &mut Local<'_, F>, chunk: Chunk) {
        let (at, to) = (Place::Scratch.start(), Place::RecvBuf.at(chunk.offset));
        if chunk.is_mine {
            local.fabric.bridge_end().await;
        }
        if !self.root.is_here {
            return;
        }
        if self.root.rank != chunk.leader {
            local.send(chunk.leader, at, self.root.rank, to, chunk.n).await;
        } else if self.root.is_me {
            local.fabric.copy(to, at, chunk.n).await;
        }
    }
}

/// Broadcast on the root's node, broadcast of the leaders, broadcast on the other nodes.
pub async fn bcast<F: Fabric>(fabric: &F, plan: &Plan, form: impl Form + Send) {
    let mut local = Local::new(fabric, plan);
    let root = Rooted::of(fabric, plan);
    if is_one_node(fabric) {
        let buffer = Place::RecvBuf.start();
        return form.bcast_from(&mut local, root.rank, buffer, buffer, plan.bytes).await;
    }
    take(&mut local, plan.scratch, Bytes(1), Bcast { form, root }).await;
}

struct Bcast<X> {
    form: X,
    root: Rooted,
}

impl<X: Form + Send> Bcast<X> {
    async fn send_on<F: Fabric>(&self, local: &Local<'_, F>, chunk: Chunk) {
        let (at, n) = (Place::Scratch.start(), chunk.n);
        local.fabric.copy(at, Place::RecvBuf.at(chunk.offset), n).await;
        local.fabric.bridge_begin(BridgeStep::Bcast { at, n, root: self.root.node }).await;
    }
}

impl<X: Form + Send> Course for Bcast<X> {
    async fn begin<F: Fabric>(&self, local: &mut Local<'_, F>, chunk: Chunk) {
        let buffer = Place::RecvBuf.at(chunk.offset);
        if !self.root.is_here {
            if chunk.is_mine {
                let at = Place::Scratch.start();
                local.fabric.bridge_begin(BridgeStep::Bcast { at, n: chunk.n, root: self.root.node }).await;
            }
            return;
        }
        // If the root leads this chunk it serves the other nodes before its own: they wait longest.
        if chunk.is_mine && self.root.is_me {
            self.send_on(local, chunk).await;
        }
        self.form.bcast_from(local, self.root.rank, buffer, buffer, chunk.n).await;
        if chunk.is_mine && !self.root.is_me {
            self.send_on(local, chunk).await;
        }
    }

    async fn end<F: Fabric>(&self, local: &mut Local<'_, F>, chunk: Chunk) {
        let (at, buffer) = (Place::Scratch.start(), Place::RecvBuf.at(chunk.offset));
        if chunk.is_mine {
            local.fabric.bridge_end().await;
        }
        if self.root.is_here {
            return;
        }
        if chunk.is_mine {
            local.fabric.copy(buffer, at, chunk.n).await;
        }
        self.form.bcast_from(local, chunk.leader, at, buffer, chunk.n).await;
    }
}

/// Arrive on each node, barrier of the leaders, depart on each node.
pub async fn barrier<F: Fabric>(fabric: &F, plan: &Plan, form: impl Form + Send) {
    barrier_by(fabric, plan, form, Between::Native).await;
}

/// The same as `barrier`, with the steps between nodes that `between` names.
pub async fn barrier_by<F: Fabric>(fabric: &F, plan: &Plan, form: impl Form + Send, between: Between) {
    let mut local = Local::new(fabric, plan);
    form.arrive(&mut local, LEADER).await;
    if !is_one_node(fabric) && fabric.rank() == LEADER {
        between.barrier(&local).await;
    }
    form.depart(&mut local, LEADER).await;
}

/// Where the block of `rank` lies in the receive buffer of an Allgather.
pub fn block_of(plan: &Plan, rank: CommRank) -> Span {
    Place::RecvBuf.at(plan.bytes * rank.index())
}

/// Gather on each node, Allgather of the leaders, broadcast on each node.
pub async fn allgather<F: Fabric>(fabric: &F, plan: &Plan, form: impl Form + Send) {
    allgather_by(fabric, plan, form, Between::Native).await;
}

/// The same as `allgather`, with the steps between nodes that `between` names.
pub async fn allgather_by<F: Fabric>(fabric: &F, plan: &Plan, form: impl Form + Send, between: Between) {
    let mut local = Local::new(fabric, plan);
    let size = fabric.layout().size();
    if is_one_node(fabric) {
        form.gather_to(&mut local, LEADER, Place::RecvBuf.start(), Place::SendBuf.start(), plan.bytes).await;
        let all = Place::RecvBuf.start();
        return form.bcast_from(&mut local, LEADER, all, all, plan.bytes * size).await;
    }
    take(&mut local, bridge_block(plan, size), Bytes(1), Allgather { form, between }).await;
}

struct Allgather<X> {
    form: X,
    between: Between,
}

/// Where a rank keeps the data of other leaders' chunks. The data that it takes to other nodes itself lie before.
fn second_area<F: Fabric>(local: &Local<'_, F>) -> Span {
    let size = local.fabric.layout().size();
    Place::Scratch.at(if has_second_area(local.plan) { bridge_block(local.plan, size) * size } else { Bytes::ZERO })
}

/// Whether calls that gather or scatter need a second area.
pub(super) fn has_second_area(plan: &Plan) -> bool {
    plan.knobs.get(Knob::Leaders) > 1
}

impl<X: Form + Send> Course for Allgather<X> {
    async fn begin<F: Fabric>(&self, local: &mut Local<'_, F>, chunk: Chunk) {
        let layout = local.fabric.layout();
        let first = self.between.first_gathered(layout);
        let own = Place::Scratch.at(chunk.n * first);
        self.form.gather_to(local, chunk.leader, own, Place::SendBuf.at(chunk.offset), chunk.n).await;
        if chunk.is_mine {
            self.between.begin_allgather(local, chunk.n).await;
        }
    }

    async fn end<F: Fabric>(&self, local: &mut Local<'_, F>, chunk: Chunk) {
        let (fabric, plan) = (local.fabric, local.plan);
        let layout = fabric.layout();
        let (own, others) = (Place::Scratch.start(), second_area(local));
        if chunk.is_mine {
            self.between.end(local).await;
        }
        self.form.bcast_from(local, chunk.leader, own, others, chunk.n * layout.size()).await;
        let at = if chunk.is_mine { own } else { others };
        for (index, rank) in layout.in_node_order().iter().enumerate() {
            let from = at.plus(chunk.n * self.between.place_gathered(layout, index));
            fabric.copy(block_of(plan, *rank).plus(chunk.offset), from, chunk.n).await;
        }
    }
}

/// From the root to the leader of its node, Scatter of the leaders, scatter on each node.
pub async fn scatter<F: Fabric>(fabric: &F, plan: &Plan, form: impl Dealing + Send) {
    let mut local = Local::new(fabric, plan);
    let root = Rooted::of(fabric, plan);
    let to = root.own_block(fabric);
    if is_one_node(fabric) {
        let from = Blocks { start: Place::SendBuf.start(), stride: plan.bytes };
        return form.scatter_from(&mut local, root.rank, from, to, plan.bytes).await;
    }
    let most = bridge_block(plan, fabric.layout().size());
    take(&mut local, most, Bytes(1), Scatter { form, root, to }).await;
}

struct Scatter<X> {
    form: X,
    root: Rooted,
    to: Option<Span>,
}

impl<X: Dealing + Send> Course for Scatter<X> {
    async fn begin<F: Fabric>(&self, local: &mut Local<'_, F>, chunk: Chunk) {
        let (fabric, plan, n) = (local.fabric, local.plan, chunk.n);
        let layout = fabric.layout();
        let (own, others) = (Place::Scratch.start(), second_area(local));
        if self.root.is_me {
            let all = if chunk.is_mine { own } else { others };
            for (index, rank) in layout.in_node_order().iter().enumerate() {
                let from = Place::SendBuf.at(plan.bytes * rank.index() + chunk.offset);
                fabric.copy(all.plus(n * index), from, n).await;
            }
        }
        if self.root.is_here && self.root.rank != chunk.leader {
            local.send(self.root.rank, others, chunk.leader, own, n * layout.size()).await;
        }
        if chunk.is_mine {
            fabric.bridge_begin(BridgeStep::Scatter { at: own, block: n, root: self.root.node }).await;
        }
    }

    async fn end<F: Fabric>(&self, local: &mut Local<'_, F>, chunk: Chunk) {
        let layout = local.fabric.layout();
        if chunk.is_mine {
            local.fabric.bridge_end().await;
        }
        let from = Blocks { start: Place::Scratch.at(chunk.n * layout.first(layout.my_node())), stride: chunk.n };
        let to = self.to.map(|to| to.plus(chunk.offset));
        self.form.scatter_from(local, chunk.leader, from, to, chunk.n).await;
    }
}
