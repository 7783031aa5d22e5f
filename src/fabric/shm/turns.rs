//! When a rank of a pair looks for its peer's flag, in calls with a root in which it is the peer's turn to publish.
//!
//! Where the root changes, a rank that published in one call waits in the next for its peer. The peer publishes once
//! it has received what the rank published, which takes at least one transfer of a line between the caches. A rank
//! that looks at once takes the line of the peer's flag, and the peer has to take it back before it can write: such a
//! turn takes two transfers and more. A rank that looks just before the flag arrives, and meanwhile asks for the line
//! of its own next flag, lets the turn take one (docs/PERFORMANCE.md, "Tried"). Looking too early costs more than
//! looking at once; looking too late costs the delay. How long a turn takes depends on where the cores are, on the
//! call, and on what the program does between calls.
//!
//! So a few of all calls try several waits in turn. Which one follows from the epoch, so that both ranks try the same
//! wait. Each rank adopts the wait whose calls followed each other fastest. Each rank decides for itself: peers find
//! the same flags.

use super::clock;
use super::hopes::pauses_in;
use super::trials::{Schedule, Timings, Took};
use crate::fabric::Line;
use crate::sync::Private;
use crate::types::{Bytes, Collective, Epoch, FirstLook};
use std::time::Duration;

/// How long this rank waits before its first look, on one context.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Whether there are trials; without them ranks look at once.
    tries: Private<bool>,
    /// The last call with a root in which this rank published: twice its epoch, plus the line in the lowest bit. 0
    /// before the first one: call 1, in which nothing is tried, then counts as a turn.
    last: Private<u64>,
    /// By collective, and by where the piece lies.
    waits: [[TurnWait; Piece::COUNT]; COLLECTIVES],
}

/// What is known of calls of one collective with pieces in one place.
#[derive(Debug, Default)]
struct TurnWait {
    /// The wait, in steps.
    steps: Private<u32>,
    /// The period of the last trial that decided on the wait.
    decided: Private<u64>,
    timings: Timings<CallsWithTurns, { Turns::WAITS }>,
}

/// All collectives, so that none has to be looked up among those with a root.
const COLLECTIVES: usize = Collective::ALL.len();

impl Turns {
    /// Waits that are tried: none, and multiples of [`Self::STEP`].
    const WAITS: usize = 8;
    /// From one wait to the next. The longest, of seven steps, is 280 ns: the time to transfer a line between cores of
    /// one node, and to handle it.
    const STEP: Duration = Duration::from_nanos(40);
    /// Longer intervals are ignored: a hundred nanoseconds don't show in them.
    pub const FAR_APART: Duration = Duration::from_micros(10);
    /// A wait replaces the habit if its calls take less than this fraction of the habit's time.
    const GAIN: f64 = 0.95;
    /// For this many periods the habit holds after the trial that decided on it.
    const LASTS: u64 = 2;

    /// From here on calls try waits if `look` is `Auto`; else ranks look at once.
    pub fn set(&self, look: FirstLook) {
        self.tries.set(look == FirstLook::Auto);
        self.waits.as_flattened().iter().for_each(|wait| wait.steps.set(0));
    }

    /// Notes that this rank publishes on `line` in the call of `epoch`, which has a root.
    #[inline(always)]
    pub fn note(&self, line: Line, Epoch(epoch): Epoch) {
        self.last.set(2 * epoch + line as u64);
    }

    /// This rank waits for a piece of its peer in the call of `epoch`, of a collective with a root. If it published in
    /// the call before and has to wait before its first look, returns on which line it published, and for how many
    /// pauses to wait.
    #[inline(always)]
    pub fn wait(&self, epoch: Epoch, collective: Collective, piece: Piece) -> Option<(Line, u32)> {
        if self.last.get() / 2 + 1 != epoch.0 {
            return None;
        }
        let wait = &self.waits[collective as usize][piece as usize];
        let is_tried = CallsWithTurns::has(epoch.0);
        if is_tried || wait.steps.get() > 0 { self.wait_as(wait, epoch) } else { None }
    }

    #[inline(never)]
    fn wait_as(&self, wait: &TurnWait, epoch: Epoch) -> Option<(Line, u32)> {
        self.wait_by(clock::now, epoch, wait)
    }

    fn wait_by(&self, clock: impl FnOnce() -> u64, Epoch(epoch): Epoch, wait: &TurnWait) -> Option<(Line, u32)> {
        let steps =
            if CallsWithTurns::has(epoch) && self.tries.get() { wait.try_out(epoch, clock) } else { wait.usual(epoch) };
        (steps > 0).then(|| (self.line_of_last(), pauses_in(Self::STEP * steps)))
    }

    fn line_of_last(&self) -> Line {
        if self.last.get().is_multiple_of(2) { Line::Up } else { Line::Down }
    }
}

impl TurnWait {
    /// The wait of the call of `epoch`, which tries nothing. A wait that no trial has confirmed for [`Turns::LASTS`]
    /// periods is dropped: in some programs no trial falls on these calls.
    fn usual(&self, epoch: u64) -> u32 {
        if epoch / CallsWithTurns::PERIOD > self.decided.get() + Turns::LASTS {
            self.steps.set(0);
        }
        self.steps.get()
    }

    /// The wait of the call of `epoch`, which is in a trial.
    #[cold]
    fn try_out(&self, epoch: u64, clock: impl FnOnce() -> u64) -> u32 {
        let steps = match CallsWithTurns::steps(epoch) {
            steps if self.is_too_long(steps) => 0,
            steps => steps,
        };
        if let Some(took) = self.timings.note(epoch, steps as usize, Turns::FAR_APART, clock) {
            self.judge(epoch / CallsWithTurns::PERIOD, took);
        }
        steps
    }

    /// Whether that wait is too long to gain anything, as far as this trial knows.
    fn is_too_long(&self, steps: u32) -> bool {
        outlasts_turns(steps, self.timings.so_far(0).least)
    }

    /// Ends the trial of `period`; `took` has what calls took with each wait. A wait that is a little too short has
    /// lucky intervals, as short as those of the next longer one. So the longest interval of another wait has to be
    /// shorter than the shortest one of the habit. In each trial the habit has to be faster than no wait: a wait that
    /// gains nothing delays ranks that come late by its length.
    fn judge(&self, period: u64, took: [Took<u64>; Turns::WAITS]) {
        let without = took[0].least;
        let habit = match self.steps.get() as usize {
            habit if without > 0 && (outlasts_turns(habit as u32, without) || took[habit].least >= without) => 0,
            habit => habit,
        };
        let fastest = (0..Turns::WAITS).filter(|steps| took[*steps].most > 0).min_by_key(|steps| took[*steps].most);
        let is_faster = |steps: usize| (took[steps].most as f64) < Turns::GAIN * took[habit].least as f64;
        let steps = fastest.filter(|steps| is_faster(*steps)).unwrap_or(habit);
        self.steps.set(steps as u32);
        if took[steps].least > 0 {
            self.decided.set(period);
        }
    }
}

/// Whether a wait is longer than this rank's turn and its peer's together, each of which takes `without` picoseconds
/// if nobody waits.
fn outlasts_turns(steps: u32, without: u64) -> bool {
    (Turns::STEP * steps).as_nanos() as u64 * 1000 > 2 * without
}

/// Where the piece of a call lies that a rank waits for. For pieces above 512 bytes the time of one line does not
/// matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    BesideFlag,
    BeyondFlag,
    InCell,
}

impl Piece {
    const COUNT: usize = 3;
    pub const LONGEST: Bytes = Bytes(512);
}

/// Calls numbered by epoch; those in which it is the peer's turn are noted.
#[derive(Debug)]
struct CallsWithTurns;

impl Schedule for CallsWithTurns {
    const BLOCK: u64 = 64;
    /// The usual length of the ring of lines.
    const UNTIMED: u64 = 32;
    const WINDOW: u64 = 8;
    const INTERVAL: u64 = 24;
    /// Each wait is tried in two blocks.
    const BLOCKS: u64 = 2 * Turns::WAITS as u64;
    /// 3 % of all calls are tried.
    const EVERY: u64 = 512;
}

impl CallsWithTurns {
    /// The wait of call `number` of a trial: successive blocks have all waits in turn.
    fn steps(number: u64) -> u32 {
        (number / Self::BLOCK % Turns::WAITS as u64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trying() -> Turns {
        let turns = Turns::default();
        turns.set(FirstLook::Auto);
        turns
    }

    fn wait_of(turns: &Turns) -> &TurnWait {
        &turns.waits[Collective::Bcast as usize][Piece::BesideFlag as usize]
    }

    const fn trial(number: u64) -> std::ops::Range<u64> {
        let first = number * CallsWithTurns::PERIOD + CallsWithTurns::CALLS;
        first..first + CallsWithTurns::CALLS
    }

    /// A trial in which it is the peer's turn in every other call; `takes` tells the nanoseconds of a call by its
    /// wait. Returns the habit after the trial.
    fn try_out(turns: &Turns, number: u64, takes: impl Fn(usize) -> u64) -> u32 {
        let mut now = 0;
        for epoch in trial(number) {
            let tried = CallsWithTurns::steps(epoch);
            let steps = if wait_of(turns).is_too_long(tried) { 0 } else { tried };
            if epoch % 2 == 1 {
                turns.wait_by(|| now, Epoch(epoch), wait_of(turns));
            }
            now += takes(steps as usize);
        }
        wait_of(turns).steps.get()
    }

    #[test]
    fn the_wait_whose_calls_are_fastest_becomes_the_habit() {
        let turns = trying();
        assert_eq!(try_out(&turns, 0, |_| 200), 0);
        let far_apart = [210, 220, 280, 290, 260, 190, 230, 270];
        assert_eq!(try_out(&turns, 1, |steps| far_apart[steps]), 5);
        assert_eq!(try_out(&turns, 2, |steps| [220, 200, 200, 200, 196, 200, 200, 200][steps]), 5, "too little");
        let close = [60, 65, 70, 100, 140, 180, 220, 260];
        assert_eq!(try_out(&turns, 3, |steps| close[steps]), 0);
    }

    #[test]
    fn waits_that_can_gain_nothing_are_not_tried() {
        let (turns, mut now, mut longest) = (trying(), 0, 0);
        for epoch in trial(0) {
            longest = longest.max(wait_of(&turns).try_out(epoch, || now));
            now += 60;
        }
        assert_eq!(longest, 3, "120 ns are what two calls take");
    }

    #[test]
    fn who_published_in_the_call_before_waits_for_its_turn() {
        let turns = trying();
        let wait_for = |epoch, piece| turns.wait(Epoch(epoch), Collective::Bcast, piece).map(|(line, _)| line);
        let wait = |epoch| wait_for(epoch, Piece::BesideFlag);
        try_out(&turns, 0, third);
        assert_eq!(wait(2), None, "it never published");
        for (epoch, line) in [(4, Line::Down), (5, Line::Up)] {
            turns.note(line, Epoch(epoch));
            assert_eq!(wait(epoch + 1), Some(line));
            assert_eq!(wait(epoch + 2), None, "not in the call before");
            assert_eq!(wait_for(epoch + 1, Piece::BeyondFlag), None, "none of these were tried");
        }
        let (_, pauses) = turns.wait(Epoch(6), Collective::Bcast, Piece::BesideFlag).unwrap();
        assert_eq!(pauses, pauses_in(3 * Turns::STEP));
    }

    /// Calls take half as long with the wait of three steps.
    fn third(steps: usize) -> u64 {
        if steps == 3 { 100 } else { 200 }
    }

    #[test]
    fn without_trials_ranks_look_at_once() {
        let turns = Turns::default();
        assert_eq!(try_out(&turns, 0, third), 0);
        let turns = trying();
        assert_eq!(try_out(&turns, 0, third), 3);
        turns.set(FirstLook::Early);
        turns.note(Line::Down, Epoch(5));
        assert_eq!(turns.wait(Epoch(6), Collective::Bcast, Piece::BesideFlag), None);
        assert_eq!(try_out(&turns, 1, third), 0);
    }

    /// A trial in whose blocks `blocks` the program makes no calls.
    fn try_out_without(turns: &Turns, number: u64, blocks: std::ops::Range<u64>, takes: impl Fn(usize) -> u64) {
        let mut now = 0;
        for epoch in trial(number) {
            if !blocks.contains(&((epoch - trial(number).start) / CallsWithTurns::BLOCK)) {
                turns.wait_by(|| now, Epoch(epoch), wait_of(turns));
                now += takes(CallsWithTurns::steps(epoch) as usize);
            }
        }
    }

    #[test]
    fn what_a_trial_did_not_time_decides_nothing() {
        let steps = |turns: &Turns| wait_of(turns).steps.get();
        // A program that goes on to other calls in the middle of the trial.
        let turns = trying();
        try_out_without(&turns, 0, 8..16, third);
        assert_eq!(steps(&turns), 0);
        assert_eq!(try_out(&turns, 1, |_| 200), 0, "nor in the next one");
        // A program that makes these calls only in the first and the last block of the trial.
        let turns = trying();
        try_out(&turns, 0, third);
        try_out_without(&turns, 1, 1..15, |_| 200);
        assert_eq!(steps(&turns), 3, "of the habit nothing is known");
        // A program that does something else for long between calls.
        let turns = trying();
        assert_eq!(try_out(&turns, 0, |steps| if steps == 3 { 10_500 } else { 20_000 }), 0);
    }

    /// A program whose calls do not become faster by the wait, as the waiting rank is late anyway; the time between
    /// calls varies.
    #[test]
    fn a_wait_has_to_be_earned_again() {
        let turns = trying();
        assert_eq!(try_out(&turns, 0, third), 3);
        let mut calls = 0;
        let late = |_| {
            calls += 1;
            2000 + calls / 32 % 3 * 150
        };
        let late = std::cell::RefCell::new(late);
        assert_eq!(try_out(&turns, 1, |steps| (late.borrow_mut())(steps)), 0);
    }

    #[test]
    fn a_habit_ends_that_no_trial_reaches() {
        let turns = trying();
        try_out(&turns, 0, third);
        let waits = |period: u64| {
            let epoch = period * CallsWithTurns::PERIOD + 5;
            turns.note(Line::Down, Epoch(epoch - 1));
            turns.wait(Epoch(epoch), Collective::Bcast, Piece::BesideFlag).is_some()
        };
        assert_eq!([1, 2, 3, 4].map(waits), [true, true, false, false]);
    }
}
