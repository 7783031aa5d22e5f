//! The steps between nodes: every leader must come before any goes on, but a leader may rely only on what its step
//! promises, as with a native library that buffers. So a missing partner is a deadlock, and what a step does not order
//! stays unordered.

use super::clocks::Snapshot;
use super::machine::Machine;
use super::operator::Operator;
use super::transfer::Location;
use super::violation::Breach;
use crate::fabric::{BridgeStep, Place, Span};
use crate::types::{Bytes, NodeIndex, NodeRank};

/// A leader's part of a step.
#[derive(Debug)]
struct Arrival {
    step: BridgeStep,
    snapshot: Snapshot,
    /// What it contributes.
    data: Vec<u8>,
}

/// The steps of all leaders, by node and in order.
#[derive(Debug)]
pub(super) struct Rendezvous {
    arrivals: Vec<Vec<Arrival>>,
    /// Steps that each node has finished.
    finished: Vec<usize>,
}

impl Rendezvous {
    pub(super) fn new(nodes: usize) -> Self {
        Self { arrivals: (0..nodes).map(|_| Vec::new()).collect(), finished: vec![0; nodes] }
    }

    fn is_waiting(&self, node: usize) -> bool {
        self.arrivals[node].len() > self.finished[node]
    }

    /// Whether the leader of `node` may arrive, or may go on after having arrived.
    pub(super) fn is_enabled(&self, node: usize) -> bool {
        !self.is_waiting(node) || self.arrivals.iter().all(|arrivals| arrivals.len() > self.finished[node])
    }

    /// The parts of the step that `node` is in, by node.
    fn current(&self, node: usize) -> impl Iterator<Item = &Arrival> {
        let step = self.finished[node];
        self.arrivals.iter().filter_map(move |arrivals| arrivals.get(step))
    }
}

/// Whether both are the same step of the same call, wherever the data lie on each node.
fn agree(left: &BridgeStep, right: &BridgeStep) -> bool {
    let key = |step: &BridgeStep| match *step {
        BridgeStep::Barrier => (0, Bytes::ZERO, NodeIndex(0)),
        BridgeStep::Allreduce { n, .. } => (1, n, NodeIndex(0)),
        BridgeStep::Reduce { n, root, .. } => (2, n, root),
        BridgeStep::Bcast { n, root, .. } => (3, n, root),
        BridgeStep::Allgather { block, .. } => (4, block, NodeIndex(0)),
        BridgeStep::Scatter { block, root, .. } => (5, block, root),
    };
    key(left) == key(right)
}

impl Machine {
    /// Arrives, or finishes where the leader had arrived; then true.
    pub(super) fn take_step(&mut self, me: usize, step: BridgeStep) -> Result<bool, Breach> {
        let node = self.members[me].node;
        if self.members[me].node_rank != NodeRank::LEADER {
            return Err(Breach::NotLeader);
        }
        if self.bridge.is_waiting(node) {
            self.depart(me, node, step)?;
            self.bridge.finished[node] += 1;
            return Ok(true);
        }
        if let Some(other) = self.bridge.current(node).find(|other| !agree(&other.step, &step)) {
            return Err(Breach::BridgeMismatch { other: format!("{:?}", other.step) });
        }
        let mut data = Vec::new();
        if let Some((at, n)) = self.contribution(node, step) {
            let from = self.locate_buffer(me, at, n)?;
            self.read(me, &from, &mut data)?;
        }
        let snapshot = self.clocks.announce(me);
        self.bridge.arrivals[node].push(Arrival { step, snapshot, data });
        Ok(false)
    }

    fn locate_buffer(&mut self, me: usize, at: Span, n: Bytes) -> Result<Location, Breach> {
        if matches!(at.place, Place::Cell { .. } | Place::Payload { .. }) {
            return Err(Breach::NotBuffer);
        }
        self.locate(me, at, n)
    }

    /// Where the blocks of a node's members lie in a buffer of blocks in node order.
    fn blocks_of(&self, node: usize, block: Bytes) -> (Bytes, Bytes) {
        let before: usize = self.nodes[..node].iter().map(Vec::len).sum();
        (block * before, block * self.nodes[node].len())
    }

    /// What the leader of `node` brings to the step.
    fn contribution(&self, node: usize, step: BridgeStep) -> Option<(Span, Bytes)> {
        match step {
            BridgeStep::Barrier => None,
            BridgeStep::Allreduce { at, n } | BridgeStep::Reduce { at, n, .. } => Some((at, n)),
            BridgeStep::Bcast { at, n, root } => (root.index() == node).then_some((at, n)),
            BridgeStep::Allgather { at, block } => {
                let (offset, n) = self.blocks_of(node, block);
                Some((at.plus(offset), n))
            }
            BridgeStep::Scatter { at, block, root } => {
                (root.index() == node).then_some((at, block * self.members.len()))
            }
        }
    }

    /// Gives the leader of `node` what the step promises it.
    fn depart(&mut self, me: usize, node: usize, step: BridgeStep) -> Result<(), Breach> {
        match step {
            BridgeStep::Barrier => self.join_nodes(me, node, None),
            BridgeStep::Allreduce { at, n } => self.take_combined(me, node, at, n)?,
            BridgeStep::Reduce { at, n, root } if root.index() == node => self.take_combined(me, node, at, n)?,
            BridgeStep::Reduce { at, n, .. } => {
                if let Location::Own(place, spot) = self.locate_buffer(me, at, n)? {
                    self.members[me].memory.undefine(place, &spot)?;
                }
            }
            BridgeStep::Bcast { at, n, root } if root.index() != node => {
                self.take_from(me, node, root.index(), at, 0..n.0)?;
            }
            BridgeStep::Allgather { at, block } => {
                for source in (0..self.nodes.len()).filter(|source| *source != node) {
                    let (offset, n) = self.blocks_of(source, block);
                    self.take_from(me, node, source, at.plus(offset), 0..n.0)?;
                }
            }
            BridgeStep::Scatter { at, block, root } if root.index() != node => {
                let (offset, n) = self.blocks_of(node, block);
                self.take_from(me, node, root.index(), at.plus(offset), offset.0..(offset + n).0)?;
            }
            BridgeStep::Bcast { .. } | BridgeStep::Scatter { .. } => {}
        }
        Ok(())
    }

    /// All that one node's leader, or every one, had done before the step has now happened before what `me` does.
    fn join_nodes(&mut self, me: usize, node: usize, source: Option<usize>) {
        let arrivals = self.bridge.current(node).enumerate();
        let wanted = arrivals.filter(|(other, _)| source.is_none_or(|source| source == *other));
        let snapshots: Vec<Snapshot> = wanted.map(|(_, arrival)| arrival.snapshot).collect();
        snapshots.into_iter().for_each(|snapshot| self.clocks.join(me, snapshot));
    }

    fn take_from(
        &mut self,
        me: usize,
        node: usize,
        source: usize,
        at: Span,
        range: std::ops::Range<usize>,
    ) -> Result<(), Breach> {
        self.join_nodes(me, node, Some(source));
        let data = self.bridge.current(node).nth(source).map(|arrival| arrival.data[range].to_vec());
        let data = data.expect("all have arrived");
        let to = self.locate_buffer(me, at, Bytes(data.len()))?;
        self.write(me, &to, &data)
    }

    fn take_combined(&mut self, me: usize, node: usize, at: Span, n: Bytes) -> Result<(), Breach> {
        let operator = self.members[me].operator.ok_or(Breach::NoOperation)?;
        if !n.0.is_multiple_of(operator.granule()) {
            return Err(Breach::SplitElement);
        }
        self.join_nodes(me, node, None);
        let combine = |left: Vec<u8>, right: &Vec<u8>| combined(operator, &left, right);
        let mut operands = self.bridge.current(node).map(|arrival| &arrival.data);
        let first = operands.next().cloned().unwrap_or_default();
        let result = operands.fold(first, combine);
        let to = self.locate_buffer(me, at, n)?;
        self.write(me, &to, &result)
    }
}

fn combined(operator: Operator, left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(left.len());
    operator.combine(left, right, &mut result);
    result
}
