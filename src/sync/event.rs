//! Sleeping until another process announces something, for ranks that share cores.

use super::atomic::{AtomicU32, Futex, Ordering, Pair, Side, total_fence};
use std::time::Duration;

/// Wakes ranks that sleep until the event's one announcer has changed what they wait for.
///
/// Zeroed memory is a valid event. Announcer: one rank. Sleepers: any rank that maps it.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Event {
    /// Changes with each announcement that found sleepers.
    count: Futex,
    sleepers: AtomicU32,
}

impl Event {
    /// Wakes all sleepers, without exception. The announcer makes the change that they wait for before this call.
    #[inline]
    pub fn announce(&self) {
        // Pairs with the fence in `sleep_unless`. Either this rank sees the sleeper, or the sleeper sees the change.
        total_fence(Pair::Event, Side::Release);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.count.word().fetch_add(1, Ordering::Relaxed);
            self.count.wake();
        }
    }

    /// Wakes those sleepers that this rank sees. It misses a rank that goes to sleep while the change is on its way,
    /// some 0.1 µs. Such a sleeper looks again only at the end of its sleep, unless its `is_ready` took longer and so
    /// saw the change.
    ///
    /// Used for what happens in each call, since [`Self::announce`] waits until all stores before it have arrived.
    #[inline]
    pub fn nudge(&self) {
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.announce();
        }
    }

    /// Sleeps until an announcement, for about `most` at most. Returns at once if `is_ready` is true now.
    pub fn sleep_unless(&self, is_ready: impl FnOnce() -> bool, most: Duration) {
        let seen = self.count.word().load(Ordering::Relaxed);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `announce`.
        total_fence(Pair::Event, Side::Acquire);
        if !is_ready() {
            self.count.wait(seen, most);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    #[test]
    fn a_sleeper_wakes_when_it_is_announced() {
        let (event, ready) = (Event::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                ready.store(true, Ordering::Relaxed);
                event.announce();
            });
            let started = Instant::now();
            while !ready.load(Ordering::Relaxed) {
                event.sleep_unless(|| ready.load(Ordering::Relaxed), Duration::from_secs(20));
            }
            assert!(started.elapsed() < Duration::from_secs(10));
        });
    }

    #[test]
    fn a_sleeper_that_is_seen_wakes_when_it_is_nudged() {
        let (event, ready) = (Event::default(), AtomicBool::new(false));
        event.nudge();
        assert_eq!(event.count.word().load(Ordering::Relaxed), 0, "nobody sleeps");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while event.sleepers.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
                ready.store(true, Ordering::Relaxed);
                event.nudge();
            });
            let started = Instant::now();
            while !ready.load(Ordering::Relaxed) {
                event.sleep_unless(|| ready.load(Ordering::Relaxed), Duration::from_secs(20));
            }
            assert!(started.elapsed() < Duration::from_secs(10));
        });
    }

    #[test]
    fn nobody_sleeps_who_is_ready_or_longer_than_told() {
        let event = Event::default();
        let started = Instant::now();
        event.sleep_unless(|| true, Duration::from_secs(20));
        event.sleep_unless(|| false, Duration::from_micros(100));
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
