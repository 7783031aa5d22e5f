//! Asking for the lines that a rank writes next, while nobody waits for them.
//!
//! Where the root stays the same its peers never write, and so pass it no cells: each piece goes to lines that they have read a ring
//! ago, and that it has to take back from them. Programs call in a rhythm, so a rank that has published one piece knows where the next
//! one will lie. To ask for its lines then, in place of when they are written, takes a third off such a call where cores are far apart
//! (docs/PERFORMANCE.md, "Tried"): they come while the peers still read, or do something else. A rank asks only after it has
//! foreseen where the piece before lay.
//!
//! What is asked for has to come, and waits in the first-level cache, where the program has data of its own: pieces of 8 KiB and more take up to a
//! half longer so where cores are close, though not on each processor. So of long pieces some are asked for and some are not, in a few calls in
//! turn, and the rank goes by what took less time. It is each rank's own affair: peers find the same bytes.

use super::clock;
use super::context::Context;
use super::trials::{Arm, Schedule, Took, Trials, TwoWays};
use super::writes::Course;
use crate::fabric::words::Words;
use crate::kernel::{self, Probed};
use crate::sync::Passed;
use crate::types::{Bytes, LINE, Ticket};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

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
    /// By length, of pieces longer than [`Self::TRIED`].
    habits: [Habit; Rhythm::CLASSES],
}

/// Whether pieces that are alike are asked for.
#[derive(Debug, Default)]
struct Habit {
    /// Pieces that were foreseen.
    pieces: AtomicU64,
    /// The other way is not to ask.
    trials: Trials<Foreseen>,
}

impl Rhythm {
    /// How much is asked for at most: what stays in a first-level cache of 48 KiB until it is written.
    const MOST: Bytes = Bytes(32 << 10);
    /// Pieces that are no longer are asked for without trials.
    const TRIED: Bytes = Bytes(4 << 10);
    /// Up to twice as long, four times as long, and longer.
    const CLASSES: usize = 3;
    /// Pieces that are farther apart tell nothing of some hundred nanoseconds.
    const FAR_APART: Duration = Duration::from_micros(20);

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

    /// Whether to ask for the lines of a piece that was foreseen, of `n` bytes.
    #[inline]
    fn asks_for(&self, n: Bytes) -> bool {
        self.asks_by(clock::now, n)
    }

    #[inline(always)]
    fn asks_by(&self, clock: impl FnOnce() -> u64, n: Bytes) -> bool {
        n <= Self::TRIED || self.habits[Self::class(n)].asks(clock)
    }

    fn class(n: Bytes) -> usize {
        (((n.0 - 1) / Self::TRIED.0).ilog2() as usize).min(Self::CLASSES - 1)
    }

    /// Whether all lines of a piece of `n` bytes that begins at `at` were asked for when the one before it was published.
    #[inline]
    pub fn has_asked_for(&self, at: *mut u8, n: usize) -> bool {
        self.asked.load(Ordering::Relaxed) >= n && at == self.next.load(Ordering::Relaxed)
    }
}

impl Habit {
    fn asks(&self, clock: impl FnOnce() -> u64) -> bool {
        let number = self.pieces.load(Ordering::Relaxed);
        self.pieces.store(number + 1, Ordering::Relaxed);
        let way = match Foreseen::has(number) {
            true => self.trials.try_out(number, Rhythm::FAR_APART, clock),
            false => self.trials.habit(),
        };
        way == Arm::One
    }
}

/// Pieces of one class in the order in which they were foreseen.
#[derive(Debug)]
struct Foreseen;

impl Schedule for Foreseen {
    const BLOCK: u64 = 32;
    /// As many as the root of a ring of 16 cells may be ahead of its reader, about.
    const UNTIMED: u64 = 15;
    const WINDOW: u64 = 1;
    const INTERVAL: u64 = 8;
    const BLOCKS: u64 = 8;
    /// 3 % of all are tried.
    const EVERY: u64 = 256;
}

impl TwoWays for Foreseen {
    const GAIN: f64 = 0.95;

    /// A root runs ahead of its reader by leaps, and then waits for it: how long the shortest leap takes says little.
    fn compared(took: Took<u64>) -> u64 {
        took.mean_but_longest()
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
        if self.rhythm.foresee(here, there)
            && self.rhythm.asks_for(n)
            && self.writes.course_of_next(n.0) == Course::Through
        {
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

    /// So many pieces of `n` bytes, which take so many nanoseconds each if they were asked for, and if not; of the last 100 how many are.
    fn asked_for(rhythm: &Rhythm, n: Bytes, pieces: usize, takes: [u64; 2]) -> usize {
        let mut now = 0;
        let ask = |_| {
            let asks = rhythm.asks_by(|| now, n);
            now += takes[usize::from(!asks)];
            asks
        };
        (0..pieces).map(ask).collect::<Vec<_>>().iter().rev().take(100).filter(|asks| **asks).count()
    }

    #[test]
    fn long_pieces_are_asked_for_where_that_is_faster() {
        let rhythm = Rhythm::default();
        let n = Bytes(16 << 10);
        assert_eq!(asked_for(&rhythm, n, 256, [500, 300]), 100, "before the first trial");
        assert_eq!(asked_for(&rhythm, n, 8000, [500, 300]), 0);
        assert_eq!(asked_for(&rhythm, n, 8192, [295, 300]), 0, "too little");
        assert_eq!(asked_for(&rhythm, n, 8192, [300, 500]), 100);
        for other in [4 << 10, (4 << 10) + 1, 64 << 10] {
            assert_eq!(asked_for(&rhythm, Bytes(other), 200, [500, 300]), 100, "{other}: of each class by itself");
        }
        assert_eq!(asked_for(&rhythm, Bytes(4 << 10), 8000, [500, 300]), 100, "without trials");
    }

    #[test]
    fn pieces_with_much_between_them_tell_nothing() {
        let rhythm = Rhythm::default();
        assert_eq!(asked_for(&rhythm, Bytes(8 << 10), 8000, [60_000, 30_000]), 100);
    }

    #[test]
    fn each_class_is_of_pieces_up_to_twice_as_long() {
        let first = Rhythm::TRIED + Bytes(1);
        for (n, class) in [(first, 0), (Bytes(8 << 10), 0), (Bytes((8 << 10) + 1), 1), (Bytes(16 << 10), 1)] {
            assert_eq!(Rhythm::class(n), class, "{n:?}");
        }
        for longer in [(16 << 10) + 1, 32 << 10, 128 << 10] {
            assert_eq!(Rhythm::class(Bytes(longer)), 2, "{longer}");
        }
    }
}
