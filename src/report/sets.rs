//! The counters of this process: one set for the thread that called MPI_Init, and one for each other thread, since
//! adding to a counter that other threads add to takes locked instructions (`bench/limits.c threads`). Readers take no
//! lock, and need no memory.

use super::counters::{Counters, Tally};
use crate::callers;
use crate::ends::{Part, when_thread_ends};
use std::cell::Cell;
use std::iter;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A set, and the next one. No set is ever freed: the counts of ended threads count too.
struct Set {
    counters: Counters,
    next: OnceLock<&'static Set>,
}

impl Set {
    const fn new() -> Self {
        Self { counters: Counters::new(), next: OnceLock::new() }
    }
}

/// The set of the thread to which the process belongs; the sets of other threads follow it.
static ONE_THREAD: Set = Set::new();

/// Sets of threads that have ended: later threads go on counting in them.
static FREE: Mutex<Vec<&'static Counters>> = Mutex::new(Vec::new());

fn free() -> MutexGuard<'static, Vec<&'static Counters>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// This thread's set, once it has counted. It has nothing to drop, so the thread finds it by one address.
    static OWN: Cell<Option<&'static Counters>> = const { Cell::new(None) };
}

/// Gives back the set of a thread that ends.
fn give_back() {
    free().extend(OWN.take());
}

/// The set in which this thread counts, and no other thread meanwhile. It is never freed.
#[inline(always)]
pub fn counters() -> &'static Counters {
    if callers::is_owner() { &ONE_THREAD.counters } else { OWN.get().unwrap_or_else(take) }
}

#[cold]
fn take() -> &'static Counters {
    let freed = free().pop();
    let counters = freed.unwrap_or_else(append);
    OWN.set(Some(counters));
    when_thread_ends(Part::Counters, give_back);
    counters
}

fn append() -> &'static Counters {
    let new: &Set = Box::leak(Box::new(Set::new()));
    let mut last = &ONE_THREAD;
    while last.next.set(new).is_err() {
        last = last.next.get().map_or(last, |next| next);
    }
    &new.counters
}

/// Whether no thread has counted a call but the one to which the process belongs.
pub fn is_one_thread() -> bool {
    ONE_THREAD.next.get().is_none()
}

fn sets() -> impl Iterator<Item = &'static Counters> {
    iter::successors(Some(&ONE_THREAD), |set| set.next.get().copied()).map(|set| &set.counters)
}

/// One value, summed over all threads of this process.
///
/// # Panics
/// If `index` is not below [`Counters::LENGTH`].
pub fn value(index: usize) -> u64 {
    sets().fold(0, |sum, counters| sum.wrapping_add(counters.value(index)))
}

/// All values, summed over all threads of this process.
pub fn tally() -> Tally {
    Tally::of(value)
}

#[cfg(test)]
mod tests {
    use super::super::{Outcome, Reason};
    use super::*;
    use crate::types::{Bytes, Collective};
    use std::thread;

    /// No other test counts these.
    const OUTCOME: Outcome = Outcome::Declined(Collective::Scatter, Reason::TooManySteps);

    fn counted() -> (u64, u64) {
        let cells = tally().cells().filter(|cell| cell.outcome == OUTCOME).collect::<Vec<_>>();
        (cells.iter().map(|cell| cell.calls).sum(), cells.iter().map(|cell| cell.bytes).sum())
    }

    fn own() -> usize {
        std::ptr::from_ref(counters()).addr()
    }

    #[test]
    fn threads_count_in_sets_of_their_own_and_all_are_counted() {
        for round in 1..=3 {
            let used = thread::scope(|scope| {
                let count = || {
                    (0..1000).for_each(|_| counters().record(OUTCOME, Bytes(1)));
                    own()
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
                threads.into_iter().map(|thread| thread.join().expect("it counts")).collect::<Vec<_>>()
            });
            assert_eq!(counted(), (round * 4000, round * 4000));
            assert!(used.iter().all(|address| *address != std::ptr::from_ref(&ONE_THREAD.counters).addr()));
        }
    }

    #[test]
    fn the_set_of_a_thread_that_is_gone_serves_another_one() {
        (0..100).for_each(|_| _ = thread::spawn(own).join().expect("it counts"));
        let known = sets().count();
        // Other tests have threads too, but not a hundred.
        assert!(known < 80, "{known} sets after a hundred threads");
    }
}
