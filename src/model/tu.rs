//! Tu, Fan, Zhan, Zhao 2009, "Performance analysis and optimization of MPI collective operations on multi-core
//! clusters": the models mlognP and 2log{2,3}P, §4, §5.2 and §7.2.
//!
//! A message passes through implicit transfers; each takes an overhead `o = f(s, 1)` of a contiguous message and, where
//! it lies strided, a latency `l = f(s, d)` above that. All times are in the unit of the parameters.

use super::ceil_log;

/// One implicit transfer along the path of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Transfer {
    /// o: of a contiguous message.
    pub overhead: f64,
    /// l: what its stride adds.
    pub latency: f64,
}

/// (4), mlognP: a message over the transfers of one communication level.
pub fn point_to_point(transfers: &[Transfer]) -> f64 {
    transfers.iter().map(|transfer| transfer.overhead + transfer.latency).sum()
}

/// 2log{2,3}P: two levels, within a node (two transfers) and between nodes (three, the middle one over the network).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoLevels {
    /// f⁰: one of the two transfers within a node.
    pub inside: Transfer,
    /// f¹: one of the two transfers at the ends of a message between nodes.
    pub between: Transfer,
    /// f¹(s, 1)₁: over the network.
    pub network: f64,
}

impl TwoLevels {
    /// (6), T₀: a message within a node, `o_mw + l_mw`.
    pub fn within(&self) -> f64 {
        point_to_point(&[self.inside; 2])
    }

    /// (6), T₁: a message between nodes, `o'_mw + l'_mw + o'_net`.
    pub fn across(&self) -> f64 {
        point_to_point(&[self.between; 2]) + self.network
    }

    /// §5.2: the root sends to `ranks − 1` others on `nodes` nodes, one after the other, those of its own node first.
    pub fn linear_bcast(&self, ranks: usize, nodes: usize) -> f64 {
        let inside = (ranks / nodes.max(1)).saturating_sub(1) as f64;
        let outside = ranks as f64 - inside - 1.0;
        inside * self.within() / 2.0 + outside * (self.across() - self.network) / 2.0 + self.network
    }

    /// §5.2: a binomial tree of ⌈log2 P⌉ steps, of which `steps_within` stay on a node along the longest path.
    pub fn binomial_bcast(&self, ranks: usize, steps_within: u32) -> f64 {
        let steps = ceil_log(2, ranks);
        self.within() * f64::from(steps_within) + self.across() * f64::from(steps.saturating_sub(steps_within))
    }

    /// (7): a tree that knows nothing of nodes, at the cost of its farthest messages.
    pub fn flat_tree(&self, ranks: usize) -> f64 {
        self.across() * f64::from(ceil_log(2, ranks))
    }

    /// (8): a tree over the heads of the nodes, then one on each node.
    pub fn hierarchical_tree(&self, ranks: usize, nodes: usize) -> f64 {
        let per_node = ranks.div_ceil(nodes.max(1));
        self.within() * f64::from(ceil_log(2, per_node)) + self.across() * f64::from(ceil_log(2, nodes))
    }
}

/// (9): a tree as in (8), but the trees on the nodes take the message in `tiles` segments. `segment` has the costs of a
/// segment, `whole` those of the message.
pub fn tiled_tree(segment: &TwoLevels, whole: &TwoLevels, tiles: usize, ranks: usize, nodes: usize) -> f64 {
    let per_node = ranks.div_ceil(nodes.max(1));
    let within = tiles as f64 * segment.within() * f64::from(ceil_log(2, per_node));
    within + whole.across() * f64::from(ceil_log(2, nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made up: a transfer within a node takes 2 + 1, one between nodes 4 + 1.5 at each end and 30 on the wire.
    const COSTS: TwoLevels = TwoLevels {
        inside: Transfer { overhead: 2.0, latency: 1.0 },
        between: Transfer { overhead: 4.0, latency: 1.5 },
        network: 30.0,
    };

    #[test]
    fn equations_4_to_6() {
        let three = [COSTS.between, Transfer { overhead: 30.0, latency: 0.0 }, COSTS.between];
        assert_eq!(point_to_point(&three), 41.0);
        assert_eq!(COSTS.within(), 2.0 * 2.0 + 2.0 * 1.0);
        assert_eq!(COSTS.across(), 2.0 * 4.0 + 2.0 * 1.5 + 30.0);
    }

    #[test]
    fn the_linear_broadcast() {
        // 64 ranks on 8 nodes: 7 messages within the node and 56 to others, half of each message's cost at the root.
        assert_eq!(COSTS.linear_bcast(64, 8), 7.0 * 3.0 + 56.0 * 5.5 + 30.0);
        assert_eq!(COSTS.linear_bcast(8, 1), 7.0 * 3.0 + 30.0, "as printed: the network counts on one node too");
    }

    #[test]
    fn the_binomial_broadcast() {
        assert_eq!(COSTS.binomial_bcast(64, 3), 3.0 * 6.0 + 3.0 * 41.0);
        assert_eq!(COSTS.binomial_bcast(8, 3), 3.0 * 6.0);
    }

    #[test]
    fn equations_7_to_9() {
        assert_eq!(COSTS.flat_tree(64), 6.0 * 41.0);
        assert_eq!(COSTS.hierarchical_tree(64, 8), 3.0 * 6.0 + 3.0 * 41.0);
        let segment = TwoLevels { inside: Transfer { overhead: 0.4, latency: 0.1 }, ..COSTS };
        assert!((tiled_tree(&segment, &COSTS, 4, 64, 8) - (4.0 * 1.0 * 3.0 + 3.0 * 41.0)).abs() < 1e-12);
        assert!(tiled_tree(&segment, &COSTS, 4, 64, 8) < COSTS.hierarchical_tree(64, 8));
        assert!(COSTS.hierarchical_tree(64, 8) < COSTS.flat_tree(64));
    }
}
