//! What flag a rank most likely publishes next: its lines are asked for in the exchange before.
//!
//! Who leaves an exchange publishes its next flag at about the time at which its peer begins to look for it, as in a call with a root after a
//! barrier. The peer's cache has that flag's line since the ring of lines went round. Where the call that publishes asks for it, the
//! flag takes two ways between the caches; if it was asked for in the exchange, one (docs/PERFORMANCE.md, "Tried"). The peer has to look late
//! in exchanges for that ([`first_looks`](super::first_looks)): one that looks early is ahead, and takes the line again.
//!
//! A rank has two flag lines for a ticket. The flag of an exchange is on `Up`, as that of a Reduce: its line is asked for when an exchange
//! ends, as sooner costs a loop of exchanges some of what it saves. That of the root of a Bcast or Scatter is on `Down`: its line is asked for
//! while the exchange waits. A payload may reach beyond either, into the next cache line. To ask for what is not written costs a short exchange
//! a tenth where cores are far apart, so a rank asks where the last two calls that wrote such are as far apart as the last and the next one. Only
//! short calls in one part note what they write.

use crate::fabric::Line;
use crate::types::Epoch;
use std::sync::atomic::{AtomicU64, Ordering};

/// When a rank publishes what. Relaxed throughout: only this rank uses it, one call at a time; these are atomics so that a context may move
/// between threads.
#[derive(Debug, Default)]
pub(super) struct NextFlags {
    /// A flag on `Down`.
    of_root: Recurring,
    /// A payload that reaches beyond a flag, by its line.
    beyond: [Recurring; 2],
}

impl NextFlags {
    /// In the call of `epoch` this rank publishes a flag on `line`.
    #[inline(always)]
    pub fn note(&self, line: Line, epoch: Epoch) {
        if line == Line::Down {
            self.of_root.note(epoch);
        }
    }

    /// And its payload reaches beyond that.
    #[inline(always)]
    pub fn note_beyond(&self, line: Line, epoch: Epoch) {
        self.beyond[line as usize].note(epoch);
    }

    /// Whether this rank, now in the call of `epoch`, is likely to publish a root's flag in the next.
    #[inline(always)]
    pub fn is_of_root(&self, epoch: Epoch) -> bool {
        self.of_root.is_due_after(epoch)
    }

    /// Whether the payload beside its next flag on `line` is likely to reach beyond that.
    #[inline(always)]
    pub fn goes_beyond(&self, line: Line, epoch: Epoch) -> bool {
        self.beyond[line as usize].is_due_after(epoch)
    }
}

/// Calls by their epochs in which something happens again and again.
#[derive(Debug, Default)]
struct Recurring {
    /// The last one; 0 before the first.
    last: AtomicU64,
    /// The next one, if it comes as much later as the last one came after the one before.
    next: AtomicU64,
}

impl Recurring {
    #[inline(always)]
    fn note(&self, Epoch(epoch): Epoch) {
        let last = self.last.load(Ordering::Relaxed);
        self.last.store(epoch, Ordering::Relaxed);
        self.next.store(epoch + epoch.wrapping_sub(last), Ordering::Relaxed);
    }

    #[inline(always)]
    fn is_due_after(&self, Epoch(epoch): Epoch) -> bool {
        self.next.load(Ordering::Relaxed) == epoch + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is due after the call of `epoch`: a root's flag, and payloads beyond a flag on either line.
    fn due(flags: &NextFlags, epoch: u64) -> [bool; 3] {
        let epoch = Epoch(epoch);
        [flags.is_of_root(epoch), flags.goes_beyond(Line::Up, epoch), flags.goes_beyond(Line::Down, epoch)]
    }

    #[test]
    fn what_recurs_is_due_in_its_rhythm() {
        let flags = NextFlags::default();
        assert_eq!(due(&flags, 3), [false; 3]);
        flags.note(Line::Up, Epoch(4));
        assert_eq!(due(&flags, 4), [false; 3]);
        for epoch in [5, 8, 11] {
            flags.note(Line::Down, Epoch(epoch));
        }
        let expected = |due_after| (12..20).map(move |epoch| epoch == due_after);
        assert!((12..20).map(|epoch| due(&flags, epoch)[0]).eq(expected(13)));
        flags.note_beyond(Line::Down, Epoch(10));
        flags.note_beyond(Line::Down, Epoch(12));
        flags.note_beyond(Line::Up, Epoch(11));
        flags.note_beyond(Line::Up, Epoch(13));
        assert_eq!(due(&flags, 13), [true, false, true]);
        assert_eq!(due(&flags, 14), [false, true, false]);
        flags.note(Line::Down, Epoch(12));
        assert!(due(&flags, 12)[0], "a new rhythm");
    }
}
