//! Whether processes of the job reach into each other's memory (one-sided communication), which may need the progress of the library in the process
//! that has the memory. That one is in no call for it, so those who reach tell all others: by a notice in the first segment that all of
//! them share.

use super::loader::abi::OwnTraffic;
use crate::fabric::shm::{Context, SharedNotice};
use crate::types::NodeRank;
use once_cell::sync::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What this process knows of that.
#[derive(Debug, Default)]
pub struct Windows(OnceCell<Told>);

#[derive(Debug)]
struct Told {
    notice: SharedNotice,
    processes: u32,
    /// In the one that lowers it.
    keeper: Option<Keeper>,
}

impl Windows {
    /// A context was built that all processes of the job have, on one node; each of them comes here. Which one is their first may
    /// differ between them where threads build several at a time: then nobody's notice counts.
    pub fn consider(&self, context: &Context, own: &OwnTraffic) {
        self.0.get_or_init(|| {
            let notice = context.notice();
            notice.join();
            // Release: whoever is led to it finds the memory mapped.
            own.notice.store(notice.word().cast_mut(), Ordering::Release);
            let keeper = (context.rank() == NodeRank::LEADER).then(|| Keeper::new(Instant::now()));
            Told { notice, processes: context.geometry().ranks as u32, keeper }
        });
    }

    /// Whether any process may reach into memory of another now.
    #[inline]
    pub fn may_be_reached(&self) -> bool {
        self.0.get().is_none_or(|told| told.notice.may_be_raised(told.processes))
    }

    /// Lowers the notice at `now`, if that is due and this process does so.
    pub fn settle(&self, now: Instant) {
        if let Some(Told { notice, processes, keeper: Some(keeper) }) = self.0.get()
            && keeper.is_due(now, notice.may_be_raised(*processes))
        {
            notice.lower();
        }
    }
}

/// When a notice is lowered.
#[derive(Debug)]
struct Keeper {
    started: Instant,
    /// Since when it has been seen to be raised, in nanoseconds since `started`; 0 while it is not.
    since: AtomicU64,
}

impl Keeper {
    /// Many times as long as who reaches into another's memory has to wait for that, if it lets the library make progress.
    const LASTS: Duration = Duration::from_millis(20);

    fn new(started: Instant) -> Self {
        Self { started, since: AtomicU64::new(0) }
    }

    // Relaxed: threads that look at once may lower it a little sooner or later.
    fn is_due(&self, now: Instant, is_raised: bool) -> bool {
        let now = (now.saturating_duration_since(self.started).as_nanos() as u64).max(1);
        let since = self.since.load(Ordering::Relaxed);
        let is_due = is_raised && since != 0 && since + Self::LASTS.as_nanos() as u64 <= now;
        let since = match since {
            _ if is_due || !is_raised => 0,
            0 => now,
            since => since,
        };
        self.since.store(since, Ordering::Relaxed);
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_lowered_when_it_has_been_seen_for_a_while() {
        let begin = Instant::now();
        let keeper = Keeper::new(begin);
        let is_due = |milliseconds, is_raised| keeper.is_due(begin + Duration::from_millis(milliseconds), is_raised);
        for (milliseconds, is_raised, expected) in [
            (0, true, false),
            (19, true, false),
            (21, true, true),
            (22, false, false),
            // Seen anew, however long ago it was raised.
            (900, true, false),
            (910, false, false),
            (925, true, false),
            (944, true, false),
            (945, true, true),
            (946, true, false),
            (9000, true, true),
        ] {
            assert_eq!(is_due(milliseconds, is_raised), expected, "{milliseconds} ms");
        }
    }
}
