//! Whether a rank that has long data for others lends them its memory, out of which the system copies, or lays the data out in slots.
//!
//! In slots data are copied twice, by loops that the processor knows well; out of memory once, by a system call that finds and pins each
//! page. Which is faster depends on how long the data are and what the caches hold, on what the system call takes, and on the
//! program: receivers find data in their own caches that did not change since the last call. On an Intel Xeon a Scatter of 256 KiB between two
//! ranks takes 15 us through slots and 26 out of memory if data change, 20 and 9 if they do not (docs/PERFORMANCE.md, "Tried"). So both are
//! tried, for each collective and length. Peers see what a rank lends, so it is its own affair. All ranks of a communicator count its calls
//! alike, so all try the same at the same time.

use super::trials::{Schedule, Trials};
use super::writes::nanoseconds;
use crate::types::{Bytes, Collective};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The collectives in which ranks lend memory.
const COLLECTIVES: [Collective; 3] = [Collective::Bcast, Collective::Allgather, Collective::Scatter];
/// Lengths from a power of two to the next one; the first and the last reach further.
const CLASSES: [u32; 2] = [14, 23];

/// The habits of one rank on one context. Relaxed throughout: as [`Trials`].
#[derive(Debug, Default)]
pub(super) struct Loans {
    habits: [[Habit; (CLASSES[1] - CLASSES[0]) as usize + 1]; COLLECTIVES.len()],
}

impl Loans {
    /// Whether data of `n` bytes are lent in the call that begins; `at_first` says so until something was found. To be asked once in a call.
    pub fn lends(&self, collective: Collective, n: Bytes, at_first: bool) -> bool {
        let [least, most] = CLASSES;
        let class = n.0.max(1).ilog2().clamp(least, most) - least;
        let row = COLLECTIVES.iter().position(|one| *one == collective);
        row.is_some_and(|row| self.habits[row][class as usize].lends(n, at_first, || nanoseconds(Instant::now())))
    }
}

/// What is known of calls of one class. The other way of its trials is to lend.
#[derive(Debug, Default)]
struct Habit {
    calls: AtomicU64,
    trials: Trials<LongCalls>,
}

impl Habit {
    /// Calls before the first trial.
    const USUAL: u64 = 8;
    /// Calls that are farther apart than this long for each byte tell nothing, in picoseconds.
    const FAR_APART: u64 = 20_000;

    fn lends(&self, n: Bytes, at_first: bool, clock: impl FnOnce() -> u64) -> bool {
        let before = self.calls.load(Ordering::Relaxed);
        if before == 0 {
            self.trials.begin(at_first);
        }
        self.calls.store(before + 1, Ordering::Relaxed);
        let number = LongCalls::CALLS - Self::USUAL + before;
        if !LongCalls::has(number) {
            return self.trials.is_habit_other();
        }
        self.trials.note(number, Self::FAR_APART.saturating_mul(n.0 as u64), clock);
        LongCalls::is_other(number)
    }
}

/// Programs make few long calls, and each takes long beside what a clock shows.
#[derive(Debug)]
struct LongCalls;

impl Schedule for LongCalls {
    /// The first of a block finds what those before have left in the caches; the two next ones are timed, from their beginnings.
    const BLOCK: u64 = 4;
    const UNTIMED: u64 = 1;
    const WINDOW: u64 = 1;
    const BLOCKS: u64 = 8;
    /// 0.8 % of all calls are tried, half of them the slower way.
    const EVERY: u64 = 1024;
    const GAIN: f64 = 0.95;
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: Bytes = Bytes(256 << 10);

    /// So many calls of `n` bytes, which take so many nanoseconds out of slots, and out of memory; how many were lent.
    fn call(habit: &Habit, times: u64, n: Bytes, at_first: bool, [slots, memory]: [u64; 2]) -> u64 {
        let mut now = 0;
        let lent = (0..times).map(|_| {
            let lends = habit.lends(n, at_first, || now);
            now += if lends { memory } else { slots };
            u64::from(lends)
        });
        lent.sum()
    }

    const TRIED: u64 = LongCalls::CALLS;

    #[test]
    fn memory_is_lent_where_that_is_faster() {
        for at_first in [false, true] {
            let habit = Habit::default();
            let before = if at_first { Habit::USUAL } else { 0 };
            assert_eq!(call(&habit, Habit::USUAL + TRIED, N, at_first, [20_000, 9000]), before + TRIED / 2);
            assert_eq!(call(&habit, 100, N, at_first, [20_000, 9000]), 100);
        }
    }

    #[test]
    fn slots_are_used_where_that_is_faster_and_little_else_is_tried() {
        for at_first in [false, true] {
            let habit = Habit::default();
            call(&habit, Habit::USUAL + TRIED, N, at_first, [15_000, 26_000]);
            let lent = call(&habit, LongCalls::PERIOD, N, at_first, [15_000, 26_000]);
            assert_eq!(lent, TRIED / 2, "once in a period");
        }
    }

    #[test]
    fn what_makes_no_difference_changes_no_habit() {
        for at_first in [false, true] {
            let habit = Habit::default();
            call(&habit, Habit::USUAL + TRIED, N, at_first, [10_000, 10_200]);
            assert_eq!(call(&habit, 100, N, at_first, [10_000, 10_200]), if at_first { 100 } else { 0 });
            // Far apart, so that it hardly counts.
            let habit = Habit::default();
            call(&habit, Habit::USUAL + TRIED, N, at_first, [10_000_000, 20_000_000]);
            assert_eq!(call(&habit, 100, N, at_first, [1, 1]), if at_first { 100 } else { 0 });
        }
    }

    /// A program whose data rest for a while, and then change.
    #[test]
    fn habits_follow_the_program() {
        let habit = Habit::default();
        let (resting, changing) = ([20_000, 9000], [15_000, 26_000]);
        call(&habit, 2 * LongCalls::PERIOD, N, false, resting);
        assert!(habit.trials.is_habit_other());
        call(&habit, 4 * LongCalls::PERIOD, N, false, changing);
        assert!(!habit.trials.is_habit_other());
    }

    #[test]
    fn collectives_and_lengths_have_habits_of_their_own() {
        let loans = Loans::default();
        let lends = |collective, kib: usize, at_first| loans.lends(collective, Bytes(kib << 10), at_first);
        assert!(lends(Collective::Scatter, 64, true) && !lends(Collective::Bcast, 64, false));
        assert!(lends(Collective::Scatter, 127, false), "as those before");
        assert!(!lends(Collective::Scatter, 128, false));
        assert!(
            lends(Collective::Allgather, 1 << 20, true) && lends(Collective::Allgather, 8 << 10, false),
            "8 MiB and more"
        );
        assert!(lends(Collective::Allgather, 0, true) && lends(Collective::Allgather, 16, false));
    }

    /// All ranks count alike, so all try the same: blocks, and not single calls.
    #[test]
    fn calls_are_tried_in_blocks() {
        let habit = Habit::default();
        call(&habit, Habit::USUAL, N, false, [1, 1]);
        let ways: Vec<u64> = (0..TRIED).map(|_| call(&habit, 1, N, false, [1, 1])).collect();
        let blocks: Vec<&[u64]> = ways.chunks(LongCalls::BLOCK as usize).collect();
        assert!(blocks.iter().all(|block| block.iter().all(|way| *way == block[0])));
        assert_eq!(blocks.iter().map(|block| block[0]).sum::<u64>(), LongCalls::BLOCKS / 2);
    }
}
