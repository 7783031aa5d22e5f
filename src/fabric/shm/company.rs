//! How much a process writes to the cells of its other communicators between two calls of one.
//!
//! The longer the way round a ring of cells, the more time peers' caches have had to evict its lines
//! ([`Rotation`](super::rotation)). If a process uses several communicators in turn, each ring comes round later by
//! what the others write, and all rings together would fit no cache. So a rank shortens the way round in proportion to
//! what its process writes to other communicators meanwhile. Each rank decides this for itself.

use crate::sync::Private;
use crate::types::{Bytes, Epoch};

/// Upper bound of the bytes that this process has written to cells of any communicator, in pieces of 4 KiB and more.
/// All cells count, wherever they are, since all take cache. If threads write at the same time, some bytes may be lost,
/// which does no harm.
static WRITTEN: Private<u64> = Private::ZERO;

/// What the process wrote between the calls of one context.
#[derive(Debug)]
pub(super) struct Company {
    /// The sum of all communicators' writes.
    all: &'static Private<u64>,
    /// The last call of this context that wrote.
    epoch: Private<u64>,
    /// The value of `all` after that call's last write, and how many bytes that call wrote itself.
    written: Private<u64>,
    own: Private<u64>,
    /// Means over some calls, times [`Company::CALLS`]: the bytes that a call wrote, and those that others wrote
    /// before the next one. In sixteenths of a byte, so that rounding does not matter.
    means: [Private<u64>; 2],
    /// How many times the way round is halved.
    halvings: Private<u32>,
}

impl Default for Company {
    fn default() -> Self {
        Self::in_all(&WRITTEN)
    }
}

impl Company {
    /// The means reach back over this many calls.
    const CALLS: u64 = 8;
    /// Others' writes between two calls count as at most this many times what the call wrote. So a communicator that
    /// was at rest soon recovers its full way round.
    const MOST: u64 = 64;

    pub(super) fn in_all(all: &'static Private<u64>) -> Self {
        let [epoch, written, own] = Default::default();
        Self { all, epoch, written, own, means: Default::default(), halvings: Private::new(0) }
    }

    /// How many times to halve the way round; the same for all pieces of a call.
    #[inline]
    pub fn halvings(&self) -> u32 {
        self.halvings.get()
    }

    /// To be called before each piece that the call of `epoch` writes.
    #[inline]
    pub fn enter(&self, epoch: Epoch) {
        let before = self.epoch.get();
        if before != epoch.0 {
            self.epoch.set(epoch.0);
            if before > 0 {
                self.judge();
            }
        }
    }

    /// Runs between a call that wrote something and the next one that does. Counted in the bytes that all
    /// communicators write, the way round keeps its length if it is divided by the ratio of all bytes to this
    /// context's own.
    fn judge(&self) {
        let own = self.own.get();
        self.own.set(0);
        let others = self.all.get().wrapping_sub(self.written.get());
        // If threads write at the same time, the sum may have gone back.
        let others = if others.cast_signed() < 0 { 0 } else { others.min(Self::MOST * own) };
        let mean_of = |mean: &Private<u64>, bytes: u64| {
            let before = mean.get();
            let after = before - before / Self::CALLS + 16 * bytes;
            mean.set(after);
            after
        };
        let [of_own, of_others] = &self.means;
        let (own, others) = (mean_of(of_own, own), mean_of(of_others, others));
        // The ratio times 8. Near the border between two numbers of halvings the present number stays: a way round
        // that keeps changing acts as a shorter one.
        let times = (8 * (others + own)).checked_div(own).unwrap_or(8);
        let [least, most] = [9, 12].map(|eighths| (times * eighths / 64).ilog2());
        self.halvings.set(self.halvings().clamp(least, most));
    }

    /// This rank is about to write a piece of at most `reach` bytes.
    #[inline]
    pub fn note(&self, reach: Bytes) {
        let written = self.all.get().wrapping_add(reach.0 as u64);
        self.all.set(written);
        self.written.set(written);
        self.own.set(self.own.get() + reach.0 as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: Bytes = Bytes(4096);

    /// A sum that other tests don't change.
    fn of_own() -> &'static Private<u64> {
        Box::leak(Box::new(Private::new(u64::MAX - 100_000)))
    }

    /// Makes the calls of `epochs`, each on all communicators in turn. Returns how often each way round is halved.
    fn in_turn<const N: usize>(companies: &[Company; N], epochs: std::ops::Range<u64>) -> [u32; N] {
        for epoch in epochs {
            for company in companies {
                company.enter(Epoch(epoch));
                company.note(PIECE);
            }
        }
        companies.each_ref().map(Company::halvings)
    }

    fn some<const N: usize>() -> [Company; N] {
        let all = of_own();
        [(); N].map(|()| Company::in_all(all))
    }

    #[test]
    fn ways_are_halved_as_others_write_meanwhile() {
        assert_eq!(in_turn(&some::<1>(), 1..100), [0]);
        assert_eq!(in_turn(&some::<2>(), 1..100), [1; 2]);
        assert_eq!(in_turn(&some::<32>(), 1..100), [5; 32]);
        let eight = some::<8>();
        assert_eq!(in_turn(&eight, 1..100), [3; 8]);
        let [one, ..] = eight;
        let one = [one];
        assert_eq!(in_turn(&one, 100..140), [0], "it goes on alone");
    }

    #[test]
    fn a_communicator_that_was_at_rest_is_soon_itself_again() {
        let one = some::<1>();
        in_turn(&one, 1..100);
        one[0].all.set(one[0].all.get().wrapping_add(1 << 40));
        let [halvings] = in_turn(&one, 100..101);
        assert!((1..=4).contains(&halvings), "{halvings}");
        assert_eq!(in_turn(&one, 101..130), [0]);
        // Another thread has stored an older sum.
        one[0].all.set(one[0].all.get().wrapping_sub(1 << 30));
        assert_eq!(in_turn(&one, 130..131), [0]);
    }

    #[test]
    fn sizes_that_vary_do_not_change_the_way_round() {
        let [mine, other] = some::<2>();
        let mut changes = 0;
        for epoch in 1..2000 {
            let before = mine.halvings();
            mine.enter(Epoch(epoch));
            changes += usize::from(mine.halvings() != before);
            mine.note(PIECE);
            other.note(Bytes(PIECE.0 + (epoch as usize * 37 % 101) * 8 - 400));
        }
        assert_eq!((mine.halvings(), changes), (1, 1));
    }

    #[test]
    fn nothing_changes_within_a_call() {
        let [one, other] = some::<2>();
        for epoch in 1..50 {
            one.enter(Epoch(epoch));
            let halvings = one.halvings();
            for piece in 0..10 {
                other.note(Bytes(piece << 20));
                one.enter(Epoch(epoch));
                one.note(PIECE);
                assert_eq!(one.halvings(), halvings);
            }
            other.note(Bytes(1 << 20));
        }
        assert!(one.halvings() > 0);
    }
}
