//! What huddle chooses where nobody told it: thresholds by ranks of a node and size.
//!
//! **Provisional**: rules of thumb on the shape of the costs, until a model and measurements replace them. A flat
//! algorithm has the fewest steps and the most readers per slot; a tree more steps and few readers; a tiled one shares
//! the work of long messages.

use super::{Agreed, Shape};
use crate::coll::REGISTRY;
use crate::fabric::INLINE;
use crate::types::{Bytes, Collective};

/// Up to so many ranks the flat forms win whatever the size of a message that fits a few slots.
const FEW_RANKS: usize = 4;
/// Up to so many ranks the flat forms win for the shortest messages.
const SOME_RANKS: usize = 8;
/// Longest message of a reduction that is flat on few ranks, and of a broadcast that takes a tree on many.
const SHORT: Bytes = Bytes(8 << 10);
/// Longest message of a reduction that is flat on some ranks.
const VERY_SHORT: Bytes = Bytes(512);
/// Longest message that moves in one piece: a longer one is read while the rest is written.
const PIECE: Bytes = Bytes(16 << 10);
/// Tiled reductions pay where each rank has at least this much to combine.
const SHARE: Bytes = Bytes(256);
/// Longest block of an allgather that takes a tree on many ranks.
const TINY_BLOCK: Bytes = INLINE;

/// The forms in which collectives come. The names are those of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Flat,
    Tree,
    Tiled,
}

impl Form {
    const ALL: [Self; 3] = [Self::Flat, Self::Tree, Self::Tiled];

    const fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Tree => "tree",
            Self::Tiled => "tiled",
        }
    }
}

/// By collective and form, the row; the first row of the collective where it has no such form.
const ROWS: [[usize; Form::ALL.len()]; Collective::ALL.len()] = {
    let mut rows = [[0; Form::ALL.len()]; Collective::ALL.len()];
    let mut collective = 0;
    while collective < rows.len() {
        let mut form = 0;
        while form < Form::ALL.len() {
            rows[collective][form] = row_named(Collective::ALL[collective], Form::ALL[form].name());
            form += 1;
        }
        collective += 1;
    }
    rows
};

const fn row_named(collective: Collective, name: &str) -> usize {
    let mut fallback = None;
    let mut index = 0;
    while index < REGISTRY.len() {
        if REGISTRY[index].collective as u8 == collective as u8 {
            if is_same(REGISTRY[index].name, name) {
                return index;
            }
            if fallback.is_none() {
                fallback = Some(index);
            }
        }
        index += 1;
    }
    match fallback {
        Some(index) => index,
        None => panic!("every collective has a row"),
    }
}

/// `==` of strings, which constants cannot use yet.
const fn is_same(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let mut index = 0;
    while index < left.len() && index < right.len() && left[index] == right[index] {
        index += 1;
    }
    index == left.len() && index == right.len()
}

/// The row for a call that nobody forced.
#[inline]
pub(super) fn row(shape: &Shape, agreed: &Agreed) -> usize {
    ROWS[shape.collective as usize][form(shape, agreed) as usize]
}

fn form(shape: &Shape, agreed: &Agreed) -> Form {
    let ranks = agreed.largest_node;
    let piece = PIECE.min(agreed.cell_bytes);
    let form = match shape.collective {
        // The root combines while the others copy in: in all that is less work than a tiled reduction.
        Collective::Reduce if ranks < FEW_RANKS || agreed.oversubscribed => Form::Flat,
        // Two ranks that each combine everything move as much between them as two that combine a half each, in fewer steps.
        Collective::Allreduce if ranks == 2 => Form::Flat,
        Collective::Allreduce | Collective::Reduce => reduction(shape.bytes, ranks),
        Collective::Bcast if shape.bytes > piece => Form::Tiled,
        Collective::Bcast => tree_on_many(ranks, shape.bytes <= SHORT),
        Collective::Allgather => tree_on_many(ranks, shape.bytes <= TINY_BLOCK),
        Collective::Barrier => tree_on_many(ranks, true),
        // Flat puts a piece of every block into one slot: worth it where the blocks fit whole.
        Collective::Scatter if shape.bytes.0.saturating_mul(ranks) > piece.0 => Form::Tiled,
        Collective::Scatter => Form::Flat,
    };
    match form {
        // Each level of a tree may wait for a rank that does not run.
        Form::Tree if agreed.oversubscribed => Form::Flat,
        form => form,
    }
}

fn reduction(bytes: Bytes, ranks: usize) -> Form {
    let is_flat = ranks <= FEW_RANKS && bytes <= SHORT || ranks <= SOME_RANKS && bytes <= VERY_SHORT;
    if is_flat {
        Form::Flat
    } else if bytes > SHORT && bytes >= SHARE * ranks {
        Form::Tiled
    } else {
        Form::Tree
    }
}

fn tree_on_many(ranks: usize, is_short: bool) -> Form {
    if ranks > SOME_RANKS && is_short { Form::Tree } else { Form::Flat }
}

#[cfg(test)]
mod tests {
    use super::super::OperatorClass;
    use super::*;
    use crate::topo::Hierarchy;
    use crate::types::{CommRank, OperandOrder};

    fn name(collective: Collective, bytes: usize, ranks: usize) -> &'static str {
        let shape = Shape {
            collective,
            bytes: Bytes(bytes),
            granule: Bytes(1),
            root: CommRank(0),
            operator: OperatorClass::None,
            order: OperandOrder::Any,
        };
        let agreed = Agreed::on_one_node(ranks, Hierarchy::flat(ranks, None));
        let row = &REGISTRY[row(&shape, &agreed)];
        assert_eq!(row.collective, collective);
        let crowded = Agreed { oversubscribed: true, ..agreed };
        assert!(row.name != "tree" || REGISTRY[super::row(&shape, &crowded)].name == "flat");
        row.name
    }

    #[test]
    fn reductions() {
        for collective in [Collective::Allreduce, Collective::Reduce] {
            assert_eq!(name(collective, 8192, 4), "flat");
            assert_eq!(name(collective, 8193, 4), "tiled");
            assert_eq!(name(collective, 512, 8), "flat");
            assert_eq!(name(collective, 8192, 8), "tree");
            assert_eq!(name(collective, 8, 9), "tree");
            assert_eq!(name(collective, 16384, 128), "tree");
            assert_eq!(name(collective, 32768, 128), "tiled");
        }
    }

    #[test]
    fn few_or_crowded_ranks_reduce_at_the_root() {
        assert_eq!(name(Collective::Reduce, 1 << 20, 3), "flat");
        assert_eq!(name(Collective::Reduce, 1 << 20, 4), "tiled");
        assert_eq!(name(Collective::Allreduce, 1 << 20, 2), "flat");
        assert_eq!(name(Collective::Allreduce, 1 << 20, 3), "tiled");
    }

    #[test]
    fn data_movement() {
        assert_eq!(name(Collective::Bcast, 8192, 8), "flat");
        assert_eq!(name(Collective::Bcast, 8192, 9), "tree");
        assert_eq!(name(Collective::Bcast, 8193, 9), "tiled");
        assert_eq!(name(Collective::Allgather, 48, 9), "tree");
        assert_eq!(name(Collective::Allgather, 49, 9), "flat");
        assert_eq!(name(Collective::Allgather, 1 << 20, 2), "flat");
        assert_eq!(name(Collective::Scatter, 1024, 8), "flat");
        assert_eq!(name(Collective::Scatter, 1025, 8), "tiled");
        assert_eq!(name(Collective::Scatter, usize::MAX, 8), "tiled");
    }

    #[test]
    fn barriers() {
        assert_eq!(name(Collective::Barrier, 0, 8), "flat");
        assert_eq!(name(Collective::Barrier, 0, 9), "tree");
    }
}
