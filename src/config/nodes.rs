//! Virtual nodes: one machine cut into several, for tests of the steps between nodes.

/// How the ranks of a node are dealt to its virtual nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeOrder {
    /// Each virtual node is filled before the next one.
    Block,
    /// One rank to each virtual node in turn, as long as it has room.
    Cyclic,
}

/// The virtual node of each rank. The sizes (each at least 1) repeat until all ranks have a place.
pub(super) fn deal(sizes: &[u32], order: NodeOrder, ranks: usize) -> Vec<u32> {
    let mut rooms: Vec<usize> = Vec::new();
    let mut placed = 0;
    for size in sizes.iter().cycle() {
        if placed >= ranks {
            break;
        }
        let room = (*size as usize).min(ranks - placed);
        rooms.push(room);
        placed += room;
    }
    match order {
        NodeOrder::Block => {
            rooms.iter().enumerate().flat_map(|(node, room)| std::iter::repeat_n(node as u32, *room)).collect()
        }
        NodeOrder::Cyclic => {
            let rounds = rooms.iter().copied().max().unwrap_or(0);
            let has_room = |node: &usize, round| rooms[*node] > round;
            (0..rounds)
                .flat_map(|round| (0..rooms.len()).filter(move |node| has_room(node, round)))
                .map(|node| node as u32)
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_repeat_and_the_last_is_cut() {
        assert_eq!(deal(&[2], NodeOrder::Block, 5), [0, 0, 1, 1, 2]);
        assert_eq!(deal(&[3, 1], NodeOrder::Block, 6), [0, 0, 0, 1, 2, 2]);
    }

    #[test]
    fn cyclic_deals_in_turn_while_there_is_room() {
        assert_eq!(deal(&[2], NodeOrder::Cyclic, 4), [0, 1, 0, 1]);
        assert_eq!(deal(&[3, 1], NodeOrder::Cyclic, 4), [0, 1, 0, 0]);
        assert_eq!(deal(&[4], NodeOrder::Cyclic, 3), [0, 0, 0]);
    }
}
