//! What happened: counters, reasons, and the report at `MPI_Finalize`.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

mod counters;
mod json;
mod reason;
mod sets;

pub use counters::{Cell, Count, Counter, Counters, Outcome, SizeClass, Tally};
pub use json::{Report, obstacle};
pub use reason::Reason;
pub use sets::{counters, is_one_thread, tally, value};

/// Whether this process accelerates collectives.
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

/// This process accelerates collectives from now on.
pub fn activate() {
    IS_ACTIVE.store(true, Ordering::Relaxed);
}

/// This process accelerates no collectives from now on.
pub fn deactivate() {
    IS_ACTIVE.store(false, Ordering::Relaxed);
}

/// Whether this process accelerates collectives: between `MPI_Init` and `MPI_Finalize`, where setup succeeded.
pub fn is_active() -> bool {
    IS_ACTIVE.load(Ordering::Relaxed)
}
