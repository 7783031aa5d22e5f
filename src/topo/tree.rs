//! Trees of any radix over a hierarchy, with any rank as root.
//!
//! A subtree covers a contiguous interval of positions. Its head has children in the other groups of each level,
//! outermost first: the groups on either side of the head's own are cut into runs, and each run is a subtree. So data
//! crosses the border of a group as seldom as possible, and combining children and head by position combines
//! neighbours. [`TreeClass`] says how long the runs are.

use super::Levels;
use crate::types::NodeRank;
use std::ops::Range;

/// How a tree cuts what lies below a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeClass {
    /// Into at most `radix` runs of nearly equal length per level, but at least one for each side that is not empty.
    /// With radix 1 it is a chain by position on either side of the root, whatever the hierarchy: each border is
    /// crossed once.
    Kary {
        /// At least 1.
        radix: u32,
    },
    /// Into runs that grow with their distance: up to `radix - 1` each of 1, `radix`, `radix²` … units (Nishtala 2009,
    /// section 5.1.2).
    Knomial {
        /// At least 2.
        radix: u32,
    },
    /// Into as many levels as data takes copies from the root to a leaf. With 1 stage all ranks are children of the
    /// root. With 2, one rank of each other group of the outermost level is a child of the root, and the parent of the
    /// rest of its group (Li et al. 2014, section 2.2).
    Stages {
        /// At least 1.
        stages: u32,
    },
}

/// A subtree below a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// The head of the subtree.
    pub rank: NodeRank,
    /// The positions that the subtree covers.
    pub covers: Range<u32>,
}

/// One rank's place in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// The rank above this one; `None` at the root.
    pub parent: Option<NodeRank>,
    /// By position, ascending; the first `children_before` lie before this rank.
    pub children: Box<[Child]>,
    /// How many children lie before this rank.
    pub children_before: usize,
    /// The positions that this rank's own subtree covers.
    pub covers: Range<u32>,
    /// The positions that the parent's subtree covers; at the root those of its own.
    pub parent_covers: Range<u32>,
}

impl TreeNode {
    /// The place of `me` in the tree of `class` rooted at `root`.
    pub(super) fn find(levels: &Levels, class: TreeClass, root: NodeRank, me: NodeRank) -> Self {
        let target = levels.position_of(me);
        let mut subtree = 0..levels.size() as u32;
        let mut head = levels.position_of(root);
        let mut parent = None;
        let mut parent_covers = subtree.clone();
        'descend: while head != target {
            for run in runs(levels, subtree.clone(), head, class) {
                if run.contains(&target) {
                    parent = Some(levels.rank_at(head));
                    head = run.start;
                    parent_covers = std::mem::replace(&mut subtree, run);
                    continue 'descend;
                }
            }
            unreachable!("the runs of a subtree and its head cover it");
        }
        let mut below = runs(levels, subtree.clone(), head, class);
        below.sort_by_key(|run| run.start);
        let children: Box<[Child]> =
            below.into_iter().map(|run| Child { rank: levels.rank_at(run.start), covers: run }).collect();
        let children_before = children.iter().filter(|child| child.covers.start < head).count();
        Self { parent, children, children_before, covers: subtree, parent_covers }
    }
}

/// The subtrees below `head` in `subtree`, level by level from the outermost.
fn runs(levels: &Levels, subtree: Range<u32>, head: u32, class: TreeClass) -> Vec<Range<u32>> {
    let mut found = Vec::new();
    let mut rest = subtree;
    let depth = match class {
        TreeClass::Kary { radix: ..=1 } => 0,
        TreeClass::Stages { stages } => stages.saturating_sub(1) as usize,
        TreeClass::Kary { .. } | TreeClass::Knomial { .. } => usize::MAX,
    };
    for starts in levels.groups().iter().take(depth) {
        let own = group_of(starts, head);
        let inside: Vec<u32> = starts.iter().copied().filter(|start| rest.contains(start)).collect();
        let own = own.start.max(rest.start)..own.end.min(rest.end);
        let before = inside.iter().copied().filter(|start| *start < own.start).collect::<Vec<_>>();
        let after = inside.into_iter().filter(|start| *start >= own.end).collect::<Vec<_>>();
        // Only the head's own group can start outside `rest`: a subtree that starts inside a group has its head there.
        cut([(&before, own.start), (&after, rest.end)], class, &mut found);
        rest = own;
    }
    let before: Vec<u32> = (rest.start..head).collect();
    let after: Vec<u32> = (head + 1..rest.end).collect();
    cut([(&before, head), (&after, rest.end)], class, &mut found);
    found
}

/// The group that holds `position`.
fn group_of(starts: &[u32], position: u32) -> Range<u32> {
    let next = starts.partition_point(|start| *start <= position);
    starts[next - 1]..starts[next]
}

/// Cuts the units before and after the head's own into runs. A side is the starts of its units and the end of the last
/// one.
fn cut(sides: [(&[u32], u32); 2], class: TreeClass, found: &mut Vec<Range<u32>>) {
    match class {
        TreeClass::Kary { radix } => cut_evenly(sides, radix.max(1) as usize, found),
        TreeClass::Stages { .. } => cut_evenly(sides, usize::MAX / 2, found),
        TreeClass::Knomial { radix } => {
            let [(before, _), (after, _)] = sides;
            for_each_knomial_run(before.len(), radix.max(2) as usize, |near, far| {
                add_run(sides[0], before.len() - far..before.len() - near, found);
            });
            for_each_knomial_run(after.len(), radix.max(2) as usize, |near, far| add_run(sides[1], near..far, found));
        }
    }
}

fn add_run((starts, end): (&[u32], u32), units: Range<usize>, found: &mut Vec<Range<u32>>) {
    found.push(starts[units.start]..starts.get(units.end).copied().unwrap_or(end));
}

/// Cuts both sides together into at most `radix` runs of nearly equal length, but at least one on each side that is not
/// empty.
fn cut_evenly(sides: [(&[u32], u32); 2], radix: usize, found: &mut Vec<Range<u32>>) {
    let [before, after] = sides.map(|(units, _)| units.len());
    let share = if before == 0 {
        0
    } else {
        (before as u128 * radix as u128 + (before + after) as u128 / 2) / (before + after) as u128
    };
    let runs_before = match (before, after) {
        (0, _) => 0,
        (_, 0) => radix,
        _ => (share as usize).clamp(1, (radix - 1).max(1)),
    };
    let runs_after = if after == 0 { 0 } else { radix.saturating_sub(runs_before).max(1) };
    for (side, runs) in sides.into_iter().zip([runs_before, runs_after]) {
        let units = side.0.len();
        let runs = runs.min(units);
        for run in 0..runs {
            add_run(side, run * units / runs..(run + 1) * units / runs, found);
        }
    }
}

/// Calls `run` with the runs of `units` units beside a head: from distance `near` to before `far`, where 0 is next to
/// the head.
fn for_each_knomial_run(units: usize, radix: usize, mut run: impl FnMut(usize, usize)) {
    let mut length = 1;
    while length <= units {
        for times in 1..radix {
            let near = times * length - 1;
            if near < units {
                run(near, (near + length).min(units));
            }
        }
        length *= radix;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::OperandOrder;
    use proptest::prelude::*;

    fn trees(paths: &[Vec<u32>], class: TreeClass, root: u32) -> Vec<TreeNode> {
        let size = paths.len() as u32;
        (0..size)
            .map(|me| {
                let levels = Levels::from_paths(paths, NodeRank(me));
                levels.tree(class, OperandOrder::Any, NodeRank(root)).clone()
            })
            .collect()
    }

    #[test]
    fn two_sockets_are_crossed_once() {
        let paths: Vec<Vec<u32>> = (0..12).map(|rank| vec![rank / 6]).collect();
        let all = trees(&paths, TreeClass::Kary { radix: 2 }, 0);
        let crossings = all
            .iter()
            .enumerate()
            .filter(|(rank, node)| node.parent.is_some_and(|parent| parent.0 / 6 != *rank as u32 / 6));
        assert_eq!(crossings.count(), 1);
        assert_eq!(all[6].parent, Some(NodeRank(0)));
    }

    fn parents(all: &[TreeNode]) -> Vec<Option<u32>> {
        all.iter().map(|node| node.parent.map(|parent| parent.0)).collect()
    }

    #[test]
    fn radix_1_is_a_chain_that_crosses_each_border_once() {
        let paths: Vec<Vec<u32>> = (0..6).map(|rank| vec![rank / 3]).collect();
        let all = trees(&paths, TreeClass::Kary { radix: 1 }, 0);
        assert_eq!(parents(&all), [None, Some(0), Some(1), Some(2), Some(3), Some(4)]);
    }

    #[test]
    fn knomial_trees_are_those_of_nishtala() {
        let flat = |size: usize| vec![Vec::new(); size];
        // The last child has the heaviest subtree.
        let binomial = trees(&flat(8), TreeClass::Knomial { radix: 2 }, 0);
        assert_eq!(parents(&binomial), [None, Some(0), Some(0), Some(2), Some(0), Some(4), Some(4), Some(6)]);
        let lengths: Vec<usize> = binomial[0].children.iter().map(|child| child.covers.len()).collect();
        assert_eq!(lengths, [1, 2, 4]);
        let trinomial = trees(&flat(9), TreeClass::Knomial { radix: 3 }, 0);
        let expected = [None, Some(0), Some(0), Some(0), Some(3), Some(3), Some(0), Some(6), Some(6)];
        assert_eq!(parents(&trinomial), expected);
    }

    #[test]
    fn stages_are_copies_from_the_root_to_a_leaf() {
        let paths: Vec<Vec<u32>> = (0..8).map(|rank| vec![rank / 4, rank / 2]).collect();
        let parents = |stages| parents(&trees(&paths, TreeClass::Stages { stages }, 1));
        assert_eq!(parents(1), [Some(1), None, Some(1), Some(1), Some(1), Some(1), Some(1), Some(1)]);
        assert_eq!(parents(2), [Some(1), None, Some(1), Some(1), Some(1), Some(4), Some(4), Some(4)]);
        assert_eq!(parents(3), [Some(1), None, Some(1), Some(2), Some(1), Some(4), Some(4), Some(6)]);
    }

    fn any_class() -> impl Strategy<Value = TreeClass> {
        prop_oneof![
            (1u32..6).prop_map(|radix| TreeClass::Kary { radix }),
            (2u32..6).prop_map(|radix| TreeClass::Knomial { radix }),
            (1u32..4).prop_map(|stages| TreeClass::Stages { stages }),
        ]
    }

    proptest! {
        #[test]
        fn every_tree_spans_all_ranks_and_children_agree_with_parents(
            places in proptest::collection::vec((0u32..3, 0u32..3), 1..40), class in any_class(), root in 0u32..40,
        ) {
            let paths: Vec<Vec<u32>> = places.iter().map(|(outer, inner)| vec![*outer, *inner]).collect();
            let root = root % paths.len() as u32;
            let all = trees(&paths, class, root);
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
