//! The counters of this process: one set, or one of each thread where several count at once, since to add to what others add to takes
//! locked instructions (`bench/limits.c threads`).

use super::counters::{Counters, Tally};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where one thread at a time counts.
static ONE_THREAD: Counters = Counters::new();

/// Whether that is so in this process.
static HAS_ONE_THREAD: AtomicBool = AtomicBool::new(false);

/// The sets of threads. None is ever freed: what threads counted that are gone counts too.
struct Sets {
    all: Vec<&'static Counters>,
    /// Of threads that are gone; the next ones go on in them.
    free: Vec<&'static Counters>,
}

static SETS: Mutex<Sets> = Mutex::new(Sets { all: Vec::new(), free: Vec::new() });

fn sets() -> MutexGuard<'static, Sets> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// This thread's set, once it has counted. Nothing is to be done for it when the thread ends, so that it is found by one address.
    static OWN: Cell<Option<&'static Counters>> = const { Cell::new(None) };
    static RETURN: Return = const { Return };
}

/// Gives back the set of a thread that ends.
struct Return;

impl Drop for Return {
    fn drop(&mut self) {
        sets().free.extend(OWN.take());
    }
}

/// The set in which this thread counts, and nobody else at the time. It is never freed.
#[inline(always)]
pub fn counters() -> &'static Counters {
    if HAS_ONE_THREAD.load(Ordering::Relaxed) { &ONE_THREAD } else { OWN.get().unwrap_or_else(take) }
}

#[cold]
fn take() -> &'static Counters {
    let mut sets = sets();
    let counters = sets.free.pop().unwrap_or_else(|| {
        let new: &Counters = Box::leak(Box::default());
        sets.all.push(new);
        new
    });
    OWN.set(Some(counters));
    // A thread that counts while it ends keeps what it took.
    let _ = RETURN.try_with(|_| ());
    counters
}

/// From now on only one thread at a time counts, as MPI demands below `MPI_THREAD_MULTIPLE`.
pub fn assume_one_thread_at_a_time() {
    HAS_ONE_THREAD.store(true, Ordering::Relaxed);
}

/// What all threads of this process have counted.
pub fn tally() -> Tally {
    let mut tally = ONE_THREAD.tally();
    sets().all.iter().for_each(|counters| tally += counters.tally());
    tally
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

    #[test]
    fn threads_count_in_sets_of_their_own_and_all_are_counted() {
        for round in 1..=3 {
            let used = thread::scope(|scope| {
                let count = || {
                    (0..1000).for_each(|_| counters().record(OUTCOME, Bytes(1)));
                    std::ptr::from_ref(counters()).addr()
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
                threads.into_iter().map(|thread| thread.join().expect("it counts")).collect::<Vec<_>>()
            });
            assert_eq!(counted(), (round * 4000, round * 4000));
            assert!(used.iter().all(|address| *address != std::ptr::from_ref(&ONE_THREAD).addr()));
        }
    }

    #[test]
    fn the_set_of_a_thread_that_is_gone_serves_another_one() {
        let used = || thread::spawn(|| std::ptr::from_ref(counters()).addr()).join().expect("it counts");
        let first: Vec<usize> = (0..100).map(|_| used()).collect();
        let known = sets().all.len();
        // Other tests have threads too, but not a hundred.
        assert!(known < 80, "{known} sets after {} threads", first.len());
    }
}
