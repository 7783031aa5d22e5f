//! The memory of the cells, which a context on one node gets with the calls that need it.
//!
//! How deep they are is known at three places: what this rank has reserved stays with the context, also when another communicator
//! takes that over ([`Context::reserve_cells`]); what each rank has told of itself is in its control line
//! ([`Control::tell_of_cells`](crate::sync::Control::tell_of_cells)), and goes when the context is cleared; what all agreed on is with
//! the communicator (`mpi::communicator::Cells`), and alone decides whether a call has memory. Where its pieces lie
//! each rank decides by what it has reserved itself.

use super::call::Call;
use super::context::Context;
use super::drive::Waiting;
use crate::coll::Plan;
use crate::fabric::words::{Entered, Fault, Words};
use crate::types::{Bytes, Collective};

impl Context {
    /// Before a call that needs `depth` bytes of each cell: whether all ranks of the node could
    /// [reserve theirs](Context::reserve_cells), as `reserve` tells of this one. All end with the same answer, or none has one.
    ///
    /// # Errors
    /// If a peer failed, then this rank has failed the call too, or contradicts.
    pub fn agree_on_cells(
        &self,
        depth: Bytes,
        reserve: impl FnOnce() -> bool,
        waiting: &Waiting,
        (collective, row): (Collective, usize),
        plan: &Plan,
    ) -> Result<bool, Fault> {
        let entered = Entered::new(collective, row, plan);
        let call = Call::entered(self, waiting, entered);
        Words::agree_on_cells(self, &entered, depth, reserve, |awaited, look| call.outlast(awaited, look))
    }
}
