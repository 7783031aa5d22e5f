//! The collectives for calls that repeat a declined one: each function finds the call's permit by its arguments alone
//! ([`Permits`]). Each function is small, so that it saves few registers before the native function is called.
//!
//! Keys and significant addresses are those of served calls in [`collectives`](super::collectives).

use super::decline::{Addresses, allgather_key, counted_scatter_key, scatter_key};
use super::lane::Key;
use super::permits::{self, Permits};
use super::serve::Served;
use crate::types::Collective;
use mpi_sys::{MPI_Comm, MPI_Count, MPI_Datatype, MPI_Op};
use std::ffi::{c_int, c_void};

/// `MPI_Allreduce` by its permit: the call's outcome; `None` if no permit holds. The other functions return the same.
///
/// # Safety
/// The arguments are those of the call that is under way, and no other thread uses `permits`. The same holds for all
/// functions here.
#[inline(always)]
pub(crate) unsafe fn allreduce(
    permits: &Permits,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
) -> Option<Served> {
    let key = Key { count, datatype, op };
    // SAFETY: the caller's promise.
    let found = unsafe { permits::find(permits, Collective::Allreduce, comm, &key) }?;
    match found.seat() {
        Some(_) if !Addresses::of_allreduce(sendbuf, recvbuf).are_sound(&key) => None,
        _ => found.admit(),
    }
}

/// `MPI_Reduce`
///
/// # Safety
/// As for `allreduce`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn reduce(
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
    // SAFETY: the caller's promise.
    let found = unsafe { permits::find(permits, Collective::Reduce, comm, &key) }?;
    match found.seat() {
        Some(seat) if seat.root(root).is_none() => None,
        Some(seat) if !Addresses::of_reduce(seat, root, sendbuf, recvbuf).are_sound(&key) => None,
        _ => found.admit(),
    }
}

/// `MPI_Bcast`
///
/// # Safety
/// As for `allreduce`.
#[inline(always)]
pub(crate) unsafe fn bcast(
    permits: &Permits,
    buffer: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
) -> Option<Served> {
    let key = Key::moving(count, datatype);
    // SAFETY: the caller's promise.
    let found = unsafe { permits::find(permits, Collective::Bcast, comm, &key) }?;
    match found.seat() {
        Some(seat) if seat.root(root).is_none() || !Addresses::of_bcast(buffer).are_sound(&key) => None,
        _ => found.admit(),
    }
}

/// `MPI_Allgather`
///
/// # Safety
/// As for `allreduce`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn allgather(
    permits: &Permits,
    sendbuf: *const c_void,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: *mut c_void,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
    comm: MPI_Comm,
) -> Option<Served> {
    let (send, recv) = ((sendcount, sendtype), (recvcount, recvtype));
    let key = Key::moving(recvcount, recvtype);
    // SAFETY: the caller's promise.
    let found = unsafe { permits::find(permits, Collective::Allgather, comm, &key) }?;
    match found.seat() {
        Some(_) if allgather_key(sendbuf, send, recv) != Some(key) => None,
        Some(_) if !Addresses::of_allreduce(sendbuf, recvbuf).are_sound(&key) => None,
        _ => found.admit(),
    }
}

/// `MPI_Scatter`
///
/// # Safety
/// As for `allreduce`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn scatter(
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
    let key = counted_scatter_key(send, recv, recvbuf);
    // SAFETY: the caller's promise.
    let found = unsafe { permits::find(permits, Collective::Scatter, comm, &key) }?;
    match found.seat() {
        Some(seat) if seat.root(root).is_none() => None,
        Some(seat) if scatter_key(seat, root, send, recv, recvbuf) != Some(key) => None,
        Some(seat) if !Addresses::of_scatter(seat, root, sendbuf, recvbuf).are_sound(&key) => None,
        _ => found.admit(),
    }
}

/// `MPI_Barrier`
///
/// # Safety
/// As for `allreduce`.
#[inline(always)]
pub(crate) unsafe fn barrier(permits: &Permits, comm: MPI_Comm) -> Option<Served> {
    // SAFETY: the caller's promise.
    unsafe { permits::find(permits, Collective::Barrier, comm, &Key::barrier()) }?.admit()
}
