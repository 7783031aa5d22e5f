//! Whether a rank has its core.

use super::atomic::{AtomicU32, Ordering};

/// What a rank that shares its core tells peers about whether it has that core, on a cache line of its own. It is a
/// hint, and holds in whatever call the rank is.
///
/// Zeroed memory is valid. Writer: the rank. Several of its threads may write it in calls of several communicators.
/// Then one thread may clear what another has set, which costs peers some looks. Readers: all ranks that map it.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Presence {
    /// Not 0 while the rank offers its core to others.
    away: AtomicU32,
}

impl Presence {
    /// Calls `to_others`, which may give this rank's core to another rank, and meanwhile tells peers that this rank is
    /// away.
    pub fn leave_core(&self, to_others: impl FnOnce()) {
        self.away.store(1, Ordering::Relaxed);
        to_others();
        self.away.store(0, Ordering::Relaxed);
    }

    /// Whether the rank has given its core to others. A rank that is not away may well be at work on another core.
    pub fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_away_while_it_leaves_its_core() {
        let presence = Presence::default();
        assert!(!presence.is_away());
        presence.leave_core(|| assert!(presence.is_away()));
        assert!(!presence.is_away());
    }
}
