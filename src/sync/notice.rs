//! The word by which processes tell each other that one-sided communication is under way in a job.

use super::atomic::{AtomicU32, Ordering};

/// Tells whether some process has recently made calls of one-sided communication. All processes share it, as a hint.
///
/// Zeroed memory is valid: no process has. Writers: all processes that have joined raise the notice in such calls; one
/// of them lowers it from time to time. Readers: all of them. Relaxed throughout: the notice orders nothing else.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Notice {
    /// Not 0 if a process made such a call since the notice was lowered last.
    raised: AtomicU32,
    /// Not 0 if a process made such a call between the last two times that the notice was lowered.
    was_raised: AtomicU32,
    /// How many processes have joined, and so raise this notice.
    joined: AtomicU32,
}

impl Notice {
    /// Counts one more process that will raise the notice. Raises it now, since that process may have made such calls
    /// before.
    pub fn join(&self) {
        self.joined.fetch_add(1, Ordering::Relaxed);
        self.raised.store(1, Ordering::Relaxed);
    }

    /// Lowers the notice, so that later calls show. If it is raised now, it still counts as raised until it is lowered
    /// the next time: a call may have found it raised just before, and so did not raise it again.
    pub fn lower(&self) {
        let raised = self.raised.load(Ordering::Relaxed);
        // Before it is lowered, so that no reader finds neither.
        self.was_raised.store(raised, Ordering::Relaxed);
        if raised != 0 {
            self.raised.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the notice is raised, or was raised before it was lowered last, or has not been joined by all
    /// `processes`.
    #[inline]
    pub fn may_be_raised(&self, processes: u32) -> bool {
        let words = [&self.raised, &self.was_raised].map(|word| word.load(Ordering::Relaxed));
        words != [0, 0] || self.joined.load(Ordering::Relaxed) != processes
    }

    /// The word that a process sets to 1 if it raises the notice without this type.
    pub fn word(&self) -> *const AtomicU32 {
        &raw const self.raised
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_may_be_raised_until_all_have_joined() {
        let notice = Notice::default();
        for _ in 0..3 {
            notice.lower();
            notice.lower();
            assert!(notice.may_be_raised(3));
            notice.join();
            assert!(notice.may_be_raised(3));
        }
        notice.lower();
        notice.lower();
        assert!(!notice.may_be_raised(3));
    }

    /// This includes a call that raised the notice just before it is lowered.
    #[test]
    fn each_call_counts_from_one_time_to_the_next_but_one() {
        let notice = Notice::default();
        notice.join();
        for _ in 0..3 {
            notice.raised.store(1, Ordering::Relaxed);
            notice.lower();
            assert!(notice.may_be_raised(1));
            notice.lower();
            assert!(!notice.may_be_raised(1));
        }
    }
}
