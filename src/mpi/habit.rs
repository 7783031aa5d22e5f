//! Whether what was found out of a datatype is worth keeping, with it or for others.

use std::sync::atomic::{AtomicU32, Ordering};

/// Some programs make a datatype for each call and free it after that. To make an attribute of it, and to give that back, takes as long as
/// to look at most datatypes. So it is left out once enough have been kept in vain, but for some that tell whether that is still so. The
/// same goes for what is remembered for datatypes that are made alike.
#[derive(Debug, Default)]
pub(super) struct Habit {
    /// How many were, one after the other.
    in_vain: AtomicU32,
    /// How many could have been kept since.
    passed: AtomicU32,
}

// Relaxed: counts that may be off by what another thread does at the time.
impl Habit {
    const ENOUGH: u32 = 8;
    /// One of so many is kept all the same.
    const TRIED: u32 = 16;

    pub const fn new() -> Self {
        Self { in_vain: AtomicU32::new(0), passed: AtomicU32::new(0) }
    }

    /// Whether to keep the next one.
    pub fn keeps_next(&self) -> bool {
        if self.in_vain.load(Ordering::Relaxed) < Self::ENOUGH {
            return true;
        }
        let passed = self.passed.load(Ordering::Relaxed).wrapping_add(1);
        self.passed.store(passed, Ordering::Relaxed);
        // Without a rhythm, as the program may have the same.
        scattered(passed).is_multiple_of(Self::TRIED)
    }

    /// What had been kept is no more: with the datatype, or to make room.
    pub fn note_freed(&self, was_used_again: bool) {
        let in_vain = if was_used_again { 0 } else { self.in_vain.load(Ordering::Relaxed).saturating_add(1) };
        self.in_vain.store(in_vain, Ordering::Relaxed);
    }
}

/// The finisher of MurmurHash3: numbers that follow each other yield ones without order.
const fn scattered(number: u32) -> u32 {
    let number = (number ^ number >> 16).wrapping_mul(0x85eb_ca6b);
    let number = (number ^ number >> 13).wrapping_mul(0xc2b2_ae35);
    number ^ number >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 1600 are kept; all are freed.
    fn kept(habit: &Habit, are_used_again: impl Fn(u32) -> bool) -> usize {
        let is_kept = |&n: &u32| {
            let is_kept = habit.keeps_next();
            if is_kept {
                habit.note_freed(are_used_again(n));
            }
            is_kept
        };
        (0..1600).filter(is_kept).count()
    }

    #[test]
    fn what_is_freed_after_one_call_is_hardly_ever_kept() {
        let habit = Habit::new();
        assert_eq!(kept(&habit, |_| true), 1600);
        assert!((90..=125).contains(&kept(&habit, |_| false)));
        // One that is used again shows that to keep them is of use again.
        assert!(kept(&habit, |_| true) > 1560);
    }

    /// Whatever its place in the rhythm of those that are not.
    #[test]
    fn what_is_used_again_is_found_among_others() {
        for rhythm in 2..40 {
            for place in 0..rhythm {
                let habit = Habit::new();
                (0..Habit::ENOUGH).for_each(|_| habit.note_freed(false));
                (0..place).for_each(|_| _ = habit.keeps_next());
                let is_kept = |_: &usize| {
                    let is_kept = habit.keeps_next();
                    (1..rhythm).for_each(|_| _ = habit.keeps_next());
                    is_kept
                };
                let uses = (1..).find(is_kept).expect("it is kept at last");
                assert!(uses <= 256, "{place} of {rhythm}: {uses}");
            }
        }
    }
}
