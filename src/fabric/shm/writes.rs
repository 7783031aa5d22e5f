//! Whether a rank writes its slots through the caches or around them.
//!
//! Before a rank can write a line of a slot, it has to take the line from the caches of the peers that have read it.
//! Where these caches are close, this takes a few nanoseconds, and a reader finds in them what was written. Where they
//! are far apart (other dies, other sockets), some processors take as long for each line as for an access to memory,
//! and overlap little. One of these took 27 ns a line, and 1.6 with streaming stores; a reader took 3.5 to read from
//! memory what these wrote. A Zen 3 takes 11 to 17, and 2.8 (docs/PERFORMANCE.md, "Tried"). The faster way depends on
//! the processor, on who reads, and on where the ranks run, and may change while they do. So a rank times some of its
//! writes and goes by the result. If a program has used its caches for something else meanwhile, all writes are slow.
//! So slow writes count only if streaming stores are much faster at the same time. Each rank decides for itself:
//! readers find the same bytes.

use super::clock;
use super::trials::are_trials_held;
use crate::kernel::Probed;
use crate::sync::Private;
use crate::types::{Bytes, SlotStores};
use std::time::{Duration, Instant};

/// How one rank writes its slots of one context, and what it has measured.
#[derive(Debug, Default)]
pub(super) struct Writes {
    is_around: Private<bool>,
    /// Nothing is timed any more.
    is_fixed: Private<bool>,
    /// Writes until the next one that is timed, counted as [`Writes::UNTIMED`] says.
    untimed: Private<u32>,
    /// Timed writes that spoke for the other way, less those that spoke against it.
    evidence: Private<u32>,
    /// Picoseconds for each byte of the last timed bytes that went around the caches; 0 if there were none lately.
    around: Private<u64>,
    /// The next timed write goes around the caches, to measure `around`.
    compares: Private<bool>,
    /// When a write through the caches was last tried, or the way last changed: by [`clock::now`].
    looked: Private<u64>,
    /// Nanoseconds from one trial of a write through the caches to the next.
    interval: Private<u64>,
}

/// How to do a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// Through the caches.
    Through,
    /// Around the caches.
    Around,
    /// Timed, as [`Writes::timed`] says.
    Timed,
}

/// Which write is timed next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// After the usual number of writes.
    Usual,
    /// After more than that.
    Later,
    /// The next one, around the caches, to be compared with one through them.
    Around,
    /// The next one, through the caches.
    Through,
}

/// A timed write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    /// How much of it goes through the caches, first; the rest goes around them.
    pub through: usize,
    length: usize,
}

/// How long the parts of a timed write took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub through: Duration,
    pub around: Duration,
}

impl Writes {
    /// Shorter writes always go through the caches: what they would save does not pay for a reader's way to memory.
    pub const SHORTEST: usize = 1024;
    /// How many writes are between two that are timed, while nothing speaks against their way. For this a write through
    /// the caches counts once more for each [`Self::COUNTED`] of its bytes: to time a long one takes little of its
    /// time, and a program makes few of them in the time for which cores stay close or far.
    const UNTIMED: u32 = 31;
    const COUNTED: usize = 32 << 10;
    /// As `UNTIMED`, after a write that was slow but not much slower than around the caches: to compare the two costs
    /// more than to time one.
    const ALIKE: u32 = 8 * Self::UNTIMED;
    /// This much evidence turns a rank away from the caches: a rank that lost its core looks slow too, but not so
    /// often.
    const SLOW: u32 = 8;
    /// This much evidence turns a rank back to the caches.
    const FAST: u32 = 3;
    /// How much of a write is tried through the caches while writes go around them: enough to be timed, little to
    /// lose.
    const TRIAL: usize = 2048;
    /// A write through the caches counts as slow if it takes more than this many times as long as one around them.
    const MUCH: f64 = 2.5;
    /// Shortest and longest interval between trials. Trials are so rare that they don't matter, and become rarer while
    /// turning back proves wrong.
    const INTERVALS: [u64; 2] = [1_000_000, 256_000_000];

    /// Nothing is timed where reading the clock takes this long: each timed write reads it three times, to time a few
    /// hundred nanoseconds.
    const CLOCK: Duration = Duration::from_nanos(200);

    /// Whether accesses to slots may be timed, and reading the clock takes little of that time.
    pub fn can_time() -> bool {
        are_trials_held() && clock::reading() < Self::CLOCK
    }

    /// Fixes the way, unless `stores` is `Auto`, trials are held, and this machine has two ways and a clock to compare
    /// them.
    pub fn set(&self, stores: SlotStores) {
        let can_compare = cfg!(target_arch = "x86_64") && Self::can_time();
        self.is_fixed.set(stores != SlotStores::Auto || !can_compare);
        self.is_around.set(stores == SlotStores::Streaming);
    }

    /// Whether writes go around the caches.
    #[inline]
    pub fn is_around(&self) -> bool {
        self.is_around.get()
    }

    /// How to do a write of `n` bytes, which follows.
    #[inline(always)]
    pub fn course(&self, n: usize) -> Course {
        let course = self.course_of_next(n);
        if n >= Self::SHORTEST && course != Course::Timed {
            let counts = if course == Course::Through { (1 + n / Self::COUNTED) as u32 } else { 1 };
            self.untimed.set(self.untimed.get().saturating_sub(counts));
        }
        course
    }

    /// How a write of `n` bytes would be done if it were the next one.
    #[inline(always)]
    pub fn course_of_next(&self, n: usize) -> Course {
        if n < Self::SHORTEST {
            return Course::Through;
        }
        if self.untimed.get() == 0 && !self.is_fixed.get() {
            return Course::Timed;
        }
        if self.is_around() { Course::Around } else { Course::Through }
    }

    /// How a timed write of `n` bytes is split into a part through the caches and a part around them.
    #[cold]
    pub fn timed(&self, n: usize) -> Timed {
        let through = if !self.is_around() {
            if self.compares.get() { 0 } else { n }
        } else {
            let due = self.looked.get() + self.interval.get();
            // A trial is compared with streaming stores, which the rest of a short write is too short to time.
            let is_known = self.around.get() != 0;
            if is_known && clock::now() >= due { Self::TRIAL.min(n) } else { 0 }
        };
        Timed { through, length: n }
    }

    /// Judges a timed write, which ended at `now`, and decides which one is timed next.
    #[cold]
    pub fn end(&self, timed: Timed, took: Times, now: Instant) {
        let rest = timed.length - timed.through;
        if rest >= Self::SHORTEST {
            self.around.set(picoseconds_each(took.around, rest).max(1));
        }
        let is_slow = |around: u64| picoseconds_each(took.through, timed.through) as f64 > Self::MUCH * around as f64;
        let next = match (self.is_around(), timed.through) {
            (true, 0) => Next::Usual,
            (true, _) => {
                // Slow writes go on to count as slow unless a trial is clearly fast: a trial is short, and other
                // writes are under way.
                self.judge(is_slow(self.around.get()), clock::at(now));
                Next::Usual
            }
            // The time of streaming stores is known now.
            (false, 0) => Next::Through,
            (false, n) if took.through <= dear(Bytes(n)) => {
                self.around.set(0);
                self.judge(false, clock::at(now));
                Next::Usual
            }
            // The time of streaming stores is used only once: what they took at another time says nothing.
            (false, _) => match self.around.replace(0) {
                0 => Next::Around,
                around => {
                    self.judge(is_slow(around), clock::at(now));
                    match is_slow(around) {
                        true if !self.is_around() => Next::Around,
                        true => Next::Usual,
                        false => Next::Later,
                    }
                }
            },
        };
        self.compares.set(next == Next::Around);
        let untimed = match next {
            Next::Usual => Self::UNTIMED,
            Next::Later => Self::ALIKE,
            Next::Around | Next::Through => 0,
        };
        self.untimed.set(untimed);
    }

    /// Notes whether a write through the caches was slow, at `now`.
    fn judge(&self, is_slow: bool, now: u64) {
        let evidence = self.evidence.get();
        let is_around = self.is_around();
        let speaks_for_other = is_slow != is_around;
        let evidence = if speaks_for_other { evidence + 1 } else { evidence.saturating_sub(1) };
        let looked = self.looked.get();
        let turns = evidence >= if is_around { Self::FAST } else { Self::SLOW };
        if is_around || turns {
            self.looked.set(now);
        }
        if !turns {
            self.evidence.set(evidence);
            return;
        }
        self.evidence.set(0);
        self.is_around.set(!is_around);
        if !is_around {
            let interval = self.interval.get();
            let was_wrong = interval > 0 && now - looked < 16 * interval;
            self.interval.set(next_time(interval, was_wrong, Self::INTERVALS));
        }
    }
}

/// A write of `n` bytes through the caches that takes longer is suspect, so that a write around them is timed too. A
/// copy from memory to memory, writing and reading together, takes two thirds of this; a write to lines that a near
/// core has read takes less too. If a far core has the lines, a Zen 3 takes twice as long as for a copy, which is five
/// times as long as around the caches.
fn dear(n: Bytes) -> Duration {
    const TIMES: f64 = 1.6;
    /// Nanoseconds until the first line is there.
    const LATENCY: f64 = 50.0;
    as_copies(n, TIMES, LATENCY)
}

/// So many `times` as long as copying `n` bytes from memory to memory takes, and `latency` nanoseconds.
pub(super) fn as_copies(n: Bytes, times: f64, latency: f64) -> Duration {
    Duration::from_nanos((n.0 as f64 * times / Probed::in_use().copy.memory + latency) as u64)
}

/// How long to stay with a way before the other one is tried again: twice the `last` time if trying it `was_wrong`, at
/// most the longest, else the shortest.
pub(super) fn next_time(last: u64, was_wrong: bool, [shortest, longest]: [u64; 2]) -> u64 {
    if was_wrong { (2 * last).min(longest) } else { shortest }
}

fn picoseconds_each(time: Duration, bytes: usize) -> u64 {
    1000 * time.as_nanos() as u64 / bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges writes that are `gap` nanoseconds apart. Returns how many it took until writes went the other way.
    fn until_turned(writes: &Writes, is_slow: bool, now: &mut u64, gap: u64) -> Option<usize> {
        let before = writes.is_around();
        (1..=100).find(|_| {
            *now += gap;
            writes.judge(is_slow, *now);
            writes.is_around() != before
        })
    }

    #[test]
    fn slow_writes_turn_away_from_the_caches_and_fast_trials_back() {
        let (writes, mut now) = (Writes::default(), 0);
        assert_eq!(until_turned(&writes, false, &mut now, 10), None);
        assert_eq!(until_turned(&writes, true, &mut now, 10), Some(8));
        assert_eq!(until_turned(&writes, true, &mut now, 10), None);
        assert_eq!(until_turned(&writes, false, &mut now, 10), Some(3));
    }

    #[test]
    fn a_slow_write_now_and_then_means_nothing() {
        let writes = Writes::default();
        for at in 0..1000 {
            writes.judge(at % 3 == 0, at);
            assert!(!writes.is_around());
        }
    }

    #[test]
    fn trials_come_more_seldom_while_turning_back_proves_wrong() {
        let (writes, mut now) = (Writes::default(), 0);
        let mut intervals = Vec::new();
        for _ in 0..12 {
            until_turned(&writes, true, &mut now, 1000).expect("turned away");
            let interval = writes.interval.get();
            intervals.push(interval);
            until_turned(&writes, false, &mut now, interval).expect("turned back");
        }
        assert_eq!(intervals[..3], [1_000_000, 2_000_000, 4_000_000]);
        assert_eq!(intervals[11], 256_000_000);
        // The caches served well for a long time.
        now += 100_000_000_000;
        until_turned(&writes, true, &mut now, 1000).expect("turned away");
        assert_eq!(writes.interval.get(), 1_000_000);
    }

    /// Does `times` writes of `n` bytes, which take `nanoseconds` through the caches or around them. Returns how many
    /// were timed.
    fn write(writes: &Writes, times: usize, n: usize, nanoseconds: [u64; 2]) -> usize {
        let is_timed = |_: &usize| {
            let is_timed = writes.course(n) == Course::Timed;
            if is_timed {
                let timed = writes.timed(n);
                let part = |bytes: usize, whole: u64| Duration::from_nanos(whole * bytes as u64 / n as u64);
                let through = part(timed.through, nanoseconds[0]);
                writes.end(timed, Times { through, around: part(n - timed.through, nanoseconds[1]) }, Instant::now());
            }
            is_timed
        };
        (0..times).filter(is_timed).count()
    }

    #[test]
    fn few_writes_are_timed_and_none_where_the_way_is_set() {
        let writes = Writes::default();
        let timed = |n| write(&writes, 320, n, [0, 0]);
        assert_eq!((timed(Writes::SHORTEST - 1), timed(4096), timed(256 << 10)), (0, 10, 64));
        writes.set(SlotStores::Streaming);
        assert_eq!((timed(4096), writes.course(4096), writes.course(100)), (0, Course::Around, Course::Through));
        writes.set(SlotStores::Cached);
        assert_eq!((timed(4096), writes.course(4096)), (0, Course::Through));
        writes.set(SlotStores::Auto);
        assert!(clock::reading() >= Writes::CLOCK || timed(4096) > 0);
    }

    /// 4 KiB, each line of which takes at least a hundred nanoseconds: 6.4 µs.
    #[test]
    fn slow_writes_count_only_where_it_is_much_faster_around_the_caches() {
        let writes = Writes::default();
        write(&writes, 1000, 4096, [6400, 6400]);
        write(&writes, 1000, 4096, [6400, 3000]);
        assert!(!writes.is_around(), "all caches are cold");
        write(&writes, 100, 4096, [6400, 400]);
        assert!(writes.is_around(), "caches are far");
        writes.looked.set(0);
        writes.interval.set(0);
        write(&writes, 1000, 4096, [6400, 400]);
        assert!(writes.is_around(), "they are still");
        write(&writes, 1000, 4096, [6400, 4000]);
        assert!(!writes.is_around(), "only cold");
    }

    const PIECE: usize = 32 << 10;

    /// Does `times` writes of a piece. `copies`: how many times as long as a copy in memory they take through the
    /// caches, and around them.
    fn write_pieces(writes: &Writes, times: usize, copies: [f64; 2]) {
        let copy = PIECE as f64 / Probed::in_use().copy.memory;
        write(writes, times, PIECE, copies.map(|copies| (copies * copy) as u64));
    }

    /// Which writes turn a rank away from the caches, by how many times as long as a copy in memory they take. A Zen 3
    /// has 1.6 to 2.4 for lines that a far core has, and 0.4 around the caches.
    #[test]
    fn writes_may_be_slow_that_take_twice_as_long_as_a_copy_in_memory() {
        let turns = |copies| {
            let writes = Writes::default();
            write_pieces(&writes, 1000, copies);
            writes.is_around()
        };
        assert!(turns([1.8, 0.4]) && turns([2.4, 0.4]), "far");
        assert!(!turns([0.4, 0.1]) && !turns([1.4, 0.3]), "near: it is not even compared");
        assert!(!turns([2.0, 1.0]), "the caches are cold");
    }

    /// Each write that is timed anyhow makes two more timed.
    #[test]
    fn writes_that_are_slow_either_way_are_seldom_timed() {
        let writes = Writes::default();
        let timed = write(&writes, 10 * (3 + Writes::ALIKE as usize), 4096, [6400, 6400]);
        assert_eq!((timed, writes.is_around()), (30, false));
    }

    /// In a short trial lines seem less slow than in long pieces: its last stores are still under way when it ends.
    #[test]
    fn what_is_only_just_slow_does_not_turn_to_and_fro() {
        let writes = Writes::default();
        write_pieces(&writes, 1000, [1.7, 0.4]);
        assert!(writes.is_around());
        for _ in 0..100 {
            writes.looked.set(0);
            writes.interval.set(0);
            write_pieces(&writes, 32, [1.2, 0.4]);
            assert!(writes.is_around());
        }
    }
}
