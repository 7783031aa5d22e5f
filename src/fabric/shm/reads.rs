//! Whether a rank that reads peers' slots takes the lines over.
//!
//! A line that several caches hold has to be given up by all of them before its writer can write it again. So on some
//! processors it helps if each reader makes the lines that it reads its own: a Zen 4 with close cores writes lines in
//! half the time, and ranks gain a tenth. Where a few ranks read on few processors, that is; where many do, lines go
//! from one to the next. On a Zen 5, and on the Intel processor that was measured, ranks lose a tenth and more.
//!
//! Where cores are far apart, a Zen 4 loses too: a reader that takes lines over takes two to three times as long as one
//! that shares them, and longer than a copy in memory. So a rank times some of its long reads. If many are slow, it
//! shares lines for a while, and then tries again (docs/PERFORMANCE.md, "Tried"). Then writes, too, have to take lines
//! from caches that share them, are slow enough for [`writes`](super::writes) to notice, and go around the caches.
//! Each rank decides for itself: it finds the same bytes either way.

use super::clock;
use super::writes::{Writes, as_copies, next_time};
use crate::kernel::host::{self, Design};
use crate::sync::Private;
use crate::types::{Bytes, SlotReads};
use std::time::{Duration, Instant};

/// How one rank reads slots of one context.
#[derive(Debug)]
pub(super) struct Reads {
    /// Whether lines are taken over where that is not slow.
    takes: Private<bool>,
    /// Whether reads are timed, and rests made.
    is_timing: Private<bool>,
    /// Bytes to read until the next read that is timed.
    untimed: Private<u64>,
    /// Reads that were timed.
    timed: Private<u32>,
    rests: &'static Rests,
}

/// When a process shares lines for a while, although it would take them over, and what its reads have shown. All
/// contexts have this in common, as hosts on which lines are taken over have two cores. Threads of one process may lose
/// each other's evidence, which is no worse than to time fewer reads.
#[derive(Debug, Default)]
struct Rests {
    is_under_way: Private<bool>,
    /// Timed reads that were slow, less others.
    evidence: Private<u32>,
    /// When the rest under way ends, or the last one ended: by [`clock::now`].
    until: Private<u64>,
    /// Nanoseconds of the last rest.
    length: Private<u64>,
    /// Bytes to read until the rest under way looks at the clock, by whatever context: a communicator that is freed
    /// soon may read less.
    unlooked: Private<u64>,
}

static RESTS: Rests = Rests {
    is_under_way: Private::ZERO,
    evidence: Private::ZERO,
    until: Private::ZERO,
    length: Private::ZERO,
    unlooked: Private::ZERO,
};

impl Default for Reads {
    fn default() -> Self {
        Self {
            takes: Private::new(false),
            is_timing: Private::new(false),
            untimed: Private::new(0),
            timed: Private::new(0),
            rests: &RESTS,
        }
    }
}

/// Whether a rank takes over the lines of slots that it reads, by the setting `reads`. `ranks` share the communicator
/// on a host with `processors` processors of `design`.
fn is_taking(reads: SlotReads, ranks: usize, processors: i64, design: Design) -> bool {
    const PROCESSORS: i64 = 2;
    /// 5 ranks gain a little, 8 lose a little (docs/PERFORMANCE.md, "Tried").
    const RANKS: usize = 6;
    match reads {
        SlotReads::Auto => ranks <= RANKS && processors <= PROCESSORS && design == Design::Zen4,
        SlotReads::Sharing => false,
        SlotReads::Taking => true,
    }
}

impl Reads {
    /// Only reads of this length and more are timed: the way to the first line is a small part of their time.
    pub const LONG: usize = 16 << 10;
    /// Bytes from one timed read to the next: timing takes as long as reading a kilobyte or two.
    const UNTIMED: u64 = 128 << 10;
    /// Bytes that are read before the first timed read. First reads of a slot bring its pages, and take long.
    const FIRST: u64 = 4 << 20;

    /// Sets how this rank reads from here on, in a communicator that has `ranks` ranks on this node.
    pub fn set(&self, reads: SlotReads, ranks: usize) {
        self.takes.set(is_taking(reads, ranks, host::processors(), Design::of_this_host()));
        self.is_timing.set(reads == SlotReads::Auto && Writes::can_time());
        self.untimed.set(Self::FIRST);
    }

    /// Whether this rank takes lines over at all.
    #[inline]
    pub fn may_take(&self) -> bool {
        self.takes.get()
    }

    /// Whether a read of `n` bytes, which follows, takes lines over, on a rank that [may](Self::may_take).
    #[inline]
    pub fn take_lines(&self, n: usize) -> bool {
        self.take_lines_by(clock::now, n)
    }

    #[inline]
    fn take_lines_by(&self, clock: impl FnOnce() -> u64, n: usize) -> bool {
        !self.rests.is_under_way.get() || self.takes_in_rest(clock, n)
    }

    /// Whether a read takes lines over while a rest is under way. It does if nothing is timed here, or if the rest is
    /// over, which ends it.
    #[cold]
    fn takes_in_rest(&self, clock: impl FnOnce() -> u64, n: usize) -> bool {
        !self.is_timing.get() || self.rests.is_over(clock, n)
    }

    /// Whether a read of `n` bytes that takes lines over, and follows now, is to be timed for [`Self::note`].
    #[inline]
    pub fn is_timed(&self, n: usize) -> bool {
        n >= Self::LONG && self.is_timing.get() && self.is_due(n)
    }

    /// Notes that a timed read of `n` bytes took `took`, until `ended`.
    #[cold]
    pub fn note(&self, n: usize, took: Duration, ended: Instant) {
        self.rests.judge(took > dear(Bytes(n)), clock::at(ended));
    }

    fn is_due(&self, n: usize) -> bool {
        let n = n as u64;
        let is_due = pass(&self.untimed, n);
        if is_due {
            // If there are reads in between, every other time there is one more. Otherwise all timed reads might be of
            // the same peer.
            let timed = self.timed.get();
            let more = if n < Self::UNTIMED { u64::from(timed % 2) * n } else { 0 };
            self.timed.set(timed.wrapping_add(1));
            self.untimed.set(Self::UNTIMED + more);
        }
        is_due
    }
}

impl Rests {
    /// This much evidence begins a rest. On 3 ranks whose cores are far apart more than half of the reads were slow;
    /// what a core-mate has written is near all the same. Where cores are close one in eight was: the rank lost its
    /// core meanwhile.
    const ENOUGH: u32 = 8;
    /// The evidence after a rest.
    const DOUBT: u32 = 4;
    /// Shortest and longest rest, in nanoseconds. Meanwhile writes have time to go around the caches. Rests grow while
    /// going back proves wrong.
    const LENGTHS: [u64; 2] = [64_000_000, 1_024_000_000];

    /// Notes at `now` whether a read was slow. May begin a rest.
    fn judge(&self, is_slow: bool, now: u64) {
        let before = self.evidence.get();
        let evidence = if is_slow { before + 1 } else { before.saturating_sub(1) };
        self.evidence.set(evidence);
        if evidence >= Self::ENOUGH {
            self.begin(now);
        }
    }

    fn begin(&self, now: u64) {
        let (last, until) = (self.length.get(), self.until.get());
        let length = next_time(last, now.saturating_sub(until) < last, Self::LENGTHS);
        self.length.set(length);
        self.until.set(now + length);
        self.unlooked.set(Reads::UNTIMED);
        self.is_under_way.set(true);
    }

    /// Whether the rest under way is over at a read of `n` bytes, which ends it. Now and then it looks at the clock.
    fn is_over(&self, clock: impl FnOnce() -> u64, n: usize) -> bool {
        if !pass(&self.unlooked, n as u64) {
            return false;
        }
        self.unlooked.set(Reads::UNTIMED);
        let is_over = clock() >= self.until.get();
        if is_over {
            self.evidence.set(Self::DOUBT);
            self.is_under_way.set(false);
        }
        is_over
    }
}

/// Takes `n` off what is `left`. Returns whether nothing is left.
fn pass(left: &Private<u64>, n: u64) -> bool {
    let rest = left.get().saturating_sub(n);
    left.set(rest);
    rest == 0
}

/// A read of `n` bytes that takes lines over is slow if it takes longer than this: than a copy in memory. A Zen 4 takes
/// half as long if a near core has the lines, and up to twice as long if a far one has them. So is a read into memory
/// that has to be given its pages first, wherever cores are; then rests are in vain, and cost what taking lines over
/// would have gained.
fn dear(n: Bytes) -> Duration {
    /// Nanoseconds until the first line is there.
    const LATENCY: f64 = 100.0;
    as_copies(n, 1.0, LATENCY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Probed;

    /// Reads `times` times `n` bytes, every `gap` nanoseconds; each read takes as many times as long as a copy in
    /// memory as `slow` says. Returns how many reads took lines over, and how many of them were timed.
    fn read(reads: &Reads, times: usize, n: usize, now: &mut u64, gap: u64, slow: impl Fn(usize) -> f64) -> [usize; 2] {
        let mut counts = [0; 2];
        for at in 0..times {
            *now += gap;
            let takes = reads.take_lines_by(|| *now, n);
            let is_timed = takes && reads.is_timed(n);
            if is_timed {
                let copies = n as f64 * slow(at) / Probed::in_use().copy.memory;
                reads.rests.judge(Duration::from_nanos(copies as u64) > dear(Bytes(n)), *now);
            }
            counts[0] += usize::from(takes);
            counts[1] += usize::from(is_timed);
        }
        counts
    }

    fn taking() -> Reads {
        taking_with(Box::leak(Box::new(Rests::default())))
    }

    fn taking_with(rests: &'static Rests) -> Reads {
        Reads { takes: Private::new(true), is_timing: Private::new(true), rests, ..Reads::default() }
    }

    #[test]
    fn few_ranks_on_few_processors_take_lines_over_where_that_was_found_to_be_faster() {
        use Design::{Intel, Other, Zen4, Zen5};
        let auto = |ranks, processors, design| is_taking(SlotReads::Auto, ranks, processors, design);
        assert!(auto(2, 2, Zen4) && auto(6, 2, Zen4) && !auto(7, 2, Zen4) && !auto(2, 3, Zen4));
        for design in [Intel, Other, Zen4, Zen5] {
            assert_eq!(auto(4, 2, design), design == Zen4, "{design:?}");
            assert!(is_taking(SlotReads::Taking, 64, 64, design) && !is_taking(SlotReads::Sharing, 2, 2, design));
        }
    }

    #[test]
    fn what_the_user_has_set_is_not_timed() {
        let reads = Reads::default();
        reads.set(SlotReads::Taking, 3);
        assert!(reads.may_take() && reads.take_lines(4096) && !(0..100).any(|_| reads.is_timed(1 << 20)));
        reads.set(SlotReads::Sharing, 3);
        assert!(!reads.may_take());
    }

    #[test]
    fn long_reads_are_timed_every_so_many_bytes() {
        let timed = |n| read(&taking(), 320, n, &mut 0, 1000, |_| 0.4)[1];
        let counts = [Reads::LONG - 1, Reads::LONG, 64 << 10, 1 << 20].map(timed);
        assert!(counts[0] == 0 && (36..=40).contains(&counts[1]) && (120..=160).contains(&counts[2]), "{counts:?}");
        assert_eq!(counts[3], 320);
    }

    /// A rank whose core-mate writes every third message finds a third of them near.
    #[test]
    fn readers_of_far_caches_share_lines_for_longer_and_longer() {
        const LONG: usize = 256 << 10;
        let (reads, mut now) = (taking(), 0);
        let mixed = |at: usize| if at.is_multiple_of(3) { 0.4 } else { 1.8 };
        let [first, _] = read(&reads, 100, LONG, &mut now, 10_000, mixed);
        assert!((16..40).contains(&first), "{first}");
        let [then, _] = read(&reads, 200_000, LONG, &mut now, 10_000, mixed);
        assert!(then < 200, "{then} of 200000");
        assert_eq!(reads.rests.length.get(), Rests::LENGTHS[1]);
        let [near, _] = read(&reads, 200_000, LONG, &mut now, 10_000, |_| 0.4);
        assert!(near > 90_000, "{near} of 200000");
    }

    /// Other communicators are made, and freed after a few reads.
    #[test]
    fn a_rest_ends_in_whatever_communicator_reads() {
        let (reads, mut now) = (taking(), 0);
        (0..Rests::ENOUGH).for_each(|_| reads.rests.judge(true, now));
        assert!(!reads.take_lines_by(|| now, 4096));
        let takes = |_| {
            now += 1_000_000;
            let of_new_communicator = Reads { untimed: Private::new(Reads::FIRST), ..taking_with(reads.rests) };
            of_new_communicator.take_lines_by(|| now, 4096)
        };
        assert!((0..200).any(takes));
    }

    /// Two peers write in turn, one of them on a far core.
    #[test]
    fn reads_of_all_peers_are_timed() {
        for n in [16 << 10, 32 << 10, 64 << 10] {
            let (reads, mut timed) = (taking(), [0; 2]);
            for at in 0..1000 {
                timed[at % 2] += usize::from(reads.is_timed(n));
            }
            assert!(timed[0].abs_diff(timed[1]) <= 2, "{n} bytes: {timed:?}");
        }
    }

    #[test]
    fn a_slow_read_now_and_then_means_nothing() {
        let (reads, mut now) = (taking(), 0);
        let [taken, _] = read(&reads, 10_000, 256 << 10, &mut now, 10_000, |at| if at % 5 < 2 { 9.0 } else { 0.4 });
        assert_eq!(taken, 10_000);
    }
}
