//! The way in which a rank copies long pieces to its own memory, or combines them there: as one stream or as several,
//! through the caches or around them.
//!
//! Processors prefetch within a page of memory, and only so many lines of each stream. Where a line takes long from a
//! peer's cache (150 ns between cores of one large die), [several](crate::kernel::streams) streams have more lines on
//! their way and take a fifth less time. A core that works alone copies as fast either way. If the caches can't hold a
//! result, stores through the caches fetch its lines from memory before they are overwritten. Streaming stores avoid
//! this, and are up to 1.6 times as fast there, but take up to 2.2 times as long where the caches hold the result
//! (docs/PERFORMANCE.md, "Tried"). The sizes that caches claim to have do not tell, since those of virtual machines and
//! of shared nodes hold less. So a rank now and then compares ways: of eight pieces that are alike four take the usual
//! way and four another. It goes by the result, for each collective and size apart. Each rank decides for itself.

use super::clock;
use super::trials::are_trials_held;
use crate::kernel::Kernel;
use crate::sync::Private;
use crate::types::{Bytes, Collective};
use std::time::Duration;

/// A way to copy or to combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Way {
    /// One stream through the caches.
    One,
    /// Several streams through the caches.
    Several,
    /// Several streams around the caches. For data that the rank has itself this way is compared with one stream.
    Around,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::One, Self::Several, Self::Around];

    /// The factor by which this way's time counts when ways are compared: readers have to fetch from memory what went
    /// around the caches. Assumed, not measured.
    fn price(self) -> f64 {
        if self == Self::Around { 1.2 } else { 1.0 }
    }
}

/// What a piece is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Material {
    /// Data in memory of this rank alone.
    Own,
    /// Data in a slot.
    Slot,
    /// Two operands that a kernel combines, wherever they are.
    Operands,
}

impl Material {
    const ALL: [Self; 3] = [Self::Own, Self::Slot, Self::Operands];
}

/// How to move or combine the next piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// By this way.
    Usual(Way),
    /// By this way, and the caller has to tell [`Choice::judge`] how long it took.
    Timed(Way),
}

/// The ways of one rank in one context.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// By collective, by what the pieces are made of, and by size: of the piece, or of the result if that is long.
    records: [[[Record; Ways::SIZES]; Material::ALL.len()]; Collective::ALL.len()],
}

impl Ways {
    /// Shorter pieces are copied as one stream, and combined as [`Streams::Several`](crate::kernel::Streams::Several).
    pub const SHORTEST: usize = 16 << 10;
    /// Pieces of this length and more have a habit apart from shorter ones, however short the result is.
    const LONG: usize = 32 << 10;
    const SIZES: usize = 5;

    /// The choice for a piece of `n` bytes, made of `material`, in calls of `collective` whose results have `received`
    /// bytes, wherever the results go. `kernel` combines operands.
    ///
    /// Results below 8 MiB are not tried around the caches: the pieces themselves took less time, but calls took more,
    /// since the stores were still under way. libc copies what a rank has itself as fast as several streams do, or up
    /// to a tenth faster.
    pub fn of(
        &self,
        collective: Collective,
        material: Material,
        received: Bytes,
        n: usize,
        kernel: Option<Kernel>,
    ) -> Choice<'_> {
        let size = match received.0 >> 20 {
            0..2 => usize::from(n >= Self::LONG),
            2..8 => 2,
            8..32 => 3,
            _ => 4,
        };
        let may_go_around = size > 2 && cfg!(target_arch = "x86_64");
        let tried: &[Way] = match (material, may_go_around) {
            (Material::Slot, false) | (Material::Operands, _) => &[Way::One, Way::Several],
            (Material::Slot, true) => &Way::ALL,
            (Material::Own, false) => &[Way::One],
            (Material::Own, true) => &[Way::One, Way::Around],
        };
        // The length, and the kernel in the bits above it: operations differ in time.
        let kernel = kernel.map_or(0, |kernel| kernel.run as usize as u64);
        let kind = (n as u64).wrapping_add(kernel << u32::BITS);
        Choice { tried, record: &self.records[collective as usize][material as usize][size], kind }
    }
}

/// What pieces of one collective, material and size have shown.
#[derive(Debug, Default)]
struct Record {
    usual: Private<u8>,
    /// Pieces until the next comparison begins; each timed piece sets it anew.
    untimed: Private<u16>,
    /// Comparisons since the usual way last changed. It decides which way is compared next, and in which order.
    comparisons: Private<u8>,
    /// The kind of the pieces in the comparison that has begun; 0 if none has.
    kind: Private<u64>,
    /// How many pieces of that comparison were timed.
    timed: Private<u8>,
    /// What its pieces took by each of its two ways: nanoseconds.
    took: [Private<u64>; 2],
    /// For each way, the comparisons that it won against the usual one, less those that it lost, but not below 0.
    evidence: [Private<u8>; Way::ALL.len()],
}

/// The ways that are tried for such pieces, and what they have shown.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    tried: &'static [Way],
    record: &'a Record,
    /// What pieces that are compared have in common.
    kind: u64,
}

impl Choice<'_> {
    /// Which of the two ways each piece of a comparison takes (Thue and Morse). Among every second piece, and among
    /// every fourth, both ways are equally frequent, since pieces at certain places of a call take longer than others.
    const ORDER: [usize; 8] = [0, 1, 1, 0, 1, 0, 0, 1];
    /// At first a comparison begins after this many pieces, with the next pieces that are alike. To read the clock
    /// takes as long as to copy a kilobyte, and each timed piece reads it twice. The second number is for calls that
    /// try to go around the caches: such long calls have many pieces, which take up to twice as long around the caches
    /// if these hold them.
    const INTERVALS: [u16; 2] = [64, 256];
    /// After each so many comparisons the interval doubles, three times at most: a way that stays slow costs something
    /// in each comparison.
    const COMPARISONS: u8 = 16;
    /// This much evidence makes a way the usual one.
    const ENOUGH: u8 = 4;
    /// Another way has to be this many times as fast; otherwise ways that are equally fast would take turns.
    const MARGIN: f64 = 1.05;

    /// How to move or combine a piece of at least [`Ways::SHORTEST`] bytes.
    #[inline]
    pub fn turn(self) -> Turn {
        if self.tried.len() == 1 {
            return Turn::Usual(self.tried[0]);
        }
        let untimed = self.record.untimed.get();
        if untimed == 0 || self.record.kind.get() == self.kind {
            return self.take_part();
        }
        self.record.untimed.set(untimed - 1);
        Turn::Usual(self.usual())
    }

    fn usual(self) -> Way {
        Way::ALL[self.record.usual.get() as usize]
    }

    /// The two ways of the comparison that is due or has begun, in their order.
    fn candidates(self) -> [Way; 2] {
        let (comparisons, usual) = (self.record.comparisons.get() as usize, self.usual());
        let others = self.tried.len() - 1;
        let other = self.tried.iter().filter(|way| **way != usual).nth(comparisons % others).copied().unwrap_or(usual);
        let is_other_first = (comparisons / others).is_multiple_of(2);
        if is_other_first { [other, usual] } else { [usual, other] }
    }

    /// The turn of a piece that begins a comparison, or belongs to the one that has begun.
    #[cold]
    fn take_part(self) -> Turn {
        /// Nothing is compared if reading the clock takes longer: it is read more often than for `Writes`, to time
        /// shorter intervals.
        const CLOCK: Duration = Duration::from_nanos(100);
        self.put_off_next();
        if !are_trials_held() || clock::reading() > CLOCK {
            return Turn::Usual(self.usual());
        }
        if self.record.kind.replace(self.kind) != self.kind {
            self.record.timed.set(0);
            self.record.took.iter().for_each(|took| took.set(0));
        }
        Turn::Timed(self.candidates()[Self::ORDER[self.record.timed.get() as usize]])
    }

    /// From here on pieces go the usual way until a comparison is due. The number of pieces varies, or comparisons
    /// would fall into step with calls.
    fn put_off_next(self) {
        let comparisons = self.record.comparisons.get();
        let first = Self::INTERVALS[usize::from(self.tried.contains(&Way::Around))];
        let interval = first << (comparisons / Self::COMPARISONS).min(3);
        self.record.untimed.set(interval - 1 - u16::from(comparisons % 8));
    }

    /// Notes that the timed piece took `took`. The last piece of a comparison concludes it.
    #[cold]
    pub fn judge(self, took: Duration) {
        let Record { kind, timed, took: sums, .. } = self.record;
        let piece = timed.get();
        let sum = &sums[Self::ORDER[piece as usize]];
        sum.set(sum.get() + took.as_nanos() as u64);
        timed.set(piece + 1);
        if usize::from(piece) + 1 == Self::ORDER.len() {
            kind.set(0);
            self.conclude(sums.each_ref().map(|sum| Duration::from_nanos(sum.get())));
        }
    }

    /// Concludes a comparison whose pieces took `took` by its two ways.
    fn conclude(self, took: [Duration; 2]) {
        /// Counting goes on from here after the highest number, with the same next way and order.
        const AGAIN: u8 = 4 * Choice::COMPARISONS;
        let ways = self.candidates();
        let comparisons = &self.record.comparisons;
        comparisons.set(comparisons.get().checked_add(1).unwrap_or(AGAIN));
        let usual_at = usize::from(ways[1] == self.usual());
        let cost = |way: usize| took[way].as_secs_f64() * ways[way].price();
        let other = ways[1 - usual_at];
        let evidence = &self.record.evidence[other as usize];
        let before = evidence.get();
        let has_won = Self::MARGIN * cost(1 - usual_at) < cost(usual_at);
        let now = if has_won { before + 1 } else { before.saturating_sub(1) };
        evidence.set(now);
        if now >= Self::ENOUGH {
            self.record.usual.set(other as u8);
            comparisons.set(0);
            self.record.evidence.iter().for_each(|evidence| evidence.set(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Bytes = Bytes(1 << 20);
    const LONG: Bytes = Bytes(16 << 20);
    /// Length of the pieces.
    const LENGTH: usize = 64 << 10;

    fn choice(ways: &Ways, received: Bytes) -> Choice<'_> {
        ways.of(Collective::Bcast, Material::Slot, received, LENGTH, None)
    }

    /// Moves `times` pieces, which take `each` nanoseconds by a way. Returns how many were timed.
    fn copy(choice: Choice<'_>, times: usize, mut each: impl FnMut(Way) -> u64) -> usize {
        let is_timed = |_: &usize| {
            let Turn::Timed(way) = choice.turn() else { return false };
            choice.judge(Duration::from_nanos(each(way)));
            true
        };
        (0..times).filter(is_timed).count()
    }

    /// Moves some pieces, after which `way` has to be the usual one. Returns `false` if the clock is too slow for any
    /// comparison.
    fn becomes(choice: Choice<'_>, each: [u64; 3], way: Way) -> bool {
        let timed = copy(choice, 3000, |way| each[way as usize]);
        assert!(timed == 0 || choice.usual() == way, "{each:?}: {:?}", choice.usual());
        timed > 0
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_fastest_way_becomes_the_usual_one() {
        let ways = Ways::default();
        let choice = choice(&ways, LONG);
        let _ = becomes(choice, [100, 96, 100], Way::One)
            && becomes(choice, [100, 90, 100], Way::Several)
            && becomes(choice, [100, 90, 80], Way::Several)
            && becomes(choice, [100, 90, 70], Way::Around)
            && becomes(choice, [100, 90, 82], Way::Several)
            && becomes(choice, [100, 110, 200], Way::One);
    }

    #[test]
    fn short_results_do_not_go_around_the_caches() {
        let ways = Ways::default();
        let choice = choice(&ways, SHORT);
        let _ = becomes(choice, [100, 100, 10], Way::One) && becomes(choice, [100, 90, 10], Way::Several);
    }

    #[test]
    fn what_a_rank_has_itself_goes_as_one_stream_or_around_the_caches() {
        let ways = Ways::default();
        let choice = |received| ways.of(Collective::Allgather, Material::Own, received, LENGTH, None);
        assert_eq!(copy(choice(SHORT), 3000, |_| 100), 0, "there is one way");
        assert_eq!(choice(SHORT).turn(), Turn::Usual(Way::One));
        let _ = becomes(choice(LONG), [100, 10, 100], Way::One)
            && (cfg!(not(target_arch = "x86_64")) || becomes(choice(LONG), [100, 10, 50], Way::Around));
    }

    #[test]
    fn three_comparisons_are_chance() {
        let ways = Ways::default();
        let choice = choice(&ways, SHORT);
        for won in [true, true, true, false, false, false].into_iter().cycle().take(60) {
            let times = choice.candidates().map(|way| if (way == Way::Several) == won { 1 } else { 2 });
            choice.conclude(times.map(Duration::from_micros));
            assert_eq!(choice.usual(), Way::One);
        }
    }

    /// Times that vary by some percent.
    #[test]
    fn ways_that_are_alike_are_seldom_compared() {
        let ways = Ways::default();
        let mut random = 1_u64;
        let mut vary = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % 80
        };
        let timed = copy(choice(&ways, LONG), 100_000, |way| if way == Way::Around { 3000 } else { 1000 + vary() });
        assert!(timed <= 8 * 100_000 / 300, "{timed} of 100000");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn comparisons_come_more_seldom_and_in_each_order_as_often() {
        let ways = Ways::default();
        let choice = choice(&ways, LONG);
        let mut counts = [[0_usize; 2]; 2];
        let mut begun = Vec::new();
        for piece in 0..200_000 {
            let is_first = choice.record.kind.get() == 0;
            let Turn::Timed(way) = choice.turn() else { continue };
            choice.judge(Duration::from_nanos(100));
            if is_first {
                begun.push(piece);
            }
            if way != Way::One {
                counts[way as usize - 1][usize::from(!is_first)] += 1;
            }
        }
        let Some(last) = begun.last() else { return }; // a slow clock
        for (at, interval) in [(1, 256), (17, 512), (33, 1024), (49, 2048)] {
            let distance = begun[at] - begun[at - 1];
            assert!((interval - 8..=interval + 7).contains(&distance), "{interval}: {distance}");
        }
        assert!(*last >= 200_000 - 2055);
        // In a comparison four of the eight pieces go another way, in every second comparison the first piece too.
        for [first, later] in counts {
            assert!((first * 7).abs_diff(later) <= 16 && first * 4 <= begun.len() + 4, "{counts:?}");
        }
    }

    /// Calls whose pieces take longer and shorter in turn, for example if the first operand comes out of a slot and
    /// the second one was just combined.
    #[test]
    fn what_pieces_take_in_turn_does_not_tell_ways_apart() {
        for (costs, factor, way) in [
            (vec![1300, 1000], 83, Way::Several),
            (vec![1000, 1300], 83, Way::Several),
            (vec![1300, 1000], 120, Way::One),
            (vec![1000, 1300], 120, Way::One),
            (vec![1300, 1000], 100, Way::One),
            (vec![1000, 1300], 100, Way::One),
            (vec![1600, 1000, 1000, 1000], 83, Way::Several),
            (vec![1000, 1600, 1000, 1000], 120, Way::One),
            (vec![1300, 1000, 1000], 83, Way::Several),
        ] {
            let ways = Ways::default();
            let choice = choice(&ways, SHORT);
            let (mut timed, mut taken) = (0, 0);
            for piece in 0..100_000 {
                let taken_way = match choice.turn() {
                    Turn::Usual(way) => way,
                    Turn::Timed(way) => {
                        let nanos = costs[piece % costs.len()] * if way == Way::Several { factor } else { 100 } / 100;
                        choice.judge(Duration::from_nanos(nanos));
                        timed += 1;
                        continue;
                    }
                };
                taken += usize::from(taken_way == way);
            }
            assert!(timed == 0 || taken > 90_000, "{costs:?}, {factor}: {taken} of 100000");
        }
    }

    /// Pieces of two lengths in turn, for example of a message that is no multiple of its pieces.
    #[test]
    fn pieces_of_the_same_length_are_compared() {
        let ways = Ways::default();
        let lengths = [LENGTH, LENGTH + 4096];
        let mut timed = Vec::new();
        for piece in 0..3000 {
            let length = lengths[piece % 2];
            let choice = ways.of(Collective::Bcast, Material::Slot, SHORT, length, None);
            let Turn::Timed(way) = choice.turn() else { continue };
            // The longer ones take a third less.
            let nanos = if length == LENGTH { 300 } else { 200 } + if way == Way::Several { 0 } else { 30 };
            choice.judge(Duration::from_nanos(nanos));
            timed.push(length);
        }
        for comparison in timed.chunks_exact(Choice::ORDER.len()) {
            assert!(comparison.iter().all(|length| *length == comparison[0]), "{comparison:?}");
        }
        assert!(timed.is_empty() || choice(&ways, SHORT).usual() == Way::Several);
        assert!(timed.len() <= 3000 / 6, "{}", timed.len());
    }

    /// Lengths that do not recur teach nothing, and few of their pieces are timed.
    #[test]
    fn pieces_of_any_length_are_seldom_timed() {
        let ways = Ways::default();
        let mut timed = 0;
        for piece in 0..3200 {
            let choice = ways.of(Collective::Bcast, Material::Slot, SHORT, LENGTH + piece, None);
            if let Turn::Timed(_) = choice.turn() {
                choice.judge(Duration::from_nanos(100));
                timed += 1;
            }
        }
        assert!(timed <= 3200 / 56, "{timed}");
    }

    /// A program that goes from pieces of 20 KiB to longer ones. Pieces of 20 KiB have been compared so often that
    /// they hardly are any more.
    #[test]
    fn what_short_pieces_have_shown_delays_no_long_ones() {
        let ways = Ways::default();
        let of = |n| ways.of(Collective::Reduce, Material::Operands, SHORT, n, None);
        let timed = copy(of(20 << 10), 30_000, |_| 1000);
        let needed = (Choice::INTERVALS[0] as usize + Choice::ORDER.len()) * usize::from(Choice::ENOUGH);
        copy(of(32 << 10), needed, |way| if way == Way::Several { 900 } else { 1000 });
        assert!(timed == 0 || of(32 << 10).usual() == Way::Several && of(20 << 10).usual() == Way::One);
    }

    #[test]
    fn collectives_and_sizes_are_apart() {
        let ways = Ways::default();
        let at = |collective, mebibytes: usize, n| {
            std::ptr::from_ref(ways.of(collective, Material::Slot, Bytes(mebibytes << 20), n, None).record)
        };
        let of_long = |collective, mebibytes| at(collective, mebibytes, LENGTH);
        assert_eq!(of_long(Collective::Bcast, 0), of_long(Collective::Bcast, 1));
        assert_ne!(of_long(Collective::Bcast, 1), of_long(Collective::Bcast, 2));
        assert_ne!(of_long(Collective::Bcast, 2), of_long(Collective::Reduce, 2));
        assert_eq!(of_long(Collective::Bcast, 32), of_long(Collective::Bcast, 1000));
        assert_ne!(at(Collective::Bcast, 1, (32 << 10) - 64), at(Collective::Bcast, 1, 32 << 10));
        assert_eq!(at(Collective::Bcast, 2, Ways::SHORTEST), of_long(Collective::Bcast, 2));
    }
}
