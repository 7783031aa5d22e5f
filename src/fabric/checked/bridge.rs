//! The steps between nodes. Every leader must come to a step before any goes on, so a missing partner is a deadlock.
//! But a leader may rely only on what its step promises, as with a native library that buffers: what a step does not
//! order stays unordered.

use super::clocks::Snapshot;
use super::machine::Machine;
use super::operator::Operator;
use super::transfer::Location;
use super::violation::Breach;
use crate::fabric::{BridgeStep, Leg, Place, Span};
use crate::types::{Bytes, NodeIndex};

/// A leader's part of a step.
#[derive(Debug)]
struct Arrival {
    step: BridgeStep,
    snapshot: Snapshot,
    /// What it contributes.
    data: Vec<u8>,
}

/// The steps of all leaders of one index, by node and in order.
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

    /// Whether all leaders have come to the step that the leader of `node` is in, or would be in next.
    pub(super) fn is_complete(&self, node: usize) -> bool {
        self.arrivals.iter().all(|arrivals| arrivals.len() > self.finished[node])
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
        // Whether legs fit each other is checked when the step ends.
        BridgeStep::SendRecv { .. } => (6, Bytes::ZERO, NodeIndex(0)),
    };
    key(left) == key(right)
}

impl Machine {
    /// `me` arrives at the next step. The memory of the step belongs to the bridge from here on.
    pub(super) fn begin_step(&mut self, me: usize, step: BridgeStep) -> Result<(), Breach> {
        let (node, line) = (self.members[me].node, self.members[me].leader.ok_or(Breach::NotLeader)?);
        if self.members[me].step.is_some() {
            return Err(Breach::StepUnderWay);
        }
        if let Some(other) = self.bridges[line].current(node).find(|other| !agree(&other.step, &step)) {
            return Err(Breach::BridgeMismatch { other: format!("{:?}", other.step) });
        }
        let mut data = Vec::new();
        if let Some((at, n)) = self.contribution(node, step) {
            let from = self.locate_buffer(me, at, n)?;
            self.read(me, &from, &mut data)?;
        }
        let snapshot = self.clocks.announce(me);
        self.bridges[line].arrivals[node].push(Arrival { step, snapshot, data });
        let lent: Result<Vec<_>, _> = self.lent(node, step).map(|(at, n)| self.locate_buffer(me, at, n)).collect();
        self.members[me].lent = lent?;
        self.members[me].step = Some(step);
        Ok(())
    }

    /// Ends the step that `me` is in.
    pub(super) fn end_step(&mut self, me: usize) -> Result<(), Breach> {
        let step = self.members[me].step.take().ok_or(Breach::NoStep)?;
        let (node, line) = (self.members[me].node, self.members[me].leader.ok_or(Breach::NotLeader)?);
        self.members[me].lent.clear();
        self.depart(me, (node, line), step)?;
        self.bridges[line].finished[node] += 1;
        Ok(())
    }

    /// The memory that nobody but the bridge may touch during the step.
    fn lent(&self, node: usize, step: BridgeStep) -> impl Iterator<Item = (Span, Bytes)> + use<> {
        let leg = |at: Span, leg: Option<Leg>| leg.map(|leg| (at.plus(leg.offset), leg.n));
        let all = self.members.len();
        let [first, second] = match step {
            BridgeStep::Barrier => [None, None],
            BridgeStep::Allreduce { at, n } | BridgeStep::Reduce { at, n, .. } | BridgeStep::Bcast { at, n, .. } => {
                [Some((at, n)), None]
            }
            BridgeStep::Allgather { at, block } => [Some((at, block * all)), None],
            BridgeStep::Scatter { at, block, root } if root.index() == node => [Some((at, block * all)), None],
            BridgeStep::Scatter { at, block, .. } => {
                let (offset, n) = self.blocks_of(node, block);
                [Some((at.plus(offset), n)), None]
            }
            BridgeStep::SendRecv { at, send, receive } => [leg(at, send), leg(at, receive)],
        };
        first.into_iter().chain(second)
    }

    fn locate_buffer(&mut self, me: usize, at: Span, n: Bytes) -> Result<Location, Breach> {
        if matches!(at.place, Place::Cell { .. } | Place::Payload { .. }) {
            return Err(Breach::NotBuffer);
        }
        self.locate(me, at, n)
    }

    /// Offset and length of the blocks of a node's members in a buffer of blocks in node order.
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
            BridgeStep::SendRecv { at, send, .. } => send.map(|leg| (at.plus(leg.offset), leg.n)),
        }
    }

    /// Gives a leader what the step promises it. `site` is its node, and which of that node's leaders it is.
    fn depart(&mut self, me: usize, site: (usize, usize), step: BridgeStep) -> Result<(), Breach> {
        let node = site.0;
        match step {
            BridgeStep::Barrier => self.join_nodes(me, site, None),
            BridgeStep::Allreduce { at, n } => self.take_combined(me, site, at, n)?,
            BridgeStep::Reduce { at, n, root } if root.index() == node => self.take_combined(me, site, at, n)?,
            BridgeStep::Reduce { at, n, .. } => {
                if let Location::Own(place, spot) = self.locate_buffer(me, at, n)? {
                    self.members[me].memory.undefine(place, &spot)?;
                }
            }
            BridgeStep::Bcast { at, n, root } if root.index() != node => {
                self.take_from(me, site, root.index(), at, 0..n.0)?;
            }
            BridgeStep::Allgather { at, block } => {
                for source in (0..self.nodes.len()).filter(|source| *source != node) {
                    let (offset, n) = self.blocks_of(source, block);
                    self.take_from(me, site, source, at.plus(offset), 0..n.0)?;
                }
            }
            BridgeStep::Scatter { at, block, root } if root.index() != node => {
                let (offset, n) = self.blocks_of(node, block);
                self.take_from(me, site, root.index(), at.plus(offset), offset.0..(offset + n).0)?;
            }
            BridgeStep::SendRecv { at, receive, .. } => self.take_message(me, site, at, receive)?,
            BridgeStep::Bcast { .. } | BridgeStep::Scatter { .. } => {}
        }
        Ok(())
    }

    /// Orders all that the leader of node `source`, or of every node if it is `None`, had done before the step before
    /// what `me` does from here on.
    fn join_nodes(&mut self, me: usize, site: (usize, usize), source: Option<usize>) {
        let arrivals = self.bridges[site.1].current(site.0).enumerate();
        let wanted = arrivals.filter(|(other, _)| source.is_none_or(|source| source == *other));
        let snapshots: Vec<Snapshot> = wanted.map(|(_, arrival)| arrival.snapshot).collect();
        snapshots.into_iter().for_each(|snapshot| self.clocks.join(me, snapshot));
    }

    fn take_from(
        &mut self,
        me: usize,
        site: (usize, usize),
        source: usize,
        at: Span,
        range: std::ops::Range<usize>,
    ) -> Result<(), Breach> {
        self.join_nodes(me, site, Some(source));
        let data = self.bridges[site.1].current(site.0).nth(source).map(|arrival| arrival.data[range].to_vec());
        let data = data.expect("all have arrived");
        let to = self.locate_buffer(me, at, Bytes(data.len()))?;
        self.write(me, &to, &data)
    }

    fn take_combined(&mut self, me: usize, site: (usize, usize), at: Span, n: Bytes) -> Result<(), Breach> {
        let operator = self.members[me].operator.ok_or(Breach::NoOperation)?;
        if !n.0.is_multiple_of(operator.granule()) {
            return Err(Breach::SplitElement);
        }
        self.join_nodes(me, site, None);
        let combine = |left: Vec<u8>, right: &Vec<u8>| combined(operator, &left, right);
        let mut operands = self.bridges[site.1].current(site.0).map(|arrival| &arrival.data);
        let first = operands.next().cloned().unwrap_or_default();
        let result = operands.fold(first, combine);
        let to = self.locate_buffer(me, at, n)?;
        self.write(me, &to, &result)
    }

    /// Takes what the other node sends here; everything that is sent here has to be received.
    fn take_message(&mut self, me: usize, site: (usize, usize), at: Span, receive: Option<Leg>) -> Result<(), Breach> {
        let current = self.bridges[site.1].current(site.0).enumerate();
        let comes = current.filter_map(|(node, arrival)| match arrival.step {
            BridgeStep::SendRecv { send: Some(leg), .. } if leg.node.index() == site.0 => Some((node, leg.n)),
            _ => None,
        });
        let comes: Vec<(usize, Bytes)> = comes.collect();
        let wanted: Vec<(usize, Bytes)> = receive.iter().map(|leg| (leg.node.index(), leg.n)).collect();
        if comes != wanted {
            return Err(Breach::BridgeMismatch { other: format!("messages {comes:?}") });
        }
        match receive {
            Some(leg) => self.take_from(me, site, leg.node.index(), at.plus(leg.offset), 0..leg.n.0),
            None => Ok(()),
        }
    }
}

fn combined(operator: Operator, left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(left.len());
    operator.combine(left, right, &mut result);
    result
}
