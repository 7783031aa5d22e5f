//! The machine that all ranks of a program share: who may go on, and what each operation does and breaks.

use super::bridge::Rendezvous;
use super::clocks::{Clocks, History, Stamp};
use super::memory::{Buffers, Memory};
use super::mutation::{Change, Mutator};
use super::operation::Operation;
use super::operator::Operator;
use super::slots::Rings;
use super::transfer::Location;
use super::violation::{Breach, Violation};
use crate::coll::Plan;
use crate::fabric::{BridgeStep, Line, Room};
use crate::sync::Passed;
use crate::topo::Layout;
use crate::types::{Bytes, CommRank, Epoch, NodeIndex, NodeRank, Ticket};
use std::collections::BTreeMap;

/// What the machine knows of one rank.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) node: usize,
    pub(super) node_rank: NodeRank,
    pub(super) epoch: Epoch,
    pub(super) operator: Option<Operator>,
    /// How much of each cell the call may use.
    pub(super) depth: Bytes,
    /// How many tickets the call may draw.
    tickets: u64,
    pub(super) memory: Memory,
    pub(super) rings: Rings,
    released: History,
    /// By poster: what it has posted to this rank.
    posts: BTreeMap<usize, History>,
    /// Which of its node's leaders it is.
    pub(super) leader: Option<usize>,
    /// The step between nodes that the rank has begun, and in `lent` the memory of that step.
    pub(super) step: Option<BridgeStep>,
    pub(super) lent: Vec<Location>,
    /// What peers fetched from its memory in this call, by which peer, and when.
    pub(super) fetches: Vec<(Location, usize, Stamp)>,
    pub(super) is_in_call: bool,
    /// What the last operation found, if it looks for something.
    found: bool,
    /// When it entered each call.
    entered: Vec<(Epoch, Stamp)>,
    /// The operations that it has submitted and that were not performed yet, in order.
    queue: Vec<Operation>,
    /// Whether it waits for something that has not happened.
    is_blocked: bool,
    is_done: bool,
}

/// See the module. Ranks are indices by `CommRank`.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) members: Vec<Member>,
    /// By node, its ranks in order.
    pub(super) nodes: Vec<Vec<usize>>,
    pub(super) clocks: Clocks,
    /// By index of the leaders.
    pub(super) bridges: Vec<Rendezvous>,
    /// Buffers for the operands and the result of the operation at hand.
    pub(super) spare: [Vec<u8>; 3],
    /// One fetch in this many is not possible; for 0 all are possible.
    pub(super) misses: u64,
    mutator: Mutator,
    ready: Vec<usize>,
    violation: Option<Violation>,
    operations: u64,
}

impl Machine {
    pub(super) fn new(layout: &Layout, rings: &Rings, misses: u64, mutator: Mutator) -> Self {
        let nodes = (0..layout.nodes() as u32).map(NodeIndex);
        let nodes: Vec<Vec<usize>> =
            nodes.map(|node| layout.members(node).iter().map(|rank| rank.index()).collect()).collect();
        let size = layout.size();
        let mut places = vec![(0, 0); size];
        for (node, ranks) in nodes.iter().enumerate() {
            ranks.iter().enumerate().for_each(|(at, rank)| places[*rank] = (node, at));
        }
        let member = |(node, at): (usize, usize)| Member {
            node,
            node_rank: NodeRank(at as u32),
            epoch: Epoch(0),
            operator: None,
            depth: Bytes::ZERO,
            tickets: 0,
            memory: Memory::default(),
            rings: rings.clone(),
            released: History::default(),
            posts: BTreeMap::new(),
            leader: layout.leader_index(NodeIndex(node as u32), NodeRank(at as u32)),
            step: None,
            lent: Vec::new(),
            fetches: Vec::new(),
            is_in_call: false,
            found: true,
            entered: Vec::new(),
            queue: Vec::new(),
            is_blocked: false,
            is_done: false,
        };
        Self {
            members: places.into_iter().map(member).collect(),
            bridges: (0..layout.leaders()).map(|_| Rendezvous::new(nodes.len())).collect(),
            nodes,
            clocks: Clocks::new(size),
            spare: Default::default(),
            misses,
            mutator,
            ready: Vec::new(),
            violation: None,
            operations: 0,
        }
    }

    /// Operations that took effect.
    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    /// Those of the sought changes that would have fitted an operation.
    pub(super) fn occasions(&self) -> Vec<Change> {
        self.mutator.occasions().to_vec()
    }

    /// How often the mutation changed something.
    pub(super) fn mutated(&self) -> u64 {
        self.mutator.hits()
    }

    /// The ranks that can go on, each once. The caller removes a rank and polls it; the rank is there again afterwards
    /// if it can still go on.
    pub(super) fn ready(&mut self) -> Result<&mut Vec<usize>, Violation> {
        match self.violation.take() {
            Some(violation) => Err(violation),
            None => Ok(&mut self.ready),
        }
    }

    /// `me` enters a call of this plan, which may draw `tickets` tickets.
    pub(super) fn begin(&mut self, me: usize, plan: &Plan, tickets: u64, operator: Option<Operator>, buffers: Buffers) {
        let (epoch, stamp) = (plan.epoch, self.clocks.stamp(me));
        let member = &mut self.members[me];
        (member.epoch, member.depth, member.tickets, member.is_in_call) = (epoch, plan.reach, tickets, true);
        member.operator = operator;
        member.memory = Memory::new(buffers);
        member.entered.push((epoch, stamp));
        self.ready.push(me);
    }

    /// `me` leaves its call, and releases all of its tickets.
    pub(super) fn end(&mut self, me: usize) {
        if self.members[me].step.is_some() {
            self.accuse(me, "return".into(), Breach::StepUnderWay);
        }
        if let Err(breach) = self.check_fetches(me, |_| true) {
            self.accuse(me, "return".into(), breach);
        }
        self.members[me].fetches.clear();
        self.members[me].is_in_call = false;
        let epoch = self.members[me].epoch;
        if let Err(breach) = self.release(me, Ticket::last_of(epoch)) {
            self.accuse(me, "driver's release".into(), breach);
        }
    }

    /// `me` has left its last call.
    pub(super) fn finish(&mut self, me: usize) {
        self.members[me].is_done = true;
    }

    /// A rank that, as far as `me` can know, may not have entered call `epoch` by now; `None` if all have.
    pub(super) fn not_entered(&self, me: usize, epoch: Epoch) -> Option<CommRank> {
        let has_entered = |rank: usize| {
            let entries = &self.members[rank].entered;
            entries.iter().any(|(call, stamp)| *call == epoch && self.clocks.knows(me, rank, *stamp))
        };
        (0..self.members.len()).find(|rank| !has_entered(*rank)).map(|rank| CommRank(rank as u32))
    }

    /// Records that `me` broke a rule; only the first breach of a run counts.
    pub(super) fn accuse(&mut self, me: usize, operation: String, breach: Breach) {
        let (rank, epoch) = (CommRank(me as u32), self.members[me].epoch);
        self.violation.get_or_insert(Violation { rank, epoch, operation, breach });
    }

    /// The violation where no rank can go on.
    pub(super) fn deadlock(&self) -> Violation {
        let waiting = self.members.iter().enumerate().filter(|(_, member)| !member.is_done);
        let waiting: Vec<(usize, String)> = waiting
            .map(|(rank, member)| {
                let what = member.queue.first().map_or("nothing".into(), Operation::to_string);
                let (node, at) = (member.node, member.node_rank.0);
                (rank, format!("rank {rank} (node {node}, rank {at}), call {}: {what}", member.epoch.0))
            })
            .collect();
        let first = waiting.first().map_or(0, |(rank, _)| *rank);
        Violation {
            rank: CommRank(first as u32),
            epoch: self.members[first].epoch,
            operation: self.members[first].queue.first().map(Operation::to_string).unwrap_or_default(),
            breach: Breach::Deadlock { waiting: waiting.into_iter().map(|(_, line)| line).collect() },
        }
    }

    /// Queues `operation` of `me`, to be performed when its turn comes.
    ///
    /// # Panics
    /// If an earlier operation of `me` is not complete: a rank does one thing at a time.
    pub(super) fn submit(&mut self, me: usize, operation: Operation) {
        assert!(self.members[me].queue.is_empty(), "a rank awaits one operation at a time");
        let mut queue = std::mem::take(&mut self.members[me].queue);
        if let Some((ticket, room)) = self.mutator.apply(me, operation, &mut queue) {
            self.members[me].rings.claim(ticket, room);
        }
        self.members[me].queue = queue;
        self.settle(me);
    }

    /// What the last operation of `me` found; true where it does not look for anything.
    pub(super) fn found(&self, me: usize) -> bool {
        self.members[me].found
    }

    /// Performs the next operation in the queue of `me`; returns whether the queue is then empty.
    pub(super) fn perform(&mut self, me: usize) -> bool {
        self.members[me].found = true;
        let Some(operation) = self.members[me].queue.first().copied() else {
            return true;
        };
        self.operations += 1;
        if let Err(breach) = self.effect(me, operation) {
            self.accuse(me, operation.to_string(), breach);
            return false;
        }
        self.members[me].queue.remove(0);
        if self.members[me].queue.is_empty() {
            return true;
        }
        self.settle(me);
        false
    }

    /// Puts `me` among the ready or the blocked ranks.
    fn settle(&mut self, me: usize) {
        let is_enabled = self.members[me].queue.first().is_none_or(|operation| self.is_enabled(me, *operation));
        self.members[me].is_blocked = !is_enabled;
        if is_enabled {
            self.ready.push(me);
        }
    }

    /// Looks again at the blocked ranks of a node.
    fn wake(&mut self, node: usize) {
        for at in 0..self.nodes[node].len() {
            let rank = self.nodes[node][at];
            if self.members[rank].is_blocked {
                self.settle(rank);
            }
        }
    }

    /// Whether the operation can take effect now. Once it can, it always can.
    fn is_enabled(&self, me: usize, operation: Operation) -> bool {
        let member = &self.members[me];
        match operation {
            Operation::Claim(ticket, room) => match member.rings.next(ticket, room).written {
                // A rank that holds up its own claim must not hide among the blocked: the claim then reports that.
                Some(held) if self.has_released(me, held) => self.peers(me).all(|peer| self.has_released(peer, held)),
                _ => true,
            },
            Operation::Drain(cells) => match member.rings.written_ago(cells) {
                Some(held) => self.peers(me).all(|peer| self.has_released(peer, held)),
                None => true,
            },
            Operation::WaitPost(rank, ticket) => match self.nodes[member.node].get(rank.index()) {
                Some(poster) => member.posts.get(poster).is_some_and(|posts| posts.reached(ticket)),
                None => true,
            },
            Operation::Wait(rank, line, ticket) => match self.nodes[member.node].get(rank.index()) {
                Some(owner) => self.members[*owner].rings.flag(line, ticket).reached(ticket),
                None => true,
            },
            Operation::BridgeEnd => match (member.step, member.leader) {
                (Some(_), Some(line)) => self.bridges[line].is_complete(member.node),
                _ => true,
            },
            _ => true,
        }
    }

    fn effect(&mut self, me: usize, operation: Operation) -> Result<(), Breach> {
        match operation {
            Operation::Claim(ticket, room) => self.claim(me, ticket, room)?,
            Operation::Release(ticket) => {
                self.check_epoch(me, ticket)?;
                self.release(me, ticket)?;
            }
            Operation::Publish(line, ticket) => self.publish(me, line, ticket)?,
            Operation::Wait(rank, line, ticket) => self.wait(me, rank, line, ticket)?,
            Operation::Drain(cells) => self.drain(me, cells),
            Operation::Post(rank, ticket) => self.post(me, rank, ticket)?,
            Operation::WaitPost(rank, ticket) => {
                self.check_epoch(me, ticket)?;
                let poster = self.peer(me, rank)?;
                let posts = self.members[me].posts.get(&poster);
                let snapshot = posts.and_then(|posts| posts.first_reaching(ticket));
                self.clocks.join(me, snapshot.expect("a wait takes effect when its post is there"));
            }
            Operation::Copy { to, from, n } => self.copy(me, to, from, n)?,
            Operation::Reduce { to, left, right, n } => self.reduce(me, to, left, right, n)?,
            Operation::Expose(line, ticket, from) => self.expose(me, line, ticket, from)?,
            Operation::IsExposed(rank, line, ticket) => {
                self.members[me].found = self.is_exposed(me, rank, line, ticket)?
            }
            Operation::Fetch { to, from, n } => self.members[me].found = self.fetch(me, to, from, n)?,
            Operation::Answer(line, ticket, answer) => self.answer(me, line, ticket, answer)?,
            Operation::Answered(rank, line, ticket) => {
                self.members[me].found = self.answered(me, rank, line, ticket)?
            }
            Operation::BridgeBegin(step) => {
                self.begin_step(me, step)?;
                (0..self.nodes.len()).for_each(|node| self.wake(node));
            }
            Operation::BridgeEnd => self.end_step(me)?,
        }
        Ok(())
    }

    fn claim(&mut self, me: usize, ticket: Ticket, room: Room) -> Result<(), Breach> {
        self.check_epoch(me, ticket)?;
        let position = self.members[me].rings.next(ticket, room);
        if let Some(before) = position.claimed.filter(|before| *before > ticket) {
            return Err(Breach::OutOfOrder { before });
        }
        if let Some(held) = position.written {
            for at in 0..self.nodes[self.members[me].node].len() {
                let peer = self.nodes[self.members[me].node][at];
                if peer == me {
                    continue;
                }
                if !self.has_released(me, held) {
                    return Err(Breach::Lookahead { held });
                }
                let snapshot = self.members[peer].released.first_reaching(held);
                self.clocks.join(me, snapshot.expect("a claim takes effect when all peers have released"));
            }
        }
        self.members[me].rings.claim(ticket, room);
        if room == Room::Passed && self.only_peer(me).is_some() {
            self.members[me].rings.pass(ticket);
        }
        Ok(())
    }

    /// Joins the peers' releases of what `me` wrote to the cell that it claimed `cells` claims ago.
    fn drain(&mut self, me: usize, cells: usize) {
        let Some(held) = self.members[me].rings.written_ago(cells) else { return };
        for at in 0..self.nodes[self.members[me].node].len() {
            let peer = self.nodes[self.members[me].node][at];
            if peer != me {
                let snapshot = self.members[peer].released.first_reaching(held);
                self.clocks.join(me, snapshot.expect("it takes effect when all peers have released"));
            }
        }
    }

    fn post(&mut self, me: usize, rank: NodeRank, ticket: Ticket) -> Result<(), Breach> {
        self.check_epoch(me, ticket)?;
        let target = self.peer(me, rank)?;
        let snapshot = self.clocks.announce(me);
        let posts = self.members[target].posts.entry(me).or_default();
        if let Some(before) = posts.latest().filter(|before| *before >= ticket) {
            return Err(Breach::OutOfOrder { before });
        }
        posts.push(ticket, snapshot);
        self.wake(self.members[me].node);
        Ok(())
    }

    fn release(&mut self, me: usize, ticket: Ticket) -> Result<(), Breach> {
        if let Some(before) = self.members[me].released.latest().filter(|before| *before >= ticket) {
            return Err(Breach::OutOfOrder { before });
        }
        if let Some(peer) = self.only_peer(me) {
            let clocks = &self.clocks;
            self.members[peer].rings.take_passed(ticket, |stamp| clocks.knows(me, peer, stamp))?;
        }
        let snapshot = self.clocks.announce(me);
        self.members[me].released.push(ticket, snapshot);
        self.wake(self.members[me].node);
        Ok(())
    }

    fn publish(&mut self, me: usize, line: Line, ticket: Ticket) -> Result<(), Breach> {
        self.check_epoch(me, ticket)?;
        let before = self.members[me].rings.flag(line, ticket).latest();
        if let Some(before) = before.filter(|before| *before >= ticket) {
            return Err(Breach::OutOfOrder { before });
        }
        let stamp = self.clocks.stamp(me);
        let snapshot = self.clocks.announce(me);
        self.members[me].rings.publish(line, ticket, stamp, snapshot);
        self.wake(self.members[me].node);
        Ok(())
    }

    fn wait(&mut self, me: usize, rank: NodeRank, line: Line, ticket: Ticket) -> Result<(), Breach> {
        self.check_epoch(me, ticket)?;
        let owner = self.peer(me, rank)?;
        let snapshot = self.members[owner].rings.flag(line, ticket).first_reaching(ticket);
        self.clocks.join(me, snapshot.expect("a wait takes effect when its flag is up"));
        self.members[owner].rings.tell_of_pass(ticket);
        Ok(())
    }

    /// The index of a rank of the same node.
    pub(super) fn peer(&self, me: usize, rank: NodeRank) -> Result<usize, Breach> {
        self.nodes[self.members[me].node].get(rank.index()).copied().ok_or(Breach::NoSuchRank(rank))
    }

    /// Whether `me` has promised not to read slots of `ticket` any more.
    pub(super) fn has_released(&self, me: usize, ticket: Ticket) -> bool {
        self.members[me].released.reached(ticket)
    }

    pub(super) fn check_epoch(&self, me: usize, ticket: Ticket) -> Result<(), Breach> {
        let Member { epoch, tickets: most, .. } = self.members[me];
        if ticket.epoch() != epoch {
            return Err(Breach::WrongEpoch(ticket));
        }
        if ticket.step() < most { Ok(()) } else { Err(Breach::TooManyTickets { most }) }
    }

    /// The peer to which `me` passes cells, if it passes any.
    fn only_peer(&self, me: usize) -> Option<usize> {
        self.peers(me).next().filter(|_| Passed::is_for(self.nodes[self.members[me].node].len()))
    }

    fn peers(&self, me: usize) -> impl Iterator<Item = usize> + '_ {
        self.nodes[self.members[me].node].iter().copied().filter(move |peer| *peer != me)
    }
}
