//! Asking for the lines of flags that a rank most likely publishes next, while it waits in an exchange.
//!
//! Who leaves an exchange publishes its next flag at about the time at which its peer begins to look for it, as in a barrier and a call
//! with a root after it. The line of that flag is in the peer's cache since the ring went round. To ask for it with the call that
//! publishes it makes the peer wait for two ways between the caches; one that was asked for while both waited for each other is there, and
//! the flag takes one (docs/PERFORMANCE.md, "Tried"). It needs a peer that looks late in exchanges ([`first_looks`](super::first_looks)):
//! one that looks early is a way ahead, and takes the line again.
//!
//! A flag of an exchange is on one of a rank's two lines for a ticket, that of a root on the other, and payloads may reach beyond the flag's own cache
//! line. Asking for what nobody wrote costs a tenth of a short exchange where cores are far apart, so a rank asks for what it wrote a few
//! calls ago.

use crate::fabric::Line;
use crate::types::Epoch;
use std::sync::atomic::{AtomicU64, Ordering};

/// When a rank last published what: epochs, 0 before the first. Relaxed throughout: only this rank uses it, one call at a time; these are
/// atomics so that a context may move between threads.
#[derive(Debug, Default)]
pub(super) struct NextFlags {
    /// A root's flag.
    root: AtomicU64,
    /// A payload that reached beyond a flag, on either line.
    beyond: [AtomicU64; 2],
}

impl NextFlags {
    /// So many calls ago is a few.
    const RECENT: u64 = 8;

    /// In the call of `epoch` this rank publishes a flag on `line`.
    #[inline(always)]
    pub fn note(&self, line: Line, Epoch(epoch): Epoch, goes_beyond_flag: bool) {
        if line == Line::Down {
            self.root.store(epoch, Ordering::Relaxed);
        }
        if goes_beyond_flag {
            self.beyond[line as usize].store(epoch, Ordering::Relaxed);
        }
    }

    /// Whether this rank, now in the call of `epoch`, is likely to publish its next flag on `line`.
    #[inline(always)]
    pub fn is_likely(&self, line: Line, epoch: Epoch) -> bool {
        line == Line::Up || Self::is_recent(&self.root, epoch)
    }

    /// Whether that one's payload is.
    #[inline(always)]
    pub fn goes_beyond(&self, line: Line, epoch: Epoch) -> bool {
        Self::is_recent(&self.beyond[line as usize], epoch)
    }

    #[inline(always)]
    fn is_recent(last: &AtomicU64, Epoch(epoch): Epoch) -> bool {
        let last = last.load(Ordering::Relaxed);
        last > 0 && epoch.wrapping_sub(last) <= Self::RECENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked for in the call of `epoch`: a root's flag, and payloads beyond a flag on either line.
    fn asked(flags: &NextFlags, epoch: u64) -> [bool; 3] {
        let epoch = Epoch(epoch);
        assert!(flags.is_likely(Line::Up, epoch), "an exchange may always follow");
        [flags.is_likely(Line::Down, epoch), flags.goes_beyond(Line::Up, epoch), flags.goes_beyond(Line::Down, epoch)]
    }

    #[test]
    fn flags_are_likely_that_came_a_few_calls_ago() {
        let flags = NextFlags::default();
        assert_eq!(asked(&flags, 3), [false; 3]);
        flags.note(Line::Up, Epoch(4), false);
        assert_eq!(asked(&flags, 4), [false; 3]);
        flags.note(Line::Down, Epoch(5), false);
        assert_eq!(asked(&flags, 6), [true, false, false]);
        flags.note(Line::Down, Epoch(7), true);
        flags.note(Line::Up, Epoch(9), true);
        assert_eq!(asked(&flags, 7 + NextFlags::RECENT), [true; 3]);
        assert_eq!(asked(&flags, 8 + NextFlags::RECENT), [false, true, false]);
        assert_eq!(asked(&flags, 10 + NextFlags::RECENT), [false; 3]);
    }
}
