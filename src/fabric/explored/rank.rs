//! One rank of a model.

use super::memory::{Buffers, Homes, Node};
use crate::coll::{Plan, REGISTRY, Running};
use crate::fabric::checked::{Mutation, Mutator, Operation, operations_by_step};
use crate::fabric::words::{Awaited, Entered, Fault, Words};
use crate::fabric::{BridgeStep, EXPOSURE, Exposed, Fabric, Lending, Line, Place, Room, Span};
use crate::sync::{Claims, Control, Flag, FlagLine, LastClaim, Passed, Stretch};
use crate::topo::{Layout, Levels};
use crate::types::{Bytes, CommRank, Epoch, NodeRank, Ticket};
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// What a rank that exposes memory writes beside its flag. It stands for a process and an address.
const EXPOSED: [u8; EXPOSURE.0] = [0xEE; EXPOSURE.0];

/// How a rank waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// It only polls what it waits for.
    Trusting,
    /// After each poll that finds nothing it also checks whether its peer has failed or gone on, as the real driver
    /// does after a while.
    Wary,
}

/// One rank of a model.
pub struct Rank {
    node: Arc<Node>,
    me: NodeRank,
    driver: Driver,
    /// Whether the system lets it read the memory of its peers.
    may_fetch: bool,
    /// Whether it lends its memory where its plan leaves that to it.
    may_lend: bool,
    levels: Levels,
    layout: Layout,
    claims: Claims,
    passed: Passed,
    state: Mutex<State>,
}

/// What changes from call to call. Only this rank's own thread locks it, so it may stay locked across operations of
/// loom.
struct State {
    entered: Option<Entered>,
    is_in_place: bool,
    buffers: Buffers,
    awaited: Awaited,
    fault: Option<Fault>,
    mutator: Mutator,
    /// Whether the rank has exposed memory in this call.
    has_exposed: bool,
}

impl Rank {
    /// Rank `me` of `node`, which makes the mistakes of `mutation`.
    pub fn new(node: Arc<Node>, me: NodeRank, driver: Driver, mutation: Option<Mutation>) -> Self {
        let (ranks, lines, slots) = (node.ranks(), node.lines, node.slots);
        let state = State {
            entered: None,
            is_in_place: false,
            buffers: Buffers::default(),
            awaited: Awaited::Nothing,
            fault: None,
            mutator: Mutator::new(mutation, ranks),
            has_exposed: false,
        };
        let passed = Passed::new(node.passed(), Bytes(1 << 20));
        if !passed.is_empty() {
            passed.take(me.0);
        }
        Self {
            node,
            me,
            driver,
            may_fetch: true,
            may_lend: true,
            levels: Levels::flat(ranks, me),
            layout: Layout::new(&vec![0; ranks], CommRank(me.0)),
            claims: Claims::new(lines, slots, slots),
            passed,
            state: Mutex::new(state),
        }
    }

    /// Makes this rank unable to read the memory of its peers.
    #[must_use]
    pub fn without_fetching(self) -> Self {
        Self { may_fetch: false, ..self }
    }

    /// Makes this rank keep its memory to itself where its plan leaves it to the rank whether to lend.
    #[must_use]
    pub fn without_lending(self) -> Self {
        Self { may_lend: false, ..self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entered(&self) -> Entered {
        self.state().entered.expect("within a call")
    }

    /// What the call waits for, and the fault that ends it, if there is one.
    fn outlook(&self) -> (Awaited, Option<Fault>) {
        let state = self.state();
        (state.awaited, state.fault)
    }

    /// Runs row `row` of the registry; returns the output.
    ///
    /// # Errors
    /// If a peer contradicts, or has failed; in the latter case this rank has failed the call too.
    pub fn call(&self, row: usize, plan: &Plan, buffers: Buffers) -> Result<Vec<u8>, Fault> {
        let entered = Entered::new(REGISTRY[row].collective, row, plan);
        let mut state = self.state();
        (state.entered, state.awaited, state.fault) = (Some(entered), Awaited::Nothing, None);
        (state.is_in_place, state.buffers) = (buffers.send.is_none(), buffers);
        drop(state);
        self.enter(&entered);
        let end = self.drive((REGISTRY[row].explored)(self, plan), entered);
        end.map(|()| std::mem::take(&mut self.state().buffers.recv))
    }

    /// Agrees on the memory for a call of row `row` that needs `depth` bytes of each cell. Returns whether all ranks
    /// could reserve theirs; `is_reserved` says whether this one could.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub fn agree_on_cells(&self, row: usize, plan: &Plan, depth: Bytes, is_reserved: bool) -> Result<bool, Fault> {
        let entered = Entered::new(REGISTRY[row].collective, row, plan);
        let wait = |awaited, look: &dyn Fn() -> Result<bool, Fault>| {
            while !look()? {
                if let Some(fault) = self.trouble(&entered, awaited) {
                    return Err(fault);
                }
                loom::thread::yield_now();
            }
            Ok(())
        };
        Words::agree_on_cells(self, &entered, depth, || is_reserved, wait)
    }

    /// Tells peers that this rank takes no part in `epoch`.
    pub fn fail(&self, epoch: Epoch) {
        Words::fail(self, epoch);
    }

    fn drive(&self, mut call: Running<'_>, entered: Entered) -> Result<(), Fault> {
        let mut task = Context::from_waker(Waker::noop());
        loop {
            let is_ready = call.as_mut().poll(&mut task).is_ready();
            let (awaited, fault) = self.outlook();
            let trouble = || match self.driver {
                Driver::Wary if !is_ready => self.trouble(&entered, awaited),
                _ => None,
            };
            if let Some(fault) = fault.or_else(trouble) {
                self.leave_with(entered.epoch, fault);
                return Err(fault);
            }
            if is_ready {
                if std::mem::take(&mut self.state().has_exposed) {
                    self.node.take_back(self.me);
                }
                Words::release(self, Ticket::last_of(entered.epoch));
                return Ok(());
            }
            loom::thread::yield_now();
        }
    }

    /// Performs what the mutation makes of `operation`; returns what that found.
    async fn step(&self, operation: Operation) -> bool {
        let (mut queue, mut found) = (Vec::new(), true);
        self.state().mutator.apply(self.me.index(), operation, &mut queue);
        for operation in queue {
            match operation {
                Operation::Claim(ticket, room) => self.until(Awaited::Slot { ticket, room }).await,
                Operation::Drain(cells) => self.drained(cells).await,
                Operation::Wait(rank, line, ticket) => self.until(Awaited::Flag { rank, line, ticket }).await,
                Operation::WaitPost(rank, ticket) => self.until(Awaited::Post { rank, ticket }).await,
                at_once => found = self.perform(at_once),
            }
        }
        found
    }

    fn until(&self, awaited: Awaited) -> impl Future<Output = ()> + Send {
        poll_fn(move |_| {
            let entered = self.entered();
            let reached = match awaited {
                Awaited::Slot { ticket, room } => {
                    let next = |cursor| {
                        let cell = cursor as usize % self.node.slots;
                        Stretch { home: Some(cell as u64), grains: cell..cell + 1, cursor: cursor + 1 }
                    };
                    Ok(Words::claim(self, ticket, room, entered.reach, entered.descriptor, next))
                }
                Awaited::Flag { rank, line, ticket } => {
                    self.has_come_of(&entered, rank, self.line(rank, line, ticket), ticket)
                }
                Awaited::Post { rank, ticket } => {
                    let post = Words::post(self, self.me, rank);
                    post.reached(ticket)
                        .map_or(Ok(false), |value| self.verify_post(&entered, rank, ticket, value).map(|()| true))
                }
                Awaited::Nothing | Awaited::Release { .. } | Awaited::Cells { .. } | Awaited::Bridge => Ok(true),
            };
            let mut state = self.state();
            state.awaited = awaited;
            state.fault = reached.err();
            if reached == Ok(true) { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    fn drained(&self, cells: usize) -> impl Future<Output = ()> + Send {
        poll_fn(move |_| {
            self.state().awaited = Awaited::Release { ticket: self.claims.claimed_ago(cells) };
            if self.is_drained(cells) { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    fn perform(&self, operation: Operation) -> bool {
        let descriptor = self.entered().descriptor;
        let homes: Homes<'_> = &|rank, line, ticket| self.home(rank, line, ticket);
        match operation {
            Operation::Release(ticket) => Words::release(self, ticket),
            Operation::Publish(line, ticket) => Words::publish(self, line, ticket, descriptor),
            Operation::Post(rank, ticket) => Words::post(self, rank, self.me).publish(ticket),
            Operation::Copy { to, from, n } => {
                let buffers = &mut self.state().buffers;
                let bytes = self.node.load(buffers, homes, from, n);
                self.node.store(buffers, homes, to, &bytes);
            }
            Operation::Reduce { to, left, right, n } => {
                let buffers = &mut self.state().buffers;
                let [left, right] = [left, right].map(|operand| self.node.load(buffers, homes, operand, n));
                let sum = |(left, right): (&u8, &u8)| left.wrapping_add(*right);
                let sums: Vec<u8> = left.iter().zip(&right).map(sum).collect();
                self.node.store(buffers, homes, to, &sums);
            }
            Operation::Expose(line, ticket, from) => {
                let state = &mut *self.state();
                self.node.expose(&mut state.buffers, (self.me, line), from);
                state.has_exposed = true;
                let beside = Place::Payload { rank: self.me, line, ticket }.start();
                self.node.store(&mut state.buffers, homes, beside, &EXPOSED);
                self.line(self.me, line, ticket).tell_of_memory(ticket);
            }
            Operation::IsExposed(rank, line, ticket) => {
                return self.line(rank, line, ticket).tells_of_memory(ticket);
            }
            Operation::Fetch { to, from: Exposed { rank, line, ticket, offset }, n } => {
                let buffers = &mut self.state().buffers;
                let beside = Place::Payload { rank, line, ticket }.start();
                assert_eq!(self.node.load(buffers, homes, beside, Bytes(EXPOSED.len())), EXPOSED);
                if self.may_fetch {
                    let bytes = self.node.fetch((rank, line), offset, n);
                    self.node.store(buffers, homes, to, &bytes);
                }
                return self.may_fetch;
            }
            Operation::Answer(line, ticket, answer) => {
                let beside = Place::Payload { rank: self.me, line, ticket }.start();
                self.node.store(&mut self.state().buffers, homes, beside, &[u8::from(answer)]);
            }
            Operation::Answered(rank, line, ticket) => {
                let beside = Place::Payload { rank, line, ticket }.start();
                return self.node.load(&mut self.state().buffers, homes, beside, Bytes(1)) == [1];
            }
            other => unreachable!("{other} at once on one node"),
        }
        true
    }
}

impl Words for Rank {
    fn me(&self) -> NodeRank {
        self.me
    }

    fn ranks(&self) -> usize {
        self.node.ranks()
    }

    fn claims(&self) -> &Claims {
        &self.claims
    }

    fn passed(&self) -> &Passed {
        &self.passed
    }

    fn home_of_passed(&self, _: NodeRank, cell: u32) -> u64 {
        self.node.slots as u64 + u64::from(cell)
    }

    fn passed_at(&self, _: NodeRank, home: u64) -> Option<u32> {
        home.checked_sub(self.node.slots as u64).map(|cell| cell as u32)
    }

    fn control(&self, rank: NodeRank) -> &Control {
        self.node.control(rank)
    }

    fn line(&self, rank: NodeRank, line: Line, ticket: Ticket) -> &FlagLine {
        self.node.line(rank, line, ticket)
    }

    fn post(&self, to: NodeRank, from: NodeRank) -> &Flag {
        self.node.post(to, from)
    }

    fn last_claim(&self, rank: NodeRank, ticket: Ticket) -> &LastClaim {
        self.node.last_claim(rank, ticket)
    }
}

impl Fabric for Rank {
    fn rank(&self) -> NodeRank {
        self.me
    }

    fn size(&self) -> usize {
        self.node.ranks()
    }

    fn levels(&self) -> &Levels {
        &self.levels
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn cell_bytes(&self) -> Bytes {
        self.node.cell
    }

    fn slots(&self) -> usize {
        self.node.slots
    }

    fn is_in_place(&self) -> bool {
        self.state().is_in_place
    }

    fn decide_to_lend(&self, from: Option<Span>, _: Bytes, lending: Lending) -> bool {
        from.is_some() && (lending == Lending::Always || self.may_lend)
    }

    operations_by_step!();
}
