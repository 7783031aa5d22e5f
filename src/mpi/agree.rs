//! What ranks tell each other when a job begins, by nonblocking collectives of the native library.
//!
//! A rank in a blocking collective would keep its core while it waits. When a job begins its ranks often share a core
//! for some milliseconds, although another one is idle, until the system has spread them. Each step would then take a
//! time slice (docs/PERFORMANCE.md, "Tried"). So waits here give the core to others, as the waits of ranks that share
//! cores do.
//!
//! If a call of MPI fails here the job ends: ranks that do not know what they have agreed on would hang later.

use super::failure;
use super::init::REMEDY;
use crate::log;
use crate::mpi::handles::constants;
use crate::mpi::native::native;
use mpi_sys::{MPI_Comm, MPI_Request};
use std::ffi::c_int;
use std::thread;
use std::time::{Duration, Instant};

/// Waits for all ranks. Returns whether all of them passed the same `number`.
///
/// This exchange comes first, and its form must never change (a nonblocking Allreduce, MIN of two ints): by it builds
/// of huddle find out that they differ before they do anything else that may differ. If some ranks lack huddle it does
/// not end, and a warning says so. In MPICH and Open MPI it does not match a blocking collective of such a rank; it
/// might match a nonblocking one, if that is the rank's first collective.
pub(super) fn meet(comm: MPI_Comm, number: c_int) -> bool {
    let hint = format!(": is huddle loaded on all of them? {REMEDY}");
    let [least, opposite] = minimum_or(comm, [number, -number], &hint);
    least == -opposite
}

/// Ends the job if `code` tells that `function`, by which ranks agree, has failed.
pub(super) fn expect(function: &str, code: c_int) {
    failure::expect(function, "while ranks agree in MPI_Init", code);
}

/// A duplicate of `comm`, with errors returned.
pub(super) fn duplicate(comm: MPI_Comm) -> MPI_Comm {
    let mut new = constants().comm_null;
    // SAFETY: a valid communicator and valid places; the new one is not used before the operation has ended.
    unsafe {
        Begun::new("MPI_Comm_idup", |request| native().comm_idup(comm, &mut new, request)).complete("");
        native().comm_set_errhandler(new, constants().errors_return);
    }
    new
}

/// Rank 0's bytes, on all ranks.
pub(super) fn bcast_bytes(comm: MPI_Comm, mut bytes: Vec<u8>) -> Vec<u8> {
    let mut length = (bytes.len() as c_int).to_ne_bytes();
    bcast(comm, &mut length);
    bytes.resize(c_int::from_ne_bytes(length) as usize, 0);
    // An empty buffer has an address that Open MPI takes for MPI_IN_PLACE, and rejects.
    if !bytes.is_empty() {
        bcast(comm, &mut bytes);
    }
    bytes
}

/// The smallest of each number over all ranks.
pub(super) fn minimum<const N: usize>(comm: MPI_Comm, values: [c_int; N]) -> [c_int; N] {
    minimum_or(comm, values, "")
}

/// The smallest of each number over all ranks. If the wait is long its warning ends with `hint`. With two numbers this
/// is the exchange of [`meet`].
fn minimum_or<const N: usize>(comm: MPI_Comm, values: [c_int; N], hint: &str) -> [c_int; N] {
    let (c, n, mut least) = (constants(), N as c_int, values);
    // Not in place: some of Open MPI's algorithms did that wrong.
    let (from, to) = (values.as_ptr().cast(), least.as_mut_ptr().cast());
    // SAFETY: buffers of N ints, which stay until the operation has ended.
    let begin = |request| unsafe { native().iallreduce(from, to, n, c.int, c.min, comm, request) };
    Begun::new("MPI_Iallreduce", begin).complete(hint);
    least
}

/// The numbers of all `size` ranks.
pub(super) fn allgather_u32(comm: MPI_Comm, value: u32, size: usize) -> Vec<u32> {
    let all = allgather(comm, &value.to_ne_bytes(), size);
    all.as_chunks().0.iter().map(|bytes| u32::from_ne_bytes(*bytes)).collect()
}

/// The bytes of all `size` ranks in the order of ranks; all give the same number of bytes.
///
/// Rank 0 gathers and broadcasts them: in a nonblocking Allgather of Open MPI each rank sends to each.
pub(super) fn allgather(comm: MPI_Comm, bytes: &[u8], size: usize) -> Vec<u8> {
    let (n, byte) = (bytes.len() as c_int, constants().byte);
    let mut all = vec![0_u8; bytes.len() * size];
    let (from, to) = (bytes.as_ptr().cast(), all.as_mut_ptr().cast());
    // SAFETY: buffers of `n` bytes, and of `n` for each rank, which stay until the operation has ended.
    let begin = |request| unsafe { native().igather(from, n, byte, to, n, byte, 0, comm, request) };
    Begun::new("MPI_Igather", begin).complete("");
    bcast(comm, &mut all);
    all
}

/// Broadcasts rank 0's bytes; a few hundred bytes go in pieces that are under way together. Intel MPI takes 1.5 to
/// 2.8 ms for each of the first four messages of 512 bytes and more, but microseconds for shorter ones. A program that
/// runs by shared memory may never send so long ones.
fn bcast(comm: MPI_Comm, bytes: &mut [u8]) {
    /// Bytes of a piece.
    const SHORT: usize = 256;
    /// Data that would take more pieces are sent whole.
    const PIECES: usize = 8;
    let byte = constants().byte;
    let pieces = bytes.chunks_mut(if bytes.len() > PIECES * SHORT { bytes.len() } else { SHORT });
    let begun: Vec<Begun> = pieces
        .map(|piece| {
            let (at, n) = (piece.as_mut_ptr().cast(), piece.len() as c_int);
            // SAFETY: a buffer of `n` bytes, which stays until the operation has ended.
            Begun::new("MPI_Ibcast", |request| unsafe { native().ibcast(at, n, byte, 0, comm, request) })
        })
        .collect();
    begun.into_iter().for_each(|begun| begun.complete(""));
}

/// An operation that was begun and may not have ended.
#[must_use]
struct Begun {
    function: &'static str,
    request: MPI_Request,
}

impl Begun {
    /// Begins an operation by `function`.
    fn new(function: &'static str, begin: impl FnOnce(*mut MPI_Request) -> c_int) -> Self {
        let mut request = constants().request_null;
        expect(function, begin(&mut request));
        Self { function, request }
    }

    /// Waits until the operation has ended. A long wait gets one warning, which ends with `hint`.
    fn complete(mut self, hint: &str) {
        /// How long the wait only yields at first: most operations take less.
        const YIELDING: Duration = Duration::from_micros(200);
        /// Length of a sleep, to which Linux adds some 50 µs. A yield may return at once while the awaited process does
        /// not run, so the wait sleeps too.
        const NAP: Duration = Duration::from_micros(20);
        /// How long the wait yields after each sleep: where all ranks have cores sleeps would add up over the steps of
        /// an operation.
        const YIELDING_AGAIN: Duration = Duration::from_micros(50);
        /// A wait this long is reported.
        const PATIENCE: Duration = Duration::from_secs(10);
        let started = Instant::now();
        let (mut yielding, mut is_explained) = (YIELDING, false);
        loop {
            let mut done = 0;
            // SAFETY: a request of this rank and valid places.
            let code = unsafe { native().test(&mut self.request, &mut done, constants().status_ignore) };
            expect(self.function, code);
            if done != 0 {
                return;
            }
            let waited = started.elapsed();
            if waited > PATIENCE && !is_explained {
                is_explained = true;
                log::warning(format_args!("waiting in MPI_Init for ranks that do not answer{hint}"));
            }
            if waited < yielding {
                thread::yield_now();
            } else {
                thread::sleep(NAP);
                yielding = started.elapsed() + YIELDING_AGAIN;
            }
        }
    }
}
