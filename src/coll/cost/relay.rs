//! Reductions by relays ([`phase::relay`](crate::coll::phase::relay)).

use super::{Node, cut};
use crate::coll::phase::relay::tickets_in_stint;
use crate::model::{Work, in_cell};
use crate::types::Collective;

/// Waits of a rank in each stint: for the ranks before it in either relay, some of which are on its own core, and for
/// the results. Measured, like [`WAITS_PER_RANK`], on 3, 4, 5 and 8 ranks of 2 cores (docs/PERFORMANCE.md, "Tried").
const WAITS_IN_STINT: f64 = 1.5;

/// Waits for each rank of the node before the first results are complete.
const WAITS_PER_RANK: f64 = 0.4;

impl Node<'_> {
    /// All ranks combine their operands; all ranks, or in a Reduce the root alone, collect the results.
    pub(super) fn relay(&self, collective: Collective) -> f64 {
        let total = self.bytes();
        let (pairs, _) = cut(total, self.tile() * 2);
        let stints = (pairs / tickets_in_stint(self.scene.slots) as f64).ceil();
        // The first rank of a relay copies its operand.
        let first = total / self.ranks();
        let combined = self.fetched_once(total - first, |n| self.combining(n), |n| self.rates.combine(n))
            + self.rates.copy(first)
            + 2.0 * pairs * self.step();
        let waits = stints * WAITS_IN_STINT + self.ranks() * WAITS_PER_RANK;
        let on_the_way = stints * self.stint();
        if collective == Collective::Reduce {
            // The other cores meanwhile work on what follows.
            let collected = self.scene.take(0, in_cell(total), 1, self.copying(total));
            return self.all(combined, waits).max(on_the_way) + collected / self.scene.cores();
        }
        let collected = self.fetched_once(total, |n| self.copying(n), |n| self.rates.copy(n));
        self.all(combined + collected, waits).max(on_the_way)
    }

    /// The least time of a stint. No rank begins the next stint but one before all ranks have had this one. So of many
    /// cores some are idle.
    fn stint(&self) -> f64 {
        let (scene, n) = (self.scene, self.tile().0.min(self.plan.bytes.0) as f64);
        let handed_on = self.step() + scene.line(0, 1) + scene.take(0, in_cell(n), 1, self.combining(n));
        (self.ranks() + tickets_in_stint(scene.slots) as f64 - 1.0) * handed_on
    }

    /// The time in which all ranks of a core use the same data one after the other. The first of them fetches the data
    /// from another core.
    fn fetched_once(&self, total: f64, fetched: impl Fn(f64) -> Work, near: impl Fn(f64) -> f64) -> f64 {
        let far = total / self.scene.ranks_per_core;
        self.scene.take(0, in_cell(far), 1, fetched(far)) + near(total - far)
    }
}
