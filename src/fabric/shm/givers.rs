//! Whether a rank that has published data also gives its core away, as soon as it waits.
//!
//! Where ranks share cores, a waiting rank polls for a while if the peer is at work (`Hopes`). Meanwhile other ranks
//! of its core wait for the core, and what the rank has published may be all that they need to go on. Above all, the
//! root of a call and a leaf of a Reduce have published such data. So has the rank that came last to an exchange of
//! data, and so ended it without a pause. Most MPI libraries bind ranks so that successive ranks lie on different
//! cores. If they are roots in turn, the next root but one gets the core in time: Bcasts, Reduces and Scatters take a
//! tenth to a third less time. Where the next root is on the same core and those after it are not, they take up to a
//! half more. Exchanges take up to a seventh less time where cores are far apart, and the same time where they are
//! close (docs/PERFORMANCE.md, "Tried"). No rank knows which rank has which core, and which will be root. So ranks
//! give their core away, and keep polling in a few calls of trials ([`waiting_calls`](super::waiting_calls)). Calls
//! with a root and without one are judged apart.

use super::clock;
use super::trials::Arm;
use super::waiting_calls::{Answers, Kind, Question};
use crate::sync::Private;
use crate::types::Epoch;

/// What one rank remembers in one context.
#[derive(Debug)]
pub(super) struct Givers {
    /// The first call that counts. What this rank published in calls before it, others of its core could take when they
    /// had the core.
    since: Private<u64>,
    answers: Answers,
}

impl Default for Givers {
    fn default() -> Self {
        Self { since: Private::new(0), answers: Answers::to(Question::GiveWay) }
    }
}

impl Givers {
    /// The way to give the core away; the other one is to keep polling.
    const GIVES: Arm = Arm::Baseline;

    /// How many calls back a rank looks for something that it has published: a rank that was further ahead of others
    /// does not wait for them.
    const FAR_BACK: u64 = 8;

    /// Whether this rank gives its core away at once, at the first pause of a wait for a flag in the call of `epoch`.
    /// It does if `has_published` says that it published something in an earlier call. Calls before the one in which
    /// it last gave its core away in a wait on this context do not count, nor do calls more than [`Self::FAR_BACK`]
    /// calls back.
    pub fn decide_to_give_way(&self, epoch: Epoch, kind: Kind, has_published: impl Fn(Epoch) -> bool) -> bool {
        self.decide_by(clock::now, epoch, kind, has_published)
    }

    fn decide_by(
        &self,
        clock: impl FnOnce() -> u64,
        epoch: Epoch,
        kind: Kind,
        has_published: impl Fn(Epoch) -> bool,
    ) -> bool {
        let way = self.answers.way_by(clock, epoch, kind, || Self::GIVES);
        // There is no call 0.
        let since = self.since.get().max(epoch.0.saturating_sub(Self::FAR_BACK)).max(1);
        way == Self::GIVES && (since..epoch.0).any(|epoch| has_published(Epoch(epoch)))
    }

    /// Notes that this rank gives its core away in the call of `epoch`. A call with a root still counts, since the
    /// rank may publish more in it. A call without a root no longer counts, since ranks mostly publish there before
    /// they wait.
    pub fn note_pause(&self, Epoch(epoch): Epoch, kind: Kind) {
        self.since.set(epoch + u64::from(kind == Kind::WithoutRoot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::shm::waiting_calls::tests::{PERIOD, TRIED, trial_of, tried_in};

    const QUESTION: (Question, Kind) = (Question::GiveWay, Kind::WithRoot);

    /// A rank that is the root of every fourth call, and pauses in all others; `gives` and `looks` are the nanoseconds
    /// of a call in which ranks give their cores away, or keep polling. Returns in how many calls this rank gave its
    /// core away.
    fn take_turns(givers: &Givers, epochs: std::ops::Range<u64>, [gives, looks]: [u64; 2]) -> usize {
        let mut now = 0;
        let is_root = |epoch: u64| epoch.is_multiple_of(4);
        let gave = epochs.filter(|epoch| {
            let way = tried_in(*epoch, QUESTION).unwrap_or_else(|| givers.answers.habit(Kind::WithRoot));
            now += if way == Givers::GIVES { gives } else { looks };
            let has_published = |Epoch(epoch)| is_root(epoch);
            let gives = !is_root(*epoch) && givers.decide_by(|| now, Epoch(*epoch), Kind::WithRoot, has_published);
            if !is_root(*epoch) {
                givers.note_pause(Epoch(*epoch), Kind::WithRoot);
            }
            gives
        });
        gave.count()
    }

    #[test]
    fn who_has_published_since_its_last_pause_gives_way_once() {
        let givers = Givers::default();
        let asks = |epoch, published: &[u64]| {
            let has_published = |Epoch(epoch)| published.contains(&epoch);
            let gives = givers.decide_to_give_way(Epoch(epoch), Kind::WithRoot, has_published);
            givers.note_pause(Epoch(epoch), Kind::WithRoot);
            gives
        };
        assert!(asks(5, &[4]) && !asks(5, &[4]), "the second wait of a call");
        assert!(!asks(6, &[4]), "before the last pause");
        assert!(asks(9, &[7]), "not in the call before, but since the last pause");
        assert!(!asks(10, &[10]), "in this call");
        assert!(!asks(40, &[30]), "long ago");
        givers.note_pause(Epoch(50), Kind::WithoutRoot);
        assert!(!asks(51, &[49, 50]), "before and in a call without a root");
        givers.note_pause(Epoch(60), Kind::WithRoot);
        assert!(asks(61, &[60]), "in a call that has paused, perhaps after that");
    }

    /// Calls without a root: this rank publishes in all of them, and waits in every other one.
    #[test]
    fn who_came_last_to_an_exchange_gives_way_in_the_next() {
        let givers = Givers::default();
        let gives = |epoch| givers.decide_to_give_way(Epoch(epoch), Kind::WithoutRoot, |_| true);
        for epoch in [2, 4, 6] {
            assert!(gives(epoch), "after one that it ended");
            givers.note_pause(Epoch(epoch), Kind::WithoutRoot);
            assert!(!gives(epoch), "again");
        }
        assert!(!gives(7), "after one in which it paused");
    }

    /// A program that alternates calls with a root, in which giving the core away takes longer, and calls without one,
    /// in which it takes less.
    #[test]
    fn calls_without_a_root_are_judged_apart() {
        let givers = Givers::default();
        let mut now = 0;
        for epoch in 1..8 * PERIOD {
            let kind = if epoch % 2 == 0 { Kind::WithRoot } else { Kind::WithoutRoot };
            let gives = givers.decide_by(|| now, Epoch(epoch), kind, |_| true);
            now += if gives == (kind == Kind::WithRoot) { 1500 } else { 900 };
        }
        let habits = [Kind::WithRoot, Kind::WithoutRoot].map(|kind| givers.answers.habit(kind) == Givers::GIVES);
        assert_eq!(habits, [false, true]);
    }

    #[test]
    fn ranks_look_on_where_that_takes_less_time() {
        let givers = Givers::default();
        assert_eq!(take_turns(&givers, 1..101, [1500, 1500]), 24, "after each call as the root but the last");
        for number in 0..3 {
            take_turns(&givers, trial_of(QUESTION, number), [1500, 900]);
        }
        assert_eq!(take_turns(&givers, 1..101, [1500, 900]), 0);
        for number in 3..8 {
            take_turns(&givers, trial_of(QUESTION, number), [900, 1500]);
        }
        assert_eq!(take_turns(&givers, 1..101, [900, 1500]), 24);
    }

    #[test]
    fn few_calls_are_tried_and_half_of_them_each_way() {
        let givers = Givers::default();
        let gave = take_turns(&givers, 1..PERIOD + 1, [900, 1500]) as u64;
        let all = PERIOD / 4;
        let missed = all - gave;
        assert!(missed.abs_diff(TRIED / 8) <= 8, "{missed} of {all}");
    }
}
