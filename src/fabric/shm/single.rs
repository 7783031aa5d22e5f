//! Single copies: a rank exposes memory, and peers fetch from it by a system call.

use super::call::{Call, Location};
use super::copies::in_pieces;
use crate::fabric::words::{Fault, Words};
use crate::fabric::{EXPOSURE, Exposed, Line, Span};
use crate::kernel;
use crate::log::{self, Once};
use crate::types::{Bytes, NodeRank, Ticket};
use std::io;

/// What stands beside the flag of a rank that exposes memory, at the start of the payload. Writer: that rank, once it
/// has claimed the lines. Readers: all that have waited for the flag.
#[derive(Clone, Copy)]
#[repr(C)]
struct Told {
    process: u64,
    address: u64,
}

const _: () = assert!(size_of::<Told>() == EXPOSURE.0);

impl Call<'_> {
    /// Whether `from` lies in memory without holes, so that there is one address to tell.
    pub(super) fn is_memory(&self, from: Span) -> bool {
        matches!(self.locate(from), Location::Memory(_))
    }

    /// Writes beside this rank's flag where `from` lies, and marks the flag; the rank has claimed its lines.
    pub(super) fn tell_of_memory(&self, line: Line, ticket: Ticket, from: Span) {
        let Location::Memory(at) = self.locate(from) else { unreachable!("what has holes is not exposed") };
        let context = self.context();
        let (flag, told) = (
            context.line(context.rank(), line, ticket),
            Told { process: u64::from(context.process()), address: at as u64 },
        );
        // SAFETY: payloads are longer and aligned to 16 bytes; this rank has claimed its own, so nobody else accesses
        // it.
        unsafe { flag.payload().cast::<Told>().write(told) };
        flag.tell_of_memory(ticket);
    }

    fn told(&self, rank: NodeRank, line: Line, ticket: Ticket) -> Told {
        // SAFETY: as in `tell_of_memory`; its owner wrote it before it published the flag, which tells of memory.
        unsafe { self.context().line(rank, line, ticket).payload().cast::<Told>().read() }
    }

    /// Copies `n` bytes to `to` out of memory that a peer exposed. Returns whether all of them came.
    pub(super) fn fetch_exposed(&self, to: Span, from: Exposed, n: Bytes) -> bool {
        let Exposed { rank, line, ticket, offset } = from;
        let context = self.context();
        let Told { process, address } = self.told(rank, line, ticket);
        // SAFETY: buffers are valid for the plan's lengths (`enter`), and the algorithm keeps within them.
        let fetched = unsafe { fetch(process as u32, address + offset.0 as u64, self.locate(to), n.0) };
        // A rank that exposes memory waits for the answers of its peers, unless it fails the call. If it has failed,
        // the program may have written that memory meanwhile.
        if context.control(rank).call.has_failed_meanwhile(self.entered.epoch) {
            self.set_fault(Fault::PeerFailed { rank });
        } else if let Err(error) = &fetched {
            self.report_missed_fetch(rank, error);
        }
        fetched.is_ok()
    }

    /// Writes beside this rank's flag whether it has got what was lent.
    pub(super) fn tell_answer(&self, line: Line, ticket: Ticket, answer: bool) {
        let context = self.context();
        // SAFETY: as in `tell_of_memory`.
        unsafe { context.line(context.rank(), line, ticket).payload().write(u8::from(answer)) };
    }

    /// Returns what `rank` answered. If it could not fetch, this rank lends no more on this context.
    pub(super) fn take_answer(&self, rank: NodeRank, line: Line, ticket: Ticket) -> bool {
        // SAFETY: as in `told`.
        let answer = unsafe { self.context().line(rank, line, ticket).payload().read() != 0 };
        if !answer {
            self.context().refuse_loans();
        }
        answer
    }

    #[cold]
    fn report_missed_fetch(&self, rank: NodeRank, error: &io::Error) {
        let (rank, collective) = (self.context().comm_rank(rank).0, self.entered.collective.name());
        let text = "its data go through shared memory, which takes longer";
        log::once(
            Once::CannotFetch,
            format_args!("{collective}: can't read the memory of rank {rank}: {error}; {text}"),
        );
    }
}

/// Copies `n` bytes from an address in the memory of `process`.
///
/// # Safety
/// `to` is valid for `n` bytes.
unsafe fn fetch(process: u32, address: u64, to: Location<'_>, n: usize) -> io::Result<()> {
    // SAFETY: the caller's promise; pieces are as long as said.
    unsafe {
        match to {
            Location::Memory(to) => kernel::fetch(process, address, to, n),
            Location::Packed(to, offset) => {
                let mut fetched = Ok(());
                in_pieces(n, Bytes(1), |at, piece, length| {
                    if fetched.is_ok() {
                        fetched = kernel::fetch(process, address + at as u64, piece, length);
                    }
                    if fetched.is_ok() {
                        to.write(offset + at, piece, length);
                    }
                });
                fetched
            }
        }
    }
}
