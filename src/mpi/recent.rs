//! The states of the communicators that were used last, outside their attributes. `Comm_get_attr` would take longer
//! than all else that finds out what becomes of a call (`bench/limits.c declined`).
//!
//! The deletion of any communicator's state invalidates all entries, since MPI reuses handles at once.

use super::communicator::Communicator;
use crate::callers;
use mpi_sys::MPI_Comm;
use std::cell::UnsafeCell;
use std::ptr::null;
use std::sync::atomic::{AtomicU64, Ordering};

/// Incremented when a communicator's state is deleted, before a communicator is freed, and when the job ends.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// Invalidates all that is remembered, here and in [`permits`](super::permits).
pub(super) fn forget_all() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The present generation. The caller reads it before it asks MPI for a state that it will remember, or while a call is
/// under way on the communicator, which is not freed then.
#[inline(always)]
pub(super) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Entries: programs work on several communicators in turn, such as rows, columns and all ranks of a grid.
const ENTRIES: usize = 8;

/// A communicator and its state; the state is null in an unused entry.
#[derive(Clone, Copy)]
struct Entry {
    comm: MPI_Comm,
    state: *const Communicator,
}

/// The communicators that a thread has used last, and their states.
pub(super) struct Recent {
    generation: u64,
    /// The first is the one that was used last.
    entries: [Entry; ENTRIES],
    /// The place of the entry that the next insertion drops; never the first.
    oldest: usize,
}

impl Recent {
    const NONE: Self = {
        // SAFETY: handles are numbers or addresses; this one is never looked at, since its state is null.
        let nothing = Entry { comm: unsafe { std::mem::zeroed() }, state: std::ptr::null() };
        Self { generation: 0, entries: [nothing; ENTRIES], oldest: 1 }
    };

    /// The state of `comm`; null if it was not remembered in this generation.
    #[inline(always)]
    pub fn find(&mut self, comm: MPI_Comm, generation: u64) -> *const Communicator {
        if self.generation != generation {
            return null();
        }
        // The first entry is in use: `insert` has set it in this generation.
        if self.entries[0].comm == comm { self.entries[0].state } else { self.bring_forward(comm) }
    }

    /// The state of `comm` if it is remembered in any other entry, which becomes the first.
    #[inline(never)]
    fn bring_forward(&mut self, comm: MPI_Comm) -> *const Communicator {
        match self.entries.iter().position(|entry| entry.comm == comm && !entry.state.is_null()) {
            Some(at) => {
                self.entries.swap(0, at);
                self.entries[0].state
            }
            None => null(),
        }
    }

    /// The state that was used last, if that was in this generation.
    pub fn latest(&self, generation: u64) -> Option<*const Communicator> {
        let state = self.entries[0].state;
        (self.generation == generation && !state.is_null()).then_some(state)
    }

    /// Remembers the state of `comm`. The caller read `generation` before it asked MPI for the state.
    pub fn insert(&mut self, comm: MPI_Comm, state: *const Communicator, generation: u64) {
        if self.generation != generation {
            *self = Self { generation, ..Self::NONE };
        }
        self.entries[self.oldest] = self.entries[0];
        self.entries[0] = Entry { comm, state };
        self.oldest = if self.oldest + 1 < ENTRIES { self.oldest + 1 } else { 1 };
    }
}

/// For the thread that owns the process: a thread-local costs a function call in a library that is loaded at run time.
struct OneThread(UnsafeCell<Recent>);
// SAFETY: only that thread uses it.
unsafe impl Sync for OneThread {}
static ONE_THREAD: OneThread = OneThread(UnsafeCell::new(Recent::NONE));

thread_local! {
    static EACH_THREAD: UnsafeCell<Recent> = const { UnsafeCell::new(Recent::NONE) };
}

/// Calls `f` with what this thread remembers. `f` must not call this function again.
#[inline(always)]
pub(super) fn recent<R>(f: impl FnOnce(&mut Recent) -> R) -> R {
    if callers::is_owner() {
        // SAFETY: only this thread uses it, and `f` is done with it when this returns.
        f(unsafe { &mut *ONE_THREAD.0.get() })
    } else {
        of_thread(f)
    }
}

/// Not inlined, so that what `f` captures is in memory only here.
#[inline(never)]
fn of_thread<R>(f: impl FnOnce(&mut Recent) -> R) -> R {
    callers::note_other();
    // SAFETY: only this thread has it, and `f` is done with it when this returns.
    EACH_THREAD.with(|recent| f(unsafe { &mut *recent.get() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distinct handles; the tests do not link the library.
    fn handle(number: u32) -> MPI_Comm {
        let bytes = u64::from(number);
        // SAFETY: a number or an address, at most as large.
        unsafe { std::mem::transmute_copy(&bytes) }
    }

    fn state(number: u32) -> *const Communicator {
        std::ptr::without_provenance(8 + number as usize)
    }

    #[test]
    fn the_latest_are_found_until_something_is_deleted() {
        let mut recent = Recent::NONE;
        assert_eq!((recent.find(handle(0), 1), recent.latest(1)), (null(), None));
        let n = ENTRIES as u32;
        (0..n).for_each(|number| recent.insert(handle(number), state(number), 1));
        for number in (0..n).chain([3, 1, 3, 3, 0]) {
            assert_eq!(recent.find(handle(number), 1), state(number));
            assert_eq!(recent.latest(1), Some(state(number)));
        }
        // One more takes the place of any but the latest.
        recent.insert(handle(n), state(n), 1);
        assert_eq!(recent.latest(1), Some(state(n)));
        assert_eq!(recent.find(handle(0), 1), state(0));
        assert_eq!((0..=n).filter(|number| recent.find(handle(*number), 1).is_null()).count(), 1);
        // Something is deleted.
        assert_eq!((recent.find(handle(0), 2), recent.latest(2)), (null(), None));
        recent.insert(handle(1), state(1), 2);
        assert_eq!((recent.find(handle(0), 2), recent.find(handle(1), 2)), (null(), state(1)));
        // A state that was read before a deletion is not found after it.
        recent.insert(handle(2), state(2), 2);
        assert_eq!(recent.find(handle(2), 3), null());
    }
}
