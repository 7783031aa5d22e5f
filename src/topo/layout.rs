//! How the ranks of a communicator are distributed over nodes.

use super::cache::Cache;
use super::exchange::Exchange;
use super::levels::Levels;
use crate::types::{CommRank, NodeIndex, NodeRank};

/// The members of each node of one communicator, the same on all ranks but for [`Layout::my_node`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    my_node: NodeIndex,
    /// Members of all nodes one after another, each node's in the order of their ranks.
    members: Vec<CommRank>,
    /// `first[i]`: where node `i` starts in `members`; one more entry than nodes.
    first: Vec<u32>,
    place: Vec<(NodeIndex, NodeRank)>,
    leaders: usize,
    exchanges: Cache<u32, Exchange>,
}

impl Layout {
    /// Makes a layout from the node label of each rank and the rank that asks. A label is any number that is equal on
    /// one node and differs between nodes. Nodes are numbered by their lowest rank.
    ///
    /// # Panics
    /// If `me` is not an index of `labels`.
    pub fn new(labels: &[u32], me: CommRank) -> Self {
        let mut nodes: Vec<Vec<CommRank>> = vec![Vec::new()];
        let mut index_of = std::collections::HashMap::new();
        let mut place = Vec::with_capacity(labels.len());
        for (rank, label) in labels.iter().enumerate() {
            // Most communicators are on one node: there a table would take longer than all else.
            let node = if *label == labels[0] {
                0
            } else {
                *index_of.entry(*label).or_insert_with(|| {
                    nodes.push(Vec::new());
                    nodes.len() - 1
                })
            };
            place.push((NodeIndex(node as u32), NodeRank(nodes[node].len() as u32)));
            nodes[node].push(CommRank(rank as u32));
        }
        let mut first = vec![0];
        for node in &nodes {
            first.push(first[first.len() - 1] + node.len() as u32);
        }
        Self {
            my_node: place[me.index()].0,
            members: nodes.concat(),
            first,
            place,
            leaders: 1,
            exchanges: Cache::default(),
        }
    }

    /// The same layout with `leaders` leaders per node, but no more than the smallest node has members.
    #[must_use]
    pub fn with_leaders(self, leaders: usize) -> Self {
        let leaders = leaders.clamp(1, self.smallest_node());
        Self { leaders, ..self }
    }

    /// Number of leaders of each node, at least 1. Each has a communicator with the leaders of the same index on other
    /// nodes.
    #[inline]
    pub fn leaders(&self) -> usize {
        self.leaders
    }

    /// Leader `index` of `node`, one of [`Layout::leaders`]. They are evenly spread over its ranks; the first is
    /// [`NodeRank::LEADER`].
    #[inline]
    pub fn leader(&self, node: NodeIndex, index: usize) -> NodeRank {
        NodeRank((index * self.members(node).len() / self.leaders) as u32)
    }

    /// The index of `rank` among the leaders of `node`, if it is one.
    pub fn leader_index(&self, node: NodeIndex, rank: NodeRank) -> Option<usize> {
        (0..self.leaders).find(|index| self.leader(node, *index) == rank)
    }

    /// This node's part in an exchange of all nodes with up to `radix` nodes in a step, at least 2. Nodes take the
    /// place of ranks in it. Computed once per radix.
    pub fn exchange(&self, radix: u32) -> &Exchange {
        let radix = radix.max(2);
        self.exchanges.get(radix, || {
            let me = NodeRank(self.my_node.0);
            Exchange::find(&Levels::flat(self.nodes(), me), radix, me)
        })
    }

    /// The layout of `size` ranks on one node.
    pub fn single(size: usize) -> Self {
        Self::new(&vec![0; size.max(1)], CommRank(0))
    }

    /// The node of the rank that asked.
    #[inline]
    pub fn my_node(&self) -> NodeIndex {
        self.my_node
    }

    /// Number of nodes, at least 1.
    #[inline]
    pub fn nodes(&self) -> usize {
        self.first.len() - 1
    }

    /// Ranks of the communicator.
    #[inline]
    pub fn size(&self) -> usize {
        self.place.len()
    }

    /// The ranks on `node`, ascending.
    #[inline]
    pub fn members(&self, node: NodeIndex) -> &[CommRank] {
        &self.members[self.first(node)..self.first[node.index() + 1] as usize]
    }

    /// Number of members of the nodes before `node`.
    #[inline]
    pub fn first(&self, node: NodeIndex) -> usize {
        self.first[node.index()] as usize
    }

    /// All ranks, node after node: block `i` of a node-ordered buffer is that of rank `in_node_order()[i]`.
    #[inline]
    pub fn in_node_order(&self) -> &[CommRank] {
        &self.members
    }

    /// The node of a rank, and its number there.
    #[inline]
    pub fn place(&self, rank: CommRank) -> (NodeIndex, NodeRank) {
        self.place[rank.index()]
    }

    /// Whether each node holds a contiguous range of ranks, so that combining nodes in order is combining ranks in
    /// order.
    pub fn is_block_placed(&self) -> bool {
        self.members.windows(2).all(|pair| pair[0] < pair[1])
    }

    /// Number of members of the smallest node.
    pub fn smallest_node(&self) -> usize {
        self.first.windows(2).map(|pair| (pair[1] - pair[0]) as usize).min().unwrap_or(1)
    }

    /// Number of members of the largest node.
    pub fn largest_node(&self) -> usize {
        self.first.windows(2).map(|pair| (pair[1] - pair[0]) as usize).max().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_robin_ranks_are_grouped_and_not_block_placed() {
        let layout = Layout::new(&[7, 3, 7, 3, 7], CommRank(3));
        assert_eq!(layout.nodes(), 2);
        assert_eq!(layout.my_node(), NodeIndex(1));
        assert_eq!(layout.members(NodeIndex(0)), [CommRank(0), CommRank(2), CommRank(4)]);
        assert_eq!(layout.place(CommRank(4)), (NodeIndex(0), NodeRank(2)));
        assert_eq!(layout.first(NodeIndex(1)), 3);
        assert_eq!(layout.largest_node(), 3);
        assert!(!layout.is_block_placed());
    }

    #[test]
    fn leaders_are_spread_over_their_node() {
        let layout = Layout::new(&[0, 0, 0, 0, 0, 1, 1, 1], CommRank(0)).with_leaders(2);
        let leaders = |node: u32| [0, 1].map(|index| layout.leader(NodeIndex(node), index).0);
        assert_eq!((leaders(0), leaders(1)), ([0, 2], [0, 1]));
        assert_eq!(layout.leader_index(NodeIndex(0), NodeRank(2)), Some(1));
        assert_eq!(layout.leader_index(NodeIndex(0), NodeRank(1)), None);
        assert_eq!(layout.with_leaders(9).leaders(), 3);
    }

    #[test]
    fn uneven_blocks_are_block_placed() {
        let layout = Layout::new(&[0, 0, 0, 9], CommRank(0));
        assert!(layout.is_block_placed());
        assert_eq!(layout.members(NodeIndex(1)), [CommRank(3)]);
    }
}
