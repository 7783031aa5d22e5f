//! Lanes: they serve a call that is like an earlier one without the long way through arguments, choice and plan.
//!
//! Programs repeat their calls. A call takes a lane if its count, datatype and operation are those of one of the
//! communicator's remembered calls of the same collective, which opened lanes. The datatype must still be the same
//! (predefined, or none was freed since), all ranks must be on one node, and no address may be that of a device. Then
//! operands, operation and plan are known, and only addresses and the root are looked at. A few elements with holes are
//! packed before the call and unpacked after it.
//!
//! The handle of a user-defined operation may come to mean another one. The library is called with the handle, so it
//! runs what that means now. The plan is the same for all these operations: they follow the order of ranks whether they
//! commute or not (`tune::choose::order_of`). The handle of a datatype that is made for each call tells nothing. But
//! once the call has looked at the datatype, it can take a lane of an earlier call that moved as many elements with the
//! same layout ([`layout_lanes`](super::layout_lanes)). Each rank decides for itself whether it takes a lane: peers see
//! the same call.

use super::arguments::Prepared;
use super::datatype::freed;
use super::device;
use super::elements::Elements;
use super::lanes::Keyed;
use super::op::{Combiner, Operator};
use super::serve::{Served, Site};
use crate::coll::phase::short::{self, AtOnce, CellMoves};
use crate::coll::{Plan, REGISTRY, Short};
use crate::fabric::shm::known::{self, Known};
use crate::fabric::shm::{Ends, Entered, ShortCall};
use crate::kernel::Combine;
use crate::mpi::handles::{constants, predefined};
use crate::report::{Counter, Outcome};
use crate::sync::Payload;
use crate::tune::LAST_EPOCH;
use crate::types::{Bytes, CommRank};
use mpi_sys::{MPI_Count, MPI_Datatype, MPI_Op};
use std::ffi::{c_int, c_void};
use std::ptr::null;

/// The arguments that a call must share with an earlier one to take its lane or its permit.
#[derive(Clone, Copy, PartialEq)]
pub struct Key {
    /// Elements of the buffer; of each block where there are several.
    pub count: MPI_Count,
    /// The datatype of all buffers that the call has at this rank.
    pub datatype: MPI_Datatype,
    /// The operation of a reduction, else null.
    pub op: MPI_Op,
}

impl Key {
    /// The key of a call that moves data.
    #[inline]
    pub fn moving(count: MPI_Count, datatype: MPI_Datatype) -> Self {
        Self { count, datatype, op: constants().op_null }
    }

    /// The key of a barrier.
    #[inline]
    pub fn barrier() -> Self {
        Self::moving(0, constants().datatype_null)
    }
}

/// The arguments that later calls must share with a call that opens a lane.
pub(super) struct Opening {
    pub(super) key: Key,
    /// How many datatypes had been freed before the call looked at its arguments.
    freed: u64,
}

impl Opening {
    /// Has to be made before the call looks at its arguments.
    pub fn new(key: Key) -> Self {
        Self { key, freed: freed() }
    }
}

/// How long a datatype's handle means the same.
#[derive(Clone, Copy)]
pub(super) enum Lasting {
    /// Always: the datatype is predefined, or there is none.
    Always,
    /// As long as [`freed`] returns this number.
    While(u64),
}

/// How the calls of a lane run. It is found out once, so that a call need not look at several things.
#[derive(Clone, Copy)]
enum Path {
    /// As a part of their entry: all data fit lines.
    InLines(Payload),
    /// By a function for short pieces.
    InShortPieces,
    /// By a function for data in cells that move whole.
    InCells,
    /// By steps that are found out in each call.
    Otherwise,
    /// After the elements have been found or packed.
    Unpacked,
}

impl Path {
    /// The path of calls whose elements lie as they are packed.
    fn of(short: Option<Short>) -> Self {
        match short {
            Some(Short::InLines(payload)) => Self::InLines(payload),
            Some(Short::InShortPieces) => Self::InShortPieces,
            Some(Short::InCells(CellMoves { in_halves: false, tried: None })) => Self::InCells,
            Some(Short::InCells(_)) | None => Self::Otherwise,
        }
    }
}

/// What a served call found out, so that later calls like it need not.
pub struct Lane {
    pub(super) key: Key,
    row: usize,
    counter: Counter,
    /// The plan of an earlier call; each call sets epoch and root.
    pub(super) plan: Plan,
    entered: Entered,
    pub(super) combiner: Option<Combiner>,
    short: Option<Short>,
    path: Path,
    pub(super) elements: Elements,
    lasting: Lasting,
}

impl Lane {
    /// A lane for calls like this one; `None` if they take the long way.
    fn new(
        site: &Site<'_>,
        (key, lasting): (Key, Lasting),
        row: usize,
        plan: Plan,
        operator: Option<&Operator>,
    ) -> Option<Self> {
        let combiner = match operator {
            Some(operator) => Some(operator.share_combiner()?),
            None => None,
        };
        let elements = match combiner {
            _ if key == Key::barrier() => Elements::Packed { at: 0 },
            Some(Combiner::Kernel(_)) => Elements::of_kernel(key.datatype, plan.bytes)?,
            Some(Combiner::Library(_)) | None => {
                let blocks = site.blocks_at_most();
                let count = usize::try_from(key.count).ok()?.checked_mul(blocks)?;
                // SAFETY: the datatype of the call that is under way.
                unsafe { Elements::of(key.datatype, count, plan.bytes * blocks) }?
            }
        };
        Some(Self::of_elements(site, (key, lasting), row, plan, combiner, elements))
    }

    /// A lane whose combiner and elements are known.
    pub(super) fn of_elements(
        site: &Site<'_>,
        (key, lasting): (Key, Lasting),
        row: usize,
        plan: Plan,
        combiner: Option<Combiner>,
        elements: Elements,
    ) -> Self {
        let Site { shared, collective, .. } = *site;
        let counter = Counter::of(Outcome::Accelerated(row), plan.bytes);
        let short = (REGISTRY[row].short)(&plan, &shared.agreed.measures());
        let entered = Entered::new(collective, row, &plan);
        let path = if matches!(elements, Elements::Packed { at: 0 }) { Path::of(short) } else { Path::Unpacked };
        Self { key, row, counter, plan, entered, combiner, short, path, elements, lasting }
    }
}

impl Keyed for Lane {
    type Key = Key;

    #[inline(always)]
    fn key(&self) -> &Key {
        &self.key
    }

    fn tag(key: &Key) -> u32 {
        key.count as u32
    }

    fn may_end(&self) -> bool {
        matches!(self.lasting, Lasting::While(_))
    }

    #[inline(always)]
    fn is_over(&self) -> bool {
        match self.lasting {
            Lasting::Always => false,
            Lasting::While(then) => then != freed(),
        }
    }
}

impl Site<'_> {
    /// Opens a lane for calls like this one and returns it; `None` if none was opened. If a datatype was freed since
    /// the last call with a derived one, only a lane by layout is of use: programs that make a datatype for each call
    /// free one with each.
    pub(super) fn open_lane(&self, opening: &Opening, row: usize, plan: Plan, prepared: &Prepared) -> Option<&Lane> {
        if !self.has_lanes() || !self.may_open_lane(&plan) {
            return None;
        }
        let (lanes, &Opening { key, freed }) = (self.shared.lanes(self.collective), opening);
        let lasting = if key == Key::barrier() || predefined(key.datatype).is_some() {
            Lasting::Always
        } else if lanes.note_freed(freed) {
            Lasting::While(freed)
        } else {
            return self.open_layout_lane(key, row, plan, prepared);
        };
        let vacancy = lanes.vacancy(&key)?;
        match Lane::new(self, (key, lasting), row, plan, prepared.operator.as_ref()) {
            Some(lane) => {
                self.open_stem(&key, &lane, prepared);
                Some(lanes.open(vacancy, lane))
            }
            // `Lane::new` needs a kept layout, which few datatypes have where they are made for each call.
            None => self.open_layout_lane(key, row, plan, prepared),
        }
    }

    /// Whether calls with this plan may have a lane: they need no other node and no scratch memory.
    pub(super) fn may_open_lane(&self, plan: &Plan) -> bool {
        self.shared.agreed.nodes == 1 && plan.scratch == Bytes::ZERO
    }

    /// The number of blocks in the longest buffer that any rank may have.
    pub(super) fn blocks_at_most(&self) -> usize {
        if self.collective.has_blocks() { self.shared.agreed.ranks } else { 1 }
    }
}

/// Whether an address is memory of the program: neither null nor `MPI_IN_PLACE`.
#[inline]
fn is_memory(address: *const c_void) -> bool {
    !address.is_null() && address != constants().in_place.cast_const()
}

/// The buffers of a call that is not in place.
#[inline(always)]
fn ends(send: *const c_void, recv: *const c_void) -> Ends {
    Ends { send: send.cast_mut().cast(), recv: recv.cast_mut().cast(), is_in_place: false }
}

/// Both buffers of a call at a rank that has both; `None` if they need a closer look. In place, this rank's input
/// starts `own` bytes into the output.
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

/// The functions of [`collectives`](super::collectives) for a call that has found its lane. They return `None` if the
/// lane can't take the call; nothing has happened then.
impl Site<'_> {
    #[inline(always)]
    pub(super) fn repeat_allreduce(&self, lane: &Lane, send: *const c_void, recv: *mut c_void) -> Option<Served> {
        Some(self.repeat::<short::Allreduce>(lane, CommRank(0), pair(send, recv, 0)?))
    }

    #[inline(always)]
    pub(super) fn repeat_reduce(
        &self,
        lane: &Lane,
        send: *const c_void,
        recv: *mut c_void,
        root: c_int,
    ) -> Option<Served> {
        let root = self.seat().root(root)?;
        let ends = if root == self.shared.me {
            pair(send, recv, 0)?
        } else if is_memory(send) {
            ends(send, null())
        } else {
            return None;
        };
        Some(self.repeat::<short::Reduce>(lane, root, ends))
    }

    #[inline(always)]
    pub(super) fn repeat_bcast(&self, lane: &Lane, buffer: *mut c_void, root: c_int) -> Option<Served> {
        let root = self.seat().root(root)?;
        if !is_memory(buffer) {
            return None;
        }
        Some(self.repeat::<short::Bcast>(lane, root, ends(null(), buffer)))
    }

    #[inline(always)]
    pub(super) fn repeat_allgather(&self, lane: &Lane, send: *const c_void, recv: *mut c_void) -> Option<Served> {
        let own = lane.plan.bytes.0 * self.shared.me.index();
        Some(self.repeat::<short::Allgather>(lane, CommRank(0), pair(send, recv, own)?))
    }

    #[inline(always)]
    pub(super) fn repeat_scatter(
        &self,
        lane: &Lane,
        send: *const c_void,
        recv: *mut c_void,
        root: c_int,
    ) -> Option<Served> {
        let root = self.seat().root(root)?;
        let is_root = root == self.shared.me;
        let is_in_place = is_root && recv == constants().in_place;
        if !is_in_place && !is_memory(recv) || is_root && (!is_memory(send) || send == recv.cast_const()) {
            return None;
        }
        let recv = if is_in_place { null() } else { recv.cast_const() };
        let ends = Ends { is_in_place, ..ends(if is_root { send } else { null() }, recv) };
        Some(self.repeat::<short::Scatter>(lane, root, ends))
    }

    #[inline(always)]
    pub(super) fn repeat_barrier(&self, lane: &Lane) -> Option<Served> {
        Some(self.repeat::<short::Barrier>(lane, CommRank(0), ends(null(), null())))
    }

    #[inline(always)]
    pub(super) fn lane(&self, key: &Key) -> Option<&Lane> {
        let lane = self.shared.lanes(self.collective).find(key)?;
        self.has_lanes().then_some(lane)
    }

    /// Whether calls may take lanes at all.
    #[inline(always)]
    pub(super) fn has_lanes(&self) -> bool {
        self.epoch < LAST_EPOCH && !device::may_be_used()
    }

    /// Serves a call by its lane. `ends` are the program's buffers, and `C` is this collective.
    #[inline(always)]
    fn repeat<C: AtOnce>(&self, lane: &Lane, root: CommRank, ends: Ends) -> Served {
        self.repeat_by::<C>(lane.path, lane, root, ends)
    }

    /// `repeat` for elements that lie at `ends` as they are packed.
    #[inline(always)]
    pub(super) fn repeat_packed<C: AtOnce>(&self, lane: &Lane, root: CommRank, ends: Ends) -> Served {
        self.repeat_by::<C>(Path::of(lane.short), lane, root, ends)
    }

    /// `repeat` by `path`. The buffers are passed to functions one by one: as `Ends` they would be in memory, also
    /// where they are for a part of the entry.
    #[inline(always)]
    fn repeat_by<C: AtOnce>(&self, path: Path, lane: &Lane, root: CommRank, ends: Ends) -> Served {
        // Asked first, and alone: a `match` of all would become a jump by a table.
        if let Path::InLines(payload) = path {
            return self.repeat_whole::<C, known::InLines>(lane, root, ends, payload);
        }
        let Ends { send, recv, is_in_place } = ends;
        match path {
            Path::InShortPieces => self.repeat_in_cells::<C, known::InShortPieces>(lane, root, send, recv, is_in_place),
            Path::InCells => self.repeat_in_cells::<C, known::InCells>(lane, root, send, recv, is_in_place),
            // Calls in lines have returned above.
            Path::InLines(_) | Path::Otherwise => self.repeat_otherwise::<C>(lane, root, send, recv, is_in_place),
            Path::Unpacked => self.repeat_unpacked::<C>(lane, root, send, recv, is_in_place),
        }
    }

    /// `repeat_packed` for short calls whose data move whole and are as `K` says.
    #[inline(always)]
    fn repeat_whole<C: AtOnce, K: Known>(&self, lane: &Lane, root: CommRank, ends: Ends, payload: Payload) -> Served {
        let plan = Plan { epoch: self.epoch, root, bytes: K::checked(lane.plan.bytes), ..lane.plan };
        let entered = (&lane.entered, self.epoch, root);
        let (context, waiting) = (self.shared.context(), &self.job.waiting);
        // SAFETY: by MPI's contract the program's buffers have the packed lengths of the plan, and one call at a time
        // is under way.
        let call =
            unsafe { ShortCall::<K>::enter(context, waiting, entered, plan.granule, ends, lane.combine(), payload) };
        self.ended(lane.counter, plan.bytes, call.finish(C::whole(&call, &plan)))
    }

    /// `repeat_whole` for data in cells.
    #[inline(never)]
    fn repeat_in_cells<C: AtOnce, K: Known>(
        self,
        lane: &Lane,
        root: CommRank,
        send: *mut u8,
        recv: *mut u8,
        is_in_place: bool,
    ) -> Served {
        self.widen_cells_for(K::checked(lane.plan.reach));
        self.repeat_whole::<C, K>(lane, root, Ends { send, recv, is_in_place }, Payload::BesideFlag)
    }

    /// `repeat_packed` for all other calls: short ones in halves or of which the root may lend its memory, and those
    /// that run as a future.
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
        let Some(Short::InCells(moves)) = lane.short else {
            return self.run_row(lane.row, &plan, ends.buffers(lane.combine()));
        };
        let (context, waiting) = (self.shared.context(), &self.job.waiting);
        let (entered, payload) = ((&lane.entered, self.epoch, root), Payload::BesideFlag);
        // SAFETY: as in `repeat_whole`.
        let call = unsafe { ShortCall::enter(context, waiting, entered, plan.granule, ends, lane.combine(), payload) };
        self.ended(lane.counter, plan.bytes, short::run_in_cells::<C>(call, &plan, moves, REGISTRY[lane.row].run))
    }
}

impl Lane {
    #[inline(always)]
    fn combine(&self) -> Option<&dyn Combine> {
        self.combiner.as_ref().map(Combiner::as_combine)
    }
}
