//! By which way a rank copies long pieces to its own memory, or combines them there: as one stream or as several, through the caches or
//! around them.
//!
//! Processors fetch ahead within a page of memory, and of each stream only so many lines. Where a line takes long from the peer's
//! cache (150 ns between cores of one large die) [several](crate::kernel::streams) have more lines on their way and take a fifth less time; a
//! core alone copies as fast either way. A result that the caches can't hold is fetched from memory before it is overwritten, by stores that go
//! through them; streaming stores leave that out, and are up to 1.6 times as fast there, but take up to 2.2 times as long where the
//! caches hold it (docs/PERFORMANCE.md, "Tried"), whatever size these claim to have: those of virtual machines and of shared nodes hold
//! less. So a rank now and then takes four of eight pieces that are alike its usual way and four another, and goes by that, for each collective and
//! size apart. It is each rank's own affair.

use super::clock;
use crate::kernel::Kernel;
use crate::types::{Bytes, Collective};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

/// A way to copy or to combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Way {
    /// One stream through the caches.
    One,
    /// Several of them.
    Several,
    /// Several around the caches, also of what a rank has itself, where that is compared with one stream.
    Around,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::One, Self::Several, Self::Around];

    /// Its time counts so many times when ways are compared: what went around the caches has to be fetched by those who read it. Assumed,
    /// not measured.
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
    /// This way.
    Usual(Way),
    /// This way, and [`Choice::judge`] has to be told how long it took.
    Timed(Way),
}

/// The ways of one rank in one context.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// By collective, what the pieces are made of, and size: of the piece, or of longer results.
    habits: [[[Habit; Ways::SIZES]; Material::ALL.len()]; Collective::ALL.len()],
}

impl Ways {
    /// Shorter pieces are copied as one stream, and combined as [`Streams::Several`](crate::kernel::Streams::Several).
    pub const SHORTEST: usize = 16 << 10;
    /// Pieces of this length and more are apart from shorter ones, however short the result is.
    const LONG: usize = 32 << 10;
    const SIZES: usize = 5;

    /// For such pieces of `n` bytes, in calls of that collective with results of that length, wherever these end up; operands are combined by
    /// `kernel`.
    ///
    /// Results below 8 MiB are not tried around the caches: such pieces took less time by themselves and made calls slower, since what they stored was
    /// still on its way. libc copies what a rank has itself as fast as several streams do, or up to a tenth faster.
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
        // The length, and above it the kernel: operations take different times.
        let kernel = kernel.map_or(0, |kernel| kernel.run as usize as u64);
        let kind = (n as u64).wrapping_add(kernel << u32::BITS);
        Choice { tried, habit: &self.habits[collective as usize][material as usize][size], kind }
    }
}

/// What calls that are alike have shown. Relaxed throughout: only this rank uses it, one call at a time; these are atomics so that a
/// context may move between threads.
#[derive(Debug, Default)]
struct Habit {
    usual: AtomicU8,
    /// Pieces until the next comparison begins; set anew by each piece that is timed.
    untimed: AtomicU16,
    /// Comparisons since the usual way changed last: another one is compared each time, and the order changes.
    comparisons: AtomicU8,
    /// What the pieces of the comparison are that has begun; 0 where none has.
    kind: AtomicU64,
    /// How many of them were timed.
    timed: AtomicU8,
    /// What they took by either way: nanoseconds.
    took: [AtomicU64; 2],
    /// By way: comparisons that it won against the usual one, less those that it lost, but not below 0.
    evidence: [AtomicU8; Way::ALL.len()],
}

/// The ways that are tried for such calls, and what they have shown.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    tried: &'static [Way],
    habit: &'a Habit,
    /// What pieces that are compared have in common.
    kind: u64,
}

impl Choice<'_> {
    /// Which of both ways the pieces of a comparison take: each of every second and of every fourth ones as often, since calls have pieces that
    /// are dearer than others, at their places (Thue and Morse).
    const ORDER: [usize; 8] = [0, 1, 1, 0, 1, 0, 0, 1];
    /// At first after so many pieces a comparison begins, of the next ones that are alike: to read the clock takes as long as to copy a kilobyte, and
    /// a piece that is timed reads it twice. In long calls, which have many, pieces around the caches take up to twice as long where these hold them.
    const INTERVALS: [u16; 2] = [64, 256];
    /// After each so many comparisons the interval doubles, three times at most: a way that is slow for good costs some of each comparison.
    const COMPARISONS: u8 = 16;
    /// So much evidence makes a way the usual one.
    const ENOUGH: u8 = 4;
    /// Another way has to be so many times as fast, or ways that are alike would take turns.
    const MARGIN: f64 = 1.05;

    /// What to do with a piece of at least [`Ways::SHORTEST`] bytes.
    #[inline]
    pub fn turn(self) -> Turn {
        if self.tried.len() == 1 {
            return Turn::Usual(self.tried[0]);
        }
        let untimed = self.habit.untimed.load(Ordering::Relaxed);
        if untimed == 0 || self.habit.kind.load(Ordering::Relaxed) == self.kind {
            return self.take_part();
        }
        self.habit.untimed.store(untimed - 1, Ordering::Relaxed);
        Turn::Usual(self.usual())
    }

    fn usual(self) -> Way {
        Way::ALL[self.habit.usual.load(Ordering::Relaxed) as usize]
    }

    /// Both ways of the comparison that is due or has begun, in their order.
    fn candidates(self) -> [Way; 2] {
        let (comparisons, usual) = (self.habit.comparisons.load(Ordering::Relaxed) as usize, self.usual());
        let others = self.tried.len() - 1;
        let other = self.tried.iter().filter(|way| **way != usual).nth(comparisons % others).copied().unwrap_or(usual);
        let is_other_first = (comparisons / others).is_multiple_of(2);
        if is_other_first { [other, usual] } else { [usual, other] }
    }

    /// A piece that begins a comparison, or is like the ones of the comparison that has begun.
    #[cold]
    fn take_part(self) -> Turn {
        /// Where reading the clock takes longer nothing is compared: it is read oftener than for `Writes`, and about shorter times.
        const CLOCK: Duration = Duration::from_nanos(100);
        self.put_off_next();
        if clock::reading() > CLOCK {
            return Turn::Usual(self.usual());
        }
        if self.habit.kind.swap(self.kind, Ordering::Relaxed) != self.kind {
            self.habit.timed.store(0, Ordering::Relaxed);
            self.habit.took.iter().for_each(|took| took.store(0, Ordering::Relaxed));
        }
        Turn::Timed(self.candidates()[Self::ORDER[self.habit.timed.load(Ordering::Relaxed) as usize]])
    }

    /// From here on pieces go the usual way until a comparison is due: not always as many, or comparisons would fall into step with calls.
    fn put_off_next(self) {
        let comparisons = self.habit.comparisons.load(Ordering::Relaxed);
        let first = Self::INTERVALS[usize::from(self.tried.contains(&Way::Around))];
        let interval = first << (comparisons / Self::COMPARISONS).min(3);
        self.habit.untimed.store(interval - 1 - u16::from(comparisons % 8), Ordering::Relaxed);
    }

    /// After a piece that was timed: it took so long.
    #[cold]
    pub fn judge(self, took: Duration) {
        let Habit { kind, timed, took: sums, .. } = self.habit;
        let piece = timed.load(Ordering::Relaxed);
        let sum = &sums[Self::ORDER[piece as usize]];
        sum.store(sum.load(Ordering::Relaxed) + took.as_nanos() as u64, Ordering::Relaxed);
        timed.store(piece + 1, Ordering::Relaxed);
        if usize::from(piece) + 1 == Self::ORDER.len() {
            kind.store(0, Ordering::Relaxed);
            self.conclude(sums.each_ref().map(|sum| Duration::from_nanos(sum.load(Ordering::Relaxed))));
        }
    }

    /// After all pieces of a comparison, which took so long by both ways.
    fn conclude(self, took: [Duration; 2]) {
        /// Where counting goes on after the highest number, with the same way and order next.
        const AGAIN: u8 = 4 * Choice::COMPARISONS;
        let ways = self.candidates();
        let comparisons = &self.habit.comparisons;
        comparisons.store(comparisons.load(Ordering::Relaxed).checked_add(1).unwrap_or(AGAIN), Ordering::Relaxed);
        let usual_at = usize::from(ways[1] == self.usual());
        let cost = |way: usize| took[way].as_secs_f64() * ways[way].price();
        let other = ways[1 - usual_at];
        let evidence = &self.habit.evidence[other as usize];
        let before = evidence.load(Ordering::Relaxed);
        let has_won = Self::MARGIN * cost(1 - usual_at) < cost(usual_at);
        let now = if has_won { before + 1 } else { before.saturating_sub(1) };
        evidence.store(now, Ordering::Relaxed);
        if now >= Self::ENOUGH {
            self.habit.usual.store(other as u8, Ordering::Relaxed);
            comparisons.store(0, Ordering::Relaxed);
            self.habit.evidence.iter().for_each(|evidence| evidence.store(0, Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Bytes = Bytes(1 << 20);
    const LONG: Bytes = Bytes(16 << 20);
    /// Of pieces.
    const LENGTH: usize = 64 << 10;

    fn choice(ways: &Ways, received: Bytes) -> Choice<'_> {
        ways.of(Collective::Bcast, Material::Slot, received, LENGTH, None)
    }

    /// So many pieces that take so many nanoseconds by each way: how many were timed.
    fn copy(choice: Choice<'_>, times: usize, mut each: impl FnMut(Way) -> u64) -> usize {
        let is_timed = |_: &usize| {
            let Turn::Timed(way) = choice.turn() else { return false };
            choice.judge(Duration::from_nanos(each(way)));
            true
        };
        (0..times).filter(is_timed).count()
    }

    /// Some pieces, after which the usual way is that; `false` where the clock is too slow for any comparison.
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
            let is_first = choice.habit.kind.load(Ordering::Relaxed) == 0;
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
        // Of eight pieces four go another way, in every second comparison the first one.
        for [first, later] in counts {
            assert!((first * 7).abs_diff(later) <= 16 && first * 4 <= begun.len() + 4, "{counts:?}");
        }
    }

    /// Calls whose pieces are dear in turn, such as of a first operand out of a slot and a second one that was just combined.
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

    /// Pieces of two lengths in turn, as of a message that is no multiple of its pieces.
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

    /// Of lengths that do not come again nothing is learnt, and few are timed.
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

    /// A program that goes from pieces of 20 KiB to longer ones: the former have been compared so often that they hardly are any more.
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
            std::ptr::from_ref(ways.of(collective, Material::Slot, Bytes(mebibytes << 20), n, None).habit)
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
