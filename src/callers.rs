//! Whether calls of MPI by threads of this process come one after the other, as MPI demands below `MPI_THREAD_MULTIPLE`: then what a call
//! remembers for the next one is in plain memory of the process, which is found and changed at no cost. Else each thread has its own.

use std::sync::atomic::{AtomicBool, Ordering};

static ARE_ORDERED: AtomicBool = AtomicBool::new(false);

/// Whether they do. False until `MPI_Init` has learnt that the level of threads is below `MPI_THREAD_MULTIPLE`.
#[inline(always)]
pub fn are_ordered() -> bool {
    ARE_ORDERED.load(Ordering::Relaxed)
}

/// From now on they do: MPI was initialised with such a level.
pub fn note_ordered() {
    ARE_ORDERED.store(true, Ordering::Relaxed);
}
