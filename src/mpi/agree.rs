//! What ranks tell each other when a job begins and ends, by nonblocking collectives of the native library.
//!
//! A blocking one would keep the core while it waits. When a job begins its ranks often share a core for some milliseconds although another
//! one is idle, until the system has spread them, and each step would then take a time slice: under Open MPI 5 a third of all starts took 3
//! to 30 ms longer on two cores (docs/PERFORMANCE.md, "Tried"). So this waits as ranks do that share cores anyway: it lets others
//! have the core.

use super::init::REMEDY;
use crate::log;
use crate::mpi::handles::constants;
use crate::mpi::native::native;
use mpi_sys::{MPI_Comm, MPI_Request};
use std::ffi::c_int;
use std::thread;
use std::time::{Duration, Instant};

/// Waits for all ranks: where some lack huddle, this does not end, and says so. Blocking collectives of such ranks do not meet it in MPICH
/// and Open MPI; a nonblocking one as their first collective might.
pub(super) fn meet() {
    /// A wait this long is explained.
    const PATIENCE: Duration = Duration::from_secs(10);
    let mut is_explained = false;
    // SAFETY: a valid communicator and, from `complete`, a valid place.
    let begin = |request: *mut MPI_Request| unsafe { native().ibarrier(constants().comm_world, request) };
    complete(begin, |waited| {
        if waited > PATIENCE && !is_explained {
            is_explained = true;
            log::warning(format_args!(
                "waiting in MPI_Init for ranks that do not answer: is huddle loaded on all of them? {REMEDY}"
            ));
        }
    });
}

/// A duplicate, whose errors are returned.
pub(super) fn duplicate(comm: MPI_Comm) -> MPI_Comm {
    let mut new = constants().comm_null;
    // SAFETY: a valid communicator and valid places; the new one is not used before the operation has ended.
    unsafe {
        complete(|request| native().comm_idup(comm, &mut new, request), |_| ());
        native().comm_set_errhandler(new, constants().errors_return);
    }
    new
}

/// Rank 0's bytes, on all ranks.
pub(super) fn bcast_bytes(comm: MPI_Comm, mut bytes: Vec<u8>) -> Vec<u8> {
    let c = constants();
    let mut length = bytes.len() as c_int;
    // SAFETY: buffers of one int and of `length` bytes, which stay until each operation has ended.
    unsafe {
        complete(|request| native().ibcast((&raw mut length).cast(), 1, c.int, 0, comm, request), |_| ());
        bytes.resize(length as usize, 0);
        // Memory of no bytes has an address that Open MPI takes for MPI_IN_PLACE, and rejects.
        if length > 0 {
            complete(|request| native().ibcast(bytes.as_mut_ptr().cast(), length, c.byte, 0, comm, request), |_| ());
        }
    }
    bytes
}

/// The smallest of each number over all ranks.
pub(super) fn minimum<const N: usize>(comm: MPI_Comm, mut values: [c_int; N]) -> [c_int; N] {
    let (c, n) = (constants(), N as c_int);
    let at = values.as_mut_ptr().cast();
    // SAFETY: a buffer of N ints, in place, which stays until the operation has ended.
    complete(|request| unsafe { native().iallreduce(c.in_place, at, n, c.int, c.min, comm, request) }, |_| ());
    values
}

/// The numbers of all `size` ranks.
pub(super) fn allgather_u32(comm: MPI_Comm, value: u32, size: usize) -> Vec<u32> {
    let all = allgather(comm, &value.to_ne_bytes(), size);
    all.as_chunks().0.iter().map(|bytes| u32::from_ne_bytes(*bytes)).collect()
}

/// The bytes of all `size` ranks one behind the other, as many of each.
pub(super) fn allgather(comm: MPI_Comm, bytes: &[u8], size: usize) -> Vec<u8> {
    let (n, byte) = (bytes.len() as c_int, constants().byte);
    let mut all = vec![0_u8; bytes.len() * size];
    let (from, to) = (bytes.as_ptr().cast(), all.as_mut_ptr().cast());
    // SAFETY: buffers of `n` bytes, and of `n` for each rank, which stay until the operation has ended.
    complete(|request| unsafe { native().iallgather(from, n, byte, to, n, byte, comm, request) }, |_| ());
    all
}

/// Begins an operation and waits for its end. `each` is told for how long, now and then.
fn complete(begin: impl FnOnce(*mut MPI_Request) -> c_int, mut each: impl FnMut(Duration)) {
    /// Most operations take less. Who only yields may get the core back at once while what it waits for lies idle.
    const YIELDING: Duration = Duration::from_micros(200);
    const NAP: Duration = Duration::from_micros(20);
    let c = constants();
    let mut request = c.request_null;
    // Where that fails, the request stays null and has ended.
    begin(&mut request);
    let started = Instant::now();
    loop {
        let mut done = 0;
        // SAFETY: a request of this rank and valid places.
        let code = unsafe { native().test(&mut request, &mut done, c.status_ignore) };
        if done != 0 || code != c.success {
            return;
        }
        let waited = started.elapsed();
        each(waited);
        if waited < YIELDING { thread::yield_now() } else { thread::sleep(NAP) }
    }
}
