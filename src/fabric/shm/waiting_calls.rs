//! Which calls try ways of waiting, where ranks share cores.
//!
//! What a rank does while it waits shows in the time that all ranks take from call to call, and depends on what they do besides: on their cores, on
//! the program, on the MPI library. So ranks try two ways each for some questions, one question after the other, and do from then on what took less time.
//! Which calls try what follows from their epochs, so that all ranks try the same at about the same time; else it is each rank's own affair.

use super::trials::{Schedule, TwoWays};
use crate::types::{Collective, Epoch};
use std::time::Duration;

/// Calls that are judged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    WithRoot,
    WithoutRoot,
}

impl Kind {
    /// Those that a call of `collective` is one of.
    pub fn of(collective: Collective) -> Self {
        if collective.has_root() { Self::WithRoot } else { Self::WithoutRoot }
    }
}

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Whether to look on at peers that are in no call here ([`Hopes`](super::hopes)).
    LookElsewhere,
    /// Whether who has published gives its core away at once ([`Givers`](super::givers)).
    GiveWay,
}

/// Calls by their epochs, among which those are noted in which a rank waits.
#[derive(Debug)]
pub(super) struct WaitingCalls;

impl Schedule for WaitingCalls {
    const BLOCK: u64 = 64;
    /// Some ranks are some calls ahead of others.
    const UNTIMED: u64 = 32;
    const WINDOW: u64 = 8;
    const INTERVAL: u64 = 24;
    const BLOCKS: u64 = 8;
    /// 3 % of all calls try each question for each kind: one way may take half as long again as the other, and programs with many ranks for each
    /// core make few calls.
    const EVERY: u64 = 256;
}

impl TwoWays for WaitingCalls {
    const GAIN: f64 = 0.95;
}

impl WaitingCalls {
    /// Calls that are farther apart tell nothing of changes of ranks, which take a microsecond.
    pub const FAR_APART: Duration = Duration::from_millis(1);

    /// By which the call of `epoch`, one of `kind`, is known to the trials of `question`. While one is tried of one kind all else goes by habit: each call of a
    /// trial counts with all that lies between. The first trials follow each other, from the 512th call on.
    pub fn number(Epoch(epoch): Epoch, question: Question, kind: Kind) -> u64 {
        let before = match (question, kind) {
            (Question::LookElsewhere, Kind::WithRoot) => 0,
            (Question::LookElsewhere, Kind::WithoutRoot) => 1,
            (Question::GiveWay, Kind::WithRoot) => 2,
            (Question::GiveWay, Kind::WithoutRoot) => 3,
        };
        epoch.wrapping_sub(before * Self::CALLS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_question_is_tried_at_a_time() {
        const QUESTIONS: [(Question, Kind); 4] = [
            (Question::LookElsewhere, Kind::WithRoot),
            (Question::LookElsewhere, Kind::WithoutRoot),
            (Question::GiveWay, Kind::WithRoot),
            (Question::GiveWay, Kind::WithoutRoot),
        ];
        let mut tried = [0; 4];
        for epoch in 1..=2 * WaitingCalls::PERIOD {
            let has =
                QUESTIONS.map(|(question, kind)| WaitingCalls::has(WaitingCalls::number(Epoch(epoch), question, kind)));
            assert!(has.iter().filter(|has| **has).count() <= 1, "call {epoch}");
            for (tried, has) in tried.iter_mut().zip(has) {
                *tried += u64::from(has);
            }
        }
        assert_eq!(tried, [2 * WaitingCalls::CALLS; 4]);
    }
}
