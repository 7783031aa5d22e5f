//! What the library accepts, found out by collective calls of this process alone.

use crate::mpi::handles::constants;
use mpi_sys::MPI_Comm;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

/// Whether the library accepts `call`, a collective call on `self_comm`, whose only process this one is and whose
/// errors return.
///
/// Threads ask one after the other: MPI allows no two collective calls on one communicator at the same time.
pub(super) fn is_accepted(self_comm: MPI_Comm, call: impl FnOnce(MPI_Comm) -> c_int) -> bool {
    static ASKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    call(self_comm) == constants().success
}
