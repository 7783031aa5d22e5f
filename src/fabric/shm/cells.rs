//! The memory of the cells, which a context on one node gets with the calls that need it.

use super::call::Call;
use super::context::Context;
use super::drive::Waiting;
use crate::coll::Plan;
use crate::fabric::words::{Awaited, Entered, Fault, Words};
use crate::types::{Bytes, Collective};

impl Context {
    /// Before a call that needs `depth` bytes of each cell: the ranks of the node tell each other whether they could
    /// [reserve theirs](Context::reserve_cells), and all learn whether all could. All are in this call, as they can see of each other.
    ///
    /// # Errors
    /// If a peer failed or contradicts; then this rank has failed the call too. What it has told stays.
    pub fn agree_on_cells(
        &self,
        (depth, is_reserved): (Bytes, bool),
        waiting: &Waiting,
        (collective, row): (Collective, usize),
        plan: &Plan,
    ) -> Result<bool, Fault> {
        let entered = Entered::new(collective, row, plan);
        self.enter(&entered);
        let mine = self.control(self.rank());
        mine.tell_of_cells(depth, is_reserved);
        mine.event().announce();
        let call = Call::entered(self, waiting, entered);
        let mut have_all = mine.has_cells(depth) == Some(true);
        for rank in self.peers() {
            let has_cells = || self.control(rank).has_cells(depth);
            if let Err(fault) = call.outlast(Awaited::Cells { rank, depth }, &|| Ok(has_cells().is_some())) {
                self.fail(plan.epoch);
                return Err(fault);
            }
            have_all &= has_cells() == Some(true);
        }
        Ok(have_all)
    }
}
