//! Whether a rank has its core.

use super::atomic::{AtomicU32, Ordering};

/// What a rank that shares its core with others tells of that, on a line of its own: a hint, in whatever call it is.
///
/// Zeroed memory is valid. Writer: the rank, also several threads of it, in calls of several communicators: then one may end what the other has told,
/// which costs some looks. Readers: all ranks that map it.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Presence {
    /// Not 0 while the rank offers its core to others.
    away: AtomicU32,
}

impl Presence {
    /// Does something that may give this rank's core to another, and lets peers know meanwhile.
    pub fn leave_core(&self, to_others: impl FnOnce()) {
        self.away.store(1, Ordering::Relaxed);
        to_others();
        self.away.store(0, Ordering::Relaxed);
    }

    /// Whether the rank has given its core to others. Who is not away may well be at work on another core.
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
