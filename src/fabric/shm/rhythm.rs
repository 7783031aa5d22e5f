//! A rank's prefetch of the lines that it writes next, at a time when nobody waits for them.
//!
//! Where the root stays the same, its peers never write, and so pass it no cells. Each piece goes to lines that the
//! peers read one ring ago, and the root has to take them back. Programs call in a rhythm, so a rank that has
//! published one piece can predict where the next one will lie. If it asks for those lines then, and not when it
//! writes them, such a call takes a third less time where cores are far apart (docs/PERFORMANCE.md, "Tried"): the
//! lines arrive while the peers still read, or do something else. A rank asks only after it has predicted correctly
//! where the piece before lay.
//!
//! Requested lines displace the program's data from the first-level cache, and delay its copies. On a Zen 5 whose
//! cores are close, Scatters of 32 KiB took up to 1.4 times as long where roots asked, on a Xeon less ("Tried"). So
//! for long pieces a rank tries both ways in turn, in a few calls of each collective, and adopts the one that took
//! less time. Each rank decides for itself: peers find the same bytes.

use super::clock;
use super::context::Context;
use super::trials::{Arm, Schedule, Took, Trials, TwoWays};
use super::writes::Course;
use crate::fabric::words::Words;
use crate::kernel::{self, Probed, host::Design};
use crate::sync::{Passed, Private, Room};
use crate::types::{Bytes, Collective, LINE, Ticket};
use std::time::Duration;

/// When and where a rank writes pieces to its own cells.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    /// The ticket of the last piece.
    last: Private<u64>,
    /// Where the next piece is expected to lie.
    next: Private<*mut u8>,
    /// How many bytes of the next piece were asked for.
    asked: Private<usize>,
    /// By collective and length, for pieces longer than [`Self::UNTRIED`]. All collectives have an entry, so that none
    /// has to be looked up among those with a root.
    by_class: [[Asking; Rhythm::CLASSES]; Collective::ALL.len()],
}

/// Whether to ask for the lines of pieces of one class.
#[derive(Debug, Default)]
struct Asking {
    /// How many pieces were predicted correctly.
    pieces: Private<u64>,
    /// The challenger is not to ask.
    trials: Trials<ForeseenPieces>,
}

impl Rhythm {
    /// Most bytes to ask for: what stays in a first-level cache of 48 KiB until it is written.
    const MOST: Bytes = Bytes(32 << 10);
    /// Pieces up to this length are asked for without trials: asking paid for 4 KiB wherever it was measured.
    const UNTRIED: Bytes = Bytes(4 << 10);
    /// The classes are pieces up to twice as long as `UNTRIED`, up to four times as long, and longer.
    const CLASSES: usize = 3;
    /// Longer intervals are ignored: the saving, some hundred nanoseconds, would not show in them. Assumed.
    const FAR_APART: Duration = Duration::from_micros(20);

    /// The rhythm of a rank on processors of that design. What was measured on one counts as its first trial, so that
    /// calls need not pay for a trial: on a Zen 5 whose cores are close, a thousand calls and more take half as long
    /// again after one that has asked (docs/PERFORMANCE.md, "Tried").
    pub fn of(design: Design) -> Self {
        let rhythm = Self::default();
        if design == Design::Zen5 {
            rhythm.by_class.as_flattened().iter().for_each(Asking::begin_without);
        }
        rhythm
    }

    /// Notes a piece for `ticket`. Returns the ticket of the next piece, if the distance between tickets stays the
    /// same.
    #[inline]
    fn ticket_after(&self, ticket: Ticket) -> Ticket {
        let last = self.last.get();
        self.last.set(ticket.0);
        Ticket(ticket.0 + (ticket.0 - last))
    }

    /// Notes that a piece lies `here`, and that the next one is expected `there`. Returns whether this piece had been
    /// predicted.
    #[inline]
    fn foresee(&self, here: *mut u8, there: *mut u8) -> bool {
        let foreseen = self.next.get();
        self.next.set(there);
        self.asked.set(0);
        here == foreseen
    }

    /// Whether to ask for the lines of the next piece, of `n` bytes in a call of `collective`, after a correct
    /// prediction.
    #[inline]
    fn asks_for(&self, collective: Collective, n: Bytes) -> bool {
        self.asks_by(clock::now, collective, n)
    }

    #[inline(always)]
    fn asks_by(&self, clock: impl FnOnce() -> u64, collective: Collective, n: Bytes) -> bool {
        n <= Self::UNTRIED || self.by_class[collective as usize][Self::class(n)].asks(clock)
    }

    /// The class of pieces of `n` bytes, more than [`Self::UNTRIED`].
    fn class(n: Bytes) -> usize {
        (((n.0 - 1) / Self::UNTRIED.0).ilog2() as usize).min(Self::CLASSES - 1)
    }

    /// Whether this rank asked for all lines of the piece of `n` bytes at `at` when it published the one before.
    #[inline]
    pub fn has_asked_for(&self, at: *mut u8, n: usize) -> bool {
        self.asked.get() >= n && at == self.next.get()
    }
}

impl Asking {
    /// Begins as after a first trial in which not asking was faster.
    fn begin_without(&self) {
        self.pieces.set(2 * ForeseenPieces::CALLS);
        self.trials.begin(Arm::Challenger, 1);
    }

    fn asks(&self, clock: impl FnOnce() -> u64) -> bool {
        let number = self.pieces.get();
        self.pieces.set(number + 1);
        self.trials.way(number, Rhythm::FAR_APART, clock) == Arm::Baseline
    }
}

/// The pieces of one class, numbered in the order in which they were predicted.
#[derive(Debug)]
struct ForeseenPieces;

impl Schedule for ForeseenPieces {
    const BLOCK: u64 = 64;
    /// More pieces than a root with the usual ring of 32 lines can be ahead of its reader; once the root waits, the
    /// reader sets the pace. By the first trial, pieces 512 to 1023, the root has been once round in cells that it has
    /// touched: it begins to use all of its cells at the 256th call.
    const UNTIMED: u64 = 39;
    const WINDOW: u64 = 1;
    const INTERVAL: u64 = 8;
    const BLOCKS: u64 = 8;
    /// 0.8 % of all pieces are tried: a piece that is asked for also costs the calls after it.
    const EVERY: u64 = 1024;
}

impl TwoWays for ForeseenPieces {
    const GAIN: f64 = 0.95;

    /// A root runs ahead of its reader by leaps, and then waits for it. So the shortest leap tells little.
    fn compared(took: Took<u64>) -> u64 {
        took.mean_but_longest()
    }
}

impl Context {
    /// This rank has published a piece of `n` bytes for `ticket`, in a call that reaches `reach` bytes into cells.
    #[inline(always)]
    pub(super) fn expect_next(&self, collective: Collective, ticket: Ticket, n: Bytes, reach: Bytes) {
        let claims = self.claims();
        let here = self.piece(self.rank(), ticket, claims.home(ticket));
        // A passed cell comes back together with its lines. With several readers, these would take lines from each
        // other while the root is as far ahead as it may be; how much that costs has not been measured.
        if Passed::is_for(self.geometry().ranks) && !self.is_passed(here) {
            self.expect_after(collective, here, ticket, n, reach);
        }
    }

    #[inline(never)]
    fn expect_after(&self, collective: Collective, here: *mut u8, ticket: Ticket, n: Bytes, reach: Bytes) {
        let next = self.rhythm.ticket_after(ticket);
        // The prediction holds as long as the rotation keeps its length.
        let there = self.piece(self.rank(), next, self.stretch(next, Room::Cell, reach, self.claims().cursor()).home);
        // If the next write goes around the caches, there is nothing to ask for and nothing to try. If it will be
        // timed, it has to show its cost without the request. It counts all the same, since a trial consists of
        // successive pieces.
        let course = self.writes.course_of_next(n.0);
        if self.rhythm.foresee(here, there)
            && course != Course::Around
            && self.rhythm.asks_for(collective, n)
            && course == Course::Through
        {
            let length = n.min(Rhythm::MOST).0.min(Probed::in_use().caches.l1 / 3 * 2);
            (0..length).step_by(LINE).for_each(|at| kernel::copy::expect_write(there.wrapping_add(at)));
            self.rhythm.asked.set(length);
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
        rhythm.asked.set(64);
        assert!(rhythm.has_asked_for(at(64), 64) && !rhythm.has_asked_for(at(128), 64));
        assert!(!rhythm.has_asked_for(at(64), 65), "longer than the one before");
        rhythm.foresee(at(64), at(128));
        assert!(!rhythm.has_asked_for(at(128), 8) && !rhythm.has_asked_for(at(64), 8));
    }

    /// Writes `pieces` pieces of `n` bytes. `takes`: nanoseconds of a piece that was asked for, and of one that was
    /// not. Returns how many of the last 100 were asked for.
    fn asked_for(rhythm: &Rhythm, n: Bytes, pieces: usize, takes: [u64; 2]) -> usize {
        asked_for_in(rhythm, Collective::Scatter, n, pieces, takes)
    }

    /// As `asked_for`, in calls of `collective`.
    fn asked_for_in(rhythm: &Rhythm, collective: Collective, n: Bytes, pieces: usize, takes: [u64; 2]) -> usize {
        let mut now = 0;
        let ask = |_| {
            let asks = rhythm.asks_by(|| now, collective, n);
            now += takes[usize::from(!asks)];
            asks
        };
        (0..pieces).map(ask).collect::<Vec<_>>().iter().rev().take(100).filter(|asks| **asks).count()
    }

    #[test]
    fn long_pieces_are_asked_for_where_that_is_faster() {
        let rhythm = Rhythm::default();
        let n = Bytes(16 << 10);
        const PERIOD: usize = ForeseenPieces::PERIOD as usize;
        assert_eq!(asked_for(&rhythm, n, 512, [500, 300]), 100, "before the first trial");
        assert_eq!(asked_for(&rhythm, n, PERIOD - 512, [500, 300]), 0);
        for other in [Rhythm::UNTRIED + Bytes(1), Bytes(64 << 10)] {
            assert_eq!(asked_for(&rhythm, other, 200, [500, 300]), 100, "{other:?} is of another class");
        }
        assert_eq!(asked_for_in(&rhythm, Collective::Bcast, n, 200, [500, 300]), 100, "another collective");
        assert_eq!(asked_for(&rhythm, n, PERIOD, [295, 300]), 0, "too little");
        assert_eq!(asked_for(&rhythm, n, PERIOD, [300, 500]), 100);
        assert_eq!(asked_for(&rhythm, Bytes(4 << 10), 8000, [500, 300]), 100, "without trials");
    }

    #[test]
    fn what_was_measured_of_a_processor_counts_as_the_first_trial() {
        let n = Bytes(16 << 10);
        for (design, asked) in [(Design::Zen5, 0), (Design::Zen4, 100), (Design::Intel, 100), (Design::Other, 100)] {
            let rhythm = Rhythm::of(design);
            assert_eq!(asked_for(&rhythm, n, 100, [500; 2]), asked, "{design:?}");
            assert_eq!(asked_for(&rhythm, Rhythm::UNTRIED, 100, [500; 2]), 100, "{design:?}");
        }
        let rhythm = Rhythm::of(Design::Zen5);
        let until_trial = ForeseenPieces::PERIOD - ForeseenPieces::CALLS;
        assert_eq!(asked_for(&rhythm, n, until_trial as usize, [300, 500]), 0, "no trial before");
        assert_eq!(asked_for(&rhythm, n, ForeseenPieces::PERIOD as usize, [300, 500]), 100);
    }

    #[test]
    fn pieces_with_much_between_them_tell_nothing() {
        let rhythm = Rhythm::default();
        assert_eq!(asked_for(&rhythm, Bytes(8 << 10), 8000, [60_000, 30_000]), 100);
    }

    #[test]
    fn each_class_but_the_last_is_of_pieces_up_to_twice_as_long() {
        let first = Rhythm::UNTRIED + Bytes(1);
        for (n, class) in [(first, 0), (Bytes(8 << 10), 0), (Bytes((8 << 10) + 1), 1), (Bytes(16 << 10), 1)] {
            assert_eq!(Rhythm::class(n), class, "{n:?}");
        }
        for longer in [(16 << 10) + 1, 32 << 10, 128 << 10] {
            assert_eq!(Rhythm::class(Bytes(longer)), 2, "{longer}");
        }
    }
}
