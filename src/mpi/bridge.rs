//! The step between nodes: the native collectives of the leaders, on a communicator of their own.

use super::communicator::may_free;
use super::job::Job;
use crate::fabric::BridgeStep;
use crate::fabric::shm::Bridge;
use crate::kernel::Combine;
use crate::mpi::handles::constants;
use crate::mpi::native::native;
use crate::topo::Layout;
use crate::types::{Bytes, NodeIndex};
use mpi_sys::{MPI_Comm, MPI_Datatype, MPI_Group, MPI_Op};
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

/// The communicator of the leaders: its rank is the node's index.
pub struct BridgeComm(MPI_Comm);

// SAFETY: a handle that any thread may pass to MPI.
unsafe impl Sync for BridgeComm {}
// SAFETY: as above.
unsafe impl Send for BridgeComm {}

impl BridgeComm {
    /// Collective over the processes with the world ranks `leaders`, in the order of their nodes. `sequence` tells
    /// concurrent creations apart.
    pub(super) fn create(job: &Job, leaders: &[c_int], sequence: u64) -> Option<Self> {
        let c = constants();
        let mut group: MPI_Group = c.group_null;
        let mut comm = c.comm_null;
        let tag = (sequence.wrapping_mul(0x9e37_79b9) ^ leaders[0] as u64) % 32_767;
        // SAFETY: valid groups, world ranks and places.
        unsafe {
            native().group_incl(job.group, leaders.len() as c_int, leaders.as_ptr(), &mut group);
            native().comm_create_group(job.world, group, tag as c_int, &mut comm);
            native().group_free(&mut group);
        }
        if comm == c.comm_null {
            return None;
        }
        // SAFETY: a valid communicator.
        unsafe { native().comm_set_errhandler(comm, c.errors_return) };
        Some(Self(comm))
    }
}

impl Drop for BridgeComm {
    /// Runs where the user's communicator is freed, on all its leaders: freeing is collective there, so it is here.
    fn drop(&mut self) {
        if let (true, Some(job)) = (may_free(), super::job::job()) {
            job.bridges.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: this value owns the communicator.
            unsafe { native().comm_free(&mut self.0) };
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
    /// The leaders.
    pub comm: &'a BridgeComm,
    /// The communicator's nodes.
    pub layout: &'a Layout,
    /// Packed bytes of an element of a reduction.
    pub granule: Bytes,
    /// The reduction as the native library knows it; without it operands are gathered and combined in node order.
    pub native_op: Option<NativeOp>,
    /// The reduction on packed operands.
    pub combine: Option<&'a dyn Combine>,
}

// SAFETY: handles, and references to Sync data.
unsafe impl Sync for NativeBridge<'_> {}

/// Longest message of one native call: counts are ints.
const MOST: usize = 1 << 30;

impl NativeBridge<'_> {
    fn check(&self, code: c_int) {
        if code != constants().success {
            crate::log::error(format_args!("the step between nodes failed in the MPI library (code {code})"));
            super::job::abort();
        }
    }

    /// # Safety
    /// `at` is valid for `n` bytes, a multiple of the element.
    unsafe fn allreduce(&self, at: *mut u8, n: usize) {
        let Some(NativeOp { datatype, op }) = self.native_op else {
            // SAFETY: the caller's promise.
            return unsafe { self.gather_and_combine(at, n) };
        };
        let count = (n / self.granule.0) as c_int;
        // SAFETY: `count` elements in place.
        self.check(unsafe { native().allreduce(constants().in_place, at.cast(), count, datatype, op, self.comm.0) });
    }

    /// # Safety
    /// As for `allreduce`.
    unsafe fn reduce(&self, at: *mut u8, n: usize, root: NodeIndex) {
        let Some(NativeOp { datatype, op }) = self.native_op else {
            // SAFETY: the caller's promise.
            return unsafe { self.gather_and_combine(at, n) };
        };
        let count = (n / self.granule.0) as c_int;
        let mut result = vec![0_u64; if self.layout.my_node() == root { n.div_ceil(8) } else { 0 }];
        let to: *mut c_void = result.as_mut_ptr().cast();
        // SAFETY: `count` elements at `at` and, on the root, at `to`. MPICH 4.0.2 crashes with MPI_IN_PLACE here.
        unsafe {
            self.check(native().reduce(at.cast(), to, count, datatype, op, root.0 as c_int, self.comm.0));
            if self.layout.my_node() == root {
                to.cast::<u8>().copy_to_nonoverlapping(at, n);
            }
        }
    }

    /// All operands to everyone, combined in node order: for operations that the native library can't apply to packed data,
    /// and for those whose order matters.
    ///
    /// # Safety
    /// As for `allreduce`.
    unsafe fn gather_and_combine(&self, at: *mut u8, n: usize) {
        let c = constants();
        let nodes = self.layout.nodes();
        let mut all = vec![0_u64; (n * nodes).div_ceil(8)];
        let all: *mut u8 = all.as_mut_ptr().cast();
        let length = n as c_int;
        // SAFETY: `nodes` blocks of `n` bytes, none of which overlaps `at`.
        unsafe {
            self.check(native().allgather(at.cast(), length, c.byte, all.cast(), length, c.byte, self.comm.0));
            at.copy_from_nonoverlapping(all, n);
            if let Some(combine) = self.combine {
                for node in 1..nodes {
                    combine.combine(at, at, all.add(node * n), n);
                }
            }
        }
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
    unsafe fn allgather(&self, at: *mut u8, block: Bytes) {
        let c = constants();
        let (counts, starts) = self.parts(block);
        // SAFETY: the caller's promise.
        self.check(unsafe {
            let (at, counts, starts) = (at.cast(), counts.as_ptr(), starts.as_ptr());
            native().allgatherv(c.in_place, 0, c.byte, at, counts, starts, c.byte, self.comm.0)
        });
    }

    /// # Safety
    /// As for `allgather`.
    unsafe fn scatter(&self, at: *mut u8, block: Bytes, root: NodeIndex) {
        let c = constants();
        let (counts, starts) = self.parts(block);
        let me = self.layout.my_node();
        let own = if me == root { c.in_place } else { at.wrapping_add(starts[me.index()] as usize).cast() };
        // SAFETY: the caller's promise; in place at the root, whose part is where it belongs.
        self.check(unsafe {
            let (from, counts, starts) = (at.cast_const().cast(), counts.as_ptr(), starts.as_ptr());
            let n = *counts.add(me.index());
            native().scatterv(from, counts, starts, c.byte, own, n, c.byte, root.0 as c_int, self.comm.0)
        });
    }
}

impl Bridge for NativeBridge<'_> {
    /// Blocking calls: the leaders' peers on the node wait for them in any case, and a blocking call is the library's
    /// fastest. The pieces of a message are short ([`crate::coll::phase::bridge_piece`]).
    unsafe fn start(&self, step: BridgeStep, at: *mut u8) {
        // SAFETY: the caller's promise, for all arms.
        unsafe {
            match step {
                BridgeStep::Barrier => self.check(native().barrier(self.comm.0)),
                BridgeStep::Allreduce { n, .. } => self.allreduce(at, n.0),
                BridgeStep::Reduce { n, root, .. } => self.reduce(at, n.0, root),
                BridgeStep::Bcast { n, root, .. } => {
                    debug_assert!(n.0 <= MOST);
                    let byte = constants().byte;
                    self.check(native().bcast(at.cast(), n.0 as c_int, byte, root.0 as c_int, self.comm.0));
                }
                BridgeStep::Allgather { block, .. } => self.allgather(at, block),
                BridgeStep::Scatter { block, root, .. } => self.scatter(at, block, root),
            }
        }
    }

    fn is_done(&self) -> bool {
        true
    }
}
