//! That some process of a job reaches into memory of others.

use super::atomic::{AtomicU32, Ordering};

/// Whether some process has made one-sided calls lately, as all of them tell each other: a hint.
///
/// Zeroed memory is valid: nobody has. Writers: all processes that have joined raise it in such calls, and one of them lowers it from time to time. Readers:
/// all of them.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Notice {
    /// Not 0 if some have.
    raised: AtomicU32,
    /// How many processes raise this one.
    joined: AtomicU32,
}

impl Notice {
    /// One more process is going to raise it; it may have made such calls before.
    pub fn join(&self) {
        self.joined.fetch_add(1, Ordering::Relaxed);
        self.raise();
    }

    /// A process makes such a call.
    pub fn raise(&self) {
        self.raised.store(1, Ordering::Relaxed);
    }

    /// So that a later call shows.
    pub fn lower(&self) {
        self.raised.store(0, Ordering::Relaxed);
    }

    /// Whether it is raised, or would not be by all of so many processes.
    #[inline]
    pub fn may_be_raised(&self, processes: u32) -> bool {
        self.raised.load(Ordering::Relaxed) != 0 || self.joined.load(Ordering::Relaxed) != processes
    }

    /// What is not 0 while it is raised, for those who raise it by themselves.
    pub fn word(&self) -> *const AtomicU32 {
        &raw const self.raised
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_is_lowered_only_once_all_have_joined() {
        let notice = Notice::default();
        for _ in 0..3 {
            assert!(notice.may_be_raised(3));
            notice.join();
            assert!(notice.may_be_raised(3));
            notice.lower();
        }
        assert!(!notice.may_be_raised(3));
        notice.raise();
        assert!(notice.may_be_raised(3));
    }
}
