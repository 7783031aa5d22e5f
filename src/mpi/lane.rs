//! The short way of a call that is like one of those before it.
//!
//! Programs repeat their calls. Where count, datatype and operation are those of one of the communicator's last calls of the same
//! collective that opened lanes, the datatype is predefined (its handle never means anything else), all ranks are on one node and
//! no address can be that of a device, then operands, operation and plan are known, and only addresses and the root are looked at.
//! The handle of an operation of the program's may come to mean another one: the library is called with the handle, so it runs what is
//! meant now, and the plan is the same for all such operations, which follow the order of ranks. Elements with holes are packed and
//! unpacked around it, where a kernel combines them. Whether a rank takes this way is its own affair: peers see the same call.

use super::communicator::{Purpose, Shared};
use super::device;
use super::holes::Holes;
use super::op::{Combiner, Operator};
use super::serve::{Served, Site};
use crate::coll::phase::short::{self, AtOnce};
use crate::coll::{Plan, REGISTRY, Short};
use crate::fabric::shm::{Buffer, Buffers, Direct, Ends, Entered};
use crate::kernel::Combine;
use crate::mpi::handles::{constants, predefined};
use crate::report::{Counter, Outcome};
use crate::tune::LAST_EPOCH;
use crate::types::{Bytes, Collective, CommRank};
use mpi_sys::{MPI_Count, MPI_Datatype, MPI_Op};
use std::ffi::{c_int, c_void};
use std::ptr::null;

/// What a call must share with one before it.
#[derive(Clone, Copy, PartialEq)]
pub struct Key {
    /// Elements: of each block where there are several.
    pub count: MPI_Count,
    /// Of all buffers that the call has at this rank.
    pub datatype: MPI_Datatype,
    /// The operation of a reduction, else null.
    pub op: MPI_Op,
}

impl Key {
    /// Of a call that moves data.
    #[inline]
    pub fn moving(count: MPI_Count, datatype: MPI_Datatype) -> Self {
        Self { count, datatype, op: constants().op_null }
    }

    /// Of a barrier.
    #[inline]
    pub fn barrier() -> Self {
        Self::moving(0, constants().datatype_null)
    }

    fn is_lasting(&self) -> bool {
        let is_barrier = *self == Self::barrier();
        is_barrier || predefined(self.datatype).is_some_and(|known| known.is_contiguous())
    }

    /// Those of the elements of a reduction.
    fn holes(&self) -> Option<Holes> {
        let is_reduction = self.op != constants().op_null;
        predefined(self.datatype).filter(|known| is_reduction && !known.is_contiguous()).and_then(Holes::of)
    }
}

/// A call of one collective that a communicator has served.
pub struct Lane {
    key: Key,
    row: usize,
    counter: Counter,
    /// Of some call; epoch and root are each call's own.
    plan: Plan,
    entered: Entered,
    combiner: Option<Combiner>,
    short: Option<Short>,
    /// Of the elements of a short reduction, whose operands are packed before and unpacked after it.
    holes: Option<Holes>,
}

impl Lane {
    /// A lane for calls like this one; none where the next call may mean something else by the same handles.
    pub fn new(
        shared: &Shared,
        key: Key,
        (collective, row): (Collective, usize),
        plan: Plan,
        operator: Option<&Operator>,
    ) -> Option<Self> {
        let combiner = operator.map(Operator::combiner);
        /// Of longer ones the general way is as fast.
        const LONGEST_WITH_HOLES: Bytes = Bytes(4096);
        let has_kernel = matches!(combiner, Some(Combiner::Kernel(_)));
        let holes = key.holes().filter(|_| has_kernel && plan.bytes <= LONGEST_WITH_HOLES);
        let is_lasting = key.is_lasting() || holes.is_some();
        if shared.agreed.nodes > 1 || plan.scratch > Bytes::ZERO || !is_lasting {
            return None;
        }
        let counter = Counter::of(Outcome::Accelerated(row), plan.bytes);
        let short = (REGISTRY[row].short)(&plan, &shared.agreed.measures());
        let entered = Entered::new(collective, row, &plan);
        Some(Self { key, row, counter, plan, entered, combiner, short, holes })
    }
}

/// Programs call with a few counts in turn: of one number, of a few, of a row.
const LANES: usize = 8;

/// The last lanes of one collective.
pub(super) struct Lanes {
    /// The first is the one that was used last.
    lanes: [Option<Box<Lane>>; LANES],
    /// Which makes room for the next one; never the first.
    oldest: usize,
}

impl Default for Lanes {
    fn default() -> Self {
        Self { lanes: Default::default(), oldest: 1 }
    }
}

impl Lanes {
    /// The lane with that key.
    #[inline(always)]
    fn find(&mut self, key: &Key) -> Option<&Lane> {
        let is_first = self.lanes[0].as_ref().is_some_and(|lane| lane.key == *key);
        if !is_first {
            let at = self.position(key)?;
            self.lanes.swap(0, at);
        }
        self.lanes[0].as_deref()
    }

    #[cold]
    fn position(&self, key: &Key) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.as_ref().is_some_and(|lane| lane.key == *key))
    }

    /// A call with another key than all of them, or with one whose lane it did not go by, opens one.
    pub fn open(&mut self, lane: Lane) {
        let at = self.position(&lane.key).unwrap_or_else(|| {
            let oldest = self.oldest;
            self.oldest = if oldest + 1 < LANES { oldest + 1 } else { 1 };
            oldest
        });
        self.lanes[at] = Some(Box::new(lane));
        self.lanes.swap(0, at);
    }
}

/// Neither null nor `MPI_IN_PLACE`: memory of the program.
#[inline]
fn is_memory(address: *const c_void) -> bool {
    !address.is_null() && address != constants().in_place.cast_const()
}

/// The buffers of a call at a rank that has these.
#[inline(always)]
fn ends(send: *const c_void, recv: *const c_void) -> Ends {
    Ends { send: send.cast_mut().cast(), recv: recv.cast_mut().cast(), is_in_place: false }
}

/// Both buffers of a call at a rank that has both, where nothing about them needs a closer look.
#[inline(always)]
fn pair(send: *const c_void, recv: *const c_void, own: usize) -> Option<Ends> {
    if !is_memory(recv) || send == recv || send.is_null() {
        return None;
    }
    if send == constants().in_place.cast_const() {
        return Some(Ends { is_in_place: true, ..ends(recv.wrapping_byte_add(own), recv) });
    }
    Some(ends(send, recv))
}

/// As the functions of [`collectives`](super::collectives), where the short way is open; else nothing has happened.
impl Site<'_> {
    #[inline(always)]
    pub(super) fn repeat_allreduce(&self, key: &Key, send: *const c_void, recv: *mut c_void) -> Option<Served> {
        let lane = self.lane(key)?;
        Some(self.repeat_reduction::<short::Allreduce>(lane, CommRank(0), pair(send, recv, 0)?))
    }

    #[inline(always)]
    pub(super) fn repeat_reduce(
        &self,
        key: &Key,
        send: *const c_void,
        recv: *mut c_void,
        root: c_int,
    ) -> Option<Served> {
        let lane = self.lane(key)?;
        let root = self.root(root)?;
        let ends = if root == self.shared.me {
            pair(send, recv, 0)?
        } else if is_memory(send) {
            ends(send, null())
        } else {
            return None;
        };
        Some(self.repeat_reduction::<short::Reduce>(lane, root, ends))
    }

    #[inline(always)]
    pub(super) fn repeat_bcast(&self, key: &Key, buffer: *mut c_void, root: c_int) -> Option<Served> {
        let lane = self.lane(key)?;
        let root = self.root(root)?;
        if !is_memory(buffer) {
            return None;
        }
        Some(self.repeat::<short::Bcast>(lane, root, ends(null(), buffer)))
    }

    #[inline(always)]
    pub(super) fn repeat_allgather(&self, key: &Key, send: *const c_void, recv: *mut c_void) -> Option<Served> {
        let lane = self.lane(key)?;
        let own = lane.plan.bytes.0 * self.shared.me.index();
        Some(self.repeat::<short::Allgather>(lane, CommRank(0), pair(send, recv, own)?))
    }

    #[inline(always)]
    pub(super) fn repeat_scatter(
        &self,
        key: &Key,
        send: *const c_void,
        recv: *mut c_void,
        root: c_int,
    ) -> Option<Served> {
        let lane = self.lane(key)?;
        let root = self.root(root)?;
        let is_root = root == self.shared.me;
        if !is_memory(recv) || is_root && (!is_memory(send) || send == recv.cast_const()) {
            return None;
        }
        let ends = ends(if is_root { send } else { null() }, recv);
        Some(self.repeat::<short::Scatter>(lane, root, ends))
    }

    #[inline(always)]
    pub(super) fn repeat_barrier(&self) -> Option<Served> {
        let lane = self.lane(&Key::barrier())?;
        Some(self.repeat::<short::Barrier>(lane, CommRank(0), ends(null(), null())))
    }

    /// The root, where it is a rank.
    #[inline]
    pub(super) fn root(&self, root: c_int) -> Option<CommRank> {
        let root = u32::try_from(root).ok().filter(|root| (*root as usize) < self.shared.agreed.ranks)?;
        Some(CommRank(root))
    }

    /// Whether this rank is the root.
    #[inline]
    pub(super) fn is_me(&self, root: c_int) -> bool {
        root == self.shared.me.0 as c_int
    }

    #[inline(always)]
    fn lane(&self, key: &Key) -> Option<&Lane> {
        let lane = self.shared.lanes(self.collective).find(key)?;
        let is_open = self.epoch < LAST_EPOCH && !device::may_be_used();
        is_open.then_some(lane)
    }

    #[inline(always)]
    fn repeat_reduction<C: AtOnce>(&self, lane: &Lane, root: CommRank, ends: Ends) -> Served {
        match lane.holes {
            None => self.repeat::<C>(lane, root, ends),
            Some(holes) => self.repeat_packed::<C>(lane, root, ends.send, ends.recv, holes),
        }
    }

    /// `input` and `output` are the program's buffers, the same where it reduces in place; not as [`Ends`], which would be in memory then, on
    /// the way without holes too.
    #[inline(never)]
    fn repeat_packed<C: AtOnce>(
        self,
        lane: &Lane,
        root: CommRank,
        input: *mut u8,
        output: *mut u8,
        holes: Holes,
    ) -> Served {
        let (n, bytes) = (lane.key.count as usize, lane.plan.bytes.0);
        let (has_result, is_in_place) = (!output.is_null(), input == output);
        let recv = if has_result { self.shared.memory(Purpose::Recv, bytes) } else { std::ptr::null_mut() };
        let send = if is_in_place { recv } else { self.shared.memory(Purpose::Send, bytes) };
        // SAFETY: MPI's contract on the program's buffers; the packed ones have room for `n` elements.
        unsafe { holes.pack(send, input, n) };
        let served = self.repeat::<C>(lane, root, Ends { send, recv, is_in_place });
        if has_result && served == Served::Done(constants().success) {
            // SAFETY: as above.
            unsafe { holes.unpack(output, recv, n) };
        }
        served
    }

    /// `C` is this collective.
    #[inline(always)]
    fn repeat<C: AtOnce>(&self, lane: &Lane, root: CommRank, ends: Ends) -> Served {
        let Some(Short::InLines { goes_beyond_flag }) = lane.short else {
            return self.repeat_otherwise::<C>(lane, root, ends.send, ends.recv, ends.is_in_place);
        };
        let plan = Plan { epoch: self.epoch, root, ..lane.plan };
        let entered = (&lane.entered, self.epoch, root);
        let (context, waiting) = (self.shared.context(), &self.job.waiting);
        // SAFETY: MPI's contract on the program's buffers, whose packed lengths are those of the plan; one call at a time.
        let call =
            unsafe { Direct::enter(context, waiting, entered, plan.granule, ends, lane.combine(), goes_beyond_flag) };
        self.ended(lane.counter, plan.bytes, call.finish(C::in_lines(&call, &plan)))
    }

    /// The same of all other calls: short ones whose data take cells, and those that run as a future. The buffers come one by one as in
    /// `repeat_packed`.
    #[inline(never)]
    fn repeat_otherwise<C: AtOnce>(
        self,
        lane: &Lane,
        root: CommRank,
        send: *mut u8,
        recv: *mut u8,
        is_in_place: bool,
    ) -> Served {
        self.widen_cells_for(lane.plan.reach);
        let plan = Plan { epoch: self.epoch, root, ..lane.plan };
        let ends = Ends { send, recv, is_in_place };
        let Some(Short::InCells { in_halves }) = lane.short else {
            return self.run_row(lane.row, &plan, lane.buffers(ends));
        };
        let entered = (&lane.entered, self.epoch, root);
        let (context, waiting) = (self.shared.context(), &self.job.waiting);
        // SAFETY: as in `repeat`.
        let call = unsafe { Direct::enter(context, waiting, entered, plan.granule, ends, lane.combine(), false) };
        self.ended(lane.counter, plan.bytes, call.finish(C::in_cells(&call, &plan, in_halves)))
    }
}

impl Lane {
    #[inline(always)]
    fn combine(&self) -> Option<&dyn Combine> {
        self.combiner.as_ref().map(Combiner::get)
    }

    fn buffers(&self, ends: Ends) -> Buffers<'_> {
        let buffer = |end: *mut u8| if end.is_null() { Buffer::Absent } else { Buffer::Contiguous(end) };
        let combine = self.combine();
        Buffers {
            send: buffer(ends.send),
            recv: buffer(ends.recv),
            combine,
            is_in_place: ends.is_in_place,
            ..Buffers::NONE
        }
    }
}
