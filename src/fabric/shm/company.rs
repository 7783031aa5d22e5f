//! How much a process writes to the cells of its other communicators between two calls of one.
//!
//! The longer the way round a ring of cells, the longer have peers' caches had time to let its lines go ([`Rotation`](super::rotation)).
//! Of communicators that are used in turn each comes round as much later, and their rings together would not fit any cache. So
//! the way round is shortened by as much as others write meanwhile. It is each rank's own affair.

use crate::types::{Bytes, Epoch};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes that this process has written to rings of cells, of any communicator. Relaxed, and no one operation: where threads write at a time
/// some bytes may be lost, which does no harm.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// What the process wrote between the calls of one context. Relaxed throughout: only this rank uses it, one call at a time; these are
/// atomics so that a context may move between threads.
#[derive(Debug, Default)]
pub(super) struct Company {
    /// The call that wrote last.
    epoch: AtomicU64,
    /// What had been written when it did, and how much of that was its own.
    written: AtomicU64,
    own: AtomicU64,
    /// Means over some calls, times [`Company::CALLS`]: of what a call wrote, and of what others wrote before the next.
    means: [AtomicU64; 2],
    /// How many times the way round is halved.
    halvings: AtomicU32,
}

impl Company {
    /// Over so many calls means reach back.
    const CALLS: u64 = 8;
    /// What others write counts as no more than so many times what a call writes: a communicator that was at rest is soon itself again.
    const MOST: u64 = 64;

    /// How many times the way round is to be halved, the same for all pieces of a call.
    #[inline]
    pub fn halvings(&self) -> u32 {
        self.halvings.load(Ordering::Relaxed)
    }

    /// Before a piece in the call of `epoch`.
    #[inline]
    pub fn enter(&self, epoch: Epoch) {
        self.enter_in(&WRITTEN, epoch);
    }

    /// This rank is about to write a piece of so many bytes.
    #[inline]
    pub fn note(&self, piece: Bytes) {
        self.note_in(&WRITTEN, piece);
    }

    #[inline]
    fn enter_in(&self, all: &AtomicU64, epoch: Epoch) {
        let before = self.epoch.load(Ordering::Relaxed);
        if before != epoch.0 {
            self.epoch.store(epoch.0, Ordering::Relaxed);
            if before > 0 {
                self.judge(all.load(Ordering::Relaxed));
            }
        }
    }

    /// After a call that wrote something, before the next one that does; by now the process has `written` so much.
    fn judge(&self, written: u64) {
        let own = self.own.load(Ordering::Relaxed);
        self.own.store(0, Ordering::Relaxed);
        let others = written.wrapping_sub(self.written.load(Ordering::Relaxed));
        let mean_of = |mean: &AtomicU64, bytes: u64| {
            let before = mean.load(Ordering::Relaxed);
            let after = before - before / Self::CALLS + bytes;
            mean.store(after, Ordering::Relaxed);
            after
        };
        let [of_own, of_others] = &self.means;
        let (own, others) = (mean_of(of_own, own), mean_of(of_others, others.min(Self::MOST * own)));
        let halvings = (others + own).checked_div(own).map_or(0, u64::ilog2);
        self.halvings.store(halvings, Ordering::Relaxed);
    }

    #[inline]
    fn note_in(&self, all: &AtomicU64, piece: Bytes) {
        let written = all.load(Ordering::Relaxed).wrapping_add(piece.0 as u64);
        all.store(written, Ordering::Relaxed);
        self.written.store(written, Ordering::Relaxed);
        self.own.store(self.own.load(Ordering::Relaxed) + piece.0 as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: Bytes = Bytes(4096);

    /// So many calls of each of some communicators in turn. -> how often their ways are halved
    fn in_turn<const N: usize>(all: &AtomicU64, companies: &[Company; N], epochs: std::ops::Range<u64>) -> [u32; N] {
        for epoch in epochs {
            for company in companies {
                company.enter_in(all, Epoch(epoch));
                company.note_in(all, PIECE);
            }
        }
        companies.each_ref().map(Company::halvings)
    }

    #[test]
    fn ways_are_halved_as_others_write_meanwhile() {
        let all = AtomicU64::new(u64::MAX - 100_000);
        assert_eq!(in_turn(&all, &[Company::default()], 1..100), [0]);
        let mut eight: [Company; 8] = Default::default();
        assert_eq!(in_turn(&all, &eight, 1..100), [3; 8]);
        let one = [std::mem::take(&mut eight[0])];
        assert_eq!(in_turn(&all, &one, 100..140), [0], "it goes on alone");
    }

    #[test]
    fn a_communicator_that_was_at_rest_is_soon_itself_again() {
        let (all, one) = (AtomicU64::new(0), [Company::default()]);
        in_turn(&all, &one, 1..100);
        all.fetch_add(1 << 40, Ordering::Relaxed);
        let [halvings] = in_turn(&all, &one, 100..101);
        assert!((1..=4).contains(&halvings), "{halvings}");
        assert_eq!(in_turn(&all, &one, 101..130), [0]);
    }

    #[test]
    fn nothing_changes_within_a_call() {
        let (all, one) = (AtomicU64::new(0), Company::default());
        for epoch in 1..50 {
            one.enter_in(&all, Epoch(epoch));
            let halvings = one.halvings();
            for piece in 0..10 {
                all.fetch_add(piece << 20, Ordering::Relaxed);
                one.enter_in(&all, Epoch(epoch));
                one.note_in(&all, PIECE);
                assert_eq!(one.halvings(), halvings);
            }
            all.fetch_add(1 << 20, Ordering::Relaxed);
        }
        assert!(one.halvings() > 0);
    }
}
