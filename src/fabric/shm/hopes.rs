//! Whether it helps to keep polling a peer that seems to be at work.
//!
//! Where ranks share cores, a waiting rank polls for a while before it gives its own core away, as long as the awaited
//! peer has not given its core away. These looks are in vain if the peer computes. They are also in vain if the peer
//! waits in a call of another communicator and the two ranks have no common place in which to publish that
//! ([`presences`](super::presences)). They take as long as a change of ranks (docs/PERFORMANCE.md, "Tried"). So a rank
//! that has polled in vain for some time at peers that are in no call of this communicator does so only now and then,
//! until it helps again.
//!
//! Looks that find something may do harm nevertheless. A peer that waits in the MPI library seems to be at work too,
//! and may wait there for a rank that needs this core. Programs that mix messages or collectives of the library with
//! calls here took up to twice as long in those calls as where ranks gave their cores away at once. Programs that
//! compute between calls took up to a fifth less time ("Tried"). So ranks try both ways
//! ([`waiting_calls`](super::waiting_calls)). As long as trials show no difference, ranks whose program may have
//! traffic in the library give their cores away; on several nodes every program may have some. Each rank decides for
//! itself.

use super::clock;
use super::pace::Traffic;
use super::trials::Arm;
use super::waiting_calls::{Answers, Kind, Question};
use crate::sync::Private;
use crate::types::Epoch;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Where ranks share cores, how long a rank polls for a peer that has not given its core away: about as long as it
/// takes to give this rank's core away and get it back. Half as long misses some flags that come in time; twice as
/// long takes more time than it saves.
const AT_WORK: Duration = Duration::from_nanos(1100);

/// How many pauses are timed to know what one takes.
const PAUSES: u32 = 100;

/// How many looks take [`AT_WORK`].
pub(super) fn looks_at_work() -> u32 {
    looks_where_pause_takes(pause_takes())
}

/// At least two, since hopes rise only at the second look or later.
fn looks_where_pause_takes(picoseconds: u64) -> u32 {
    pauses_where_one_takes(picoseconds, AT_WORK).max(2)
}

/// How many pauses between two looks take `time`, at most [`PAUSES`]: processors pause for 10 to 50 ns.
pub(super) fn pauses_in(time: Duration) -> u32 {
    pauses_where_one_takes(pause_takes(), time)
}

/// What a pause takes on this processor, in picoseconds.
fn pause_takes() -> u64 {
    static TOOK: OnceLock<u64> = OnceLock::new();
    *TOOK.get_or_init(|| {
        let pauses = |_| {
            let started = Instant::now();
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            started.elapsed()
        };
        // The least of three: in some the system may have taken the core away.
        let took = (0..3).map(pauses).min().unwrap_or(AT_WORK);
        nanoseconds_of(took) * 1000 / u64::from(PAUSES)
    })
}

/// For times of some seconds at most.
fn nanoseconds_of(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn pauses_where_one_takes(picoseconds: u64, time: Duration) -> u32 {
    let pauses = nanoseconds_of(time) * 1000 / picoseconds.max(1);
    pauses.min(u64::from(PAUSES)) as u32
}

/// What polling peers in no call here has brought, in one context.
#[derive(Debug)]
pub(super) struct Hopes {
    /// Grows each time that polling was in vain.
    doubts: Private<u32>,
    /// Chances to poll that were left out since hope was lost, or since a chance was last taken.
    missed: Private<u32>,
    answers: Answers,
}

impl Default for Hopes {
    fn default() -> Self {
        let [doubts, missed] = Default::default();
        Self { doubts, missed, answers: Answers::to(Question::LookElsewhere) }
    }
}

/// How a rank that awaits a peer polls it before it gives its core away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It looks no more than once.
    Once,
    /// It keeps polling: the peer is in a call here, in which it is to publish.
    WhileInCall,
    /// It keeps polling: the peer is in no call here, or this rank did not ask whether it is.
    Anywhere,
}

impl Hopes {
    /// The ways to keep polling, and to give the core away.
    const LOOKS: Arm = Arm::Baseline;
    const GIVES: Arm = Arm::Challenger;

    /// From this many doubts on polling does not count as useful.
    const LOST: u32 = 8;
    /// Doubts grow no further, so that two successes restore hope.
    const MOST: u32 = 12;
    /// How many doubts a success takes off.
    const SUCCESS: u32 = 4;
    /// Without hope a rank takes one chance in so many.
    const TRIED: u32 = 16;

    /// How to poll the peer of a wait in the call of `epoch`. `is_in_call` tells whether the peer is in a call here.
    /// It is called only where the answer matters, since it takes lines from the peer. `traffic` tells whether the
    /// program has traffic of its own, with which the peer may be busy.
    pub fn look(
        &self,
        epoch: Epoch,
        kind: Kind,
        traffic: impl FnOnce() -> Traffic,
        is_in_call: impl FnOnce() -> bool,
    ) -> Look {
        self.look_by(clock::now, epoch, kind, traffic, is_in_call)
    }

    fn look_by(
        &self,
        clock: impl FnOnce() -> u64,
        epoch: Epoch,
        kind: Kind,
        traffic: impl FnOnce() -> Traffic,
        is_in_call: impl FnOnce() -> bool,
    ) -> Look {
        let by_traffic = || if traffic() == Traffic::Absent { Self::LOOKS } else { Self::GIVES };
        let way = self.answers.way_by(clock, epoch, kind, by_traffic);
        if (way == Self::GIVES || self.are_dimmed()) && is_in_call() {
            Look::WhileInCall
        } else if way == Self::LOOKS && self.take_chance() {
            Look::Anywhere
        } else {
            Look::Once
        }
    }

    fn are_dimmed(&self) -> bool {
        self.doubts.get() > 0
    }

    /// Whether to take this chance to poll a peer in no call here.
    fn take_chance(&self) -> bool {
        if self.doubts.get() < Self::LOST {
            return true;
        }
        let missed = self.missed.get() + 1;
        self.missed.set(missed % Self::TRIED);
        missed == Self::TRIED
    }

    /// Polling has helped.
    pub fn rise(&self) {
        let doubts = self.doubts.get();
        self.doubts.set(doubts.saturating_sub(Self::SUCCESS));
    }

    /// Polling was in vain to the end.
    pub fn sink(&self) {
        let doubts = self.doubts.get();
        self.doubts.set((doubts + 1).min(Self::MOST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::shm::waiting_calls::tests::PERIOD;

    #[test]
    fn who_looked_in_vain_tries_now_and_then_until_it_helps() {
        let hopes = Hopes::default();
        for _ in 0..Hopes::LOST {
            assert!(hopes.take_chance());
            hopes.sink();
        }
        for _ in 0..3 {
            let tried: Vec<bool> = (0..Hopes::TRIED).map(|_| hopes.take_chance()).collect();
            assert_eq!(tried.iter().position(|is_due| *is_due), Some(Hopes::TRIED as usize - 1));
        }
        (0..100).for_each(|_| hopes.sink());
        hopes.rise();
        assert!(!hopes.take_chance());
        hopes.rise();
        assert!((0..Hopes::TRIED).all(|_| hopes.take_chance()));
    }

    /// Calls in which polling peers elsewhere finds what it looks for. A call takes `gives` nanoseconds where ranks
    /// give their cores away, and `looks` where they keep polling. Returns in how many of the last 100 this rank kept
    /// polling.
    fn looked_on(hopes: &Hopes, kind: Kind, epochs: std::ops::Range<u64>, [gives, looks]: [u64; 2]) -> usize {
        let mut now = 0;
        let look = |epoch| {
            let looks_on = hopes.look_by(|| now, Epoch(epoch), kind, || Traffic::Absent, || false) == Look::Anywhere;
            now += if looks_on { looks } else { gives };
            looks_on
        };
        epochs.map(look).collect::<Vec<_>>().iter().rev().take(100).filter(|looks_on| **looks_on).count()
    }

    #[test]
    fn ranks_give_their_cores_away_where_that_takes_less_time() {
        let hopes = Hopes::default();
        assert_eq!(looked_on(&hopes, Kind::WithRoot, 1..500, [2000, 4000]), 100, "before the first trial");
        assert_eq!(looked_on(&hopes, Kind::WithRoot, 500..PERIOD, [2000, 4000]), 0);
        assert_eq!(looked_on(&hopes, Kind::WithoutRoot, 1..PERIOD, [3000, 2900]), 100, "of calls without a root");
        assert_eq!(looked_on(&hopes, Kind::WithRoot, PERIOD..3 * PERIOD, [3000, 2000]), 100, "the program has changed");
    }

    #[test]
    fn who_gives_its_core_away_looks_on_at_calls_here_only() {
        let look = |hopes: &Hopes, traffic| {
            [true, false].map(|is_in_call| hopes.look(Epoch(1), Kind::WithRoot, || traffic, || is_in_call))
        };
        let (always, here_only) = ([Look::Anywhere; 2], [Look::WhileInCall, Look::Once]);
        let trial = |hopes: &Hopes, way| hopes.answers.begin(Kind::WithRoot, way);
        let hopes = Hopes::default();
        assert_eq!(look(&hopes, Traffic::Absent), always, "nothing hangs on where the peer is");
        assert_eq!(look(&hopes, Traffic::Possible), here_only);
        trial(&hopes, Hopes::LOOKS);
        assert_eq!(look(&hopes, Traffic::Possible), always);
        trial(&hopes, Hopes::GIVES);
        assert_eq!(look(&hopes, Traffic::Absent), here_only);
        let hopes = Hopes::default();
        (0..Hopes::LOST).for_each(|_| hopes.sink());
        assert_eq!(look(&hopes, Traffic::Absent), here_only, "all was in vain");
    }

    #[test]
    fn pauses_are_as_many_as_take_that_long_within_limits() {
        for (nanos, pauses) in [(0, 100), (10, 100), (22, 50), (44, 25), (110, 10), (10_000, 0)] {
            assert_eq!(pauses_where_one_takes(1000 * nanos, AT_WORK), pauses, "of {nanos} ns");
            assert_eq!(looks_where_pause_takes(1000 * nanos), pauses.max(2));
        }
    }

    #[test]
    fn looks_that_help_one_time_in_five_are_of_use() {
        let hopes = Hopes::default();
        for _ in 0..20 {
            hopes.rise();
            (0..4).for_each(|_| hopes.sink());
            assert!(hopes.take_chance());
        }
    }
}
