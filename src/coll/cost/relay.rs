//! Reductions by relays ([`phase::relay`](crate::coll::phase::relay)).

use super::{Node, cut};
use crate::coll::phase::relay::tickets_in_stint;
use crate::model::{Work, in_cell};
use crate::types::Collective;

/// Waits of a rank in each of its stints, for those before it in either relay, of whom some are on its own core, and for the results; and, for each rank
/// of the row, until the first results are there. Measured on 3, 4, 5 and 8 ranks of 2 cores (docs/PERFORMANCE.md, "Tried").
const WAITS_IN_STINT: f64 = 1.5;
const WAITS_IN_ROW: f64 = 0.4;

impl Node<'_> {
    /// All ranks add their operands, and all, or in a Reduce the root, collect the sums.
    pub(super) fn relay(&self, collective: Collective) -> f64 {
        let total = self.bytes();
        let (pairs, _) = cut(total, self.tile() * 2);
        let stints = (pairs / tickets_in_stint(self.scene.slots) as f64).ceil();
        let added =
            self.fetched_once(total, |n| self.combining(n), |n| self.rates.combine(n)) + 2.0 * pairs * self.step();
        let waits = stints * WAITS_IN_STINT + self.ranks() * WAITS_IN_ROW;
        if collective == Collective::Reduce {
            // The other cores are at work on what follows meanwhile.
            let collected = self.scene.take(0, in_cell(total), 1, self.copying(total));
            return self.all(added, waits) + collected / self.scene.cores();
        }
        self.all(added + self.fetched_once(total, |n| self.copying(n), |n| self.rates.copy(n)), waits)
    }

    /// Of what all ranks of a core take one after the other the first one fetches it from another core.
    fn fetched_once(&self, total: f64, fetched: impl Fn(f64) -> Work, near: impl Fn(f64) -> f64) -> f64 {
        let far = total / self.scene.ranks_per_core;
        self.scene.take(0, in_cell(far), 1, fetched(far)) + near(total - far)
    }
}
