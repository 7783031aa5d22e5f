//! How often calls that never wait let the MPI library make progress on the program's own traffic.

use crate::types::Epoch;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a process asks the MPI library within its calls, besides in long waits: about once in a period, whatever the calls are.
///
/// To ask takes as long as a short call (60 to 130 ns with Open MPI), so it can't be done in each; but a program that computes for long between
/// two calls expects of each of them that it moves its messages. So what calls took last time, with all that lay between them, says
/// of how many one asks: from every one to every 256th. That of a communicator whose ordinal is a multiple of this does, so ranks
/// in step ask together, and none waits while another one does.
#[derive(Debug)]
pub struct Pace {
    started: Instant,
    period: Duration,
    /// How many calls there are for one that asks, a power of two.
    interval: AtomicU64,
    /// When that was last: nanoseconds since `started`.
    asked: AtomicU64,
}

// Relaxed throughout, and no single operations: where threads call at once one may ask a little sooner or later.
impl Pace {
    /// Messages of many pieces move by a few of them each time: 64 MiB take some 150 times.
    const PERIOD: Duration = Duration::from_micros(20);
    /// Where ranks share cores the library may give this one away when it is asked (Open MPI).
    const PERIOD_OVERSUBSCRIBED: Duration = Duration::from_micros(500);
    const LONGEST: u64 = 256;

    /// For a process that begins to call at `now`.
    pub fn new(is_oversubscribed: bool, now: Instant) -> Self {
        let period = if is_oversubscribed { Self::PERIOD_OVERSUBSCRIBED } else { Self::PERIOD };
        Self { started: now, period, interval: AtomicU64::new(1), asked: AtomicU64::new(0) }
    }

    /// Whether to ask in the call of `epoch` on its communicator.
    #[inline(always)]
    pub fn is_due(&self, epoch: Epoch) -> bool {
        epoch.0 & (self.interval.load(Ordering::Relaxed) - 1) == 0
    }

    /// The library has been asked, in a call in which that was due.
    #[cold]
    pub fn asked(&self, now: Instant) {
        let at = now.saturating_duration_since(self.started).as_nanos() as u64;
        let took = at.saturating_sub(self.asked.load(Ordering::Relaxed)).max(1);
        let in_period = self.interval.load(Ordering::Relaxed) * self.period.as_nanos() as u64 / took;
        self.asked.store(at, Ordering::Relaxed);
        self.interval.store(1 << in_period.clamp(1, Self::LONGEST).ilog2(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of how many calls one asks, where each takes so many nanoseconds.
    fn interval(pace: &Pace, now: &mut Instant, each: u64) -> u64 {
        const CALLS: u64 = 1024;
        let call = |epoch, now: &mut Instant| {
            *now += Duration::from_nanos(each);
            let is_due = pace.is_due(Epoch(epoch));
            if is_due {
                pace.asked(*now);
            }
            u64::from(is_due)
        };
        // Until it knows what they take.
        (1..=CALLS).for_each(|epoch| _ = call(epoch, now));
        CALLS / (1..=CALLS).map(|epoch| call(epoch, now)).sum::<u64>()
    }

    #[test]
    fn the_library_is_asked_about_once_in_a_period() {
        let mut now = Instant::now();
        let pace = Pace::new(false, now);
        for (each, expected) in [(1000, 16), (100, 128), (50, 256), (250, 64), (60_000, 1), (20_000, 1), (9000, 2)] {
            assert_eq!(interval(&pace, &mut now, each), expected, "{each} ns");
        }
    }

    #[test]
    fn it_is_asked_less_often_where_ranks_share_cores() {
        let mut now = Instant::now();
        let pace = Pace::new(true, now);
        assert_eq!([10_000, 3000, 1_000_000].map(|each| interval(&pace, &mut now, each)), [32, 128, 1]);
    }

    #[test]
    fn a_clock_that_stands_still_does_no_harm() {
        let now = Instant::now();
        let pace = Pace::new(false, now);
        pace.asked(now);
        assert_eq!((1..=512).filter(|epoch| pace.is_due(Epoch(*epoch))).count(), 2);
    }
}
