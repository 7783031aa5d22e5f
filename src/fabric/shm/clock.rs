//! The clock by which trials and comparisons go.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Nanoseconds since this process asked first.
pub(super) fn now() -> u64 {
    at(Instant::now())
}

/// Nanoseconds from when this process asked first until `moment`.
pub(super) fn at(moment: Instant) -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    moment.saturating_duration_since(*START.get_or_init(|| moment)).as_nanos() as u64
}

/// How long it takes to read the clock.
pub(super) fn reading() -> Duration {
    static READING: OnceLock<Duration> = OnceLock::new();
    *READING.get_or_init(|| {
        let pair = |_| {
            let started = Instant::now();
            Instant::now() - started
        };
        (0..16).map(pair).min().unwrap_or_default()
    })
}
