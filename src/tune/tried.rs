//! Calls in which two ways are tried, in place of what the models choose.

use super::Agreed;
use crate::coll::{Knob, Knobs, REGISTRY, TRY_MEMORY, TRY_SLOTS, rows_of};
use crate::config::Forced;
use crate::types::{Bytes, Collective, OperandOrder};

/// Of shorter data nothing is tried: what these take depends on waits as much as on copies.
const LONGER_THAN: Bytes = Bytes(12 << 10);
/// An Allgather that tries both has no plain functions for its calls, which cost a tenth of a microsecond more (docs/PERFORMANCE.md,
/// "Tried").
const LONGER_THAN_OF_ALLGATHER: Bytes = Bytes(48 << 10);

/// What tries both slots and memory for data that a rank hands to its only peer, on cores of their own, where the models choose `pick`
/// for a size class that reaches to `longest`: they only say with which of these calls begin, and how long pieces are that lie in slots.
/// More ranks have not been measured; where ranks share cores, their turns hide what is faster ("Tried").
pub(super) fn tried(agreed: &Agreed, collective: Collective, longest: Bytes, pick: &Forced) -> Option<Forced> {
    let is_pair = agreed.nodes == 1 && agreed.ranks == 2 && !agreed.crowding.is_shared();
    let is_long = match collective {
        Collective::Allgather => longest > LONGER_THAN_OF_ALLGATHER,
        _ => longest > LONGER_THAN,
    };
    if !is_pair || !is_long {
        return None;
    }
    let picked = &REGISTRY[pick.row];
    let (row, algorithm) = rows_of(collective).find(|(_, row)| row.tried_for.contains(&picked.name))?;
    if algorithm.lacks(agreed.means(OperandOrder::Any)).is_some() {
        return None;
    }
    // Pieces of an algorithm without tiles are as long as cells.
    let whole = Knobs::UNSET.with(Knob::Tile, agreed.cell_bytes.0 as u32);
    let of_pick = if picked.knobs.contains(&Knob::Tile) { pick.knobs } else { whole };
    let shared = algorithm.knobs.iter().filter_map(|knob| of_pick.set(*knob).map(|value| (*knob, value)));
    let knobs = shared.fold(Knobs::UNSET, |knobs, (knob, value)| knobs.with(knob, value));
    let first = if row == pick.row { TRY_MEMORY } else { TRY_SLOTS };
    Some(Forced { row, knobs: knobs.with(Knob::Try, first) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coll;
    use crate::model::Parameters;
    use crate::topo::{Crowding, Hierarchy};
    use crate::tune::map::rank;
    use crate::tune::{Map, OperatorClass, Shape};
    use crate::types::CommRank;

    const PAIR: Agreed =
        Agreed { cell_bytes: Bytes(128 << 10), slots: 4, ..Agreed::on_one_node(2, Hierarchy::flat(2, None)) };

    fn pick(agreed: &Agreed, collective: Collective, kib: usize) -> Forced {
        let is_reduction = matches!(collective, Collective::Allreduce | Collective::Reduce);
        let shape = Shape {
            collective,
            bytes: Bytes(kib << 10),
            granule: if is_reduction { Bytes(8) } else { Bytes(1) },
            root: CommRank(0),
            operator: if is_reduction { OperatorClass::Predefined } else { OperatorClass::None },
            order: OperandOrder::Any,
        };
        Map::new(agreed, &Parameters::default()).pick(&shape)
    }

    #[test]
    fn long_data_between_two_ranks_are_tried_in_slots_and_memory() {
        for collective in Collective::ALL {
            let is_moved = matches!(collective, Collective::Bcast | Collective::Allgather | Collective::Scatter);
            let is_gather = collective == Collective::Allgather;
            for (kib, is_long) in
                [(12, false), (16, !is_gather), (48, !is_gather), (49, true), (256, true), (4096, true)]
            {
                let pick = pick(&PAIR, collective, kib);
                assert_eq!(pick.knobs.set(Knob::Try).is_some(), is_moved && is_long, "{pick} of {kib} KiB");
            }
        }
    }

    #[test]
    fn other_ranks_try_nothing() {
        let without = Agreed { has_single_copy: false, ..PAIR };
        let shared = Agreed { crowding: Crowding::new(2, 1.0), ..PAIR };
        let nodes = Agreed { nodes: 2, largest_node: 1, ..PAIR };
        let three = Agreed { ranks: 3, largest_node: 3, hierarchy: Hierarchy::flat(3, None), ..PAIR };
        for agreed in [without, shared, nodes, three] {
            for collective in Collective::ALL {
                assert_eq!(pick(&agreed, collective, 256).knobs.set(Knob::Try), None, "{collective:?}");
            }
        }
    }

    #[test]
    fn calls_begin_as_the_models_choose() {
        for collective in [Collective::Bcast, Collective::Allgather, Collective::Scatter] {
            for kib in [64, 256, 1024, 4096] {
                let best = rank(collective, Bytes(kib << 10), &PAIR, &Parameters::default())[0].forced;
                let first = if REGISTRY[best.row].name == "single" { TRY_MEMORY } else { TRY_SLOTS };
                assert_eq!(pick(&PAIR, collective, kib).knobs.get(Knob::Try), first, "{best}");
            }
        }
        let knobs = Knobs::UNSET.with(Knob::Buffers, 2).with(Knob::Tile, 4096);
        let tiled = Forced { row: coll::find(Collective::Bcast, "tiled").unwrap(), knobs };
        let tried =
            |pick: &Forced| tried(&PAIR, Collective::Bcast, Bytes(1 << 20), pick).map(|tried| tried.to_string());
        assert_eq!(tried(&tiled).as_deref(), Some("single:try=slots:tile=4096"));
        let flat = Forced { row: coll::find(Collective::Bcast, "flat").unwrap(), ..tiled };
        assert_eq!(tried(&flat).as_deref(), Some("single:try=slots:tile=131072"));
        let tree = Forced { row: coll::find(Collective::Bcast, "tree").unwrap(), ..tiled };
        assert_eq!(tried(&tree), None);
    }
}
