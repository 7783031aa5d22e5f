//! The steps between nodes, within one process: every leader gets what its step promises, and no more.

use crate::operation::Operation;
use huddle::fabric::shm::Bridge;
use huddle::fabric::{BridgeStep, Leg};
use huddle::topo::Layout;
use huddle::types::{Bytes, NodeIndex};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// What all leaders of a communicator share.
pub struct Switch {
    layout: Layout,
    state: Mutex<State>,
}

struct State {
    /// Steps that some node has yet to finish.
    steps: VecDeque<Step>,
    /// Steps that all nodes have finished.
    finished: usize,
    /// Steps that each node has started.
    started: Vec<usize>,
}

struct Step {
    what: BridgeStep,
    /// What each node brings.
    brought: Vec<Option<Vec<u8>>>,
    left: usize,
}

impl Switch {
    pub fn new(layout: &Layout) -> Self {
        let nodes = layout.nodes();
        let state = State { steps: VecDeque::new(), finished: 0, started: vec![0; nodes] };
        Self { layout: layout.clone(), state: Mutex::new(state) }
    }
}

/// One leader's access to the switch, for one call.
pub struct Port {
    switch: Arc<Switch>,
    node: NodeIndex,
    operation: Option<Operation>,
    /// The step under way: what, where the data lie, and its number.
    pending: Mutex<Option<(BridgeStep, usize, usize)>>,
}

impl Port {
    pub fn new(switch: Arc<Switch>, node: NodeIndex, operation: Option<Operation>) -> Self {
        Self { switch, node, operation, pending: Mutex::new(None) }
    }

    /// Offset and length of a node's blocks.
    fn blocks(&self, node: usize, block: Bytes) -> (usize, usize) {
        let node = NodeIndex(node as u32);
        (self.switch.layout.first(node) * block.0, self.switch.layout.members(node).len() * block.0)
    }

    /// Offset and length of what this node brings.
    fn brings(&self, step: BridgeStep) -> (usize, usize) {
        match step {
            BridgeStep::Barrier => (0, 0),
            BridgeStep::Allreduce { n, .. } | BridgeStep::Reduce { n, .. } => (0, n.0),
            BridgeStep::Bcast { n, root, .. } => (0, if root == self.node { n.0 } else { 0 }),
            BridgeStep::Allgather { block, .. } => self.blocks(self.node.index(), block),
            BridgeStep::Scatter { block, root, .. } => {
                (0, if root == self.node { block.0 * self.switch.layout.size() } else { 0 })
            }
            BridgeStep::SendRecv { send, .. } => send.map_or((0, 0), |leg| (leg.offset.0, leg.n.0)),
        }
    }

    /// What this node gets in its part `mine` of a step, as (offset, data); `None` while something is missing.
    fn gets(&self, mine: BridgeStep, step: &Step) -> Option<Vec<(usize, Vec<u8>)>> {
        let brought = |node: usize| step.brought[node].clone();
        let all = || step.brought.iter().cloned().collect::<Option<Vec<_>>>();
        let combined = |all: Vec<Vec<u8>>| {
            let operation = self.operation.expect("a reduction has an operation");
            all.into_iter().reduce(|left, right| operation.combined(&left, &right)).expect("there is a node")
        };
        if let BridgeStep::SendRecv { receive, .. } = mine {
            let message = |leg: Leg| {
                let data = brought(leg.node.index())?;
                assert_eq!(data.len(), leg.n.0, "a message of another length");
                Some(vec![(leg.offset.0, data)])
            };
            return receive.map_or(Some(Vec::new()), message);
        }
        Some(match step.what {
            BridgeStep::Barrier => all().map(|_| Vec::new())?,
            BridgeStep::Allreduce { .. } => vec![(0, combined(all()?))],
            BridgeStep::Reduce { root, .. } if root == self.node => vec![(0, combined(all()?))],
            // Undefined on nodes other than the root's.
            BridgeStep::Reduce { n, .. } => vec![(0, vec![0xDD; n.0])],
            BridgeStep::Bcast { root, .. } if root == self.node => Vec::new(),
            BridgeStep::Bcast { root, .. } => vec![(0, brought(root.index())?)],
            BridgeStep::Allgather { block, .. } => {
                let place = |(node, data)| (self.blocks(node, block).0, data);
                all()?.into_iter().enumerate().map(place).collect()
            }
            BridgeStep::SendRecv { .. } => unreachable!("messages are of pairs"),
            BridgeStep::Scatter { root, .. } if root == self.node => Vec::new(),
            BridgeStep::Scatter { root, block, .. } => {
                let (offset, n) = self.blocks(self.node.index(), block);
                vec![(offset, brought(root.index())?[offset..offset + n].to_vec())]
            }
        })
    }
}

/// Whether both are the same step; the data may lie at another place on each node.
fn agree(left: BridgeStep, right: BridgeStep) -> bool {
    let key = |step| match step {
        BridgeStep::Barrier => (0, 0, 0),
        BridgeStep::Allreduce { n, .. } => (1, n.0, 0),
        BridgeStep::Reduce { n, root, .. } => (2, n.0, root.0),
        BridgeStep::Bcast { n, root, .. } => (3, n.0, root.0),
        BridgeStep::Allgather { block, .. } => (4, block.0, 0),
        BridgeStep::Scatter { block, root, .. } => (5, block.0, root.0),
        BridgeStep::SendRecv { .. } => (6, 0, 0),
    };
    key(left) == key(right)
}

impl Bridge for Port {
    unsafe fn start(&self, step: BridgeStep, at: *mut u8) {
        let (offset, n) = self.brings(step);
        let mut data = vec![0; n];
        if n > 0 {
            // SAFETY: the caller promises that the data of the step lie at `at`.
            unsafe { data.as_mut_ptr().copy_from_nonoverlapping(at.add(offset), n) };
        }
        let state = &mut *self.switch.state.lock().expect("no leader has failed");
        let node = self.node.index();
        let number = state.started[node];
        state.started[node] += 1;
        let index = number - state.finished;
        if index == state.steps.len() {
            state.steps.push_back(Step { what: step, brought: vec![None; state.started.len()], left: 0 });
        }
        assert!(agree(state.steps[index].what, step), "{:?} against {step:?}", state.steps[index].what);
        state.steps[index].brought[node] = Some(data);
        let before = self.pending.lock().expect("one thread").replace((step, at as usize, number));
        assert!(before.is_none(), "one step at a time");
    }

    fn is_done(&self) -> bool {
        let pending = &mut *self.pending.lock().expect("one thread");
        let (mine, at, number) = pending.expect("a step was started");
        let state = &mut *self.switch.state.lock().expect("no leader has failed");
        let index = number - state.finished;
        let Some(got) = self.gets(mine, &state.steps[index]) else {
            return false;
        };
        for (offset, data) in got {
            // SAFETY: the caller of `start` promised that the data of the step lie at `at` until it is done.
            unsafe { (at as *mut u8).add(offset).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        }
        *pending = None;
        state.steps[index].left += 1;
        while state.steps.front().is_some_and(|step| step.left == state.started.len()) {
            state.steps.pop_front();
            state.finished += 1;
        }
        true
    }
}
