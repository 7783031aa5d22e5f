//! A collective call, from the program's arguments to its result or to the native library.

use super::arguments::{Operand, Prepared, Refused};
use super::bridge::{NativeBridge, NativeOp};
use super::communicator::{Cells, Communicator, Purpose, Shared, find, while_freeing};
use super::decline::known_size;
use super::job::{self, Job, abort};
use super::lane::{Key, Lane, Opening};
use super::op::Operator;
use super::peers::{self, Announcement};
use super::permits::{self, Permit, Scope};
use crate::coll::{Need, Plan, REGISTRY};
use crate::config;
use crate::fabric::shm::{Awaited, Bridge, Buffer, Buffers, Call, Fault, ROTATED, Stall, Traffic};
use crate::kernel::PackedBuffer;
use crate::log::{self, Once};
use crate::mpi::handles::constants;
use crate::mpi::native::native;
use crate::report::{Counter, Outcome, counters};
use crate::tune::{Choice, Prospect, Reason, Shape, choose};
use crate::types::{Bytes, Collective, CommRank, Epoch, NodeRank};
use mpi_sys::MPI_Comm;
use std::ffi::c_int;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// It is done, with this return code.
    Done(c_int),
    /// The native function has to do it.
    Native,
}

/// Called before the native `MPI_Init` or `MPI_Init_thread`: from now on the other ranks can learn that this one has
/// huddle.
pub fn initialising() -> Option<Announcement> {
    peers::announce(super::init::protocol() as u32)
}

/// Called after the native `MPI_Init` or `MPI_Init_thread`.
///
/// # Safety
/// The native function has just returned `code`.
pub unsafe fn initialised(code: c_int, announcement: Option<Announcement>) {
    if code != constants().success || job::job().is_some() {
        return;
    }
    // SAFETY: MPI has just been initialised.
    unsafe { super::init::start(announcement) };
}

/// Calls `native`, which is `MPI_Comm_free` or `MPI_Comm_disconnect`.
///
/// # Safety
/// The argument is the program's, under MPI's contract.
pub unsafe fn freeing(comm: *mut MPI_Comm, native: impl FnOnce(*mut MPI_Comm) -> c_int) -> c_int {
    // SAFETY: MPI rejects a null pointer; any other points to a handle.
    match unsafe { comm.as_ref() } {
        Some(handle) if job::active().is_some() => while_freeing(*handle, || native(comm)),
        _ => native(comm),
    }
}

/// Lets the library make progress if it is time for that. The program may expect its own traffic to move within
/// collectives, so calls that never wait must not starve it. Returns the code of the call, so that entries can end with
/// this.
#[cold]
fn make_progress(job: &Job) -> c_int {
    let now = Instant::now();
    if job.pace.is_time(now, job.traffic_at(now)) {
        (job.waiting.progress)();
    }
    constants().success
}

/// Ends a call that huddle has served, or that was empty. Returns its code.
#[inline(always)]
pub(super) fn end_served(job: &Job) -> c_int {
    let is_due = job.pace.is_due() || job.pace.is_due_in_traffic() && job.traffic() == Traffic::Possible;
    if is_due { make_progress(job) } else { constants().success }
}

/// Counts a call that is declined whatever its arguments. If the communicator's standing is settled, the reason holds
/// for good, and later calls with this key get a permit.
#[cold]
fn leave_native(collective: Collective, comm: MPI_Comm, key: Key, reason: Reason, communicator: Option<&Communicator>) {
    let outcome = Outcome::Declined(collective, reason);
    let (counter, bytes) = match known_size(collective, &key) {
        Some(bytes) => (Counter::of(outcome, bytes), bytes),
        None => (Counter::of_unread(outcome), Bytes::ZERO),
    };
    counters().record_at(counter, bytes);
    if let Some(communicator) = communicator.filter(|communicator| communicator.is_settled()) {
        permits::keep(collective, communicator, counter, Permit { comm, key, freed: None, scope: Scope::All, bytes });
    }
}

/// A call on a communicator that has shared memory. It is small, and functions that take long get a copy of it. They
/// never get the address of the original, so the original stays in registers where a lane serves the call.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The job.
    pub job: &'a Job,
    /// The communicator.
    pub shared: &'a Shared,
    /// Its handle.
    pub comm: MPI_Comm,
    pub(super) collective: Collective,
    pub(super) epoch: Epoch,
}

impl Site<'_> {
    /// Gives the call its ordinal, whatever becomes of it: ranks agree on ordinals even where arguments are rejected.
    /// `None` if the call is native whatever its arguments. It is counted then, with its size if `key` tells that
    /// without asking MPI, which might reject the question. The key is made only in that case: it is passed by address,
    /// so in all calls it would be in memory.
    #[inline(always)]
    pub(super) fn enter(collective: Collective, comm: MPI_Comm, key: impl FnOnce() -> Key) -> Option<Self> {
        let (reason, communicator) = 'reason: {
            let Some(job) = job::active() else {
                break 'reason (job::why_inactive(), None);
            };
            let Some(communicator) = find(job, comm) else {
                break 'reason (Reason::NoContext, None);
            };
            let epoch = communicator.next_epoch();
            let reason = match communicator.standing(job, comm, epoch) {
                Ok(shared) => match shared.prospect(collective) {
                    Prospect::Declined(reason) => reason,
                    _ => return Some(Self { job, shared, comm, collective, epoch }),
                },
                Err(reason) => reason,
            };
            (reason, Some(communicator))
        };
        leave_native(collective, comm, key(), reason, communicator);
        None
    }

    /// Serves a call by the long way. With `opening` it opens a lane for this call and later ones like it; `repeat`
    /// takes the lane.
    pub(super) fn serve(
        &self,
        prepared: Result<Prepared, Refused>,
        opening: Option<Opening>,
        repeat: impl Fn(&Lane) -> Option<Served>,
    ) -> Served {
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(refused) => return self.refuse(refused),
        };
        if let Some(opening) = &opening
            && let Some(lane) = self.layout_lane(opening, &prepared)
            && let Some(served) = repeat(lane)
        {
            return served;
        }
        let shape = prepared.shape(self.collective);
        let decline = |reason| {
            let counter = Counter::of(Outcome::Declined(self.collective, reason), prepared.bytes);
            self.end_declined(reason, counter, prepared.bytes)
        };
        let (row, plan) = match self.choose(&shape) {
            Ok(chosen) => chosen,
            Err(reason) => return decline(reason),
        };
        match self.ensure_cells(row, &plan) {
            Ok(true) => {}
            Ok(false) => return decline(Reason::NoSharedMemory),
            Err(fault) => return self.fault(fault),
        }
        if let Some(opening) = &opening
            && let Some(lane) = self.open_lane(opening, row, plan, &prepared)
            && let Some(served) = repeat(lane)
        {
            return served;
        }
        self.run(row, &plan, &prepared)
    }

    /// Row and plan of a call of this shape, or why it is declined; the same on all ranks.
    #[inline]
    pub(super) fn choose(&self, shape: &Shape) -> Result<(usize, Plan), Reason> {
        match choose(&self.job.config, shape, &self.shared.agreed, &self.shared.map, self.epoch) {
            Choice::Run { row, plan } => Ok((row, plan)),
            Choice::RunInstead { row, plan, forced, need } => {
                self.report_overruled(forced, need);
                Ok((row, plan))
            }
            Choice::Decline(reason) => Err(reason),
        }
    }

    /// Whether there is memory for what the call puts into cells. If there is too little, the ranks of the node try to
    /// reserve it here.
    fn ensure_cells(&self, row: usize, plan: &Plan) -> Result<bool, Fault> {
        let has_enough = plan.reach <= self.shared.cells.get().reserved || self.deepen_cells(row, plan)?;
        if has_enough {
            self.widen_cells_for(plan.reach);
        }
        Ok(has_enough)
    }

    /// After some calls, reserves more of this rank's cells than calls of this reach need, if the rotation of its
    /// pieces through more memory pays. Each rank decides for itself, since it tells with every piece where that lies.
    #[inline(always)]
    pub(super) fn widen_cells_for(&self, reach: Bytes) {
        /// Reserving all takes as long as many calls, so it is not done for a few.
        const CALLS: u64 = 256;
        if reach >= ROTATED
            && self.epoch.0 >= CALLS
            && !self.shared.cells.get().are_wide
            && self.shared.context().uses_ring()
        {
            self.widen_cells();
        }
    }

    #[cold]
    fn widen_cells(&self) {
        self.shared.context().widen_cells();
        self.shared.cells.set(Cells { are_wide: true, ..self.shared.cells.get() });
    }

    /// Has all ranks of the node reserve as much of each cell as the call needs. Returns whether they could. They do
    /// not reserve all, which takes as long as moving some mebibytes.
    #[cold]
    fn deepen_cells(&self, row: usize, plan: &Plan) -> Result<bool, Fault> {
        let (context, cells) = (self.shared.context(), &self.shared.cells);
        let known = cells.get();
        let depth = context.geometry().depth_for(plan.reach);
        if known.refused.is_some_and(|refused| refused <= depth) {
            return Ok(false);
        }
        let reserve = || context.reserve_cells(depth).inspect_err(report_no_cells).is_ok();
        let call = (self.collective, row);
        let is_reserved = context.agree_on_cells(depth, reserve, &self.job.waiting, call, plan)?;
        cells.set(match is_reserved {
            true => Cells { reserved: depth, ..known },
            false => Cells { refused: Some(depth), ..known },
        });
        Ok(is_reserved)
    }

    /// Writes one line per process for each algorithm that the user forces and a call can't run.
    #[cold]
    fn report_overruled(&self, forced: usize, need: Need) {
        static GIVEN: [AtomicBool; REGISTRY.len()] = [const { AtomicBool::new(false) }; REGISTRY.len()];
        let context = self.shared.context();
        if context.comm_rank(context.rank()) == CommRank(0) && !GIVEN[forced].swap(true, Ordering::Relaxed) {
            log::warning(format_args!(
                "{}: {} needs {}; where that is not so, calls run as without the variable",
                config::variable_of(self.collective),
                REGISTRY[forced].name,
                need.name()
            ));
        }
    }

    /// Ends a call whose arguments were rejected. Peers that may wait for this rank learn that it takes no part.
    #[cold]
    fn refuse(&self, refused: Refused) -> Served {
        let context = self.shared.context();
        context.fail(self.epoch);
        if let Some(bridge) = &self.shared.bridge {
            bridge.refuse(self.epoch);
        }
        counters().record_unread(Outcome::Declined(self.collective, Reason::RejectedArguments));
        match refused {
            Refused::ByLibrary => Served::Native,
            Refused::Truncated => Served::Done(self.call_error_handler(constants().err_truncate)),
        }
    }

    fn call_error_handler(&self, class: c_int) -> c_int {
        // SAFETY: the call's communicator.
        unsafe { native().comm_call_errhandler(self.comm, class) };
        class
    }

    #[inline]
    fn run(&self, row: usize, plan: &Plan, prepared: &Prepared) -> Served {
        let buffers = if prepared.operator.is_some() { self.reduction(plan, prepared) } else { moves(prepared) };
        let combine = prepared.operator.as_ref().map(Operator::as_combine);
        let native_op = prepared.native_op.map(|(datatype, op)| NativeOp { datatype, op });
        let layout = self.shared.context().layout();
        let bridge = self.shared.bridge.as_ref();
        let bridge = bridge.map(|comm| NativeBridge::new(comm, plan.epoch, layout, plan.granule, native_op, combine));
        let scratch = match plan.scratch.0 {
            0 => std::ptr::null_mut(),
            n => self.shared.memory(Purpose::Scratch, n),
        };
        let bridge = bridge.as_ref().map(|bridge| bridge as &dyn Bridge);
        let buffers = Buffers { scratch, combine, bridge, ..buffers };
        let served = self.run_row(row, plan, buffers);
        if let Served::Done(code) = served
            && code == constants().success
        {
            self.deliver(plan, prepared, &buffers);
            /// Seldom enough that memory which calls of one length reuse is not freed after each of them.
            const CALLS_PER_TRIM: u64 = 16;
            // Not after a fault: the program's error handler may have freed the communicator.
            if self.epoch.0.is_multiple_of(CALLS_PER_TRIM) {
                self.shared.trim();
            }
        }
        served
    }

    /// Runs a call whose plan and buffers are known.
    #[inline(always)]
    pub(super) fn run_row(&self, row: usize, plan: &Plan, buffers: Buffers<'_>) -> Served {
        let (context, waiting) = (self.shared.context(), &self.job.waiting);
        // SAFETY: by MPI's contract the program's buffers have the packed lengths of the plan, and one call at a time
        // is under way.
        let call = unsafe { Call::enter(context, waiting, self.collective, row, plan, buffers) };
        let counter = Counter::of(Outcome::Accelerated(row), plan.bytes);
        self.ended(counter, plan.bytes, (REGISTRY[row].run)(&call, plan))
    }

    /// Ends a call of `bytes` that returned `result`, and returns its outcome. If it succeeded it is counted at
    /// `counter`.
    #[inline(always)]
    pub(super) fn ended(&self, counter: Counter, bytes: Bytes, result: Result<(), Fault>) -> Served {
        if let Err(fault) = result {
            return self.fault(fault);
        }
        counters().record_at(counter, bytes);
        Served::Done(end_served(self.job))
    }

    /// Ends a call of `bytes` that is declined for `reason`, and counts it at `counter`. An empty call is done with
    /// that: no rank has data for another, though some libraries exchange messages. All ranks whose arguments are in
    /// order have the same reason, so none of them waits in the native function for another that does not call it.
    #[inline(always)]
    pub(super) fn end_declined(&self, reason: Reason, counter: Counter, bytes: Bytes) -> Served {
        counters().record_at(counter, bytes);
        if reason == Reason::Empty { Served::Done(end_served(self.job)) } else { Served::Native }
    }

    /// Reductions work on contiguous memory: buffers with holes are packed first.
    fn reduction<'p>(&self, plan: &Plan, prepared: &'p Prepared) -> Buffers<'p> {
        let n = plan.bytes.0;
        let buffer = |operand: &Operand, purpose| match operand {
            Operand::Absent => Buffer::Absent,
            Operand::Memory(at) => Buffer::Contiguous(*at),
            Operand::View(_) => Buffer::Contiguous(self.shared.memory(purpose, n)),
            Operand::Staged(staged) => Buffer::Contiguous(staged.fetch()),
            Operand::Part(..) => unreachable!("no reduction takes part of a buffer"),
        };
        let recv = buffer(&prepared.recv, Purpose::Recv);
        let send = if prepared.is_in_place { recv } else { buffer(&prepared.send, Purpose::Send) };
        let input = if prepared.is_in_place { &prepared.recv } else { &prepared.send };
        if let (Operand::View(view), Buffer::Contiguous(packed)) = (input, send) {
            // SAFETY: the view has `n` packed bytes, and the memory has room for them.
            unsafe { view.read(0, packed, n) };
        }
        Buffers { send, recv, is_in_place: prepared.is_in_place, ..Buffers::NONE }
    }

    /// Copies a packed result to the program's buffer.
    fn deliver(&self, plan: &Plan, prepared: &Prepared, buffers: &Buffers<'_>) {
        if let (Operand::View(view), Some(_), Buffer::Contiguous(packed)) =
            (&prepared.recv, &prepared.operator, buffers.recv)
        {
            // SAFETY: both have the plan's length.
            unsafe { view.write(0, packed, plan.bytes.0) };
        }
        prepared.finish();
    }

    fn rank_of(&self, rank: NodeRank) -> u32 {
        self.shared.context().comm_rank(rank).0
    }

    #[cold]
    fn fault(self, fault: Fault) -> Served {
        let name = self.collective.name();
        match fault {
            // Without a bridge this rank takes no step between nodes, so no other node waits for it.
            Fault::PeerFailed { rank } if self.shared.bridge.is_none() => {
                log::warning(format_args!(
                    "MPI_{name} (call {} of its communicator) fails: rank {} takes no part, its arguments or those of a rank that it \
                     depends on were rejected",
                    self.epoch.0,
                    self.rank_of(rank)
                ));
                Served::Done(self.call_error_handler(constants().err_other))
            }
            Fault::PeerFailed { rank } => self.end(format_args!(
                "MPI_{name} (call {} of its communicator) can't end: rank {} takes no part, its arguments or those \
                     of a rank that it depends on were rejected, and other nodes wait",
                self.epoch.0,
                self.rank_of(rank)
            )),
            Fault::Mismatch { rank, peer } => {
                let when = if peer.epoch == self.epoch { "it" } else { "another came in its place, and the latest" };
                let own = self.shared.context().current_call();
                self.end(format_args!(
                    "erroneous program: call {} of a communicator is {own} here but on its rank {} {when} is {peer}",
                    self.epoch.0,
                    self.rank_of(rank),
                ))
            }
        }
    }

    /// Ends the job. One rank of the node writes the line first.
    fn end(&self, text: fmt::Arguments<'_>) -> ! {
        self.shared.context().teller().tell_once(|| log::error(text));
        abort()
    }
}

fn report_no_cells(error: &std::io::Error) {
    let text = "no shared memory for longer messages on a communicator";
    log::once(Once::NoMemory, format_args!("{text}: {error}; they stay native"));
}

/// Collectives that move data read and write buffers with holes piece by piece.
fn moves(prepared: &Prepared) -> Buffers<'_> {
    let buffer = |operand| match operand {
        &Operand::Absent => Buffer::Absent,
        &Operand::Memory(at) => Buffer::Contiguous(at),
        Operand::View(view) => Buffer::Packed(view),
        Operand::Part(part) => Buffer::Packed(part),
        Operand::Staged(staged) => Buffer::Contiguous(staged.fetch()),
    };
    Buffers {
        send: buffer(&prepared.send),
        recv: buffer(&prepared.recv),
        is_in_place: prepared.is_in_place,
        ..Buffers::NONE
    }
}

/// The latest call of this thread that huddle served, for messages about huddle's own faults.
pub fn latest_call() -> Option<String> {
    let context = super::communicator::latest()?.context();
    Some(context.latest_call()?.to_string())
}

/// Writes the line for a wait that lasts.
pub fn report_stall(stall: &Stall) {
    let peer = stall.peer.map_or_else(String::new, |(rank, call)| {
        let what = call.collective.map_or_else(|| "nothing yet".to_owned(), |_| call.to_string());
        format!(" of rank {}, whose last call is number {} ({what})", rank.0, call.epoch.0)
    });
    let awaited = match stall.awaited {
        Awaited::Nothing => "nothing".to_owned(),
        Awaited::Flag { line, ticket, .. } => format!("flag {line:?} of step {}", ticket.step()),
        Awaited::Post { ticket, .. } => format!("the signal of step {}", ticket.step()),
        Awaited::Slot { ticket, .. } | Awaited::Release { ticket } => {
            format!("the release of the slot for step {}", ticket.step())
        }
        Awaited::Cells { .. } => "the memory of the slots".to_owned(),
        Awaited::Bridge => "the other nodes".to_owned(),
    };
    log::warning(format_args!(
        "stalled for {} s in MPI_{} (call {} of its communicator): waiting for {awaited}{peer}",
        stall.waited.as_secs(),
        stall.collective.name(),
        stall.epoch.0
    ));
}
