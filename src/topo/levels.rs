//! How the ranks of one node share its caches and memories.

use super::cache::Cache;
use super::exchange::Exchange;
use super::tree::{TreeClass, TreeNode};
use crate::types::{NodeRank, OperandOrder};
use std::sync::OnceLock;

/// The hierarchy of the ranks of one communicator on one node, seen from one of them.
///
/// Ranks have *positions*: neighbours in the machine are neighbours in position. A level cuts the positions into
/// contiguous groups (those that share a package, a NUMA domain, a cache); inner levels refine outer ones.
#[derive(Debug)]
pub struct Levels {
    me: NodeRank,
    order: Box<[NodeRank]>,
    position: Box<[u32]>,
    /// Per level, outermost first: the positions at which its groups start, then the number of ranks.
    groups: Box<[Box<[u32]>]>,
    /// Per level, then for the single ranks: how many containers are shared by ranks that part there.
    shared: Box<[usize]>,
    trees: Cache<(TreeClass, OperandOrder), Box<[OnceLock<TreeNode>]>>,
    exchanges: Cache<u32, Exchange>,
}

impl Levels {
    /// `size` ranks without structure.
    pub fn flat(size: usize, me: NodeRank) -> Self {
        Self::from_paths(&vec![Vec::new(); size.max(1)], me)
    }

    /// Makes the hierarchy from each rank's path through the machine, outermost container first. A container is any
    /// number that is unique among its siblings. Levels that separate no two ranks, or all of them, are left out. Paths
    /// of different lengths are cut to the shortest.
    pub fn from_paths(paths: &[Vec<u32>], me: NodeRank) -> Self {
        let depth = paths.iter().map(Vec::len).min().unwrap_or(0);
        let first_with = |prefix: &[u32]| paths.iter().position(|path| path.starts_with(prefix)).unwrap_or(0);
        let mut order: Vec<NodeRank> = (0..paths.len() as u32).map(NodeRank).collect();
        // Groups stand in the order of their lowest rank, so that ranks bound in order keep their order.
        order.sort_by_cached_key(|rank| {
            let path = &paths[rank.index()];
            let mut key: Vec<usize> = (1..=depth).map(|length| first_with(&path[..length])).collect();
            key.push(rank.index());
            key
        });
        let mut groups: Vec<Box<[u32]>> = Vec::new();
        let mut shared = Vec::new();
        let mut singles = depth;
        for length in 1..=depth {
            let prefix = |position: usize| &paths[order[position].index()][..length];
            let mut starts: Vec<u32> =
                (0..order.len()).filter(|&p| p == 0 || prefix(p) != prefix(p - 1)).map(|p| p as u32).collect();
            starts.push(order.len() as u32);
            let separates = starts.len() > 2 && starts.len() < order.len() + 1;
            if separates && groups.last().is_none_or(|outer| **outer != *starts) {
                shared.push(length - 1);
                groups.push(starts.into());
            } else if starts.len() == order.len() + 1 {
                singles = singles.min(length - 1);
            }
        }
        shared.push(singles);
        let mut position = vec![0; order.len()];
        for (at, rank) in order.iter().enumerate() {
            position[rank.index()] = at as u32;
        }
        Self {
            me,
            order: order.into(),
            position: position.into(),
            groups: groups.into(),
            shared: shared.into(),
            trees: Cache::default(),
            exchanges: Cache::default(),
        }
    }

    /// Ranks on the node.
    #[inline]
    pub fn size(&self) -> usize {
        self.order.len()
    }

    /// Number of levels that separate ranks, not counting the node and the single ranks.
    pub fn depth(&self) -> usize {
        self.groups.len()
    }

    /// Per level, outermost first: the positions at which its groups start, then the number of ranks.
    pub(super) fn groups(&self) -> &[Box<[u32]>] {
        &self.groups
    }

    /// Per level, outermost first, then for the single ranks: how many containers are shared by ranks that part there.
    pub(super) fn shared(&self) -> &[usize] {
        &self.shared
    }

    /// The positions at which the groups of the outermost level start, then the number of ranks; `None` without a
    /// level.
    pub fn outermost(&self) -> Option<&[u32]> {
        self.groups.first().map(|starts| &**starts)
    }

    /// The rank at a position.
    #[inline]
    pub fn rank_at(&self, position: u32) -> NodeRank {
        self.order[position as usize]
    }

    /// The position of a rank.
    #[inline]
    pub fn position_of(&self, rank: NodeRank) -> u32 {
        self.position[rank.index()]
    }

    /// Whether positions are ranks, so that a tree over this hierarchy combines operands in rank order.
    pub fn is_rank_ordered(&self) -> bool {
        self.order.iter().enumerate().all(|(at, rank)| at == rank.index())
    }

    /// This rank's place in the tree of `class` rooted at `root`. Where `order` demands rank order and positions are
    /// not in rank order, the tree ignores the hierarchy. Computed once per class, order and root.
    pub fn tree(&self, class: TreeClass, order: OperandOrder, root: NodeRank) -> &TreeNode {
        let by_root = self.trees.get((class, order), || (0..self.size()).map(|_| OnceLock::new()).collect());
        by_root[root.index()].get_or_init(|| {
            if order == OperandOrder::Any || self.is_rank_ordered() {
                TreeNode::find(self, class, root, self.me)
            } else {
                TreeNode::find(&Self::flat(self.size(), self.me), class, root, self.me)
            }
        })
    }

    /// The place of any rank in the tree of `class` rooted at `root`; computed in each call.
    pub fn place_in_tree(&self, class: TreeClass, root: NodeRank, rank: NodeRank) -> TreeNode {
        TreeNode::find(self, class, root, rank)
    }

    /// This rank's part in an exchange with up to `radix` ranks in a step, at least 2. Computed once per radix.
    pub fn exchange(&self, radix: u32) -> &Exchange {
        let radix = radix.max(2);
        self.exchanges.get(radix, || Exchange::find(self, radix, self.me))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_that_tell_nothing_are_left_out() {
        let one_socket = Levels::from_paths(&[vec![0, 0], vec![0, 1]], NodeRank(0));
        assert_eq!(one_socket.depth(), 0);
        let two = Levels::from_paths(&[vec![0, 0], vec![0, 0], vec![1, 2], vec![1, 2]], NodeRank(0));
        assert_eq!(two.depth(), 1);
        assert_eq!(*two.groups()[0], [0, 2, 4]);
    }

    #[test]
    fn round_robin_binding_is_sorted_by_place() {
        let levels = Levels::from_paths(&[vec![0], vec![1], vec![0], vec![1]], NodeRank(0));
        assert!(!levels.is_rank_ordered());
        assert_eq!(levels.rank_at(1), NodeRank(2));
        assert_eq!(levels.position_of(NodeRank(1)), 2);
    }
}
