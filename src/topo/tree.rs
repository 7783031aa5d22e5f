//! Trees of any radix over a hierarchy, with any rank as root.
//!
//! A subtree covers a contiguous interval of positions. Its head has children in the other groups of each level, outermost
//! first: the groups on either side of its own are cut into at most `radix` runs of nearly equal length (one at least for
//! each side that is not empty), and each run is a subtree. So data crosses the border of a group as seldom as possible,
//! and combining children and head by position combines neighbours.

use super::Levels;
use crate::types::{NodeRank, OperandOrder};
use std::ops::Range;
use std::sync::OnceLock;

/// A subtree below a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its head.
    pub rank: NodeRank,
    /// The positions that it covers.
    pub covers: Range<u32>,
}

/// One rank's place in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// Nobody above the root.
    pub parent: Option<NodeRank>,
    /// By position, ascending; those before `children_before` lie before this rank.
    pub children: Box<[Child]>,
    /// How many children lie before this rank.
    pub children_before: usize,
    /// The positions that this rank's own subtree covers.
    pub covers: Range<u32>,
    /// The positions that its parent's subtree covers; its own at the root.
    pub parent_covers: Range<u32>,
}

impl TreeNode {
    /// The place of `me` in the tree of `radix` (at least 1) rooted at `root`.
    pub(super) fn find(levels: &Levels, radix: u32, root: NodeRank, me: NodeRank) -> Self {
        let radix = radix.max(1);
        let target = levels.position_of(me);
        let mut subtree = 0..levels.size() as u32;
        let mut head = levels.position_of(root);
        let mut parent = None;
        let mut parent_covers = subtree.clone();
        'descend: while head != target {
            for run in runs(levels, subtree.clone(), head, radix) {
                if run.contains(&target) {
                    parent = Some(levels.rank_at(head));
                    head = run.start;
                    parent_covers = std::mem::replace(&mut subtree, run);
                    continue 'descend;
                }
            }
            unreachable!("the runs of a subtree and its head cover it");
        }
        let mut below = runs(levels, subtree.clone(), head, radix);
        below.sort_by_key(|run| run.start);
        let children: Box<[Child]> =
            below.into_iter().map(|run| Child { rank: levels.rank_at(run.start), covers: run }).collect();
        let children_before = children.iter().filter(|child| child.covers.start < head).count();
        Self { parent, children, children_before, covers: subtree, parent_covers }
    }
}

/// The subtrees below `head` in `subtree`, level by level from the outermost.
fn runs(levels: &Levels, subtree: Range<u32>, head: u32, radix: u32) -> Vec<Range<u32>> {
    let mut found = Vec::new();
    let mut rest = subtree;
    for starts in levels.groups() {
        let own = group_of(starts, head);
        let inside: Vec<u32> = starts.iter().copied().filter(|start| rest.contains(start)).collect();
        let own = own.start.max(rest.start)..own.end.min(rest.end);
        let before = inside.iter().copied().filter(|start| *start < own.start).collect::<Vec<_>>();
        let after = inside.into_iter().filter(|start| *start >= own.end).collect::<Vec<_>>();
        // A run starts inside a group only if its subtree does, and then that group is the head's own.
        cut(&before, own.start, &after, rest.end, radix, &mut found);
        rest = own;
    }
    let before: Vec<u32> = (rest.start..head).collect();
    let after: Vec<u32> = (head + 1..rest.end).collect();
    cut(&before, head, &after, rest.end, radix, &mut found);
    found
}

/// The group that holds `position`.
fn group_of(starts: &[u32], position: u32) -> Range<u32> {
    let next = starts.partition_point(|start| *start <= position);
    starts[next - 1]..starts[next]
}

/// Cuts the units that start at `before` (and end at `before_end`) and those at `after` (until `after_end`) into runs.
fn cut(before: &[u32], before_end: u32, after: &[u32], after_end: u32, radix: u32, found: &mut Vec<Range<u32>>) {
    let total = before.len() + after.len();
    if total == 0 {
        return;
    }
    let share = (before.len() * radix as usize + total / 2) / total;
    let runs_before = if before.is_empty() { 0 } else { share.clamp(1, (radix as usize - 1).max(1)) };
    let runs_after = (radix as usize).saturating_sub(runs_before).max(1);
    let runs_before = if after.is_empty() { radix as usize } else { runs_before };
    for (units, end, runs) in [(before, before_end, runs_before), (after, after_end, runs_after)] {
        let runs = runs.min(units.len());
        for run in 0..runs {
            let start = units[run * units.len() / runs];
            let next = (run + 1) * units.len() / runs;
            found.push(start..units.get(next).copied().unwrap_or(end));
        }
    }
}

/// The trees of one rank, by radix, operand order and root: an append-only list, read without a lock.
#[derive(Debug, Default)]
pub(super) struct TreeCache(OnceLock<Box<TreesOfRadix>>);

#[derive(Debug)]
struct TreesOfRadix {
    radix: u32,
    order: OperandOrder,
    by_root: Box<[OnceLock<TreeNode>]>,
    next: TreeCache,
}

impl TreeCache {
    pub(super) fn get(
        &self,
        radix: u32,
        order: OperandOrder,
        root: NodeRank,
        size: usize,
        find: impl FnOnce() -> TreeNode,
    ) -> &TreeNode {
        let mut list = self;
        loop {
            let trees = list.0.get_or_init(|| {
                let by_root = (0..size).map(|_| OnceLock::new()).collect();
                Box::new(TreesOfRadix { radix, order, by_root, next: TreeCache::default() })
            });
            if trees.radix == radix && trees.order == order {
                return trees.by_root[root.index()].get_or_init(find);
            }
            list = &trees.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trees(paths: &[Vec<u32>], radix: u32, root: u32) -> Vec<TreeNode> {
        let size = paths.len() as u32;
        (0..size)
            .map(|me| {
                let levels = Levels::from_paths(paths, NodeRank(me));
                levels.tree(radix, OperandOrder::Any, NodeRank(root)).clone()
            })
            .collect()
    }

    #[test]
    fn two_sockets_are_crossed_once() {
        let paths: Vec<Vec<u32>> = (0..12).map(|rank| vec![rank / 6]).collect();
        let all = trees(&paths, 2, 0);
        let crossings = all
            .iter()
            .enumerate()
            .filter(|(rank, node)| node.parent.is_some_and(|parent| parent.0 / 6 != *rank as u32 / 6));
        assert_eq!(crossings.count(), 1);
        assert_eq!(all[6].parent, Some(NodeRank(0)));
    }

    proptest! {
        #[test]
        fn every_tree_spans_all_ranks_and_children_agree_with_parents(
            places in proptest::collection::vec((0u32..3, 0u32..3), 1..40), radix in 1u32..6, root in 0u32..40,
        ) {
            let paths: Vec<Vec<u32>> = places.iter().map(|(outer, inner)| vec![*outer, *inner]).collect();
            let root = root % paths.len() as u32;
            let all = trees(&paths, radix, root);
            for (rank, node) in all.iter().enumerate() {
                let rank = NodeRank(rank as u32);
                match node.parent {
                    None => prop_assert_eq!(rank.0, root),
                    Some(parent) => prop_assert!(all[parent.index()].children.iter().any(|child| child.rank == rank)),
                }
                let below: u32 = node.children.iter().map(|child| child.covers.len() as u32).sum();
                prop_assert_eq!(below + 1, node.covers.len() as u32);
                for child in &node.children {
                    prop_assert_eq!(all[child.rank.index()].parent, Some(rank));
                    prop_assert_eq!(&all[child.rank.index()].covers, &child.covers);
                }
                prop_assert!(node.children.windows(2).all(|pair| pair[0].covers.end <= pair[1].covers.start));
            }
        }
    }
}
