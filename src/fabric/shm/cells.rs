//! The memory of the cells, which a context on one node gets with the calls that need it.

use super::call::Call;
use super::context::Context;
use super::drive::Waiting;
use crate::coll::Plan;
use crate::fabric::words::{Awaited, Entered, Fault, Words};
use crate::types::{Bytes, Collective};

impl Context {
    /// Before a call that needs `depth` bytes of each cell: the ranks of the node tell each other whether they could
    /// [reserve theirs](Context::reserve_cells), as `reserve` tells this one, and all learn whether all could. Nobody leaves before all
    /// are in the call with arguments that are accepted, so all end with the same answer, or none has one.
    ///
    /// # Errors
    /// If a peer failed or contradicts; then this rank has failed the call too.
    pub fn agree_on_cells(
        &self,
        depth: Bytes,
        reserve: impl FnOnce() -> bool,
        waiting: &Waiting,
        (collective, row): (Collective, usize),
        plan: &Plan,
    ) -> Result<bool, Fault> {
        let entered = Entered::new(collective, row, plan);
        self.enter(&entered);
        let mine = self.control(self.rank());
        // It may have said so in a call that another rank failed.
        if mine.has_cells(depth).is_none() {
            mine.tell_of_cells(depth, reserve());
        }
        self.join(&entered);
        mine.event().announce();
        let call = Call::entered(self, waiting, entered);
        let mut have_all = mine.has_cells(depth) == Some(true);
        for rank in self.peers() {
            let cells = || self.cells_of(&entered, rank, depth);
            let joined = call.outlast(Awaited::Cells { rank, epoch: entered.epoch }, &|| Ok(cells()?.is_some()));
            match joined.and_then(|()| cells()) {
                Ok(has_cells) => have_all &= has_cells == Some(true),
                Err(fault) => {
                    self.fail(plan.epoch);
                    return Err(fault);
                }
            }
        }
        Ok(have_all)
    }
}
