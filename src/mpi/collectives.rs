//! The collectives: each finds its communicator, and tries the short ways before the long one.

use super::arguments;
use super::decline::{Addresses, unless_in_place};
use super::lane::Key;
use super::serve::{Served, Site};
use crate::mpi::handles::{constants, predefined};
use crate::types::{Bytes, Collective, CommRank};
use mpi_sys::{MPI_Comm, MPI_Count, MPI_Datatype, MPI_Op};
use std::ffi::{c_int, c_void};

/// `MPI_Allreduce`
///
/// # Safety
/// The arguments are the program's, under MPI's contract; the same holds for all functions here.
#[inline]
pub unsafe fn allreduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
) -> Served {
    let Some(site) = Site::enter(Collective::Allreduce, comm, || known_size(count, datatype)) else {
        return Served::Native;
    };
    let key = Key { count, datatype, op };
    if let Some(served) = site.repeat_allreduce(&key, sendbuf, recvbuf) {
        return served;
    }
    let addresses = || Addresses { send: unless_in_place(sendbuf), recv: Some(recvbuf) };
    if site.is_declined(&key, Some(CommRank(0)), addresses) {
        return Served::Native;
    }
    // SAFETY: the caller's promise.
    let prepared = unsafe { arguments::allreduce(&site, sendbuf, recvbuf, count, datatype, op) };
    site.serve(prepared, Some(key))
}

/// `MPI_Reduce`
///
/// # Safety
/// As above.
#[inline]
pub unsafe fn reduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
    op: MPI_Op,
    root: c_int,
    comm: MPI_Comm,
) -> Served {
    let Some(site) = Site::enter(Collective::Reduce, comm, || known_size(count, datatype)) else {
        return Served::Native;
    };
    let key = Key { count, datatype, op };
    if let Some(served) = site.repeat_reduce(&key, sendbuf, recvbuf, root) {
        return served;
    }
    let addresses = || match site.is_me(root) {
        true => Addresses { send: unless_in_place(sendbuf), recv: Some(recvbuf) },
        false => Addresses { send: Some(sendbuf), recv: None },
    };
    if site.is_declined(&key, site.root(root), addresses) {
        return Served::Native;
    }
    // SAFETY: the caller's promise.
    let prepared = unsafe { arguments::reduce(&site, sendbuf, recvbuf, count, datatype, op, root) };
    site.serve(prepared, Some(key))
}

/// `MPI_Bcast`
///
/// # Safety
/// As above.
#[inline]
pub unsafe fn bcast(
    buffer: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
) -> Served {
    let Some(site) = Site::enter(Collective::Bcast, comm, || known_size(count, datatype)) else {
        return Served::Native;
    };
    let key = Key::moving(count, datatype);
    if let Some(served) = site.repeat_bcast(&key, buffer, root) {
        return served;
    }
    if site.is_declined(&key, site.root(root), || Addresses { send: None, recv: Some(buffer) }) {
        return Served::Native;
    }
    // SAFETY: the caller's promise.
    let prepared = unsafe { arguments::bcast(&site, buffer, count, datatype, root) };
    site.serve(prepared, Some(key))
}

/// `MPI_Allgather`
///
/// # Safety
/// As above.
#[inline]
pub unsafe fn allgather(
    sendbuf: *const c_void,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: *mut c_void,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
    comm: MPI_Comm,
) -> Served {
    let Some(site) = Site::enter(Collective::Allgather, comm, || known_size(recvcount, recvtype)) else {
        return Served::Native;
    };
    let is_in_place = sendbuf == constants().in_place.cast_const();
    let is_alike = is_in_place || (sendcount, sendtype) == (recvcount, recvtype);
    let key = is_alike.then(|| Key::moving(recvcount, recvtype));
    if let Some(served) = key.and_then(|key| site.repeat_allgather(&key, sendbuf, recvbuf)) {
        return served;
    }
    let addresses = || Addresses { send: unless_in_place(sendbuf), recv: Some(recvbuf) };
    if key.is_some_and(|key| site.is_declined(&key, Some(CommRank(0)), addresses)) {
        return Served::Native;
    }
    let send = (sendbuf, sendcount, sendtype);
    // SAFETY: the caller's promise.
    let prepared = unsafe { arguments::allgather(&site, send, (recvbuf, recvcount, recvtype)) };
    site.serve(prepared, key)
}

/// `MPI_Scatter`
///
/// # Safety
/// As above.
#[inline]
#[allow(clippy::too_many_arguments)]
pub unsafe fn scatter(
    sendbuf: *const c_void,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: *mut c_void,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
) -> Served {
    // The other arguments may not be significant.
    let size = || match recvbuf == constants().in_place {
        true => known_size(sendcount, sendtype),
        false => known_size(recvcount, recvtype),
    };
    let Some(site) = Site::enter(Collective::Scatter, comm, size) else {
        return Served::Native;
    };
    let key = match site.is_me(root) {
        true if recvbuf == constants().in_place || (sendcount, sendtype) == (recvcount, recvtype) => {
            Some(Key::moving(sendcount, sendtype))
        }
        true => None,
        false => Some(Key::moving(recvcount, recvtype)),
    };
    if let Some(served) = key.and_then(|key| site.repeat_scatter(&key, sendbuf, recvbuf, root)) {
        return served;
    }
    let addresses = || match site.is_me(root) {
        true => Addresses { send: Some(sendbuf), recv: unless_in_place(recvbuf) },
        false => Addresses { send: None, recv: Some(recvbuf) },
    };
    if key.is_some_and(|key| site.is_declined(&key, site.root(root), addresses)) {
        return Served::Native;
    }
    let send = (sendbuf, sendcount, sendtype);
    // SAFETY: the caller's promise.
    let prepared = unsafe { arguments::scatter(&site, send, (recvbuf, recvcount, recvtype), root) };
    site.serve(prepared, key)
}

/// `MPI_Barrier`
///
/// # Safety
/// As above.
#[inline]
pub unsafe fn barrier(comm: MPI_Comm) -> Served {
    let Some(site) = Site::enter(Collective::Barrier, comm, || Some(Bytes::ZERO)) else {
        return Served::Native;
    };
    match site.repeat_barrier() {
        Some(served) => served,
        None => site.serve(Ok(arguments::barrier()), Some(Key::barrier())),
    }
}

/// Packed bytes of a buffer whose datatype is predefined. No handle is asked for its size: MPI might reject it.
fn known_size(count: MPI_Count, datatype: MPI_Datatype) -> Option<Bytes> {
    let known = predefined(datatype)?;
    usize::try_from(count).ok()?.checked_mul(known.size).map(Bytes)
}
