//! The steps of the leaders between nodes: the native library's collectives, or dissemination of any radix by messages
//! between pairs (Li et al. 2014, section 2.5; Nishtala 2009, section 6).
//!
//! Nodes take the place that ranks have on one node ([`Layout::exchange`]). In each step a node takes what the others
//! of its group have. All combine in node order and get the same bits. All leaders take the same number of steps, some
//! without a message.

use super::{Local, longest_chunk};
use crate::coll::Plan;
use crate::fabric::{BridgeStep, Fabric, Leg, Place};
use crate::topo::Layout;
use crate::types::{Bytes, NodeIndex, NodeRank};

/// How data move between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// Collectives of the native library.
    Native,
    /// Messages, in steps in which groups of `radix` nodes exchange; at least 2.
    Dissemination {
        /// Nodes that exchange in a step.
        radix: u32,
    },
}

impl Between {
    /// Dissemination with the radix of the plan.
    pub fn dissemination(plan: &Plan) -> Self {
        Self::Dissemination { radix: plan.knobs.radix().max(2) }
    }

    /// Operands that a leader holds during a reduction.
    fn operands(self, nodes: usize) -> usize {
        match self {
            Self::Native => 1,
            Self::Dissemination { radix } => (radix as usize).min(nodes),
        }
    }

    /// Longest chunk of a reduction, which is also the length of one operand in the scratch memory.
    pub fn area(self, plan: &Plan, nodes: usize) -> Bytes {
        let share = Bytes(longest_chunk(plan, plan.bytes).0 / self.operands(nodes));
        plan.bytes.min(Bytes(share.0.max(plan.granule.0)).round_down_to(plan.granule))
    }

    /// Scratch memory of a reduction that uses these steps; zero on one node.
    pub fn scratch(self, plan: &Plan, nodes: usize) -> Bytes {
        if nodes == 1 { Bytes::ZERO } else { self.area(plan, nodes) * self.operands(nodes) }
    }

    /// Begins to combine the first `n` bytes of the scratch memory of all leaders. The result is in their place at the
    /// end.
    pub async fn begin_allreduce<F: Fabric>(self, local: &Local<'_, F>, n: Bytes) {
        match self {
            Self::Native => local.fabric.bridge_begin(BridgeStep::Allreduce { at: Place::Scratch.start(), n }).await,
            Self::Dissemination { radix } => allreduce(local, radix, n).await,
        }
    }

    /// Waits until all leaders have called it.
    pub async fn barrier<F: Fabric>(self, local: &Local<'_, F>) {
        match self {
            Self::Native => local.fabric.bridge(BridgeStep::Barrier).await,
            Self::Dissemination { radix } => barrier(local, radix as usize).await,
        }
    }

    /// Begins to gather `block` bytes of each rank. Those of this node lie from block [`Between::first_gathered`] on.
    pub async fn begin_allgather<F: Fabric>(self, local: &Local<'_, F>, block: Bytes) {
        match self {
            Self::Native => {
                local.fabric.bridge_begin(BridgeStep::Allgather { at: Place::Scratch.start(), block }).await;
            }
            Self::Dissemination { radix } => allgather(local, radix as usize, block).await,
        }
    }

    /// Waits for the end of the step that was begun.
    pub async fn end<F: Fabric>(self, local: &Local<'_, F>) {
        if self == Self::Native {
            local.fabric.bridge_end().await;
        }
    }

    /// The index of the first block of this node in the gathered data.
    pub fn first_gathered(self, layout: &Layout) -> usize {
        match self {
            Self::Native => layout.first(layout.my_node()),
            Self::Dissemination { .. } => 0,
        }
    }

    /// Where block `index` in node order lies in the gathered data. By dissemination these begin with the node's own
    /// blocks.
    pub fn place_gathered(self, layout: &Layout, index: usize) -> usize {
        let first = layout.first(layout.my_node()) - self.first_gathered(layout);
        (index + layout.size() - first) % layout.size()
    }
}

fn node(rank: NodeRank) -> NodeIndex {
    NodeIndex(rank.0)
}

/// See [`Exchange`](crate::topo::Exchange). Operands lie side by side in the scratch memory. The result replaces the
/// first.
async fn allreduce<F: Fabric>(local: &Local<'_, F>, radix: u32, n: Bytes) {
    let fabric = local.fabric;
    let exchange = fabric.layout().exchange(radix);
    let me = NodeRank(fabric.layout().my_node().0);
    let is_head = exchange.is_head(me);
    let operand = |index: usize| Place::Scratch.at(n * index);
    let message = |send: Option<(NodeRank, usize)>, receive: Option<(NodeRank, usize)>| {
        let leg = |(rank, index)| Leg { node: node(rank), offset: n * index, n };
        BridgeStep::SendRecv { at: Place::Scratch.start(), send: send.map(leg), receive: receive.map(leg) }
    };
    // 1. Heads combine the operands of their run.
    for index in 1..exchange.longest_run {
        let member = exchange.run.get(index).copied();
        let send = (member == Some(me)).then(|| (exchange.run[0], 0));
        fabric.bridge(message(send, member.filter(|_| is_head).map(|member| (member, 1)))).await;
        if is_head && member.is_some() {
            fabric.reduce(operand(0), operand(0), operand(1), n).await;
        }
    }
    // 2. Heads exchange.
    for (partners, width) in exchange.steps.iter().zip(&exchange.widths) {
        let own = partners.iter().position(|partner| *partner == me);
        if let Some(own) = own.filter(|own| *own > 0) {
            fabric.copy(operand(own), operand(0), n).await;
        }
        for distance in 1..*width {
            let step = own.map(|own| {
                let (target, source) = ((own + distance) % width, (own + width - distance) % width);
                message(Some((partners[target], own)), Some((partners[source], source)))
            });
            fabric.bridge(step.unwrap_or(message(None, None))).await;
        }
        if own.is_some() {
            for index in 1..*width {
                fabric.reduce(operand(0), operand(0), operand(index), n).await;
            }
        }
    }
    // 3. Heads hand the result to their run.
    for index in 1..exchange.longest_run {
        let member = exchange.run.get(index).copied();
        let receive = (member == Some(me)).then(|| (exchange.run[0], 0));
        fabric.bridge(message(member.filter(|_| is_head).map(|member| (member, 0)), receive)).await;
    }
}

/// In step `i` a leader sends empty messages to the nodes at distances up to `radix - 1` times `radix^i`.
async fn barrier<F: Fabric>(local: &Local<'_, F>, radix: usize) {
    let (me, nodes) = (local.fabric.layout().my_node().index(), local.fabric.layout().nodes());
    let leg = |node: usize| Some(Leg { node: NodeIndex((node % nodes) as u32), offset: Bytes::ZERO, n: Bytes::ZERO });
    let mut distance = 1;
    while distance < nodes {
        for far in (1..radix).map(|times| times * distance).take_while(|far| *far < nodes) {
            let (send, receive) = (leg(me + far), leg(me + nodes - far));
            local.fabric.bridge(BridgeStep::SendRecv { at: Place::Scratch.start(), send, receive }).await;
        }
        distance *= radix;
    }
}

/// In each step a node takes all blocks that nodes further on have by then. Blocks lie in node order, from its own on.
async fn allgather<F: Fabric>(local: &Local<'_, F>, radix: usize, block: Bytes) {
    let layout = local.fabric.layout();
    let (me, nodes) = (layout.my_node().index(), layout.nodes());
    let node = |index: usize| NodeIndex((index % nodes) as u32);
    // Bytes of the blocks of `count` nodes, from node `first` on.
    let length = |first: usize, count: usize| {
        block * (first..first + count).map(|index| layout.members(node(index)).len()).sum::<usize>()
    };
    let mut held = 1;
    while held < nodes {
        for far in (1..radix).map(|times| times * held).take_while(|far| *far < nodes) {
            let count = held.min(nodes - far);
            let send = Leg { node: node(me + nodes - far), offset: Bytes::ZERO, n: length(me, count) };
            let receive = Leg { node: node(me + far), offset: length(me, far), n: length(me + far, count) };
            let at = Place::Scratch.start();
            local.fabric.bridge(BridgeStep::SendRecv { at, send: Some(send), receive: Some(receive) }).await;
        }
        held *= radix;
    }
}
