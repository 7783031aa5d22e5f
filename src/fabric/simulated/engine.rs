//! Ranks on virtual time.

use super::machine::{Placement, between};
use super::turns::{Obstacle, Turns};
use crate::coll::{Measures, Plan, Row};
use crate::fabric::checked::{Operation, operations_by_step};
use crate::fabric::{BridgeStep, Exposed, Fabric, Lending, Line, Place, Room, Source, Span};
use crate::model::{Machine, Nanos, SingleCopy, Work};
use crate::topo::{Layout, Levels};
use crate::types::{Bytes, CommRank, LINE, NodeIndex, NodeRank, Ticket};
use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A call of one rank, under way.
pub(super) type Running<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One rank of a simulated machine.
#[derive(Debug)]
pub struct Rank {
    me: usize,
    node_rank: NodeRank,
    levels: Levels,
    layout: Layout,
    cell: Bytes,
    slots: usize,
    /// Whether the rank decided last to lend its memory. All ranks decide alike, since they find the same in the plan.
    all_lend: AtomicBool,
    world: Arc<Mutex<World>>,
}

/// The tickets that were announced through one word, in growing order, and when.
type Announced = Vec<(Ticket, f64)>;

/// When `ticket` or a later one was announced first.
fn reached(announced: Option<&Announced>, ticket: Ticket) -> Option<f64> {
    let announced = announced?;
    announced.get(announced.partition_point(|(found, _)| *found < ticket)).map(|(_, time)| *time)
}

#[derive(Debug)]
struct World {
    machine: Machine,
    placement: Placement,
    layout: Layout,
    /// By rank: its time, and in `next` the operation that it does next.
    now: Vec<f64>,
    next: Vec<Option<Operation>>,
    turns: Turns,
    /// By owner, line and position.
    flags: HashMap<(usize, usize, usize), Announced>,
    released: Vec<Announced>,
    /// By poster and receiver.
    posts: HashMap<(usize, usize), Announced>,
    /// By owner and position: the ticket whose line was written last.
    written: HashMap<(usize, usize), Ticket>,
    /// By owner: the tickets for which it claimed cells.
    cells: Vec<Vec<Ticket>>,
    /// By reader, owner, line and position: the ticket whose line the reader has fetched.
    fetched: HashMap<(usize, usize, usize, usize), Ticket>,
    /// By reader, owner and position: the ticket, and the bytes of its cell that the reader has fetched.
    held: HashMap<(usize, usize, usize), (Ticket, Range<usize>)>,
    /// By owner and position: the ticket, and which peer wrote its cell last ([`Room::Relayed`](crate::fabric::Room)).
    relayed: HashMap<(usize, usize), (Ticket, usize)>,
    /// By the node and the path of a group: when the link out of it is free.
    links: HashMap<(u32, Vec<u32>), f64>,
    /// By rank: the steps between nodes that it began, and when.
    begun: Vec<Vec<(BridgeStep, f64)>>,
    /// By rank: steps that it has finished.
    steps: Vec<usize>,
}

/// Returns the time at which each rank finishes; all ranks enter the call at time zero.
///
/// # Panics
/// If the algorithm deadlocks; the checking scheduler says why.
pub fn simulate(row: &Row, plan: &Plan, machine: &Machine, placement: &Placement) -> Vec<Nanos> {
    let nodes = Layout::new(&placement.labels, CommRank(0)).nodes();
    let measures = Measures { ranks: placement.labels.len(), nodes, cell: placement.cell, slots: placement.slots };
    let plan = plan.measured(row, &measures);
    let ranks = Rank::all(machine, placement);
    drive(&ranks, ranks.iter().map(|rank| (row.simulated)(rank, &plan)).collect())
}

/// Returns the time at which each rank finishes successive calls. A rank enters each call when it has finished the one
/// before.
///
/// # Panics
/// As [`simulate`].
pub fn simulate_in_succession(row: &Row, plans: &[Plan], machine: &Machine, placement: &Placement) -> Vec<Nanos> {
    let ranks = Rank::all(machine, placement);
    let calls = |rank| async move {
        for plan in plans {
            (row.simulated)(rank, plan).await;
            Rank::release(rank, Ticket::last_of(plan.epoch)).await;
        }
    };
    drive(&ranks, ranks.iter().map(|rank| Box::pin(calls(rank)) as Running<'_>).collect())
}

/// Runs one future of each rank to its end; returns the finishing times.
pub(super) fn drive<'a>(ranks: &'a [Rank], running: Vec<Running<'a>>) -> Vec<Nanos> {
    let mut context = Context::from_waker(Waker::noop());
    let mut running: Vec<_> = running.into_iter().map(Some).collect();
    let mut poll = |rank: usize| {
        let future = running[rank].as_mut().expect("it has submitted an operation");
        let is_done = future.as_mut().poll(&mut context).is_ready();
        if is_done {
            running[rank] = None;
        }
        is_done
    };
    let mut left = ranks.len() - (0..ranks.len()).filter(|rank| poll(*rank)).count();
    while left > 0 {
        let next = ranks[0].world().turns.next().expect("a deadlock");
        left -= usize::from(poll(next));
    }
    ranks[0].world().now.iter().map(|time| Nanos(*time)).collect()
}

impl World {
    /// Puts `me`, which has an operation to do next, among the ready or the waiting ranks.
    fn submit(&mut self, me: usize) {
        let operation = self.next[me].expect("it has something to do");
        let obstacle = self.ready_at(me, operation).err();
        self.turns.submit(me, self.now[me], obstacle);
    }

    /// Submits anew all ranks that wait for `obstacle`, since it may be gone.
    fn wake(&mut self, obstacle: Obstacle) {
        for rank in self.turns.wake(obstacle) {
            self.submit(rank);
        }
    }

    fn members(&self, me: usize) -> &[CommRank] {
        self.layout.members(self.layout.place(CommRank(me as u32)).0)
    }

    fn peer(&self, me: usize, rank: NodeRank) -> usize {
        self.members(me)[rank.index()].index()
    }

    fn position(&self, ticket: Ticket) -> usize {
        ticket.position(self.placement.slots)
    }

    /// The ticket for which `me` claimed a cell `cells` claims ago.
    fn claimed_ago(&self, me: usize, cells: usize) -> Option<Ticket> {
        let claimed = &self.cells[me];
        claimed.len().checked_sub(cells).map(|index| claimed[index])
    }

    /// When all peers had released what `me` wrote for `ticket`; else a peer that has not.
    fn released_at(&self, me: usize, ticket: Option<Ticket>) -> Result<f64, Obstacle> {
        let Some(ticket) = ticket else { return Ok(0.0) };
        let released = |peer: usize| reached(Some(&self.released[peer]), ticket).ok_or(Obstacle::Release(peer));
        let peers = self.members(me).iter().map(|peer| peer.index()).filter(|peer| *peer != me);
        peers.map(released).try_fold(0.0, |latest: f64, time| Ok(latest.max(time?)))
    }

    /// When everything that the operation needs had happened; else what is missing.
    fn ready_at(&self, me: usize, operation: Operation) -> Result<f64, Obstacle> {
        match operation {
            Operation::Wait(rank, line, ticket) => {
                let flag = (self.peer(me, rank), line as usize, self.position(ticket));
                reached(self.flags.get(&flag), ticket).ok_or(Obstacle::Flag(flag.0, flag.1, flag.2))
            }
            Operation::WaitPost(rank, ticket) => {
                let poster = self.peer(me, rank);
                reached(self.posts.get(&(poster, me)), ticket).ok_or(Obstacle::Post(poster, me))
            }
            Operation::Claim(ticket, room) => {
                let line = self.written.get(&(me, self.position(ticket))).copied();
                let cell = || self.claimed_ago(me, self.placement.slots);
                self.released_at(me, if room.has_cell() { line.max(cell()) } else { line })
            }
            Operation::Drain(cells) => self.released_at(me, self.claimed_ago(me, cells)),
            Operation::BridgeEnd => self.step_ends(me).ok_or(Obstacle::Leader),
            _ => Ok(0.0),
        }
    }

    /// When the step between nodes that `me` is in ends: once the leaders of the same index on which it depends have
    /// come, plus the cost of the step. `None` if one of them has not come.
    fn step_ends(&self, me: usize) -> Option<f64> {
        let index = self.steps[me];
        let (step, mine) = *self.begun[me].get(index)?;
        let (node, rank) = self.layout.place(CommRank(me as u32));
        let line = self.layout.leader_index(node, rank).unwrap_or(0);
        let arrival = |node: NodeIndex| {
            let leader = self.layout.members(node)[self.layout.leader(node, line).index()];
            self.begun[leader.index()].get(index).map(|(_, time)| *time)
        };
        let came = match step {
            BridgeStep::Bcast { root, .. } | BridgeStep::Scatter { root, .. } => arrival(root)?.max(mine),
            BridgeStep::Reduce { root, .. } if root != node => mine,
            BridgeStep::SendRecv { receive, .. } => receive.map_or(Some(mine), |leg| arrival(leg.node))?.max(mine),
            _ => {
                let nodes = (0..self.layout.nodes() as u32).map(NodeIndex);
                nodes.map(arrival).try_fold(mine, |latest, time| Some(f64::max(latest, time?)))?
            }
        };
        Some(came + self.machine.between(between(step, self.now.len()), self.layout.nodes()))
    }

    fn perform(&mut self, me: usize, operation: Operation) {
        let ready = self.ready_at(me, operation).expect("picked because it is ready");
        self.now[me] = self.now[me].max(ready);
        match operation {
            Operation::Claim(ticket, room) => {
                self.written.insert((me, self.position(ticket)), ticket);
                if room.has_cell() {
                    self.cells[me].push(ticket);
                }
            }
            Operation::Release(ticket) => {
                self.released[me].push((ticket, self.now[me]));
                self.wake(Obstacle::Release(me));
            }
            Operation::Publish(line, ticket) => {
                let flag = (me, line as usize, self.position(ticket));
                self.flags.entry(flag).or_default().push((ticket, self.now[me]));
                self.wake(Obstacle::Flag(flag.0, flag.1, flag.2));
            }
            Operation::Wait(rank, line, ticket) => {
                let owner = self.peer(me, rank);
                let flag = (me, owner, line as usize, self.position(ticket));
                if self.fetched.insert(flag, ticket) != Some(ticket) {
                    self.transfer(me, owner, LINE, 1.0);
                }
            }
            Operation::Drain(_) => {}
            Operation::Post(rank, ticket) => {
                // The line is in the receiver's cache: it has to come to this rank first.
                let receiver = self.peer(me, rank);
                self.transfer(me, receiver, LINE, 1.0);
                self.posts.entry((me, receiver)).or_default().push((ticket, self.now[me]));
                self.wake(Obstacle::Post(me, receiver));
            }
            Operation::WaitPost(rank, _) => {
                let poster = self.peer(me, rank);
                self.transfer(me, poster, LINE, 1.0);
            }
            Operation::Copy { to, from, n } => self.copy(me, to, from, n),
            Operation::Reduce { to, left, right, n } => self.combine(me, to, [left, right], n),
            // What is beside a flag comes with the flag.
            Operation::Expose(..) | Operation::IsExposed(..) | Operation::Answer(..) | Operation::Answered(..) => {
                self.now[me] += self.machine.local
            }
            Operation::Fetch { from, n, .. } => self.fetch(me, from.rank, n),
            Operation::BridgeBegin(step) => {
                self.begun[me].push((step, self.now[me]));
                self.wake(Obstacle::Leader);
            }
            Operation::BridgeEnd => self.steps[me] += 1,
        }
    }

    /// Charges a copy of `n` bytes.
    fn copy(&mut self, me: usize, to: Span, from: Span, n: Bytes) {
        let streamed = self.read(me, from, n);
        let is_slot = matches!(to.place, Place::Cell { .. });
        let rate = if is_slot { self.machine.write } else { self.machine.copy };
        self.work(me, streamed, Work::Copy(rate * n.0 as f64));
        self.write(me, to);
    }

    /// Charges a reduction of two operands of `n` bytes.
    fn combine(&mut self, me: usize, to: Span, [left, right]: [Span; 2], n: Bytes) {
        let streamed = self.read(me, left, n) + self.read(me, right, n);
        // A result that grows in a slot has fetched its lines before.
        let comes_back = matches!(to.place, Place::Cell { .. }) && to != left;
        let write = if comes_back { self.machine.write - self.machine.copy } else { 0.0 };
        self.work(me, streamed, Work::Combine((self.machine.reduce + write) * n.0 as f64));
        self.write(me, to);
    }

    /// Charges a single copy out of the memory of `rank`.
    fn fetch(&mut self, me: usize, rank: NodeRank, n: Bytes) {
        let SingleCopy { call, per_byte } = self.machine.single_copy;
        self.transfer(me, self.peer(me, rank), n.0.next_multiple_of(LINE), 1.0);
        // No part of the copy overlaps with another, as in `coll::cost`; all data are in caches here.
        self.now[me] += call + self.machine.local + (self.machine.copy + per_byte) * n.0 as f64;
    }

    /// Charges work on operands whose fetch was already charged as `streamed`.
    fn work(&mut self, me: usize, streamed: f64, work: Work) {
        self.now[me] += self.machine.local + work.fetching(streamed, self.machine.overlap) - streamed;
    }

    /// Charges the read of an operand; returns how long it streamed from a peer.
    fn read(&mut self, me: usize, from: Span, n: Bytes) -> f64 {
        let (rank, line, ticket) = match from.place {
            Place::Cell { rank, ticket, .. } => (rank, None, ticket),
            Place::Payload { rank, line, ticket } => (rank, Some(line), ticket),
            _ => {
                self.now[me] += self.machine.local;
                return 0.0;
            }
        };
        let owner = self.peer(me, rank);
        let writer = if line.is_none() { self.last_writer(owner, ticket) } else { owner };
        if writer == me {
            self.now[me] += self.machine.local;
            return 0.0;
        }
        let came_with_its_flag = line
            .is_some_and(|line| self.fetched.get(&(me, owner, line as usize, self.position(ticket))) == Some(&ticket));
        if came_with_its_flag {
            return 0.0;
        }
        if line.is_none() && self.holds(me, owner, ticket, from.offset, n) {
            self.now[me] += self.machine.local;
            return 0.0;
        }
        let ahead = self.machine.ahead;
        self.transfer(me, writer, n.0.next_multiple_of(LINE), ahead)
    }

    /// The rank whose cache has a cell: its owner, or the peer that wrote it last. After a peer's write no rank holds
    /// what the cell had before.
    fn last_writer(&self, owner: usize, ticket: Ticket) -> usize {
        match self.relayed.get(&(owner, self.position(ticket))) {
            Some((of, writer)) if *of == ticket => *writer,
            _ => owner,
        }
    }

    /// Notes that `me` has written to `to`, where that is a cell.
    fn write(&mut self, me: usize, to: Span) {
        let Place::Cell { rank, ticket, .. } = to.place else { return };
        let (owner, position) = (self.peer(me, rank), self.position(ticket));
        if owner != me {
            self.relayed.insert((owner, position), (ticket, me));
            for reader in 0..self.now.len() {
                self.held.remove(&(reader, owner, position));
            }
        }
    }

    /// Whether `me` has fetched these lines of a cell before; notes that it has from here on. Lines that touch the
    /// range fetched last extend it, others replace it.
    fn holds(&mut self, me: usize, owner: usize, ticket: Ticket, offset: Bytes, n: Bytes) -> bool {
        let wanted = offset.0 / LINE * LINE..(offset.0 + n.0).next_multiple_of(LINE);
        let key = (me, owner, self.position(ticket));
        let held = match self.held.get(&key) {
            Some((of, held)) if *of == ticket => held.clone(),
            _ => 0..0,
        };
        if held.start <= wanted.start && wanted.end <= held.end {
            return true;
        }
        let touches = wanted.start <= held.end && held.start <= wanted.end && !held.is_empty();
        let now = if touches { held.start.min(wanted.start)..held.end.max(wanted.end) } else { wanted };
        self.held.insert(key, (ticket, now));
        false
    }

    /// Moves `bytes` from the cache of `owner` to that of `me`, over the link out of the owner's group at the level
    /// where their paths part. Charges only `part` of the link's latency. Returns how long the bytes stream.
    fn transfer(&mut self, me: usize, owner: usize, bytes: usize, part: f64) -> f64 {
        let (mine, others) = (&self.placement.paths[me], &self.placement.paths[owner]);
        let common = mine.iter().zip(others).take_while(|(mine, others)| mine == others).count();
        let crossing = self.machine.crossing(common);
        let group = others[..others.len().min(common + 1)].to_vec();
        let link = self.links.entry((self.placement.labels[owner], group)).or_default();
        *link = link.max(self.now[me]) + crossing.shared * bytes as f64;
        let streamed = (crossing.stream * bytes as f64).max(*link - self.now[me]);
        self.now[me] += streamed + crossing.latency * part;
        streamed
    }
}

impl Rank {
    /// All ranks of a placement.
    pub(super) fn all(machine: &Machine, placement: &Placement) -> Vec<Self> {
        let layout = Layout::new(&placement.labels, CommRank(0)).with_leaders(usize::MAX);
        let size = placement.labels.len();
        let world = Arc::new(Mutex::new(World {
            machine: machine.clone(),
            placement: placement.clone(),
            now: vec![0.0; size],
            next: vec![None; size],
            turns: Turns::default(),
            flags: HashMap::new(),
            released: vec![Vec::new(); size],
            posts: HashMap::new(),
            written: HashMap::new(),
            cells: vec![Vec::new(); size],
            fetched: HashMap::new(),
            held: HashMap::new(),
            relayed: HashMap::new(),
            links: HashMap::new(),
            begun: vec![Vec::new(); size],
            steps: vec![0; size],
            layout,
        }));
        (0..size).map(|me| Self::new(me, placement, &world)).collect()
    }

    fn new(me: usize, placement: &Placement, world: &Arc<Mutex<World>>) -> Self {
        let layout = Layout::new(&placement.labels, CommRank(me as u32)).with_leaders(usize::MAX);
        let members = layout.members(layout.my_node());
        let paths: Vec<Vec<u32>> = members.iter().map(|rank| placement.paths[rank.index()].clone()).collect();
        let node_rank = layout.place(CommRank(me as u32)).1;
        let levels = Levels::from_paths(&paths, node_rank);
        let (cell, slots, all_lend, world) =
            (placement.cell, placement.slots, AtomicBool::new(false), Arc::clone(world));
        Self { me, node_rank, levels, layout, cell, slots, all_lend, world }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs the operation when it is this rank's turn. Returns what it found: whether memory is exposed follows
    /// from `all_lend`, and anything else that a rank looks for is there.
    async fn step(&self, operation: Operation) -> bool {
        let mut is_submitted = false;
        std::future::poll_fn(|_| {
            let mut world = self.world();
            if is_submitted {
                world.next[self.me] = None;
                world.perform(self.me, operation);
                return Poll::Ready(());
            }
            is_submitted = true;
            world.next[self.me] = Some(operation);
            world.submit(self.me);
            Poll::Pending
        })
        .await;
        !matches!(operation, Operation::IsExposed(..)) || self.all_lend.load(Ordering::Relaxed)
    }
}

impl Fabric for Rank {
    fn rank(&self) -> NodeRank {
        self.node_rank
    }

    fn size(&self) -> usize {
        self.levels.size()
    }

    fn levels(&self) -> &Levels {
        &self.levels
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn cell_bytes(&self) -> Bytes {
        self.cell
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn is_in_place(&self) -> bool {
        false
    }

    fn decide_to_lend(&self, _: Option<Span>, _: Bytes, lending: Lending) -> bool {
        let all_lend = lending != Lending::Tried(Source::Slots);
        self.all_lend.store(all_lend, Ordering::Relaxed);
        all_lend
    }

    operations_by_step!();
}
