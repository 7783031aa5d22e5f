//! Asking for the lines that a rank writes next, while nobody waits for them.
//!
//! Where the root stays the same its peers never write, and so pass it no cells: each piece goes to lines that they have read a ring
//! ago, and that it has to take back from them. Programs call in a rhythm, so a rank that has published one piece knows where the next
//! one will lie. To ask for its lines then, in place of when they are written, takes a third off such a call where cores are far apart
//! (docs/PERFORMANCE.md, "Tried"): they come while the peers still read, or do something else. A rank asks only after it has
//! foreseen where the piece before lay.

use super::context::Context;
use super::writes::Course;
use crate::fabric::words::Words;
use crate::kernel::{self, Probed};
use crate::sync::Passed;
use crate::types::{Bytes, LINE, Ticket};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// When and where a rank writes pieces to its own cells. Relaxed throughout: only this rank uses it, one call at a time; these are
/// atomics so that a context may move between threads.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    /// The ticket of the last one.
    last: AtomicU64,
    /// Where the next one lies.
    next: AtomicPtr<u8>,
    /// How many bytes of it were asked for.
    asked: AtomicUsize,
}

impl Rhythm {
    /// How much is asked for at most: what stays in a first-level cache of 48 KiB until it is written.
    const MOST: Bytes = Bytes(32 << 10);

    /// After a piece for `ticket`: the ticket of the one after it, if that comes as many tickets later as this one came after the one
    /// before.
    #[inline]
    fn ticket_after(&self, ticket: Ticket) -> Ticket {
        let last = self.last.load(Ordering::Relaxed);
        self.last.store(ticket.0, Ordering::Relaxed);
        Ticket(ticket.0 + (ticket.0 - last))
    }

    /// A piece lies `here`, and the next one will `there`. -> whether the first was foreseen
    #[inline]
    fn foresee(&self, here: *mut u8, there: *mut u8) -> bool {
        let foreseen = self.next.load(Ordering::Relaxed);
        self.next.store(there, Ordering::Relaxed);
        self.asked.store(0, Ordering::Relaxed);
        here == foreseen
    }

    /// Whether all lines of a piece of `n` bytes that begins at `at` were asked for when the one before it was published.
    #[inline]
    pub fn has_asked_for(&self, at: *mut u8, n: usize) -> bool {
        self.asked.load(Ordering::Relaxed) >= n && at == self.next.load(Ordering::Relaxed)
    }
}

impl Context {
    /// This rank has published a piece of `n` bytes for `ticket`, in a call that reaches so far into cells.
    #[inline(always)]
    pub(super) fn expect_next(&self, ticket: Ticket, n: Bytes, reach: Bytes) {
        let claims = self.claims();
        let here = self.piece(self.rank(), ticket, claims.home(ticket));
        // A cell that is passed comes back with its lines. Several readers would take lines from each other where the root is as far ahead as it
        // may be; how much that costs has not been measured.
        if Passed::is_for(self.geometry().ranks) && !self.is_passed(here) {
            self.expect_after(here, ticket, n, reach);
        }
    }

    #[inline(never)]
    fn expect_after(&self, here: *mut u8, ticket: Ticket, n: Bytes, reach: Bytes) {
        let next = self.rhythm.ticket_after(ticket);
        // Foreseen for as long as the rotation keeps its length.
        let there = self.piece(self.rank(), next, self.stretch(next, reach, self.claims().cursor()).home);
        // A write that is timed is to show what it takes without.
        if self.rhythm.foresee(here, there) && self.writes.course_of_next(n.0) == Course::Through {
            let length = n.min(Rhythm::MOST).0.min(Probed::in_use().caches.l1 / 3 * 2);
            (0..length).step_by(LINE).for_each(|at| kernel::copy::expect_write(there.wrapping_add(at)));
            self.rhythm.asked.store(length, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Epoch;
    use std::ptr::null_mut;

    #[test]
    fn the_next_piece_comes_as_much_later() {
        let rhythm = Rhythm::default();
        rhythm.ticket_after(Ticket::new(Epoch(7), 0));
        for epoch in [10, 13, 16] {
            let ticket = Ticket::new(Epoch(epoch), 0);
            assert_eq!(rhythm.ticket_after(ticket), Ticket::new(Epoch(epoch + 3), 0));
        }
    }

    #[test]
    fn a_piece_is_foreseen_where_it_lies_as_the_one_before_said() {
        let rhythm = Rhythm::default();
        let at = |offset: usize| null_mut::<u8>().wrapping_add(4096 + offset);
        assert!(!rhythm.foresee(at(0), at(64)));
        assert!(rhythm.foresee(at(64), at(128)));
        assert!(!rhythm.foresee(at(0), at(64)), "another place");
        assert!(rhythm.foresee(at(64), at(128)));
    }

    #[test]
    fn only_what_was_asked_for_counts_as_such() {
        let rhythm = Rhythm::default();
        let at = |offset: usize| null_mut::<u8>().wrapping_add(4096 + offset);
        rhythm.foresee(at(0), at(64));
        assert!(!rhythm.has_asked_for(at(64), 8), "foreseen alone");
        rhythm.asked.store(64, Ordering::Relaxed);
        assert!(rhythm.has_asked_for(at(64), 64) && !rhythm.has_asked_for(at(128), 64));
        assert!(!rhythm.has_asked_for(at(64), 65), "longer than the one before");
        rhythm.foresee(at(64), at(128));
        assert!(!rhythm.has_asked_for(at(128), 8) && !rhythm.has_asked_for(at(64), 8));
    }
}
