//! Trials of ways of waiting, where ranks share cores.
//!
//! What a rank does while it waits shows in the time that all ranks take from call to call. Which way is faster depends
//! on the cores, on the program and on the MPI library. So for some questions ranks try two ways each, one question
//! after the other, and from then on go the way that took less time. Which calls try what follows from their epochs, so
//! that all ranks try the same at about the same time. Otherwise each rank decides for itself.

use super::trials::{Arm, Schedule, Trials, TwoWays};
use crate::types::{Collective, Epoch};
use std::time::Duration;

/// Calls that are judged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    WithRoot,
    WithoutRoot,
}

impl Kind {
    /// The kind of a call of `collective`.
    pub fn of(collective: Collective) -> Self {
        if collective.has_root() { Self::WithRoot } else { Self::WithoutRoot }
    }
}

/// What trials are to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Whether to look on at peers that are in no call of this communicator ([`Hopes`](super::hopes)).
    LookElsewhere,
    /// Whether a rank that has published something gives its core away at once ([`Givers`](super::givers)).
    GiveWay,
}

/// Calls by their epochs. A rank notes those in which it waits.
#[derive(Debug)]
struct WaitingCalls;

impl Schedule for WaitingCalls {
    const BLOCK: u64 = 64;
    /// Some ranks are some calls ahead of others.
    const UNTIMED: u64 = 32;
    const WINDOW: u64 = 8;
    const INTERVAL: u64 = 24;
    const BLOCKS: u64 = 8;
    /// 3 % of all calls try each question for each kind, and an eighth is in some trial. More would cost too much, as
    /// one way may take half as long again as the other. Fewer would come too seldom, as programs with many ranks for
    /// each core make few calls.
    const EVERY: u64 = 256;
}

impl TwoWays for WaitingCalls {
    const GAIN: f64 = 0.95;
}

impl WaitingCalls {
    /// Calls that are farther apart tell nothing of switches between ranks, which take a microsecond.
    const FAR_APART: Duration = Duration::from_millis(1);

    /// The number by which the trials of `question` know the call of `epoch`, which is of `kind`. While one question is
    /// tried for one kind all else goes by habit, since each call of a trial counts with all that lies between. The
    /// first trials follow each other, from the 512th call on.
    fn number(Epoch(epoch): Epoch, question: Question, kind: Kind) -> u64 {
        let before = 2 * question as u64 + kind as u64;
        epoch.wrapping_sub(before * Self::CALLS)
    }
}

/// How one rank answers a question on one context, for calls with and without a root.
#[derive(Debug)]
pub(super) struct Answers {
    question: Question,
    by_kind: [Trials<WaitingCalls>; 2],
}

impl Answers {
    pub fn to(question: Question) -> Self {
        Self { question, by_kind: Default::default() }
    }

    /// The way of the call of `epoch`; trials read `clock`. As long as they show no difference it is `otherwise`.
    pub fn way_by(
        &self,
        clock: impl FnOnce() -> u64,
        epoch: Epoch,
        kind: Kind,
        otherwise: impl FnOnce() -> Arm,
    ) -> Arm {
        let number = WaitingCalls::number(epoch, self.question, kind);
        self.by_kind[kind as usize].way_or(number, WaitingCalls::FAR_APART, clock, otherwise)
    }

    #[cfg(test)]
    pub fn habit(&self, kind: Kind) -> Arm {
        self.by_kind[kind as usize].habit()
    }

    /// Goes on as if trials had shown `way` to be faster.
    #[cfg(test)]
    pub fn begin(&self, kind: Kind, way: Arm) {
        self.by_kind[kind as usize].begin(way, 2);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const PERIOD: u64 = WaitingCalls::PERIOD;
    /// Calls of a trial.
    pub const TRIED: u64 = WaitingCalls::CALLS;

    /// The epochs of one trial of a question, for calls of a kind.
    pub fn trial_of(question: (Question, Kind), trial: u64) -> std::ops::Range<u64> {
        let first = (trial * PERIOD..).find(|epoch| tried_in(*epoch, question).is_some()).expect("once in a period");
        first..first + TRIED
    }

    /// The way of the call of `epoch`, if it tries that question for calls of that kind.
    pub fn tried_in(epoch: u64, (question, kind): (Question, Kind)) -> Option<Arm> {
        let number = WaitingCalls::number(Epoch(epoch), question, kind);
        WaitingCalls::has(number).then(|| WaitingCalls::way(number))
    }

    #[test]
    fn one_question_is_tried_at_a_time() {
        const QUESTIONS: [(Question, Kind); 4] = [
            (Question::LookElsewhere, Kind::WithRoot),
            (Question::LookElsewhere, Kind::WithoutRoot),
            (Question::GiveWay, Kind::WithRoot),
            (Question::GiveWay, Kind::WithoutRoot),
        ];
        assert_eq!(QUESTIONS.map(|question| trial_of(question, 0).start / TRIED), [1, 2, 3, 4]);
        let mut tried = [0; 4];
        for epoch in 1..=2 * PERIOD {
            let has = QUESTIONS.map(|question| tried_in(epoch, question).is_some());
            assert!(has.iter().filter(|has| **has).count() <= 1, "call {epoch}");
            for (tried, has) in tried.iter_mut().zip(has) {
                *tried += u64::from(has);
            }
        }
        assert_eq!(tried, [2 * TRIED; 4]);
    }
}
