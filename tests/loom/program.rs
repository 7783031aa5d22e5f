//! Programs: successive calls of algorithms of the registry by ranks that are threads of a model.

use huddle::coll::{Knob, Knobs, Plan, REGISTRY, find};
use huddle::fabric::checked::Mutation;
use huddle::fabric::explored::{Buffers, Driver, Node, Rank};
use huddle::types::{Bytes, Collective, CommRank, Epoch, NodeRank, OperandOrder};
use std::sync::Arc;

/// Usual number of slots of each rank.
const SLOTS: usize = 2;
/// Shortest tile.
const TILE: u32 = 8;

/// One call of a program.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub row: usize,
    /// Bytes as in [`Plan::bytes`], a multiple of 8.
    pub bytes: usize,
    pub root: u32,
    pub is_in_place: bool,
    pub knobs: Knobs,
}

/// Binary trees and short tiles.
pub const KNOBS: Knobs = Knobs::UNSET.with(Knob::Radix, 2).with(Knob::Tile, TILE);

impl Call {
    /// Algorithm `name` of `collective`, with rank 0 as its root.
    pub fn new(collective: Collective, name: &str, bytes: usize) -> Self {
        let row = find(collective, name).expect("an algorithm");
        Self { row, bytes, root: 0, is_in_place: false, knobs: KNOBS }
    }

    pub fn rooted(self, root: u32) -> Self {
        Self { root, ..self }
    }

    pub fn in_place(self) -> Self {
        Self { is_in_place: true, ..self }
    }

    fn collective(&self) -> Collective {
        REGISTRY[self.row].collective
    }

    /// The plan of this call as the `epoch`th one.
    pub fn plan(&self, epoch: u64) -> Plan {
        Plan {
            epoch: Epoch(epoch),
            bytes: Bytes(self.bytes),
            granule: Bytes(8),
            root: CommRank(self.root),
            order: OperandOrder::Any,
            knobs: self.knobs,
            scratch: Bytes::ZERO,
            reach: Bytes(self.bytes),
        }
    }
}

/// What `rank` contributes to the `epoch`th call.
fn input(epoch: u64, rank: u32, n: usize) -> impl Iterator<Item = u8> {
    (0..n).map(move |at| (1 + 67 * epoch as usize + 29 * rank as usize + 5 * at) as u8)
}

/// A program: the ranks, their rings, and the calls that they make.
#[derive(Clone, Debug)]
pub struct Program {
    pub ranks: u32,
    pub lines: usize,
    pub slots: usize,
    pub cell: usize,
    pub calls: Vec<Call>,
    pub driver: Driver,
    /// Whether ranks may read each other's memory; a rank finds out only when it tries.
    pub may_fetch: bool,
    /// How many ranks lend their memory where each may choose: the first ones.
    pub lenders: u32,
    pub mutation: Option<Mutation>,
    /// The most preemptions; all orders if `None`.
    pub preemptions: Option<usize>,
}

impl Program {
    /// Two ranks that trust each other, in all orders of at most two preemptions.
    pub fn of(calls: impl Into<Vec<Call>>) -> Self {
        let (cell, calls) = (64, calls.into());
        let (driver, may_fetch, mutation) = (Driver::Trusting, true, None);
        let (ranks, lenders, lines, slots) = (2, u32::MAX, SLOTS, SLOTS);
        Self { ranks, lines, slots, cell, calls, driver, may_fetch, lenders, mutation, preemptions: Some(2) }
    }

    /// Runs the program in every order.
    ///
    /// # Panics
    /// If, in some order, accesses race, a result is wrong or no rank can go on.
    pub fn explore(self) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = self.preemptions;
        model.max_branches = 20_000;
        let program = Arc::new(self);
        model.check(move || program.run());
    }

    fn run(self: &Arc<Self>) {
        let node = Arc::new(Node::new(self.ranks as usize, self.lines, self.slots, Bytes(self.cell)));
        let start = |me| {
            let (program, node) = (Arc::clone(self), Arc::clone(&node));
            loom::thread::spawn(move || program.run_as(me, node))
        };
        let others: Vec<_> = (1..self.ranks).map(start).collect();
        self.run_as(0, Arc::clone(&node));
        others.into_iter().for_each(|other| other.join().unwrap());
    }

    fn run_as(&self, me: u32, node: Arc<Node>) {
        let rank = Rank::new(node, NodeRank(me), self.driver, self.mutation);
        let rank = if self.may_fetch { rank } else { rank.without_fetching() };
        let rank = if me < self.lenders { rank } else { rank.without_lending() };
        for (call, epoch) in self.calls.iter().zip(1..) {
            let result = rank.call(call.row, &call.plan(epoch), self.buffers(call, epoch, me));
            let found = result.unwrap_or_else(|fault| panic!("{fault:?} in {call:?} on rank {me}"));
            if let Some(expected) = self.result(call, epoch, me) {
                assert!(found == expected, "wrong result of {call:?} on rank {me}");
            }
        }
    }

    /// The buffers of `me` before the call.
    fn buffers(&self, call: &Call, epoch: u64, me: u32) -> Buffers {
        let (n, is_root) = (call.bytes, call.root == me);
        let all = n * self.ranks as usize;
        let own = || input(epoch, me, n).collect();
        let (send, recv) = match call.collective() {
            Collective::Barrier => (Vec::new(), Vec::new()),
            Collective::Bcast if is_root => (Vec::new(), own()),
            Collective::Scatter if is_root => (input(epoch, me, all).collect(), vec![0; n]),
            Collective::Bcast | Collective::Scatter => (Vec::new(), vec![0; n]),
            Collective::Allgather => (own(), vec![0; all]),
            Collective::Allreduce | Collective::Reduce => (own(), vec![0; n]),
        };
        if !call.is_in_place {
            return Buffers { send: Some(send), recv, send_at: 0 };
        }
        let send_at = if call.collective() == Collective::Allgather { n * me as usize } else { 0 };
        let mut both = recv;
        both[send_at..][..n].copy_from_slice(&send);
        Buffers { send: None, recv: both, send_at }
    }

    /// What `me` must have received; `None` if it receives nothing.
    fn result(&self, call: &Call, epoch: u64, me: u32) -> Option<Vec<u8>> {
        let (n, ranks) = (call.bytes, self.ranks);
        let sum = || {
            let add =
                |sum: Vec<u8>, rank| sum.iter().zip(input(epoch, rank, n)).map(|(a, b)| a.wrapping_add(b)).collect();
            (1..ranks).fold(input(epoch, 0, n).collect(), add)
        };
        match call.collective() {
            Collective::Barrier => None,
            Collective::Bcast => Some(input(epoch, call.root, n).collect()),
            Collective::Scatter => {
                Some(input(epoch, call.root, n * ranks as usize).skip(n * me as usize).take(n).collect())
            }
            Collective::Allgather => Some((0..ranks).flat_map(|rank| input(epoch, rank, n)).collect()),
            Collective::Reduce if call.root != me => None,
            Collective::Reduce | Collective::Allreduce => Some(sum()),
        }
    }
}
