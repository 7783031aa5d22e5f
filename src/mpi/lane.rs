//! The short way of a call that is like the one before it.
//!
//! Programs repeat their calls. Where count, datatype and operation are those of the communicator's last call of the same
//! collective, the datatype and the operation are predefined (their handles never mean anything else), all ranks are on
//! one node and no address can be that of a device, then operands, operation and plan are known, and only addresses and the
//! root are looked at. Whether a rank takes this way is its own affair: peers see the same call.

use super::communicator::Shared;
use super::device;
use super::op::Operator;
use super::serve::{Served, Site};
use crate::coll::Plan;
use crate::fabric::shm::{Buffer, Buffers};
use crate::kernel::Combine;
use crate::mpi::handles::{constants, predefined};
use crate::tune::LAST_EPOCH;
use crate::types::{Bytes, CommRank};
use mpi_sys::{MPI_Count, MPI_Datatype, MPI_Op};
use std::ffi::{c_int, c_void};

/// What a call must share with the one before it.
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
}

/// A call of one collective that a communicator has served.
pub struct Lane {
    key: Key,
    row: usize,
    /// Epoch and root are renewed with each call.
    plan: Plan,
    operator: Option<Operator>,
}

impl Lane {
    /// A lane for calls like this one; none where the next call may mean something else by the same handles.
    pub fn new(shared: &Shared, key: Key, row: usize, plan: Plan, operator: Option<&Operator>) -> Option<Self> {
        let kernel = operator.map(Operator::with_kernel);
        let is_simple = shared.agreed.nodes == 1 && plan.scratch == Bytes::ZERO && key.is_lasting();
        match kernel {
            None if is_simple => Some(Self { key, row, plan, operator: None }),
            Some(Some(operator)) if is_simple => Some(Self { key, row, plan, operator: Some(operator) }),
            _ => None,
        }
    }
}

/// Neither null nor `MPI_IN_PLACE`: memory of the program.
#[inline]
fn is_memory(address: *const c_void) -> bool {
    !address.is_null() && address != constants().in_place.cast_const()
}

#[inline]
fn contiguous(address: *const c_void) -> Buffer<'static> {
    Buffer::Contiguous(address.cast_mut().cast())
}

/// Both buffers of a call at a rank that has both, where nothing about them needs a closer look.
#[inline(always)]
fn pair(send: *const c_void, recv: *const c_void, own: usize) -> Option<Buffers<'static>> {
    if !is_memory(recv) || send == recv || send.is_null() {
        return None;
    }
    let is_in_place = send == constants().in_place.cast_const();
    let send = if is_in_place { recv.wrapping_byte_add(own) } else { send };
    Some(Buffers { send: contiguous(send), recv: contiguous(recv), is_in_place, ..Buffers::NONE })
}

/// As the functions of the same names in [`serve`](super::serve), where the short way is open; else nothing has happened.
impl Site<'_> {
    #[inline]
    pub(super) fn repeat_allreduce(&self, key: &Key, send: *const c_void, recv: *mut c_void) -> Option<Served> {
        let lane = self.lane(key)?;
        Some(self.repeat(lane, CommRank(0), pair(send, recv, 0)?))
    }

    #[inline]
    pub(super) fn repeat_reduce(
        &self,
        key: &Key,
        send: *const c_void,
        recv: *mut c_void,
        root: c_int,
    ) -> Option<Served> {
        let lane = self.lane(key)?;
        let root = self.root(root)?;
        let buffers = if root == self.shared.me {
            pair(send, recv, 0)?
        } else if is_memory(send) {
            Buffers { send: contiguous(send), ..Buffers::NONE }
        } else {
            return None;
        };
        Some(self.repeat(lane, root, buffers))
    }

    #[inline]
    pub(super) fn repeat_bcast(&self, key: &Key, buffer: *mut c_void, root: c_int) -> Option<Served> {
        let lane = self.lane(key)?;
        let root = self.root(root)?;
        let buffers = Buffers { recv: contiguous(buffer), ..Buffers::NONE };
        is_memory(buffer).then(|| self.repeat(lane, root, buffers))
    }

    #[inline]
    pub(super) fn repeat_allgather(&self, key: &Key, send: *const c_void, recv: *mut c_void) -> Option<Served> {
        let lane = self.lane(key)?;
        let own = lane.plan.bytes.0 * self.shared.me.index();
        Some(self.repeat(lane, CommRank(0), pair(send, recv, own)?))
    }

    #[inline]
    pub(super) fn repeat_scatter(
        &self,
        key: &Key,
        send: *const c_void,
        recv: *mut c_void,
        root: c_int,
    ) -> Option<Served> {
        let lane = self.lane(key)?;
        let root = self.root(root)?;
        let buffers = if root != self.shared.me {
            is_memory(recv).then(|| Buffers { recv: contiguous(recv), ..Buffers::NONE })?
        } else if is_memory(send) && is_memory(recv) && send != recv.cast_const() {
            Buffers { send: contiguous(send), recv: contiguous(recv), ..Buffers::NONE }
        } else {
            return None;
        };
        Some(self.repeat(lane, root, buffers))
    }

    #[inline]
    pub(super) fn repeat_barrier(&self) -> Option<Served> {
        let lane = self.lane(&Key::barrier())?;
        Some(self.repeat(lane, CommRank(0), Buffers::NONE))
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
    #[allow(clippy::mut_from_ref)]
    fn lane(&self, key: &Key) -> Option<&mut Lane> {
        let lane = self.shared.lane(self.collective).as_mut()?;
        (lane.key == *key && self.epoch < LAST_EPOCH && !device::may_be_used()).then_some(lane)
    }

    #[inline(always)]
    fn repeat(&self, lane: &mut Lane, root: CommRank, buffers: Buffers<'_>) -> Served {
        (lane.plan.epoch, lane.plan.root) = (self.epoch, root);
        let combine = lane.operator.as_ref().map(|operator| operator as &dyn Combine);
        self.run_row(lane.row, &lane.plan, Buffers { combine, ..buffers })
    }
}
