//! How the ranks of a communicator lie on nodes.

use crate::types::{CommRank, NodeIndex, NodeRank};

/// The members of each node of one communicator, the same on all ranks but for [`Layout::my_node`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    my_node: NodeIndex,
    /// Members of all nodes one after another, each node's in the order of their ranks.
    members: Vec<CommRank>,
    /// `first[i]`: where node `i` starts in `members`; one more entry than nodes.
    first: Vec<u32>,
    place: Vec<(NodeIndex, NodeRank)>,
}

impl Layout {
    /// From the node label of each rank (any number that is equal on one node and differs between nodes) and the rank
    /// that asks. Nodes are numbered by their lowest rank.
    ///
    /// # Panics
    /// If `me` is not an index of `labels`.
    pub fn new(labels: &[u32], me: CommRank) -> Self {
        let mut nodes: Vec<Vec<CommRank>> = Vec::new();
        let mut index_of = std::collections::HashMap::new();
        let mut place = Vec::with_capacity(labels.len());
        for (rank, label) in labels.iter().enumerate() {
            let node = *index_of.entry(*label).or_insert_with(|| {
                nodes.push(Vec::new());
                nodes.len() - 1
            });
            place.push((NodeIndex(node as u32), NodeRank(nodes[node].len() as u32)));
            nodes[node].push(CommRank(rank as u32));
        }
        let mut first = vec![0];
        for node in &nodes {
            first.push(first[first.len() - 1] + node.len() as u32);
        }
        Self { my_node: place[me.index()].0, members: nodes.concat(), first, place }
    }

    /// All `size` ranks on one node.
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

    /// Members of the nodes before `node`.
    #[inline]
    pub fn first(&self, node: NodeIndex) -> usize {
        self.first[node.index()] as usize
    }

    /// All ranks, node after node: where rank `in_node_order()[i]` is, a node-ordered buffer has its block `i`.
    #[inline]
    pub fn in_node_order(&self) -> &[CommRank] {
        &self.members
    }

    /// Where a rank lies.
    #[inline]
    pub fn place(&self, rank: CommRank) -> (NodeIndex, NodeRank) {
        self.place[rank.index()]
    }

    /// Whether each node holds a contiguous range of ranks, so that combining nodes in order is combining ranks in order.
    pub fn is_block_placed(&self) -> bool {
        self.members.windows(2).all(|pair| pair[0] < pair[1])
    }

    /// Members of the largest node.
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
    fn uneven_blocks_are_block_placed() {
        let layout = Layout::new(&[0, 0, 0, 9], CommRank(0));
        assert!(layout.is_block_placed());
        assert_eq!(layout.members(NodeIndex(1)), [CommRank(3)]);
    }
}
