//! One collective call: what each rank brings, how it is called there, and what must come out.

use crate::bridge::Port;
use crate::memory::Area;
use crate::operation::Operation;
use crate::world::{Rank, World};
use huddle::coll::phase::short::{self, AtOnce};
use huddle::coll::phase::single::fits_line;
use huddle::coll::{Knob, Means, Measures, Plan, REGISTRY, Short};
use huddle::fabric::checked::{Random, random_knobs};
use huddle::fabric::shm::known::{self, Known};
use huddle::fabric::shm::{Buffer, Buffers, Call, Ends, Entered, Fault, ShortCall, Waiting};
use huddle::kernel::Combine;
use huddle::sync::Payload;
use huddle::types::{Bytes, Collective, CommRank, Epoch, OperandOrder};
use std::future::ready;
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll, Waker};

/// What output buffers hold before the call.
const GARBAGE: u8 = 0xEE;

/// How one rank calls.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub in_place: bool,
    /// Buffers have holes, unless an operation is applied to them.
    pub has_holes: bool,
    /// How the algorithm is run.
    pub way: Way,
}

/// How an algorithm is run.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// By `Row::run`.
    Run,
    /// By `Row::start`, after so many polls by hand.
    Start(usize),
    /// By `Row::short`, if the call has that function and its buffers have no holes; else by `Row::run`.
    Short,
}

fn measures(world: &World) -> Measures {
    let nodes = world.layout(CommRank(0)).nodes();
    Measures { ranks: world.size(), nodes, cell: Bytes(world.cell), slots: world.slots }
}

/// A call on all ranks.
#[derive(Debug)]
pub struct Case {
    pub row: usize,
    pub plan: Plan,
    operation: Option<Operation>,
    inputs: Vec<Vec<u8>>,
    result: Vec<u8>,
    /// The plain function of a short call.
    short: Option<Short>,
    pub styles: Vec<Style>,
    /// For each rank that ran the call as a plain function whose root may lend its memory: whether the root did.
    lent: Vec<OnceLock<bool>>,
}

/// The memory that a rank passes.
struct Memory {
    send: Option<Area>,
    recv: Option<Area>,
    is_in_place: bool,
    scratch: Area,
}

/// Extends the lifetime of a reference that a call keeps.
///
/// # Safety
/// The call is dropped before what `of` refers to.
unsafe fn forever<T: ?Sized>(of: &T) -> &'static T {
    // SAFETY: the caller promises that the call is dropped before what `of` refers to.
    unsafe { &*std::ptr::from_ref(of) }
}

/// The buffers of a call; `None` if one has holes.
fn ends(buffers: &Buffers<'_>) -> Option<Ends> {
    let end = |buffer| match buffer {
        Buffer::Absent => Some(null_mut()),
        Buffer::Contiguous(memory) => Some(memory),
        Buffer::Packed(_) => None,
    };
    Some(Ends { send: end(buffers.send)?, recv: end(buffers.recv)?, is_in_place: buffers.is_in_place })
}

/// Runs a call as a plain function, and by its row's function if its root lends its memory.
fn at_once<C: AtOnce>(
    case: &Case,
    rank: &Rank,
    waiting: &'static Waiting,
    short: Short,
    ends: Ends,
    combine: Option<&dyn Combine>,
) -> Result<(), Fault> {
    let (row, plan) = (&REGISTRY[case.row], &case.plan);
    let entered = Entered::new(row.collective, case.row, plan);
    let like = (&entered, plan.epoch, plan.root);
    let lent = &case.lent[rank.me.index()];
    // SAFETY: the caller's buffers outlive the call; a rank is in one call at a time.
    unsafe {
        match short {
            Short::InLines(payload) => whole::<C, known::InLines>(rank, waiting, like, plan, ends, combine, payload),
            Short::InShortPieces => {
                whole::<C, known::InShortPieces>(rank, waiting, like, plan, ends, combine, Payload::BesideFlag)
            }
            Short::InCells(moves) => {
                let call =
                    ShortCall::enter(&rank.context, waiting, like, plan.granule, ends, combine, Payload::BesideFlag);
                short::run_in_cells::<C>(call, plan, moves, |call, plan| {
                    lent.get_or_init(|| true);
                    (row.run)(call, plan)
                })?;
                if moves.tried.is_some() {
                    lent.get_or_init(|| false);
                }
                Ok(())
            }
        }
    }
}

/// Runs a call whose data move whole.
///
/// # Safety
/// As for [`ShortCall::enter`].
unsafe fn whole<C: AtOnce, K: Known>(
    rank: &Rank,
    waiting: &'static Waiting,
    like: (&Entered, Epoch, CommRank),
    plan: &Plan,
    ends: Ends,
    combine: Option<&dyn Combine>,
    payload: Payload,
) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    let call = unsafe { ShortCall::<K>::enter(&rank.context, waiting, like, plan.granule, ends, combine, payload) };
    call.finish(C::whole(&call, plan))
}

impl Case {
    /// A call with random data. `shape` has its epoch, its root and its bytes (as in [`Plan::bytes`]).
    pub fn new(world: &World, row: usize, shape: (Epoch, CommRank, usize), random: &mut Random) -> Self {
        let element = if random.one_in(2) { 8 } else { 16 };
        let is_block_placed = world.layout(CommRank(0)).is_block_placed();
        let means = Means { order: OperandOrder::Rank, has_single_copy: true };
        let permits_order = REGISTRY[row].lacks(means).is_none();
        let order =
            if permits_order && is_block_placed && random.one_in(2) { OperandOrder::Rank } else { OperandOrder::Any };
        let element = match order {
            OperandOrder::Rank => element,
            OperandOrder::Any => random.pick(&[1, 4, 8, 12]),
        };
        Self::with_order(world, row, shape, (order, element), random)
    }

    pub fn with_order(
        world: &World,
        row: usize,
        (epoch, root, bytes): (Epoch, CommRank, usize),
        (order, element): (OperandOrder, usize),
        random: &mut Random,
    ) -> Self {
        let algorithm = &REGISTRY[row];
        let collective = algorithm.collective;
        let is_reduction = collective.is_reduction();
        let (order, granule) = if is_reduction { (order, element) } else { (OperandOrder::Any, 1) };
        let bytes = match collective {
            Collective::Barrier => 0,
            _ => bytes.next_multiple_of(granule),
        };
        let plan = Plan {
            epoch,
            bytes: Bytes(bytes),
            granule: Bytes(granule),
            root: if collective.has_root() { root } else { CommRank(0) },
            order,
            knobs: random_knobs(random, granule, world.cell).with(Knob::Buffers, 0),
            scratch: Bytes::ZERO,
            reach: Bytes::ZERO,
        };
        let ranks = world.size();
        let measures = measures(world);
        let plan = plan.measured(algorithm, &measures);
        let short = (algorithm.short)(&plan, &measures);
        let operation = is_reduction.then(|| Operation::new(order, plan.granule));
        let lent = vec![OnceLock::new(); ranks];
        let mut case =
            Self { row, plan, operation, inputs: Vec::new(), result: Vec::new(), short, styles: Vec::new(), lent };
        case.inputs = (0..ranks).map(|rank| random.bytes(case.input_bytes(rank, ranks))).collect();
        case.result = case.result();
        case.styles = (0..ranks)
            .map(|_| Style {
                in_place: random.one_in(2),
                has_holes: random.one_in(3),
                way: match random.below(4) {
                    0 | 1 => Way::Short,
                    2 => Way::Run,
                    _ => Way::Start(random.below(4)),
                },
            })
            .collect();
        case
    }

    /// The same call, whose root has so many buffers; 0 means all slots.
    pub fn with_buffers(mut self, world: &World, buffers: u32) -> Self {
        self.plan.knobs = self.plan.knobs.with(Knob::Buffers, buffers);
        self.short = (REGISTRY[self.row].short)(&self.plan, &measures(world));
        self
    }

    pub fn collective(&self) -> Collective {
        REGISTRY[self.row].collective
    }

    /// Whether some rank calls it in this way.
    pub fn is_called(&self, how: Way) -> bool {
        self.styles.iter().any(|style| match (how, style.way) {
            (Way::Short, Way::Short) => self.short.is_some() && !style.has_holes,
            (Way::Run, Way::Run) | (Way::Start(_), Way::Start(_)) => true,
            _ => false,
        })
    }

    /// Whether this case can be called as a plain function.
    pub fn has_short(&self) -> bool {
        self.short.is_some()
    }

    /// As which kind of short call some rank calls it as a plain function.
    pub fn short_as_called(&self) -> Option<Short> {
        self.short.filter(|_| self.is_called(Way::Short))
    }

    /// Whether the root lent its memory, as `rank` found in a plain function; `None` if it found nothing.
    pub fn was_lent(&self, rank: usize) -> Option<bool> {
        self.lent[rank].get().copied()
    }

    pub fn is_root(&self, rank: usize) -> bool {
        self.plan.root.index() == rank
    }

    fn input_bytes(&self, rank: usize, ranks: usize) -> usize {
        let n = self.plan.bytes.0;
        match self.collective() {
            Collective::Allreduce | Collective::Reduce | Collective::Allgather => n,
            Collective::Bcast if self.is_root(rank) => n,
            Collective::Scatter if self.is_root(rank) => n * ranks,
            Collective::Bcast | Collective::Scatter | Collective::Barrier => 0,
        }
    }

    fn result(&self) -> Vec<u8> {
        match self.operation {
            Some(operation) => {
                let combine = |left: Vec<u8>, right: &Vec<u8>| operation.combined(&left, right);
                self.inputs[1..].iter().fold(self.inputs[0].clone(), combine)
            }
            None => self.inputs.concat(),
        }
    }

    /// What `rank` must have in its receive buffer; `None` if it has none.
    fn expected(&self, rank: usize) -> Option<&[u8]> {
        let n = self.plan.bytes.0;
        match self.collective() {
            Collective::Barrier => None,
            Collective::Reduce if !self.is_root(rank) => None,
            Collective::Scatter => Some(&self.result[n * rank..][..n]),
            _ => Some(&self.result),
        }
    }

    /// Whether `rank` can't have its result without `other`, whatever the algorithm.
    pub fn depends(&self, rank: usize, other: usize) -> bool {
        rank != other
            && match self.collective() {
                Collective::Allreduce | Collective::Allgather | Collective::Barrier => true,
                Collective::Bcast | Collective::Scatter => self.is_root(other),
                Collective::Reduce => self.is_root(rank),
            }
    }

    /// Whether the root of a single copy lends its memory, on ranks with cells of `cell` bytes; `None` if that is open.
    pub fn is_lent(&self, cell: usize) -> Option<bool> {
        let (root, ranks, n) = (self.plan.root.index(), self.styles.len(), self.plan.bytes.0);
        let is_tried = self.plan.knobs.set(Knob::Try).is_some();
        let first = match self.collective() {
            Collective::Scatter if is_tried && n * (ranks - 1) <= cell => n * (ranks - 1),
            Collective::Scatter => n.min(cell / ranks) * (ranks - 1),
            _ => n,
        };
        if self.styles[root].has_holes || fits_line(Bytes(first)) {
            return Some(false);
        }
        // Short tiles may or may not share cells.
        let is_open = self.collective() == Collective::Bcast && fits_line(self.plan.tile(Bytes(cell)));
        (!is_open && !is_tried).then_some(true)
    }

    /// Makes the call as `rank` and checks what the buffers hold afterwards.
    ///
    /// # Panics
    /// If a result is wrong, or anything else was written to.
    pub fn call(&self, rank: &Rank, waiting: &'static Waiting) -> Result<(), Fault> {
        // 1. Buffers.
        let me = rank.me.index();
        let memory = self.memory(me);
        let node = rank.context.layout().my_node();
        let port = rank.switch.as_ref().map(|switch| Port::new(Arc::clone(switch), node, self.operation));
        // SAFETY: the call ends before `memory` is dropped.
        let mut buffers = self.buffers(me, unsafe { forever(&memory) });
        // SAFETY: the call ends before `self` is dropped.
        buffers.combine = self.operation.as_ref().map(|operation| unsafe { forever(operation) } as &dyn Combine);
        // SAFETY: the call ends before `port` is dropped.
        buffers.bridge = port.as_ref().map(|port| unsafe { forever(port) } as _);

        // 2. The call.
        self.run(rank, waiting, buffers)?;

        // 3. Its results.
        if let Some(send) = memory.send {
            assert_eq!(send.contents(), self.inputs[me], "the input has changed: {self:?}");
        }
        if let (Some(expected), Some(recv)) = (self.expected(me), memory.recv) {
            let name = REGISTRY[self.row].name;
            assert!(recv.contents() == expected, "wrong on rank {me}: {:?} {name} {:?}", self.collective(), self.plan);
        }
        memory.scratch.contents();
        Ok(())
    }

    /// The memory of rank `me` before the call.
    fn memory(&self, me: usize) -> Memory {
        let Style { in_place, has_holes, .. } = self.styles[me];
        let n = self.plan.bytes.0;
        let input = || Some(self.inputs[me].clone());
        let output = |length| Some(vec![GARBAGE; length]);
        let expected = self.expected(me).map(<[u8]>::len);
        let (send, recv, is_in_place) = match self.collective() {
            Collective::Barrier => (None, None, false),
            Collective::Bcast => (None, if self.is_root(me) { input() } else { output(n) }, false),
            Collective::Scatter if in_place && self.is_root(me) => (input(), None, true),
            Collective::Scatter if !self.is_root(me) => (None, output(n), false),
            Collective::Allreduce | Collective::Reduce if in_place && expected.is_some() => (None, input(), true),
            Collective::Allgather if in_place => {
                let mut all = vec![GARBAGE; n * self.inputs.len()];
                all[n * me..][..n].copy_from_slice(&self.inputs[me]);
                (None, Some(all), true)
            }
            _ => (input(), expected.and_then(output), false),
        };
        let is_part = is_in_place && self.collective() == Collective::Allgather;
        let area = |contents: Vec<u8>| {
            let may_have_holes = self.operation.is_none() && !is_part;
            if has_holes && may_have_holes { Area::with_holes(&contents) } else { Area::new(&contents) }
        };
        let scratch = Area::new(&vec![GARBAGE; self.plan.scratch.0]);
        Memory { send: send.map(area), recv: recv.map(area), is_in_place, scratch }
    }

    /// The buffers of rank `me` in the form that the fabric takes.
    fn buffers<'a>(&self, me: usize, memory: &'a Memory) -> Buffers<'a> {
        let buffer = |area: &'a Option<Area>| area.as_ref().map_or(Buffer::Absent, Area::buffer);
        let mut send = buffer(&memory.send);
        if let (true, Some(both)) = (memory.is_in_place, &memory.recv) {
            let is_part = self.collective() == Collective::Allgather;
            send = both.part(if is_part { self.plan.bytes.0 * me } else { 0 });
        }
        let Buffer::Contiguous(scratch) = memory.scratch.buffer() else {
            unreachable!("scratch memory has no holes");
        };
        Buffers { send, recv: buffer(&memory.recv), scratch, is_in_place: memory.is_in_place, ..Buffers::NONE }
    }

    /// Runs the call. A rank that notices a mismatch fails the call, where a job would end.
    fn run(&self, rank: &Rank, waiting: &'static Waiting, buffers: Buffers<'static>) -> Result<(), Fault> {
        let outcome = self.run_in_its_way(rank, waiting, buffers);
        if matches!(outcome, Err(Fault::Mismatch { .. })) {
            rank.context.fail(self.plan.epoch);
        }
        outcome
    }

    fn run_in_its_way(&self, rank: &Rank, waiting: &'static Waiting, buffers: Buffers<'static>) -> Result<(), Fault> {
        let (row, collective, plan) = (&REGISTRY[self.row], self.collective(), &self.plan);
        let way = self.styles[rank.me.index()].way;
        if let (Way::Short, Some(short), Some(ends)) = (way, self.short, ends(&buffers)) {
            let run = match collective {
                Collective::Allgather => at_once::<short::Allgather>,
                Collective::Allreduce => at_once::<short::Allreduce>,
                Collective::Barrier => at_once::<short::Barrier>,
                Collective::Bcast => at_once::<short::Bcast>,
                Collective::Reduce => at_once::<short::Reduce>,
                Collective::Scatter => at_once::<short::Scatter>,
            };
            return run(self, rank, waiting, short, ends, buffers.combine);
        }
        let Way::Start(polls) = way else {
            // SAFETY: the buffers outlive the call; a rank is in one call at a time.
            let call = unsafe { Call::enter(&rank.context, waiting, collective, self.row, plan, buffers) };
            return (row.run)(&call, plan);
        };
        // SAFETY: the buffers outlive the call; a rank is in one call at a time.
        let call = unsafe { Call::enter(&rank.context, waiting, collective, self.row, plan, buffers) }.to_be_polled();
        let mut running = (row.start)(&call, plan);
        let mut task = TaskContext::from_waker(Waker::noop());
        for _ in 0..polls {
            if running.as_mut().poll(&mut task) == Poll::Ready(()) {
                return call.drive(ready(()));
            }
        }
        call.drive(running)
    }
}
