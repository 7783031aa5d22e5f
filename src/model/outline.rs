//! A tree over the ranks of a node, as costs see it: who reads whom, and over which level.

use super::Scene;
use crate::topo::TreeClass;
use crate::types::NodeRank;

/// A child of a tree and its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The child.
    pub child: usize,
    /// Its parent.
    pub parent: usize,
    /// The level at which child and parent part.
    pub level: usize,
    /// Ranks in the child's subtree.
    pub covers: usize,
    /// Edges that leave the parent's group at this level, this one included.
    pub sharing: usize,
}

/// The edges of a tree rooted at the first rank, parents before their children. The children of a rank are listed from
/// the last position to the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Ranks.
    pub ranks: usize,
    /// All edges.
    pub edges: Vec<Edge>,
    /// By rank, whether it has children.
    pub is_inner: Vec<bool>,
    /// Edges from the root to the furthest rank.
    pub depth: usize,
}

impl Outline {
    pub(super) fn of(scene: &Scene, class: TreeClass) -> Self {
        let levels = scene.positions();
        let ranks = scene.local_ranks;
        let mut edges: Vec<Edge> = Vec::with_capacity(ranks);
        let mut is_inner = vec![false; ranks];
        let mut depths = vec![0; ranks];
        let mut pending = vec![NodeRank(0)];
        while let Some(rank) = pending.pop() {
            let node = levels.place_in_tree(class, NodeRank(0), rank);
            is_inner[rank.index()] = !node.children.is_empty();
            for child in node.children.iter().rev() {
                let level = scene.parting(rank.0, child.rank.0);
                let (child, covers) = (child.rank, child.covers.len());
                edges.push(Edge { child: child.index(), parent: rank.index(), level, covers, sharing: 0 });
                depths[child.index()] = depths[rank.index()] + 1;
                pending.push(child);
            }
        }
        let mut sharing = std::collections::HashMap::<(usize, usize), usize>::new();
        let link = |edge: &Edge| (edge.level, edge.parent / scene.width(edge.level).max(1));
        for edge in &edges {
            *sharing.entry(link(edge)).or_default() += 1;
        }
        for edge in &mut edges {
            edge.sharing = sharing[&link(edge)];
        }
        Self { ranks, edges, is_inner, depth: depths.into_iter().max().unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Crossing, Level, Machine, Network};
    use crate::types::Bytes;

    #[test]
    fn a_binary_tree_over_two_sockets_crosses_once() {
        let crossing = Crossing { latency: 1.0, stream: 0.0, shared: 0.0 };
        let level = |fan| Level { fan, crossing };
        let network = Network { latency: 0.0, overhead: 0.0, gap: 0.0, per_byte: 0.0 };
        let machine = Machine::plain(0.0, vec![], [0.0, 0.0], network);
        let scene = Scene::new((12, 1, 12), vec![level(2), level(6)], (Bytes(8192), 32), machine);
        assert_eq!((scene.width(0), scene.peers(0), scene.peers(1)), (6, 6, 5));
        assert_eq!((scene.parting(0, 5), scene.parting(5, 6), scene.parting(3, 3)), (1, 0, 1));
        let outline = scene.outline(TreeClass::Kary { radix: 2 });
        assert_eq!(outline.edges.len(), 11);
        assert_eq!(outline.edges.iter().filter(|edge| edge.level == 0).count(), 1);
        let flat = scene.outline(TreeClass::Stages { stages: 1 });
        assert_eq!((outline.depth, flat.depth), (3, 1));
        assert!(flat.edges.iter().all(|edge| edge.parent == 0 && edge.covers == 1));
        assert_eq!(flat.edges.iter().filter(|edge| edge.level == 0 && edge.sharing == 6).count(), 6);
        let two = scene.outline(TreeClass::Stages { stages: 2 });
        assert_eq!(two.edges.iter().filter(|edge| edge.parent == 6).count(), 5);
    }
}
