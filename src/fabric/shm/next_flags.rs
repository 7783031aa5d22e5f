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
//! a tenth where cores are far apart, so a rank asks for what it wrote a few calls ago. Only short calls in one part note what they write.

use crate::fabric::Line;
use crate::types::Epoch;
use std::sync::atomic::{AtomicU64, Ordering};

/// When a rank last published what: epochs, 0 before the first. Relaxed throughout: only this rank uses it, one call at a time; these are
/// atomics so that a context may move between threads.
#[derive(Debug, Default)]
pub(super) struct NextFlags {
    /// A flag on `Down`.
    of_root: AtomicU64,
    /// A payload that reached beyond a flag, by its line.
    beyond: [AtomicU64; 2],
}

impl NextFlags {
    /// So many calls ago is a few: programs with a barrier or two before each call with a root. Assumed, not measured.
    const FEW: u64 = 8;

    /// In the call of `epoch` this rank publishes a flag on `line`.
    #[inline(always)]
    pub fn note(&self, line: Line, Epoch(epoch): Epoch) {
        if line == Line::Down {
            self.of_root.store(epoch, Ordering::Relaxed);
        }
    }

    /// And its payload reaches beyond that.
    #[inline(always)]
    pub fn note_beyond(&self, line: Line, Epoch(epoch): Epoch) {
        self.beyond[line as usize].store(epoch, Ordering::Relaxed);
    }

    /// Whether this rank, now in the call of `epoch`, may well publish a root's flag next.
    #[inline(always)]
    pub fn may_be_of_root(&self, epoch: Epoch) -> bool {
        is_few_calls_ago(&self.of_root, epoch)
    }

    /// Whether the payload beside its next flag on `line` may well reach beyond that.
    #[inline(always)]
    pub fn may_go_beyond(&self, line: Line, epoch: Epoch) -> bool {
        is_few_calls_ago(&self.beyond[line as usize], epoch)
    }
}

#[inline(always)]
fn is_few_calls_ago(last: &AtomicU64, Epoch(epoch): Epoch) -> bool {
    let last = last.load(Ordering::Relaxed);
    last > 0 && epoch.wrapping_sub(last) <= NextFlags::FEW
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What may come after the call of `epoch`: a root's flag, and payloads beyond a flag on either line.
    fn may_come(flags: &NextFlags, epoch: u64) -> [bool; 3] {
        let epoch = Epoch(epoch);
        [flags.may_be_of_root(epoch), flags.may_go_beyond(Line::Up, epoch), flags.may_go_beyond(Line::Down, epoch)]
    }

    #[test]
    fn what_came_a_few_calls_ago_may_come_again() {
        let flags = NextFlags::default();
        assert_eq!(may_come(&flags, 3), [false; 3]);
        flags.note(Line::Up, Epoch(4));
        assert_eq!(may_come(&flags, 4), [false; 3]);
        flags.note(Line::Down, Epoch(5));
        assert_eq!(may_come(&flags, 6), [true, false, false]);
        flags.note(Line::Down, Epoch(7));
        flags.note_beyond(Line::Down, Epoch(7));
        flags.note_beyond(Line::Up, Epoch(9));
        assert_eq!(may_come(&flags, 7 + NextFlags::FEW), [true; 3]);
        assert_eq!(may_come(&flags, 8 + NextFlags::FEW), [false, true, false]);
        assert_eq!(may_come(&flags, 10 + NextFlags::FEW), [false; 3]);
    }
}
