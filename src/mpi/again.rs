//! The collectives once more: what becomes of calls like such that were declined, found by the arguments alone ([`Permits`]). Each is small
//! enough to need no frame, so that the entry can jump to the native function with the registers as it found them.
//!
//! What is a key, and which addresses count, is said of served calls in [`collectives`](super::collectives): both must agree.

use super::decline::{Addresses, scatter_key};
use super::lane::Key;
use super::permits::{self, Permits};
use super::serve::Served;
use crate::mpi::handles::constants;
use crate::types::Collective;
use mpi_sys::{MPI_Comm, MPI_Count, MPI_Datatype, MPI_Op};
use std::ffi::{c_int, c_void};

/// `MPI_Allreduce`
#[inline(always)]
pub(crate) fn allreduce(
    permits: &Permits,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
) -> Option<Served> {
    let key = Key { count, datatype, op };
    let found = permits::find(permits, Collective::Allreduce, comm, &key)?;
    match found.seat() {
        Some(_) if !Addresses::of_allreduce(sendbuf, recvbuf).are_sound(&key) => None,
        _ => found.admit(),
    }
}

/// `MPI_Reduce`
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(crate) fn reduce(
    permits: &Permits,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
    op: MPI_Op,
    root: c_int,
    comm: MPI_Comm,
) -> Option<Served> {
    let key = Key { count, datatype, op };
    let found = permits::find(permits, Collective::Reduce, comm, &key)?;
    match found.seat() {
        Some(seat) if seat.root(root).is_none() => None,
        Some(seat) if !Addresses::of_reduce(seat, root, sendbuf, recvbuf).are_sound(&key) => None,
        _ => found.admit(),
    }
}

/// `MPI_Bcast`
#[inline(always)]
pub(crate) fn bcast(
    permits: &Permits,
    buffer: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
) -> Option<Served> {
    let key = Key::moving(count, datatype);
    let found = permits::find(permits, Collective::Bcast, comm, &key)?;
    match found.seat() {
        Some(seat) if seat.root(root).is_none() || !Addresses::of_bcast(buffer).are_sound(&key) => None,
        _ => found.admit(),
    }
}

/// `MPI_Allgather`
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(crate) fn allgather(
    permits: &Permits,
    sendbuf: *const c_void,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: *mut c_void,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
    comm: MPI_Comm,
) -> Option<Served> {
    let key = Key::moving(recvcount, recvtype);
    let found = permits::find(permits, Collective::Allgather, comm, &key)?;
    let is_in_place = sendbuf == constants().in_place.cast_const();
    let is_alike = is_in_place || (sendcount, sendtype) == (recvcount, recvtype);
    match found.seat() {
        Some(_) if !(is_alike && Addresses::of_allreduce(sendbuf, recvbuf).are_sound(&key)) => None,
        _ => found.admit(),
    }
}

/// `MPI_Scatter`
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(crate) fn scatter(
    permits: &Permits,
    sendbuf: *const c_void,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: *mut c_void,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
) -> Option<Served> {
    let (send, recv) = ((sendcount, sendtype), (recvcount, recvtype));
    let (count, datatype) = if recvbuf == constants().in_place { send } else { recv };
    let key = Key::moving(count, datatype);
    let found = permits::find(permits, Collective::Scatter, comm, &key)?;
    match found.seat() {
        Some(seat) if seat.root(root).is_none() => None,
        Some(seat) if scatter_key(seat, root, send, recv, recvbuf) != Some(key) => None,
        Some(seat) if !Addresses::of_scatter(seat, root, sendbuf, recvbuf).are_sound(&key) => None,
        _ => found.admit(),
    }
}

/// `MPI_Barrier`
#[inline(always)]
pub(crate) fn barrier(permits: &Permits, comm: MPI_Comm) -> Option<Served> {
    permits::find(permits, Collective::Barrier, comm, &Key::barrier())?.admit()
}
