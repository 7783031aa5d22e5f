//! Whether processes of the job reach into each other's memory (one-sided communication). That may need the progress of
//! the library in the process that has the memory, which makes no call for it. So a process that reaches into another
//! one's memory tells all others, by a notice in the first segment that all of them share.

use super::loader::abi::OwnTraffic;
use crate::fabric::shm::{Context, SharedNotice};
use crate::sync::Private;
use crate::types::NodeRank;
use once_cell::sync::OnceCell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What this process knows of one-sided communication in the job.
#[derive(Debug, Default)]
pub struct Windows(OnceCell<Told>);

#[derive(Debug)]
struct Told {
    notice: SharedNotice,
    processes: u32,
    /// Set in the process that lowers the notice.
    periods: Option<Periods>,
}

impl Windows {
    /// Takes the notice of a new context, which all processes of the job have, on one node. Each process calls this,
    /// and its first context counts. Which one is the first may differ between them if threads build several at a time:
    /// then no notice is joined by all, and windows count as traffic for good.
    pub fn consider(&self, context: &Context, own: &OwnTraffic) {
        self.0.get_or_init(|| {
            let notice = context.notice();
            notice.join();
            // The word stays mapped: `Told` is part of the job, which lasts as long as the process, and calls raise the
            // notice after MPI_Finalize too.
            // [notice] release: pairs with the load of the address in `raise` of the loader's `arch`, on which its
            // store depends.
            own.notice.store(notice.word().cast_mut(), Ordering::Release);
            let periods = (context.rank() == NodeRank::LEADER).then(|| Periods::from(Instant::now()));
            Told { notice, processes: context.geometry().ranks as u32, periods }
        });
    }

    /// Whether any process may reach into memory of another one now.
    #[inline]
    pub fn may_be_reached(&self) -> bool {
        self.0.get().is_none_or(|told| told.notice.may_be_raised(told.processes))
    }

    /// Lowers the notice at `now`, if that is due and this is the process that lowers it.
    pub fn lower_if_due(&self, now: Instant) {
        if let Some(Told { notice, periods: Some(periods), .. }) = self.0.get()
            && periods.begin_if_over(now)
        {
            notice.lower();
        }
    }
}

/// When a notice is lowered: once in a period, if some call looks then.
#[derive(Debug)]
struct Periods {
    started: Instant,
    /// When the last period began, in nanoseconds since `started`.
    begun: Private<u64>,
}

impl Periods {
    /// A call that reaches into another one's memory counts for one to two periods. That is as long as a transfer of
    /// some ten megabytes takes, if the other process lets its library make progress. Longer transfers, whose end
    /// nobody sees, go on more slowly after that.
    const LENGTH: Duration = Duration::from_millis(250);

    fn from(started: Instant) -> Self {
        Self { started, begun: Private::new(0) }
    }

    /// Whether the last period is over; then the next one begins.
    fn begin_if_over(&self, now: Instant) -> bool {
        let now = now.saturating_duration_since(self.started).as_nanos() as u64;
        // Two threads that look at once may both find it over; then a call counts for less time.
        let is_over = self.begun.get() + Self::LENGTH.as_nanos() as u64 <= now;
        if is_over {
            self.begun.set(now);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::shm::{Geometry, Segment};
    use crate::topo::{Layout, Levels};
    use crate::types::Bytes;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32};

    /// A process of two, and what its loader raises.
    fn process(context: &Context) -> (Windows, &'static OwnTraffic) {
        let word = Box::into_raw(Box::new(AtomicU32::new(0)));
        let own = OwnTraffic {
            open: AtomicI64::new(0),
            is_endless: AtomicBool::new(false),
            has_windows: AtomicBool::new(true),
            notice: AtomicPtr::new(word),
        };
        let (windows, own) = (Windows::default(), Box::leak(Box::new(own)));
        assert!(windows.may_be_reached());
        windows.consider(context, own);
        (windows, own)
    }

    #[test]
    fn what_one_process_raises_all_see_until_the_leader_has_lowered_it() {
        let geometry = Geometry { ranks: 2, slots: 2, lines: 2, cell: Bytes(64), round: Bytes(64) };
        let (segment, file) = Segment::create(geometry.length(), geometry.front()).expect("memfd");
        let theirs = Segment::open(std::process::id(), file.as_raw_fd(), geometry.length()).expect("mapping");
        let context = |segment, me| {
            Context::new(segment, geometry, NodeRank(me), Layout::single(2), Levels::flat(2, NodeRank(me)))
        };
        let contexts = [context(segment, 0), context(theirs, 1)];
        let now = Instant::now();
        let processes = contexts.each_ref().map(process);
        let may_be_reached = || processes.each_ref().map(|(windows, _)| windows.may_be_reached());
        let lower_after = |milliseconds| {
            let at = now + Duration::from_secs(1) + Duration::from_millis(milliseconds);
            processes.iter().for_each(|(windows, _)| windows.lower_if_due(at));
        };
        assert_eq!(may_be_reached(), [true; 2], "what was before is not known");
        for (round, (_, own)) in [0, 1, 2, 3].into_iter().zip(processes.iter().cycle()) {
            lower_after(1000 * round + 250);
            lower_after(1000 * round + 500);
            assert_eq!(may_be_reached(), [false; 2]);
            // SAFETY: the word of the notice, in a segment that is mapped as long as the processes know it.
            unsafe { own.notice.load(Ordering::Relaxed).as_ref() }.expect("a word").store(1, Ordering::Relaxed);
            assert_eq!(may_be_reached(), [true; 2]);
            lower_after(1000 * round + 750);
            contexts[0].clear();
            assert_eq!(may_be_reached(), [true; 2], "another communicator may have taken the segment over");
        }
    }

    #[test]
    fn periods_begin_when_the_last_one_is_over() {
        let start = Instant::now();
        let periods = Periods::from(start);
        let is_over = |milliseconds| periods.begin_if_over(start + Duration::from_millis(milliseconds));
        let found = [0, 249, 251, 252, 500, 501, 502, 9000, 9249, 9250].map(is_over);
        assert_eq!(found, [false, false, true, false, false, true, false, true, false, true]);
    }
}
