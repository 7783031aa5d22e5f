//! That one-sided communication is under way in a job.

use super::atomic::{AtomicU32, Ordering};

/// Whether some process has made calls of one-sided communication lately, as all of them tell each other: a hint.
///
/// Zeroed memory is valid: none has. Writers: all processes that have joined raise it in such calls; one of them lowers it from time to time.
/// Readers: all of them. Relaxed throughout: it orders nothing else.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Notice {
    /// Not 0 if some have since it was lowered last.
    raised: AtomicU32,
    /// Not 0 if some had between the two times before.
    was_raised: AtomicU32,
    /// How many processes raise this one.
    joined: AtomicU32,
}

impl Notice {
    /// One more process is going to raise it; it may have made such calls before.
    pub fn join(&self) {
        self.joined.fetch_add(1, Ordering::Relaxed);
        self.raised.store(1, Ordering::Relaxed);
    }

    /// So that later calls show: until the next time it counts as raised if it is now, since a call may have found it so just before.
    pub fn lower(&self) {
        self.was_raised.store(self.raised.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether it is raised, or was a short time ago, or would not be by all of so many processes.
    #[inline]
    pub fn may_be_raised(&self, processes: u32) -> bool {
        let words = [&self.raised, &self.was_raised].map(|word| word.load(Ordering::Relaxed));
        words != [0, 0] || self.joined.load(Ordering::Relaxed) != processes
    }

    /// What those make 1 who raise it by themselves.
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

    /// Also one that it was raised for just before it is lowered.
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
