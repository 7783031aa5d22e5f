//! Calls that try two ways, in place of the one that the models choose.

use super::Agreed;
use super::choose::is_short_if_tried;
use super::class::SizeClass;
use crate::coll::{Knob, Knobs, REGISTRY, TRY_MEMORY, TRY_SLOTS, rows_of};
use crate::config::Setting;
use crate::model::Far;
use crate::types::{Bytes, Collective, OperandOrder};

/// Shorter data are not tried: what they take depends on waits as much as on copies. At 16 KiB, where data rest between
/// calls, Bcasts and Scatters out of memory take half of the time. Where data change, Bcasts through slots took a
/// fiftieth to a fifteenth more with trials, before these were short calls (docs/PERFORMANCE.md, "Tried").
const LONGER_THAN: Bytes = Bytes(12 << 10);
/// Allgathers lose more through slots where both are tried, up to a tenth.
const LONGER_THAN_OF_ALLGATHER: Bytes = Bytes(48 << 10);

/// How many times as long as their choice the models may predict for a way that turns out to be as fast.
const DOUBT: f64 = 2.0;

/// The setting that tries both slots and memory for data that ranks of one node hand to others, where the models choose
/// `pick` for this size class. The models then only say with which of the two calls begin, and how long pieces in slots
/// are.
///
/// Both are tried between two ranks with cores of their own, and in Scatters of ranks that share cores. If the models
/// choose memory for such Scatters, slots are tried as long as half of the last-level cache holds what all ranks are
/// sent: on one machine Scatters out of memory then take half of the time of those through slots, on another up to
/// twice as long. If the models choose slots, memory is tried as soon as that half does not hold what all ranks send,
/// each as the root in turn, and are sent. It is also tried where the models find it no more than `DOUBT` times as slow
/// (`by_memory`). On some machines the system's time for a copy changes by the minute, but what was measured once
/// stays. Some systems report caches of which they have a small part. And memory was up to 1.6 times as fast where the
/// models chose slots. Shorter Scatters do not try memory, though it may be as fast: trials know no tiles, which would
/// be lost. The last class has no longest call, so nothing is tried in it where the models choose memory. More ranks
/// that have cores of their own have not been measured.
pub(super) fn tried(
    agreed: &Agreed,
    collective: Collective,
    class: SizeClass,
    pick: &Setting,
    memory: &Far,
    by_memory: f64,
) -> Option<Setting> {
    let picked = &REGISTRY[pick.row];
    let is_long = match collective {
        Collective::Allgather => class.judged_at() > LONGER_THAN_OF_ALLGATHER,
        _ => class.judged_at() > LONGER_THAN,
    };
    // Half of the last-level cache, as `tune::measured` sets it.
    let is_cached = |bytes: Bytes| bytes.0 as f64 <= memory.beyond;
    let of_all = class.judged_at() * agreed.ranks;
    let is_open = if !agreed.crowding.is_shared() {
        agreed.ranks == 2
    } else if picked.knobs.contains(&Knob::Try) {
        // The other half of the cache is for what is received.
        class.end().is_some() && is_cached(of_all)
    } else {
        collective == Collective::Scatter && (by_memory <= DOUBT || !is_cached(of_all * (agreed.ranks + 1)))
    };
    if agreed.nodes > 1 || !is_long || !is_open {
        return None;
    }
    let (row, algorithm) = rows_of(collective).find(|(_, row)| row.tried_for.contains(&picked.name))?;
    if algorithm.lacks(agreed.means(OperandOrder::Any)).is_some() {
        return None;
    }
    // Pieces of an algorithm without tiles are as long as cells. A Bcast that is a short call either way has pieces of
    // half its length.
    let whole = Knobs::UNSET.with(Knob::Tile, agreed.cell_bytes.0 as u32);
    let is_short = |longest| is_short_if_tried(longest, agreed, &Setting { row, knobs: Knobs::UNSET });
    let has_tiles = picked.knobs.contains(&Knob::Tile) || class.end().is_some_and(is_short);
    let of_pick = if has_tiles { pick.knobs } else { whole };
    let shared = algorithm.knobs.iter().filter_map(|knob| of_pick.set(*knob).map(|value| (*knob, value)));
    let knobs = shared.fold(Knobs::UNSET, |knobs, (knob, value)| knobs.with(knob, value));
    let first = if row == pick.row { TRY_MEMORY } else { TRY_SLOTS };
    Some(Setting { row, knobs: knobs.with(Knob::Try, first) })
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

    fn pick(agreed: &Agreed, collective: Collective, kib: usize) -> Setting {
        pick_of(&Map::new(agreed, &Parameters::default()), collective, kib)
    }

    fn pick_of(map: &Map, collective: Collective, kib: usize) -> Setting {
        let is_reduction = collective.is_reduction();
        let shape = Shape {
            collective,
            bytes: Bytes(kib << 10),
            granule: if is_reduction { Bytes(8) } else { Bytes(1) },
            root: CommRank(0),
            operator: if is_reduction { OperatorClass::Predefined } else { OperatorClass::None },
            order: OperandOrder::Any,
        };
        map.pick(&shape)
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
        let nodes = Agreed { nodes: 2, largest_node: 1, ..PAIR };
        let three = Agreed { ranks: 3, largest_node: 3, hierarchy: Hierarchy::flat(3, None), ..PAIR };
        for agreed in [without, nodes, three] {
            for collective in Collective::ALL {
                assert_eq!(pick(&agreed, collective, 256).knobs.set(Knob::Try), None, "{collective:?}");
            }
        }
    }

    #[test]
    fn where_ranks_share_cores_slots_are_tried_in_place_of_memory() {
        let four = Agreed { ranks: 4, largest_node: 4, hierarchy: Hierarchy::flat(4, None), ..PAIR };
        let shared = Agreed { crowding: Crowding::new(2, 1.0), ..four };
        // What its last-level cache holds: little, as much as usual, and all but the longest blocks.
        for cached_mib in [4, 8, 16, 64, 512] {
            let mut parameters = Parameters::default();
            parameters.memory.beyond = f64::from(cached_mib << 20);
            let map = Map::new(&shared, &parameters);
            let is_tried = |collective, kib| pick_of(&map, collective, kib).knobs.set(Knob::Try) == Some(TRY_MEMORY);
            let best = |kib| rank(Collective::Scatter, Bytes(kib << 10), &shared, &parameters)[0].setting.row;
            let mut found = [false; 2];
            for kib in [16, 64, 256, 1024, 4096, 8192, 16384, 65536, 262_144] {
                let is_memory = REGISTRY[best(kib)].name == "single";
                let is_cached = (4 * kib) >> 10 <= cached_mib as usize && kib <= 6144;
                let size = format!("{kib} KiB, {cached_mib} MiB cached");
                assert_eq!(is_tried(Collective::Scatter, kib), is_memory && is_cached, "{size}");
                found[usize::from(is_memory && is_cached)] = true;
                assert!(!is_tried(Collective::Bcast, kib) && !is_tried(Collective::Allgather, kib), "{size}");
            }
            assert_eq!(found, [true; 2], "{cached_mib} MiB cached");
        }
    }

    #[test]
    fn where_ranks_share_cores_memory_is_tried_in_place_of_slots_in_doubt_and_beyond_the_caches() {
        let four = Agreed { ranks: 4, largest_node: 4, hierarchy: Hierarchy::flat(4, None), ..PAIR };
        let shared = Agreed { crowding: Crowding::new(2, 1.0), ..four };
        let mut found = [0; 2];
        // From a little more than a copy of the rank's own memory to what some systems take.
        for (per_byte, cached_mib) in [(0.06, 150), (0.2, 150), (2.0, 150), (2.0, 16)] {
            let mut parameters = Parameters::default();
            parameters.single_copy.per_byte = per_byte;
            parameters.memory.beyond = f64::from(cached_mib << 20);
            let map = Map::new(&shared, &parameters);
            for kib in [16, 64, 128, 256, 512, 768, 1024, 4096, 8192, 16384, 65536] {
                for collective in [Collective::Bcast, Collective::Allgather, Collective::Scatter] {
                    let ranking = rank(collective, Bytes(kib << 10), &shared, &parameters);
                    let is_single = |setting: &Setting| REGISTRY[setting.row].name == "single";
                    if is_single(&ranking[0].setting) {
                        continue;
                    }
                    let memory = ranking.iter().find(|one| is_single(&one.setting)).map(|one| one.cost.0);
                    let is_doubtful = memory.is_some_and(|memory| memory <= 2.0 * ranking[0].cost.0);
                    let is_beyond = 5 * 4 * kib > (cached_mib as usize) << 10;
                    let is_tried = collective == Collective::Scatter && (is_doubtful || is_beyond);
                    let first = pick_of(&map, collective, kib).knobs.set(Knob::Try);
                    assert_eq!(first, is_tried.then_some(TRY_SLOTS), "{kib} KiB, {collective:?}, {per_byte} ns a byte");
                    found[usize::from(is_doubtful)] += usize::from(is_tried);
                }
            }
        }
        assert!(found.iter().all(|times| *times > 0), "{found:?}");
    }

    #[test]
    fn calls_begin_as_the_models_choose() {
        for collective in [Collective::Bcast, Collective::Allgather, Collective::Scatter] {
            for kib in [64, 256, 1024, 4096] {
                let best = rank(collective, Bytes(kib << 10), &PAIR, &Parameters::default())[0].setting;
                let first = if REGISTRY[best.row].name == "single" { TRY_MEMORY } else { TRY_SLOTS };
                assert_eq!(pick(&PAIR, collective, kib).knobs.get(Knob::Try), first, "{best}");
            }
        }
        let knobs = Knobs::UNSET.with(Knob::Buffers, 2).with(Knob::Tile, 4096);
        let tiled = Setting { row: coll::find(Collective::Bcast, "tiled").unwrap(), knobs };
        let tried = |kib: usize, pick: &Setting| {
            tried(&PAIR, Collective::Bcast, SizeClass::of(Bytes(kib << 10)), pick, &Parameters::default().memory, 1.0)
                .map(|tried| tried.to_string())
        };
        assert_eq!(tried(1 << 10, &tiled).as_deref(), Some("single:try=slots:tile=4096"));
        let picked = |name| Setting { row: coll::find(Collective::Bcast, name).unwrap(), knobs: Knobs::UNSET };
        let flat = Setting { row: picked("flat").row, ..tiled };
        assert_eq!(tried(1 << 10, &flat).as_deref(), Some("single:try=slots:tile=131072"));
        assert_eq!(tried(1 << 10, &picked("tree")), None);
        // Short calls have tiles of half their length, as in `choose`, whatever the models choose.
        for name in ["flat", "tiled"] {
            assert_eq!(tried(48, &picked(name)).as_deref(), Some("single:try=slots"), "{name}");
        }
        assert_eq!(tried(64, &picked("flat")).as_deref(), Some("single:try=slots:tile=131072"));
        // With two slots no tiles share a cell.
        let few = Agreed { slots: 2, ..PAIR };
        let memory = Parameters::default().memory;
        let class = SizeClass::of(Bytes(48 << 10));
        let tried = super::tried(&few, Collective::Bcast, class, &picked("flat"), &memory, 1.0);
        assert_eq!(tried.map(|tried| tried.to_string()).as_deref(), Some("single:try=slots:tile=131072"));
    }
}
