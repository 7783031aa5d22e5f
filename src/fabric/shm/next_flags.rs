//! The flag that a rank most likely publishes next: the rank asks for its lines in the exchange before.
//!
//! A rank that leaves an exchange publishes its next flag at about the time at which its peer begins to look for it.
//! An example is a call with a root after a barrier. The peer's cache has held that flag's line since the ring of
//! lines last went round. If the rank asks for the line only in the call that publishes, the flag takes two transfers
//! between the caches; if it asked in the exchange before, one (docs/PERFORMANCE.md, "Tried"). This needs a peer that
//! looks late in exchanges ([`first_looks`](super::first_looks)): a peer that looks early is ahead, and takes the line
//! again.
//!
//! A rank has two flag lines for a ticket. The flags of an exchange and of a Reduce are on `Up`: a rank asks for this
//! line when an exchange ends, since asking sooner costs a loop of exchanges some of what it saves. The flag of the
//! root of a Bcast or Scatter is on `Down`: a rank asks for this line while the exchange waits. On either line a
//! payload may reach beyond the flag's cache line, into the next one. To ask for lines that are not written costs a
//! short exchange a tenth where cores are far apart. So a rank asks for a root's flag, or for a payload's second line,
//! only if the next call continues a rhythm: it comes as many calls after the last one that wrote that line as that
//! one came after the one before. Only short calls whose data are not cut into halves note what they write.

use crate::fabric::Line;
use crate::sync::Private;
use crate::types::Epoch;

/// In which calls a rank publishes what.
#[derive(Debug, Default)]
pub(super) struct NextFlags {
    /// Flags on `Down`.
    of_root: Recurring,
    /// Payloads that reach beyond the flag's cache line, for either flag line.
    beyond: [Recurring; 2],
}

impl NextFlags {
    /// Notes that this rank publishes a flag on `line` in the call of `epoch`.
    #[inline(always)]
    pub fn note(&self, line: Line, epoch: Epoch) {
        if line == Line::Down {
            self.of_root.note(epoch);
        }
    }

    /// Notes that the payload of that flag reaches beyond the flag's cache line.
    #[inline(always)]
    pub fn note_beyond(&self, line: Line, epoch: Epoch) {
        self.beyond[line as usize].note(epoch);
    }

    /// Whether this rank, now in the call of `epoch`, is likely to publish a root's flag in the next call.
    #[inline(always)]
    pub fn is_of_root(&self, epoch: Epoch) -> bool {
        self.of_root.is_due_after(epoch)
    }

    /// Whether the payload of this rank's flag on `line` is likely to reach beyond the flag's cache line in the next
    /// call.
    #[inline(always)]
    pub fn goes_beyond(&self, line: Line, epoch: Epoch) -> bool {
        self.beyond[line as usize].is_due_after(epoch)
    }
}

/// The calls, by epoch, in which something happens again and again.
#[derive(Debug, Default)]
struct Recurring {
    /// The last such call; 0 before the first.
    last: Private<u64>,
    /// The next such call, if it comes as many calls after the last one as that one came after the one before.
    next: Private<u64>,
}

impl Recurring {
    #[inline(always)]
    fn note(&self, Epoch(epoch): Epoch) {
        let last = self.last.get();
        self.last.set(epoch);
        self.next.set(epoch + epoch.wrapping_sub(last));
    }

    #[inline(always)]
    fn is_due_after(&self, Epoch(epoch): Epoch) -> bool {
        self.next.get() == epoch + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is due in the call after `epoch`: a root's flag, and payloads that reach beyond a flag, on either line.
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
