//! Whether what was found out about a datatype is worth keeping, as its attribute or for datatypes made alike.

use crate::sync::Private;

/// Some programs make a datatype for each call and free it after the call. Making an attribute and freeing it takes as
/// long as reading most datatypes. So once enough attributes were kept in vain, later ones are not kept, but for a few
/// that show whether that is still so. The same goes for layouts that are remembered for datatypes made alike.
#[derive(Debug, Default)]
pub(super) struct Habit {
    /// How many in a row were kept in vain.
    in_vain: Private<u32>,
    /// How many candidates have come while `in_vain` was `ENOUGH` or more.
    passed: Private<u32>,
}

impl Habit {
    const ENOUGH: u32 = 8;
    /// Once enough were kept in vain, one in so many candidates is still kept.
    const TRIED: u32 = 16;

    pub const fn new() -> Self {
        Self { in_vain: Private::ZERO, passed: Private::ZERO }
    }

    /// Whether to keep the next one.
    pub fn keeps_next(&self) -> bool {
        if self.in_vain.get() < Self::ENOUGH {
            return true;
        }
        let passed = self.passed.get().wrapping_add(1);
        self.passed.set(passed);
        // Scattered, not at a fixed interval: the program's calls may have the same interval.
        scattered(passed).is_multiple_of(Self::TRIED)
    }

    /// Notes that what was kept is gone: its datatype was freed, or another layout took its place.
    pub fn note_freed(&self, was_used_again: bool) {
        let in_vain = if was_used_again { 0 } else { self.in_vain.get().saturating_add(1) };
        self.in_vain.set(in_vain);
    }
}

/// The finisher of MurmurHash3: consecutive numbers give results without order.
const fn scattered(number: u32) -> u32 {
    let number = (number ^ number >> 16).wrapping_mul(0x85eb_ca6b);
    let number = (number ^ number >> 13).wrapping_mul(0xc2b2_ae35);
    number ^ number >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 1600 candidates are kept; all that are kept are freed.
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
        // A candidate that is used again shows that keeping pays again.
        assert!(kept(&habit, |_| true) > 1560);
    }

    /// Whatever its position in the period of those that are not used again.
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
