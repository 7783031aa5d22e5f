//! Whether threads of this process call MPI one at a time, as MPI demands below `MPI_THREAD_MULTIPLE`: then what a call remembers for the next
//! one is in plain memory of the process, which is found and changed at no cost. Else each thread has its own.

use std::sync::atomic::{AtomicBool, Ordering};

static TAKE_TURNS: AtomicBool = AtomicBool::new(false);

/// Whether that is so; not known before `MPI_Init`, and not so then.
#[inline(always)]
pub fn take_turns() -> bool {
    TAKE_TURNS.load(Ordering::Relaxed)
}

/// From now on that is so: MPI was initialised, below `MPI_THREAD_MULTIPLE`.
pub fn take_turns_from_now_on() {
    TAKE_TURNS.store(true, Ordering::Relaxed);
}
