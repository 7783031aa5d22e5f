//! Whether looks at a peer that seems to be at work are of use.
//!
//! Where ranks share cores a rank that waits looks on for a while before it gives its own core away, as long as the awaited peer has not
//! done so. Looks at one that computes are in vain, and so are those at one that waits in a call of another communicator, where the two have
//! no place in common to tell that ([`presences`](super::presences)). They take as long as a change of ranks (docs/PERFORMANCE.md,
//! "Tried"), so who has looked in vain for some time at peers that are in no call of this communicator looks at such peers now and then
//! only, until that helps again.
//!
//! Looks that help may do harm nevertheless: a peer that waits in the MPI library seems to be at work too, and what it waits for may be a
//! rank that needs this core. Where programs mix messages or collectives of the library with calls here, those calls took up to twice as
//! long as where ranks gave their cores away at once, and programs that compute between calls up to a fifth less ("Tried"). So both ways
//! are tried ([`waiting_calls`](super::waiting_calls)); as long as trials show no difference, ranks whose program may have traffic in the
//! library give their cores away, as in jobs on several nodes always. All of it is each rank's own affair.

use super::clock;
use super::pace::Traffic;
use super::trials::Arm;
use super::waiting_calls::{Answers, Kind, Question};
use crate::types::Epoch;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Where ranks share cores, how long a rank looks for what a peer is to do that has not given its core away: about as long as it takes to give
/// this one away and get it back. Half of that misses some of what comes in time; twice as long takes longer than it saves.
const AT_WORK: Duration = Duration::from_nanos(1100);

/// Pauses that are timed to know what one takes.
const PAUSES: u32 = 100;

/// So many looks take [`AT_WORK`].
pub(super) fn looks_at_work() -> u32 {
    looks_where_pause_takes(pause_takes())
}

/// At least two, since one tells nothing of hope.
fn looks_where_pause_takes(picoseconds: u64) -> u32 {
    pauses_where_one_takes(picoseconds, AT_WORK).max(2)
}

/// So many pauses between two looks take that long, [`PAUSES`] at most: processors pause for 10 to 50 ns.
pub(super) fn pauses_in(time: Duration) -> u32 {
    pauses_where_one_takes(pause_takes(), time)
}

/// What a pause takes here, in picoseconds.
fn pause_takes() -> u64 {
    static TOOK: OnceLock<u64> = OnceLock::new();
    *TOOK.get_or_init(|| {
        let pauses = |_| {
            let started = Instant::now();
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            started.elapsed()
        };
        // The least: in some the system may have taken the core.
        let took = (0..3).map(pauses).min().unwrap_or(AT_WORK);
        nanoseconds_of(took) * 1000 / u64::from(PAUSES)
    })
}

/// Of some seconds at most.
fn nanoseconds_of(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn pauses_where_one_takes(picoseconds: u64, time: Duration) -> u32 {
    let pauses = nanoseconds_of(time) * 1000 / picoseconds.max(1);
    pauses.min(u64::from(PAUSES)) as u32
}

/// What looks at peers in no call here have come to in one context. Relaxed throughout: only this rank uses it, one call at a time; these
/// are atomics so that a context may move between threads.
#[derive(Debug)]
pub(super) struct Hopes {
    /// Grows with each time in vain.
    doubts: AtomicU32,
    /// Chances to look on that were left out since hope was lost, or since one was taken.
    missed: AtomicU32,
    answers: Answers,
}

impl Default for Hopes {
    fn default() -> Self {
        let [doubts, missed] = Default::default();
        Self { doubts, missed, answers: Answers::to(Question::LookElsewhere) }
    }
}

/// How a rank that awaits a peer looks on at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// No more than once.
    Once,
    /// At one that is in a call here, as it was to publish.
    WhileInCall,
    /// Wherever it is: in no call here, or nobody asked.
    Anywhere,
}

impl Hopes {
    /// The ways to look on, and to give the core away.
    const LOOKS: Arm = Arm::One;
    const GIVES: Arm = Arm::Other;

    /// From so many doubts on looks are not taken for useful.
    const LOST: u32 = 8;
    /// Doubts grow no further, so that two successes restore hope.
    const MOST: u32 = 12;
    /// What a success takes off.
    const SUCCESS: u32 = 4;
    /// Without hope one chance in so many is taken.
    const TRIED: u32 = 16;

    /// How to look on at a peer in a wait in the call of `epoch`. `is_in_call` tells whether that is in a call here, which takes lines from it:
    /// it is asked only where something hangs on it. `traffic` tells of the program's own, with which the peer may be busy.
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
        self.doubts.load(Ordering::Relaxed) > 0
    }

    /// Whether to take this chance to look on at a peer in no call here.
    fn take_chance(&self) -> bool {
        if self.doubts.load(Ordering::Relaxed) < Self::LOST {
            return true;
        }
        let missed = self.missed.load(Ordering::Relaxed) + 1;
        self.missed.store(missed % Self::TRIED, Ordering::Relaxed);
        missed == Self::TRIED
    }

    /// Looks were of use.
    pub fn rise(&self) {
        let doubts = self.doubts.load(Ordering::Relaxed);
        self.doubts.store(doubts.saturating_sub(Self::SUCCESS), Ordering::Relaxed);
    }

    /// Looks were in vain to the last.
    pub fn sink(&self) {
        let doubts = self.doubts.load(Ordering::Relaxed);
        self.doubts.store((doubts + 1).min(Self::MOST), Ordering::Relaxed);
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

    /// Calls of a program, in which looks at peers elsewhere help, that take so many nanoseconds where ranks give their cores away, and where
    /// they look on. -> how many of the last 100 looked on
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
