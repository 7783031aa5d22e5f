//! The collectives: each finds its communicator and tries lanes, verdicts and stems before it looks at all arguments
//! (the long way).

use super::arguments::{self, Prepared, Refused};
use super::decline::{Addresses, allgather_key, counted_scatter_key, scatter_key};
use super::lane::{Key, Lane, Opening};
use super::serve::{Served, Site};
use crate::codegen::apart;
use crate::types::{Collective, CommRank};
use mpi_sys::{MPI_Comm, MPI_Count, MPI_Datatype, MPI_Op};
use std::ffi::{c_int, c_void};

/// `MPI_Allreduce`
///
/// # Safety
/// The arguments are the program's, under MPI's contract. The same holds for all functions here.
#[inline(always)]
pub unsafe fn allreduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
) -> Served {
    let Some(site) = Site::enter(Collective::Allreduce, comm, || Key { count, datatype, op }) else {
        return Served::Native;
    };
    let key = Key { count, datatype, op };
    // Here and below `match`, not `and_then`: the compiler might call its closure instead of inlining it.
    let served = match site.lane(&key) {
        Some(lane) => site.repeat_allreduce(lane, sendbuf, recvbuf),
        None => None,
    };
    site.answer(
        served,
        move || Some(Key { count, datatype, op }),
        || (Some(CommRank(0)), Addresses::of_allreduce(sendbuf, recvbuf)),
        // SAFETY: the caller's promise.
        move |site| unsafe { arguments::allreduce(site, sendbuf, recvbuf, count, datatype, op) },
        move |site, lane| site.repeat_allreduce(lane, sendbuf, recvbuf),
    )
}

/// `MPI_Reduce`
///
/// # Safety
/// As for `allreduce`.
#[inline(always)]
pub unsafe fn reduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
    op: MPI_Op,
    root: c_int,
    comm: MPI_Comm,
) -> Served {
    let Some(site) = Site::enter(Collective::Reduce, comm, || Key { count, datatype, op }) else {
        return Served::Native;
    };
    let key = Key { count, datatype, op };
    let seat = site.seat();
    let served = match site.lane(&key) {
        Some(lane) => site.repeat_reduce(lane, sendbuf, recvbuf, root),
        None => None,
    };
    site.answer(
        served,
        move || Some(Key { count, datatype, op }),
        || (seat.root(root), Addresses::of_reduce(seat, root, sendbuf, recvbuf)),
        // SAFETY: the caller's promise.
        move |site| unsafe { arguments::reduce(site, sendbuf, recvbuf, count, datatype, op, root) },
        move |site, lane| site.repeat_reduce(lane, sendbuf, recvbuf, root),
    )
}

/// `MPI_Bcast`
///
/// # Safety
/// As for `allreduce`.
#[inline(always)]
pub unsafe fn bcast(
    buffer: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
) -> Served {
    let Some(site) = Site::enter(Collective::Bcast, comm, || Key::moving(count, datatype)) else {
        return Served::Native;
    };
    let key = Key::moving(count, datatype);
    let served = match site.lane(&key) {
        Some(lane) => site.repeat_bcast(lane, buffer, root),
        None => None,
    };
    site.answer(
        served,
        move || Some(Key::moving(count, datatype)),
        || (site.seat().root(root), Addresses::of_bcast(buffer)),
        // SAFETY: the caller's promise.
        move |site| unsafe { arguments::bcast(site, buffer, count, datatype, root) },
        move |site, lane| site.repeat_bcast(lane, buffer, root),
    )
}

/// `MPI_Allgather`
///
/// # Safety
/// As for `allreduce`.
#[inline(always)]
pub unsafe fn allgather(
    sendbuf: *const c_void,
    sendcount: MPI_Count,
    sendtype: MPI_Datatype,
    recvbuf: *mut c_void,
    recvcount: MPI_Count,
    recvtype: MPI_Datatype,
    comm: MPI_Comm,
) -> Served {
    let Some(site) = Site::enter(Collective::Allgather, comm, || Key::moving(recvcount, recvtype)) else {
        return Served::Native;
    };
    let key = move || allgather_key(sendbuf, (sendcount, sendtype), (recvcount, recvtype));
    let served = match &key() {
        Some(key) => match site.lane(key) {
            Some(lane) => site.repeat_allgather(lane, sendbuf, recvbuf),
            None => None,
        },
        None => None,
    };
    site.answer(
        served,
        key,
        || (Some(CommRank(0)), Addresses::of_allreduce(sendbuf, recvbuf)),
        // SAFETY: the caller's promise.
        move |site| unsafe {
            arguments::allgather(site, (sendbuf, sendcount, sendtype), (recvbuf, recvcount, recvtype))
        },
        move |site, lane| site.repeat_allgather(lane, sendbuf, recvbuf),
    )
}

/// `MPI_Scatter`
///
/// # Safety
/// As for `allreduce`.
#[inline(always)]
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
    let counted = || counted_scatter_key((sendcount, sendtype), (recvcount, recvtype), recvbuf);
    let Some(site) = Site::enter(Collective::Scatter, comm, counted) else {
        return Served::Native;
    };
    let seat = site.seat();
    let key = move || scatter_key(seat, root, (sendcount, sendtype), (recvcount, recvtype), recvbuf);
    let (send, recv) = ((sendbuf, sendcount, sendtype), (recvbuf, recvcount, recvtype));
    let served = match &key() {
        Some(key) => match site.lane(key) {
            Some(lane) => site.repeat_scatter(lane, sendbuf, recvbuf, root),
            None => None,
        },
        None => None,
    };
    site.answer(
        served,
        key,
        || (seat.root(root), Addresses::of_scatter(seat, root, sendbuf, recvbuf)),
        // SAFETY: the caller's promise.
        move |site| unsafe { arguments::scatter(site, send, recv, root) },
        move |site, lane| site.repeat_scatter(lane, sendbuf, recvbuf, root),
    )
}

/// `MPI_Barrier`
///
/// # Safety
/// As for `allreduce`.
#[inline(always)]
pub unsafe fn barrier(comm: MPI_Comm) -> Served {
    let Some(site) = Site::enter(Collective::Barrier, comm, Key::barrier) else {
        return Served::Native;
    };
    // No root, so that `try_decline` does not take a barrier, which has no length, for an empty call.
    let nowhere = || (None, Addresses::NONE);
    let prepare = |_: &Site<'_>| Ok(arguments::barrier());
    let served = match site.lane(&Key::barrier()) {
        Some(lane) => site.repeat_barrier(lane),
        None => None,
    };
    site.answer(served, || Some(Key::barrier()), nowhere, prepare, |site, lane| site.repeat_barrier(lane))
}

impl Site<'_> {
    /// Returns `served`, the result of the call's lane, if there is one. Else it tries in turn: the lane for the layout
    /// of a datatype that is made anew; the verdict, where calls like `key` are declined; a lane for calls whose count
    /// alone is new; the long way, which may open a lane and then takes it by `repeat`. `served` came from the function
    /// that `repeat` calls, but part of that one is inlined in the entry, and the other ways are apart. Only these need
    /// the key, and the root and the addresses that `find` returns, so only there are they made, and in memory.
    #[inline(always)]
    fn answer(
        self,
        served: Option<Served>,
        key: impl FnOnce() -> Option<Key>,
        find: impl FnOnce() -> (Option<CommRank>, Addresses),
        prepare: impl FnOnce(&Self) -> Result<Prepared, Refused>,
        repeat: impl Fn(&Self, &Lane) -> Option<Served>,
    ) -> Served {
        if let Some(served) = served {
            return served;
        }
        let (root, addresses) = find();
        apart(move || {
            let key = key();
            if let Some(key) = &key {
                let served = self.try_layout_lane(key, |lane| repeat(&self, lane));
                let served = served.or_else(|| self.try_decline(key, root, addresses));
                if let Some(served) = served.or_else(|| self.try_stem(key, |lane| repeat(&self, lane))) {
                    return served;
                }
            }
            let opening = key.map(Opening::new);
            self.serve(prepare(&self), opening, |lane| repeat(&self, lane))
        })
    }
}
