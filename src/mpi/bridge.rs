//! The step between nodes: the native collectives of the leaders, on a communicator of their own.

use super::communicator::may_free;
use super::failure::Code;
use super::job::Job;
use super::refusals::Refusals;
use super::serve::latest_call;
use crate::fabric::shm::Bridge;
use crate::fabric::{BridgeStep, Leg};
use crate::kernel::Combine;
use crate::mpi::handles::constants;
use crate::mpi::native::native;
use crate::topo::Layout;
use crate::types::{Bytes, Epoch, NodeIndex};
use mpi_sys::{MPI_Comm, MPI_Datatype, MPI_Group, MPI_Op, MPI_Request};
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The communicator of the leaders with one index, one of each node: a leader's rank in it is the index of its node.
pub struct BridgeComm {
    comm: MPI_Comm,
    nodes: usize,
    node: usize,
    refusals: Refusals,
}

// SAFETY: a handle that any thread may pass to MPI.
unsafe impl Sync for BridgeComm {}
// SAFETY: as above.
unsafe impl Send for BridgeComm {}

impl BridgeComm {
    /// Creates the communicator. Collective over the processes with the world ranks `leaders`, which are in the order
    /// of their nodes. `sequence` tells concurrent creations apart.
    ///
    /// # Errors
    /// The MPI library's code.
    pub(super) fn create(job: &Job, leaders: &[c_int], sequence: u64) -> Result<Self, c_int> {
        let c = constants();
        let mut group: MPI_Group = c.group_null;
        let mut comm = c.comm_null;
        let tag = (sequence.wrapping_mul(0x9e37_79b9) ^ leaders[0] as u64) % 32_767;
        // SAFETY: valid groups, world ranks and places.
        let code = unsafe {
            native().group_incl(job.group, leaders.len() as c_int, leaders.as_ptr(), &mut group);
            let code = native().comm_create_group(job.world, group, tag as c_int, &mut comm);
            native().group_free(&mut group);
            code
        };
        if code != c.success || comm == c.comm_null {
            return Err(code);
        }
        // SAFETY: a valid communicator.
        unsafe { native().comm_set_errhandler(comm, c.errors_return) };
        let node = leaders.iter().position(|leader| *leader as u32 == job.rank).expect("leaders come here");
        Ok(Self { comm, nodes: leaders.len(), node, refusals: Refusals::default() })
    }

    pub(super) fn comm(&self) -> MPI_Comm {
        self.comm
    }

    /// The node of this leader.
    pub(super) fn node(&self) -> usize {
        self.node
    }

    /// The other nodes, by their ranks in the communicator.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let node = self.node;
        (0..self.nodes).filter(move |other| *other != node)
    }

    pub(super) fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}

impl Drop for BridgeComm {
    /// Runs where the user's communicator is freed. All its leaders come there, so they can free this one, which is
    /// collective too. If refusals may still be under way this one is kept: otherwise another communicator might get
    /// its context, and receive them.
    fn drop(&mut self) {
        if let (true, Some(job)) = (may_free(), super::job::job()) {
            if !self.close() {
                return;
            }
            // SAFETY: this value owns the communicator.
            unsafe { native().comm_free(&mut self.comm) };
            job.bridges.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The operation of a reduction between nodes.
#[derive(Clone, Copy)]
pub struct NativeOp {
    /// A predefined datatype whose packed form is its memory form.
    pub datatype: MPI_Datatype,
    /// A predefined operation.
    pub op: MPI_Op,
}

/// The bridge of one call.
pub struct NativeBridge<'a> {
    /// The leaders' communicator.
    comm: &'a BridgeComm,
    /// The call.
    epoch: Epoch,
    /// The communicator's nodes.
    layout: &'a Layout,
    /// Packed bytes of an element of a reduction.
    granule: Bytes,
    /// The reduction as the native library knows it; without it leaders gather all operands and combine them in node
    /// order.
    native_op: Option<NativeOp>,
    /// The reduction on packed operands.
    combine: Option<&'a dyn Combine>,
    pending: Mutex<Pending>,
}

/// The step that is under way.
struct Pending {
    /// Its name, for log lines.
    step: &'static str,
    request: MPI_Request,
    /// The receive of an exchange, whose send is `request`.
    receive: MPI_Request,
    /// Memory that the step needs until it ends: counts and displacements, and a temporary result.
    counts: Vec<c_int>,
    starts: Vec<c_int>,
    temporary: Vec<u64>,
    after: After,
    /// How often `is_done` was called.
    polls: u32,
}

/// The work that is left when the native collective has ended.
#[derive(Clone, Copy)]
enum After {
    Nothing,
    /// The result is copied from the temporary to `to`.
    Copy {
        to: *mut u8,
        n: usize,
    },
    /// The operands of all nodes, `n` bytes each, are in the temporary; they are combined at `at`.
    Combine {
        at: *mut u8,
        n: usize,
    },
}

// SAFETY: handles and the call's own buffers; the call is driven by one thread at a time.
unsafe impl Send for Pending {}
// SAFETY: as above, and references to Sync data.
unsafe impl Sync for NativeBridge<'_> {}

impl<'a> NativeBridge<'a> {
    /// The bridge of one call. `combine` is the same reduction as `native_op`, where the latter exists.
    pub fn new(
        comm: &'a BridgeComm,
        epoch: Epoch,
        layout: &'a Layout,
        granule: Bytes,
        native_op: Option<NativeOp>,
        combine: Option<&'a dyn Combine>,
    ) -> Self {
        comm.settle(epoch, layout);
        let (counts, starts, temporary) = (Vec::new(), Vec::new(), Vec::new());
        let request = constants().request_null;
        let receive = request;
        let (step, after, polls) = ("step", After::Nothing, 0);
        let pending = Mutex::new(Pending { step, request, receive, counts, starts, temporary, after, polls });
        Self { comm, epoch, layout, granule, native_op, combine, pending }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the job if `code` tells that the library failed in `step`.
    fn check(&self, step: &str, code: c_int) {
        if code != constants().success {
            self.fail(step, code);
        }
    }

    #[cold]
    fn fail(&self, step: &str, code: c_int) -> ! {
        let call = latest_call().unwrap_or_else(|| format!("call {} of a communicator", self.epoch.0));
        crate::log::error(format_args!("{call}: its {step} between nodes failed in the MPI library ({})", Code(code)));
        super::job::abort()
    }

    /// Begins an Allreduce, as the functions below begin their steps. Returns the library's code.
    ///
    /// # Safety
    /// `at` is valid for `n` bytes, a multiple of the element.
    unsafe fn allreduce(&self, at: *mut u8, n: usize) -> c_int {
        let Some(NativeOp { datatype, op }) = self.native_op else {
            // SAFETY: the caller's promise.
            return unsafe { self.gather_and_combine(at, n) };
        };
        let (count, in_place) = ((n / self.granule.0) as c_int, constants().in_place);
        let request = &mut self.pending().request;
        // SAFETY: `count` elements in place.
        unsafe { native().iallreduce(in_place, at.cast(), count, datatype, op, self.comm.comm(), request) }
    }

    /// # Safety
    /// As for `allreduce`.
    unsafe fn reduce(&self, at: *mut u8, n: usize, root: NodeIndex) -> c_int {
        let Some(NativeOp { datatype, op }) = self.native_op else {
            // SAFETY: the caller's promise.
            return unsafe { self.gather_and_combine(at, n) };
        };
        let count = (n / self.granule.0) as c_int;
        let mut pending = self.pending();
        let pending = &mut *pending;
        if self.layout.my_node() == root {
            // MPICH 4.0.2 crashes with MPI_IN_PLACE here.
            pending.temporary = vec![0; n.div_ceil(8)];
            pending.after = After::Copy { to: at, n };
        }
        let (to, request): (*mut c_void, _) = (pending.temporary.as_mut_ptr().cast(), &mut pending.request);
        let root = root.0 as c_int;
        // SAFETY: `count` elements at `at` and, on the root, at `to`.
        unsafe { native().ireduce(at.cast(), to, count, datatype, op, root, self.comm.comm(), request) }
    }

    /// Sends all operands to all leaders, which combine them in node order: for operations that the native library
    /// can't apply to packed data, and for those whose order matters.
    ///
    /// # Safety
    /// As for `allreduce`.
    unsafe fn gather_and_combine(&self, at: *mut u8, n: usize) -> c_int {
        let (byte, length) = (constants().byte, n as c_int);
        let mut pending = self.pending();
        let pending = &mut *pending;
        pending.temporary = vec![0; (n * self.layout.nodes()).div_ceil(8)];
        pending.after = After::Combine { at, n };
        let (all, request) = (pending.temporary.as_mut_ptr().cast(), &mut pending.request);
        // SAFETY: a block of `n` bytes for each node, none of which overlaps `at`.
        unsafe { native().iallgather(at.cast(), length, byte, all, length, byte, self.comm.comm(), request) }
    }

    /// Bytes and start of each node's part of a node-ordered buffer.
    fn parts(&self, block: Bytes) -> (Vec<c_int>, Vec<c_int>) {
        let nodes = || (0..self.layout.nodes() as u32).map(NodeIndex);
        let counts = nodes().map(|node| (self.layout.members(node).len() * block.0) as c_int).collect();
        let starts = nodes().map(|node| (self.layout.first(node) * block.0) as c_int).collect();
        (counts, starts)
    }

    /// # Safety
    /// `at` is valid for `block` bytes per rank of the communicator.
    unsafe fn allgather(&self, at: *mut u8, block: Bytes) -> c_int {
        let c = constants();
        let mut pending = self.pending();
        let pending = &mut *pending;
        (pending.counts, pending.starts) = self.parts(block);
        let (counts, starts) = (pending.counts.as_ptr(), pending.starts.as_ptr());
        let request = &mut pending.request;
        // SAFETY: the caller's promise; counts and displacements live as long as the step.
        unsafe {
            let at = at.cast();
            native().iallgatherv(c.in_place, 0, c.byte, at, counts, starts, c.byte, self.comm.comm(), request)
        }
    }

    /// # Safety
    /// As for `allgather`.
    unsafe fn scatter(&self, at: *mut u8, block: Bytes, root: NodeIndex) -> c_int {
        let c = constants();
        let mut pending = self.pending();
        let pending = &mut *pending;
        (pending.counts, pending.starts) = self.parts(block);
        let me = self.layout.my_node();
        let (n, start) = (pending.counts[me.index()], pending.starts[me.index()] as usize);
        let own = if me == root { c.in_place } else { at.wrapping_add(start).cast() };
        let (counts, starts) = (pending.counts.as_ptr(), pending.starts.as_ptr());
        let request = &mut pending.request;
        // SAFETY: the caller's promise; in place at the root, whose part is where it belongs.
        unsafe {
            let (from, root) = (at.cast_const().cast(), root.0 as c_int);
            native().iscatterv(from, counts, starts, c.byte, own, n, c.byte, root, self.comm.comm(), request)
        }
    }

    /// # Safety
    /// `at` is valid for both legs, which do not overlap.
    unsafe fn send_receive(&self, at: *mut u8, send: Option<Leg>, receive: Option<Leg>) -> c_int {
        // Messages between a pair arrive in order, and nothing else is sent with this tag.
        const TAG: c_int = 0;
        let (byte, success) = (constants().byte, constants().success);
        let mut pending = self.pending();
        let place = |leg: Leg| (at.wrapping_add(leg.offset.0).cast::<c_void>(), leg.n.0 as c_int, leg.node.0 as c_int);
        if let Some((to, n, source)) = receive.map(place) {
            let request = &mut pending.receive;
            // SAFETY: the caller's promise.
            let code = unsafe { native().irecv(to, n, byte, source, TAG, self.comm.comm(), request) };
            if code != success {
                return code;
            }
        }
        if let Some((from, n, target)) = send.map(place) {
            let request = &mut pending.request;
            // SAFETY: as above.
            return unsafe { native().isend(from, n, byte, target, TAG, self.comm.comm(), request) };
        }
        success
    }

    /// # Safety
    /// The spans of the step that has ended are still valid.
    unsafe fn complete(&self, pending: &Pending) {
        let all: *const u8 = pending.temporary.as_ptr().cast();
        match pending.after {
            After::Nothing => {}
            // SAFETY: the caller's promise; the temporary has `n` bytes.
            After::Copy { to, n } => unsafe { to.copy_from_nonoverlapping(all, n) },
            // SAFETY: as above, `n` bytes for each node.
            After::Combine { at, n } => unsafe {
                at.copy_from_nonoverlapping(all, n);
                if let Some(combine) = self.combine {
                    for node in 1..self.layout.nodes() {
                        combine.combine(at, at, all.add(node * n), n);
                    }
                }
            },
        }
    }
}

/// The name of a step in log lines.
fn name(step: &BridgeStep) -> &'static str {
    match step {
        BridgeStep::Barrier => "Barrier",
        BridgeStep::Allreduce { .. } => "Allreduce",
        BridgeStep::Reduce { .. } => "Reduce",
        BridgeStep::Bcast { .. } => "Bcast",
        BridgeStep::Allgather { .. } => "Allgather",
        BridgeStep::Scatter { .. } => "Scatter",
        BridgeStep::SendRecv { .. } => "exchange",
    }
}

impl Bridge for NativeBridge<'_> {
    /// Begins nonblocking calls: the driver tests them, keeps other traffic moving and reports stalls. The chunks of a
    /// message are short ([`crate::coll::phase::longest_chunk`]).
    unsafe fn start(&self, step: BridgeStep, at: *mut u8) {
        {
            let mut pending = self.pending();
            (pending.after, pending.step) = (After::Nothing, name(&step));
        }
        // SAFETY: the caller's promise, for all arms.
        let code = unsafe {
            match step {
                BridgeStep::Barrier => {
                    let request = &mut self.pending().request;
                    native().ibarrier(self.comm.comm(), request)
                }
                BridgeStep::Allreduce { n, .. } => self.allreduce(at, n.0),
                BridgeStep::Reduce { n, root, .. } => self.reduce(at, n.0, root),
                BridgeStep::Bcast { n, root, .. } => {
                    let (byte, root) = (constants().byte, root.0 as c_int);
                    let request = &mut self.pending().request;
                    native().ibcast(at.cast(), n.0 as c_int, byte, root, self.comm.comm(), request)
                }
                BridgeStep::Allgather { block, .. } => self.allgather(at, block),
                BridgeStep::Scatter { block, root, .. } => self.scatter(at, block, root),
                BridgeStep::SendRecv { send, receive, .. } => self.send_receive(at, send, receive),
            }
        };
        self.check(name(&step), code);
    }

    fn is_done(&self) -> bool {
        const POLLS_PER_QUESTION: u32 = 64;
        let mut pending = self.pending();
        let mut done = 0;
        pending.polls = pending.polls.wrapping_add(1);
        if pending.polls.is_multiple_of(POLLS_PER_QUESTION) {
            self.comm.settle(self.epoch, self.layout);
        }
        // SAFETY: the request of the step that was started, or the null request after it has ended.
        let code = unsafe { native().test(&mut pending.request, &mut done, constants().status_ignore) };
        self.check(pending.step, code);
        if done != 0 && pending.receive != constants().request_null {
            // SAFETY: as above.
            let code = unsafe { native().test(&mut pending.receive, &mut done, constants().status_ignore) };
            self.check(pending.step, code);
        }
        if done != 0 {
            // SAFETY: the caller of `start` keeps the spans until this function returns true.
            unsafe { self.complete(&pending) };
            pending.after = After::Nothing;
        }
        done != 0
    }
}
