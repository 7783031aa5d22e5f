//! When the ranks of a pair first look for each other's flag, in calls in which both publish and then wait.
//!
//! A rank that looks at a line before its owner has written it takes the line from the owner's cache. The line then
//! lies in both caches, and the owner has to take it back before it can write, so the flag arrives after two transfers
//! between the caches. Both ranks of an exchange publish at about the same time. Loads overtake stores, so both ranks
//! look before either flag is written, and both flags arrive late. A rank that looks *late* first waits until its own
//! flag is in its cache ([`await_own_stores`](crate::kernel::copy::await_own_stores)). If both ranks came at the same
//! time, the peer's flag is then in its cache too. So the rank can ask for the flag together with the data that the
//! flag announces. On an Intel Xeon this saves a fifth to a third of the time of most calls of up to 512 bytes
//! (docs/PERFORMANCE.md, "Tried"). [`turns`](super::turns) decides when to look for a flag that the peer alone
//! publishes.
//!
//! No property of a processor tells whether late looks pay, and ranks do not know how far apart they arrive. So a few
//! of all calls try both ways in turn, and the faster one becomes the habit. Each rank decides for itself: peers find
//! the same flags. Which calls try which way follows from their epochs, so that both ranks try the same.

use super::clock;
use super::context::Context;
use super::next_flags::NextFlags;
use super::trials::{Arm, Schedule, Trials, TwoWays};
use super::turns::Turns;
use crate::fabric::Line;
use crate::fabric::words::Words;
use crate::kernel::{self, host::Design};
use crate::sync::Private;
use crate::types::{Bytes, Epoch, FirstLook, LINE, Ticket};

/// When this rank first looks, in calls on one context.
#[derive(Debug, Default)]
pub(super) struct FirstLooks {
    /// Whether there are trials.
    tries: Private<bool>,
    /// The challenger is to look late.
    trials: Trials<Exchanges>,
    /// The next flags of this rank, for whose lines it also asks when it looks late.
    pub next_flags: NextFlags,
    /// When this rank looks in calls with a root. In a box, because contexts are moved when they are made.
    pub turns: Box<Turns>,
}

impl FirstLooks {
    /// Eight lines, beside that of the flag: a core can have ten to sixteen requests under way. With longer pieces
    /// successive calls take as long either way.
    const LONGEST: Bytes = Bytes(512);

    /// What was measured on a processor's design counts as this many trials. On a Zen 5 a loop of barriers alone takes
    /// up to a tenth less time with early looks. But whatever follows a barrier there takes half as long with late
    /// ones (docs/PERFORMANCE.md, "Tried").
    const MEASURED: i32 = 2;

    /// From here on calls look as `look` says. With `Auto` they begin with the way that was found to be faster on
    /// processors of that design, or early where nothing was measured, and follow the trials afterwards.
    pub fn set(&self, look: FirstLook, design: Design) {
        let (way, trials) = match (look, design) {
            (FirstLook::Late, _) => (Arm::Challenger, 1),
            (FirstLook::Auto, Design::Intel | Design::Zen5) => (Arm::Challenger, Self::MEASURED),
            _ => (Arm::Baseline, 1),
        };
        self.tries.set(look == FirstLook::Auto);
        self.trials.begin(way, trials);
        self.turns.set(look);
    }

    /// Whether the call of `epoch` looks late for pieces of `n` bytes.
    #[inline(always)]
    pub fn is_late(&self, Epoch(epoch): Epoch, n: Bytes) -> bool {
        n <= Self::LONGEST && if Exchanges::has(epoch) { self.is_late_in_trial(epoch) } else { self.is_habit_late() }
    }

    #[inline(always)]
    fn is_habit_late(&self) -> bool {
        self.trials.habit() == Arm::Challenger
    }

    #[cold]
    fn is_late_in_trial(&self, epoch: u64) -> bool {
        if self.tries.get() { Exchanges::way(epoch) == Arm::Challenger } else { self.is_habit_late() }
    }

    /// Notes that the exchange of pieces of `n` bytes in the call of `epoch` is over.
    #[inline(always)]
    pub fn note(&self, Epoch(epoch): Epoch, n: Bytes) {
        if n <= Self::LONGEST && Exchanges::has(epoch) {
            self.note_in_trial(epoch, clock::now);
        }
    }

    /// As `note`, in a trial. The clock is not read between the store of a flag and the look: reading it would turn an
    /// early look into a late one.
    #[cold]
    fn note_in_trial(&self, epoch: u64, clock: impl FnOnce() -> u64) {
        if self.tries.get() {
            self.trials.note(epoch, Turns::FAR_APART, clock);
        }
    }
}

/// Calls numbered by epoch; exchanges among them are noted.
#[derive(Debug)]
struct Exchanges;

impl Schedule for Exchanges {
    const BLOCK: u64 = 64;
    /// The usual length of the ring of lines.
    const UNTIMED: u64 = 32;
    /// In most programs this many calls include some exchanges. The interval covers most of the timed half of a block.
    const WINDOW: u64 = 8;
    const INTERVAL: u64 = 24;
    const BLOCKS: u64 = 8;
    /// 1.6 % of all calls are tried.
    const EVERY: u64 = 512;
}

impl TwoWays for Exchanges {
    const GAIN: f64 = 0.98;
}

impl Context {
    /// To be called when this rank has published a piece of `n` bytes for `ticket`, and its only peer has done so too
    /// or is about to. Asks for the line of the peer's flag, and for the peer's piece if its likely place is known.
    #[inline(never)]
    pub(super) fn ask_for_piece(&self, line: Line, ticket: Ticket, n: Bytes) {
        let peer = self.rank().other();
        kernel::copy::expect_read(std::ptr::from_ref(self.line(peer, line, ticket)).cast());
        if let Some(cell) = self.passed().likely(ticket) {
            let at = self.piece(peer, ticket, Some(self.home_of_passed(peer, cell)));
            (0..n.0).step_by(LINE).for_each(|offset| kernel::copy::expect_read(at.wrapping_add(offset)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    const SHORT: Bytes = Bytes(8);

    /// The calls of a pair, every `every`-th of which is an exchange; `takes` tells the nanoseconds of a call by its
    /// epoch and whether it looks late. Returns how many looked late.
    fn exchange(looks: &FirstLooks, epochs: Range<u64>, every: usize, takes: impl Fn(u64, bool) -> u64) -> usize {
        let mut now = 0;
        let is_late = |epoch: u64| {
            let is_late = looks.is_late(Epoch(epoch), SHORT);
            now += takes(epoch, is_late);
            if Exchanges::has(epoch) {
                looks.note_in_trial(epoch, || now);
            }
            is_late
        };
        epochs.step_by(every).map(is_late).filter(|is_late| *is_late).count()
    }

    const fn trial(number: u64) -> Range<u64> {
        let first = number * Exchanges::PERIOD + Exchanges::CALLS;
        first..first + Exchanges::CALLS
    }

    /// Calls take `early` nanoseconds if they look early, else `late`.
    fn takes([early, late]: [u64; 2]) -> impl Fn(u64, bool) -> u64 {
        move |_, is_late| if is_late { late } else { early }
    }

    fn try_out(looks: &FirstLooks, number: u64, nanoseconds: [u64; 2]) {
        exchange(looks, trial(number), 1, takes(nanoseconds));
    }

    fn of_pair() -> FirstLooks {
        let looks = FirstLooks::default();
        looks.set(FirstLook::Auto, Design::Intel);
        looks
    }

    /// A pair of which early looks have won a trial: late ones remain the habit until they lose another one.
    fn of_doubtful_pair() -> FirstLooks {
        let looks = of_pair();
        try_out(&looks, 100, [100, 110]);
        assert!(are_late(&looks));
        looks
    }

    fn are_late(looks: &FirstLooks) -> bool {
        looks.is_late(Epoch(1), SHORT)
    }

    #[test]
    fn the_faster_way_becomes_the_habit() {
        let looks = of_pair();
        assert!(are_late(&looks));
        try_out(&looks, 0, [100, 101]);
        assert!(are_late(&looks), "too little");
        try_out(&looks, 1, [100, 110]);
        assert!(are_late(&looks), "one trial against what was measured");
        try_out(&looks, 2, [100, 110]);
        assert!(!are_late(&looks));
        try_out(&looks, 3, [101, 100]);
        assert!(!are_late(&looks), "too little");
        try_out(&looks, 4, [110, 100]);
        assert!(are_late(&looks));
        (5..9).for_each(|number| try_out(&looks, number, [150, 100]));
        try_out(&looks, 9, [100, 500]);
        assert!(are_late(&looks), "one trial against many");
    }

    #[test]
    fn few_calls_are_tried_and_half_of_them_each_way() {
        let looks = of_doubtful_pair();
        let all = 3 * Exchanges::PERIOD;
        let tried = (0..all).filter(|epoch| Exchanges::has(*epoch)).count() as u64;
        assert_eq!(tried, 3 * Exchanges::CALLS);
        let late = exchange(&looks, 0..all, 1, takes([100, 150])) as u64;
        assert_eq!(
            late,
            Exchanges::CALLS + 3 * Exchanges::CALLS / 2,
            "until the first verdict, then half of the trials"
        );
    }

    /// A program that makes long and short calls in a rhythm of its own does not make a way look slow.
    #[test]
    fn rhythms_of_programs_do_not_count() {
        for (period, loser) in
            [2, 8, 16, 48, 64, 128, 256].into_iter().flat_map(|period| [(period, true), (period, false)])
        {
            let looks = of_doubtful_pair();
            if !loser {
                try_out(&looks, 0, [100, 150]);
            }
            assert_eq!(are_late(&looks), loser);
            let takes = |epoch, is_late| {
                let usual = if epoch % period < period / 2 { 400 } else { 100 };
                usual + if is_late == loser { 30 } else { 0 }
            };
            exchange(&looks, trial(1), 1, takes);
            assert_eq!(are_late(&looks), !loser, "a period of {period} calls");
        }
    }

    #[test]
    fn calls_that_are_far_apart_say_nothing() {
        let looks = of_doubtful_pair();
        try_out(&looks, 0, [20_000, 50_000]);
        assert!(are_late(&looks));
    }

    #[test]
    fn one_call_in_three_suffices() {
        let looks = of_doubtful_pair();
        exchange(&looks, trial(0), 3, takes([100, 300]));
        assert!(!are_late(&looks));
    }

    /// The system takes the core away in most blocks that look early.
    #[test]
    fn interruptions_do_not_count() {
        let looks = of_doubtful_pair();
        let interrupted = [9, 10, 12];
        assert!(interrupted.iter().all(|block| Exchanges::way(block * Exchanges::BLOCK) == Arm::Baseline));
        let takes = |epoch, is_late| {
            let is_interrupted = interrupted.contains(&(epoch / Exchanges::BLOCK)) && epoch % Exchanges::BLOCK == 45;
            if is_interrupted {
                5000
            } else if is_late {
                120
            } else {
                100
            }
        };
        exchange(&looks, trial(0), 1, takes);
        assert!(!are_late(&looks));
    }

    /// From the middle of a trial on the program calls something else.
    #[test]
    fn a_trial_that_does_not_end_counts_for_nothing() {
        let looks = of_doubtful_pair();
        let half = trial(0).start..trial(0).start + Exchanges::CALLS / 2;
        exchange(&looks, half, 1, takes([100, 500]));
        try_out(&looks, 1, [600, 500]);
        assert!(are_late(&looks));
    }

    #[test]
    fn long_pieces_are_looked_for_at_once() {
        let looks = of_pair();
        assert!(looks.is_late(Epoch(1), Bytes(512)) && !looks.is_late(Epoch(1), Bytes(513)));
        assert!(trial(0).all(|epoch| !looks.is_late(Epoch(epoch), Bytes(513))));
    }

    #[test]
    fn nothing_is_tried_where_the_way_is_set_or_there_is_none() {
        let is_late_always = |looks: &FirstLooks| {
            let calls = 3 * Exchanges::CALLS;
            let late = exchange(looks, 0..calls, 1, takes([100, 300])) as u64;
            assert!(late == 0 || late == calls, "{looks:?}");
            late == calls
        };
        assert!(!is_late_always(&FirstLooks::default()));
        for design in [Design::Intel, Design::Zen4, Design::Zen5, Design::Other] {
            for (look, is_late) in [(FirstLook::Early, false), (FirstLook::Late, true)] {
                let looks = FirstLooks::default();
                looks.set(look, design);
                assert_eq!(is_late_always(&looks), is_late, "{look:?}");
            }
        }
    }

    #[test]
    fn looks_begin_as_was_found_to_be_faster() {
        let designs = [(Design::Intel, true), (Design::Zen5, true), (Design::Zen4, false), (Design::Other, false)];
        for (design, is_late) in designs {
            let looks = FirstLooks::default();
            looks.set(FirstLook::Auto, design);
            assert_eq!(are_late(&looks), is_late, "{design:?}");
        }
    }

    #[test]
    fn where_nothing_was_measured_looks_are_early_until_a_trial_is_won() {
        let looks = FirstLooks::default();
        looks.set(FirstLook::Auto, Design::Other);
        assert!(!are_late(&looks));
        try_out(&looks, 0, [100, 100]);
        assert!(!are_late(&looks));
        try_out(&looks, 1, [150, 100]);
        assert!(are_late(&looks));
    }
}
