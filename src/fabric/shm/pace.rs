//! How often calls that do not wait for long let the MPI library make progress on the program's own traffic.

use crate::sync::Private;
use std::time::{Duration, Instant};

/// Whether the program may have traffic of its own in the MPI library that goes on between its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// It has none, as far as can be told.
    Absent,
    /// It may have some.
    Possible,
}

/// When a wait asks the MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// If the period has passed.
    WhenDue,
    /// In any case: the rank sleeps next, or has not asked for long.
    Now,
}

/// How often a process asks the MPI library within its calls, besides in long waits: once for each period that has
/// passed, as far as there are calls. After periods without calls, the next calls make up for some of them.
///
/// To ask takes as long as a short call (60 to 130 ns with Open MPI) or as ten (Intel MPI, which pauses up to 43 times
/// when it finds nothing: 1.3 µs where a pause takes 140 cycles), so not every call can ask. But a program that has
/// computed for long expects the calls that follow to move its messages. To read the clock takes less, but not
/// nothing. So only one call in so many looks at the clock, from every one to every 32nd. The number follows from how
/// long calls took last, with all that lay between them.
///
/// A program that computes between its calls has other things in its caches then, and to ask takes several times as
/// long as such a call does (docs/PERFORMANCE.md, "Tried"). So where there is no [`Traffic`] the library is hardly
/// ever asked.
#[derive(Debug)]
pub struct Pace {
    started: Instant,
    /// The period of calls that do not wait. All times are in nanoseconds.
    period: u64,
    /// The period of waits.
    period_in_wait: u64,
    /// For how many periods without calls the next ones make up.
    owed: u64,
    /// Calls so far, on all communicators.
    calls: Private<u64>,
    /// One call in so many looks at the clock; a power of two.
    interval: Private<u64>,
    /// When a call last looked at the clock, since `started`, and how many calls there had been.
    looked: Private<u64>,
    looked_in: Private<u64>,
    /// There was no traffic at that time.
    had_none: Private<bool>,
    /// The time until which the library counts as asked once for each period.
    paid: Private<u64>,
}

// If threads call at the same time, one may ask a little sooner or later.
impl Pace {
    /// A message of many pieces moves by a few of them each time the library is asked: 64 MiB take some 150 times.
    const PERIOD: Duration = Duration::from_micros(20);
    /// Where it takes long to ask, the period is so many times that time: asking then takes 2 % of the time.
    const SHARE: u32 = 50;
    /// The longest such period: with a longer one messages would need several times as long as natively.
    const LONGEST_PERIOD: Duration = Duration::from_micros(100);
    /// The period where ranks share cores. A library that is asked may give this rank's core away (Open MPI), and all
    /// other ranks wait until this rank has it back.
    const PERIOD_OVERSUBSCRIBED: Duration = Duration::from_millis(4);
    /// Where ranks share cores, the period where giving the core away matters little: in waits, which give it away in
    /// any case, and in calls that are [`FAR_APART`](Self::FAR_APART). Where each rank has a core, waits have half the
    /// period of calls, so that calls need not ask where ranks that wait have time for it.
    const SHORT_PERIOD: Duration = Duration::from_micros(500);
    /// The period without traffic, in waits too. It serves peers whose blocking sends to this process fill a queue
    /// that its library empties only when it is called, and traffic that is begun by functions which nobody notes. A
    /// longer period gains nothing: 7 µs are little beside 5 ms.
    const PERIOD_WITHOUT_TRAFFIC: Duration = Duration::from_millis(5);
    /// Calls are far apart if each takes this long: many times as long as it takes to get a core back.
    const FAR_APART: Duration = Duration::from_micros(100);
    /// Most calls from one look at the clock to the next: after calls in quick succession, up to this many may be far
    /// apart before one looks.
    const LONGEST: u64 = 32;
    /// Calls make up for this many periods at most.
    const OWED: u64 = 64;
    /// The same where ranks share cores: if it were more, after each pause of the program a row of calls would give
    /// their cores away. Not one alone, since calls come later than their periods end.
    const OWED_OVERSUBSCRIBED: u64 = 2;

    /// For a process that begins to call at `now`, and whose library takes `question` to find nothing.
    pub fn new(is_oversubscribed: bool, question: Duration, now: Instant) -> Self {
        let (period, owed) = match is_oversubscribed {
            true => (Self::PERIOD_OVERSUBSCRIBED, Self::OWED_OVERSUBSCRIBED),
            false => ((Self::SHARE * question).clamp(Self::PERIOD, Self::LONGEST_PERIOD), Self::OWED),
        };
        let period_in_wait = if is_oversubscribed { Self::SHORT_PERIOD } else { period / 2 };
        let [period, period_in_wait] = [period, period_in_wait].map(|time| time.as_nanos() as u64);
        let [calls, interval, looked, looked_in, paid] = [0, 1, 0, 0, 0].map(Private::new);
        let had_none = Private::new(false);
        Self { started: now, period, period_in_wait, owed, calls, interval, looked, looked_in, had_none, paid }
    }

    /// Counts this call. Returns whether it looks at the clock, whatever the traffic.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        let calls = self.calls.get().wrapping_add(1);
        self.calls.set(calls);
        calls & (self.interval.get() - 1) == 0
    }

    /// Whether this call looks at the clock if there may be traffic. The first call with traffic does in any case,
    /// since calls without may look seldom.
    #[inline(always)]
    pub fn is_due_in_traffic(&self) -> bool {
        self.had_none.get()
    }

    /// Whether a call that waits asks the library at `now`; where ranks share cores, before it gives its core away.
    pub fn is_time_in_wait(&self, now: Instant, asking: Asking, traffic: Traffic) -> bool {
        let is_forced = asking == Asking::Now;
        let now = self.nanoseconds_until(now);
        let period = match traffic {
            Traffic::Absent => Self::PERIOD_WITHOUT_TRAFFIC.as_nanos() as u64,
            Traffic::Possible => self.period_in_wait,
        };
        let is_time = is_forced || self.paid.get() + period <= now;
        if is_time {
            // Where ranks share cores nothing is left for calls to make up for, since that would give cores away.
            let is_settled = is_forced || traffic == Traffic::Absent || self.owed == Self::OWED_OVERSUBSCRIBED;
            let next = self.paid_at(now, self.period, self.owed) + self.period;
            self.paid.set(if is_settled { now } else { next.min(now) });
        }
        is_time
    }

    /// The time until which the library counts as asked at `now`: calls make up for at most `owed` periods.
    fn paid_at(&self, now: u64, period: u64, owed: u64) -> u64 {
        self.paid.get().max(now.saturating_sub(owed * period))
    }

    fn nanoseconds_until(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started).as_nanos() as u64
    }

    /// Whether a call that looks at the clock at `now`, and does not wait, asks the library.
    pub fn is_time(&self, now: Instant, traffic: Traffic) -> bool {
        let now = self.nanoseconds_until(now);
        let took = now.saturating_sub(self.looked.get()).max(1);
        let calls = self.calls.get();
        // If threads call at the same time, a count may be lost.
        let made = calls.saturating_sub(self.looked_in.get()).max(1);
        let are_far_apart = took / made >= Self::FAR_APART.as_nanos() as u64;
        let (period, owed) = match traffic {
            Traffic::Absent => (Self::PERIOD_WITHOUT_TRAFFIC.as_nanos() as u64, 1),
            Traffic::Possible if are_far_apart => (self.period.min(Self::SHORT_PERIOD.as_nanos() as u64), self.owed),
            Traffic::Possible => (self.period, self.owed),
        };
        let mut paid = self.paid_at(now, period, owed);
        let is_time = paid + period <= now;
        if is_time {
            paid += period;
        }
        let rest = (paid + period).saturating_sub(now);
        let interval = (made.saturating_mul(rest) / took).clamp(1, Self::LONGEST);
        self.looked.set(now);
        self.looked_in.set(calls);
        self.had_none.set(traffic == Traffic::Absent);
        self.paid.set(paid);
        self.interval.set(1 << interval.ilog2());
        is_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Process {
        pace: Pace,
        now: Instant,
        traffic: Traffic,
    }

    impl Process {
        fn new(is_oversubscribed: bool) -> Self {
            let now = Instant::now();
            Self { pace: Pace::new(is_oversubscribed, Duration::ZERO, now), now, traffic: Traffic::Possible }
        }

        fn is_due(&self) -> bool {
            self.pace.is_due() || self.pace.is_due_in_traffic() && self.traffic == Traffic::Possible
        }

        /// Makes `calls` calls, which take `each` nanoseconds. Returns how many ask.
        fn asks(&mut self, calls: u64, each: u64) -> u64 {
            let call = |_: &u64| {
                self.now += Duration::from_nanos(each);
                self.is_due() && self.pace.is_time(self.now, self.traffic)
            };
            (0..calls).filter(call).count() as u64
        }

        /// Makes 10,000 calls of 5 us, every second of which waits. Returns how many ask in these waits, and how many
        /// at their ends.
        fn asks_of_waits_and_calls(&mut self) -> [u32; 2] {
            let mut asks = [0, 0];
            for call in 0..10_000 {
                self.now += Duration::from_micros(5);
                asks[0] +=
                    u32::from(call % 2 == 0 && self.pace.is_time_in_wait(self.now, Asking::WhenDue, self.traffic));
                asks[1] += u32::from(self.is_due() && self.pace.is_time(self.now, self.traffic));
            }
            asks
        }
    }

    #[test]
    fn the_library_is_asked_about_once_in_a_period() {
        for (is_oversubscribed, period) in [(false, 20_000), (true, 4_000_000)] {
            let mut process = Process::new(is_oversubscribed);
            for each in [1000, 100, 250, 60_000, 20_000, 9000, 3_000_000, 70, 400_000] {
                const CALLS: u64 = 10_000;
                process.asks(1000, each);
                let (asks, periods) = (process.asks(CALLS, each), CALLS * each / period);
                let are_far_apart = is_oversubscribed && each >= 100_000;
                let expected = if are_far_apart { CALLS * each / 500_000 } else { periods }.min(CALLS);
                assert!(asks.abs_diff(expected) <= 1 + expected / 20, "{each} ns: {asks} times, not {expected}");
            }
        }
    }

    /// After a while without calls, calls in quick succession make up for it.
    #[test]
    fn calls_after_a_computation_ask_for_it() {
        let mut process = Process::new(false);
        process.asks(1000, 100);
        for (computed, expected) in [(1_000_000, 50), (100_000, 5), (1_000_000_000, 64)] {
            let before = process.asks(300, 100);
            process.now += Duration::from_nanos(computed);
            let asks = process.asks(300, 100);
            assert!(before <= 3 && (expected - 2..=expected + 3).contains(&asks), "{computed} ns: {before}, {asks}");
        }
    }

    /// The period is 20 µs if asking takes 100 ns, 65 µs if it takes 1.3 µs, and never more than 100 µs.
    #[test]
    fn who_takes_long_to_ask_is_asked_more_seldom() {
        for (asking, period) in [(100, 20_000), (1300, 65_000), (50_000, 100_000)] {
            let now = Instant::now();
            let mut process =
                Process { pace: Pace::new(false, Duration::from_nanos(asking), now), now, traffic: Traffic::Possible };
            let (asks, expected) = (process.asks(100_000, 200), 20_000_000 / period);
            assert!(asks.abs_diff(expected) <= 1 + expected / 20, "{asking} ns: {asks} times, not {expected}");
        }
    }

    #[test]
    fn where_ranks_share_cores_calls_after_a_computation_make_up_for_little() {
        let mut process = Process::new(true);
        process.asks(1000, 5000);
        for (computed, most) in [(1_000_000, 1), (20_000_000, 2), (1_000_000_000, 2)] {
            process.now += Duration::from_nanos(computed);
            let asks = process.asks(400, 5000);
            assert!(asks <= most, "{computed} ns: {asks}");
        }
    }

    #[test]
    fn calls_after_a_wait_that_has_asked_need_not() {
        let mut process = Process::new(true);
        process.asks(1000, 5000);
        process.now += Duration::from_millis(50);
        assert!(process.pace.is_time_in_wait(process.now, Asking::Now, Traffic::Possible));
        assert_eq!(process.asks(400, 5000), 0);
    }

    #[test]
    fn calls_that_wait_ask_first() {
        let asks = Process::new(true).asks_of_waits_and_calls();
        assert!((98..=100).contains(&asks[0]) && asks[1] == 0, "{asks:?}");
    }

    /// A wait in the first call does not settle all that calls have to make up for.
    #[test]
    fn calls_after_a_computation_ask_for_it_even_if_one_waits() {
        let mut process = Process::new(false);
        process.asks(1000, 100);
        process.now += Duration::from_millis(1);
        assert!(process.pace.is_time_in_wait(process.now, Asking::WhenDue, Traffic::Possible));
        let asks = process.asks(300, 100);
        assert!((46..=52).contains(&asks), "{asks}");
    }

    /// Ranks have cores of their own, and every second call waits.
    #[test]
    fn where_some_calls_wait_the_others_need_not_ask() {
        let asks = Process::new(false).asks_of_waits_and_calls();
        assert!((4990..=5000).contains(&asks[0]) && asks[1] <= 1, "{asks:?}");
    }

    #[test]
    fn without_traffic_it_is_hardly_ever_asked() {
        for is_oversubscribed in [false, true] {
            let mut process = Process { traffic: Traffic::Absent, ..Process::new(is_oversubscribed) };
            for each in [100, 5000, 200_000, 3_000_000] {
                process.asks(1000, each);
                let (asks, expected) = (process.asks(10_000, each), 10_000 * each / 5_000_000);
                assert!((expected / 2..=expected + 1).contains(&asks), "{each} ns: {asks} times, not {expected}");
            }
            let in_wait = |process: &mut Process| {
                process.now += Duration::from_micros(400);
                process.pace.is_time_in_wait(process.now, Asking::WhenDue, Traffic::Absent)
            };
            assert!((76..=80).contains(&(0..1000).filter(|_| in_wait(&mut process)).count()));
            // After a long while without calls, calls in quick succession make up for nothing.
            process.now += Duration::from_secs(1);
            assert!(process.asks(100, 5000) <= 1);
            process.traffic = Traffic::Possible;
            assert!(process.asks(1000, 60_000) >= 14, "as soon as there is some");
        }
    }

    /// In whatever quick succession calls came before.
    #[test]
    fn calls_that_come_to_be_far_apart_soon_ask() {
        let mut process = Process::new(false);
        for each in [30_000, 1_000_000] {
            process.asks(10_000, 50);
            let asks = process.asks(100, each);
            assert!((100 - 32..=100).contains(&asks), "{each} ns: {asks}");
        }
    }

    /// A program that exchanges messages has traffic in some of its calls. These ask as if all calls had traffic.
    #[test]
    fn calls_with_traffic_ask_whatever_others_do() {
        let mut process = Process::new(false);
        let mut asks = 0;
        for round in 0..1000 {
            process.now += Duration::from_micros(100);
            process.traffic = Traffic::Absent;
            let before = process.asks(7, 300);
            process.traffic = Traffic::Possible;
            asks += process.asks(1, 300);
            assert!(before == 0 || round == 0, "round {round}");
        }
        assert!(asks >= 998, "{asks}");
    }

    #[test]
    fn a_clock_that_stands_still_does_no_harm() {
        let mut process = Process::new(false);
        assert_eq!(process.asks(1024, 0), 0);
    }
}
