//! The models' choices on a communicator: by collective, how operands are combined, and size.
//!
//! Sizes fall into classes, two for each power of two. A class is judged at its upper end, when the first call of it
//! comes. All ranks judge only by what they agreed on, with operations that give the same bits everywhere, in the same
//! floating-point environment (`fpenv`).

use super::choose::{is_relay, moves_in_trains, plan};
use super::class::SizeClass;
use super::combining::Combining;
use super::tried::tried;
use super::{Agreed, Shape};
use crate::coll::{KNOMIAL, Knob, Knobs, PUSH, Plan, REGISTRY, rows_of};
use crate::config::Setting;
use crate::fpenv::in_default;
use crate::model::{Level, Nanos, Parameters, Scene};
use crate::types::{Bytes, Collective, Epoch};
use std::sync::OnceLock;

/// A way to serve a call, and what a model says of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The way.
    pub setting: Setting,
    /// Its predicted time.
    pub cost: Nanos,
}

/// The first choices of the models on a communicator, each found when a call first asks for it.
#[derive(Debug)]
pub struct Map {
    agreed: Agreed,
    /// One for each way to combine operands.
    scenes: [Scene; Combining::COUNT],
    /// By collective and by how operands are combined.
    picks: [[OnceLock<Picks>; Combining::COUNT]; Collective::ALL.len()],
}

/// On two ranks flat algorithms wait the least. They are chosen where the models find others faster by no more than
/// this: a part of the time, and at most so many nanoseconds. The time for a line is assumed, and where a line takes
/// longer each wait does. On two ranks of such a machine a tiled Allreduce of 24 KiB took 4.5 us and a flat one 2.6,
/// and the models saw 20 ns between them. Tiles that share cells are excepted: they gain more where a line takes
/// longer. So are ranks that share cores, whose waits are of another kind.
const TIE: (f64, f64) = (0.05, 250.0);

/// As `TIE.0`, for Allreduces by kernels, without a limit in nanoseconds. The models find that combining a half on each
/// rank takes up to a tenth less than combining all on both, and some room is left. They charge both alike for what a
/// rank reads of its peer. But a half is read out of the first-level cache of the core that has just combined it, which
/// takes longer than reading what was written some time before (docs/PERFORMANCE.md, "Tried").
const TIE_OF_ALLREDUCES: f64 = 0.12;

/// By how many nanoseconds a flat algorithm may be slower than the best one and still be chosen.
fn tie(collective: Collective, combining: Combining, best: Nanos) -> f64 {
    match (collective, combining) {
        // The time of the library, or of a user's function, is assumed and most of such a call. So no part of it
        // counts, only what a wait may take.
        (_, Combining::Library | Combining::Ordered) => TIE.1,
        (Collective::Allreduce, Combining::Kernel) => TIE_OF_ALLREDUCES * best.0,
        _ => TIE.1.min(TIE.0 * best.0),
    }
}

/// Choices by class. Made when first needed: for all collectives they take some twenty pages, and a job waits for each
/// page in its first calls.
type Picks = Box<[OnceLock<Setting>; SizeClass::COUNT]>;

impl Map {
    /// The map of a communicator, in which nothing is chosen yet.
    pub fn new(agreed: &Agreed, parameters: &Parameters) -> Self {
        let scenes = in_default(|| Combining::ALL.map(|combining| scene(agreed, &combining.slowed(parameters))));
        Self { agreed: *agreed, scenes, picks: Default::default() }
    }

    /// The models' first choice for a call of this shape.
    #[inline]
    pub fn pick(&self, shape: &Shape) -> Setting {
        let (class, combining) = (SizeClass::of(shape.bytes), Combining::of(shape));
        let picks = self.picks[shape.collective as usize][combining as usize].get();
        match picks.and_then(|picks| picks[class.index()].get()) {
            Some(pick) => *pick,
            None => self.judge(shape.collective, combining, class),
        }
    }

    /// Asks the models, once for all calls of a class: some microseconds on few ranks, more on many
    /// (`cargo bench --package huddle-benches --bench choose`).
    #[cold]
    #[inline(never)]
    fn judge(&self, collective: Collective, combining: Combining, class: SizeClass) -> Setting {
        let picks = self.picks[collective as usize][combining as usize]
            .get_or_init(|| Box::new(std::array::from_fn(|_| OnceLock::new())));
        *picks[class.index()].get_or_init(|| in_default(|| self.ask_models(collective, combining, class)))
    }

    fn ask_models(&self, collective: Collective, combining: Combining, class: SizeClass) -> Setting {
        let shape = combining.shape(collective, class.judged_at());
        let scene = &self.scenes[combining as usize];
        let row = rows_of(collective).next().map_or(0, |(row, _)| row);
        let flat = Setting { row, knobs: Knobs::UNSET };
        let found: Vec<Candidate> = candidates(&shape, &self.agreed, scene).collect();
        let best = found.iter().min_by(|left, right| left.cost.0.total_cmp(&right.cost.0));
        let Some(best) = best else { return flat };
        let tie = tie(collective, combining, best.cost);
        let ties = |one: &Candidate| one.cost.0 - best.cost.0 <= tie;
        let may_tie = self.agreed.ranks == 2
            && !self.agreed.crowding.is_shared()
            && !moves_in_trains(&best.setting, &self.agreed);
        let wins = may_tie && found.iter().any(|one| one.setting == flat && ties(one));
        let pick = if wins { flat } else { best.setting };
        let of_memory = |one: &&Candidate| REGISTRY[one.setting.row].knobs.contains(&Knob::Try);
        let by_memory = found.iter().filter(of_memory).map(|one| one.cost.0 / best.cost.0);
        let by_memory = by_memory.fold(f64::INFINITY, f64::min);
        tried(&self.agreed, collective, class, &pick, &scene.machine.memory, by_memory).unwrap_or(pick)
    }
}

/// All ways to serve a call that the models can judge, best first.
pub fn rank(collective: Collective, bytes: Bytes, agreed: &Agreed, parameters: &Parameters) -> Vec<Candidate> {
    let shape = Combining::Kernel.shape(collective, bytes);
    let mut found: Vec<Candidate> = candidates(&shape, agreed, &scene(agreed, parameters)).collect();
    found.sort_by(|left, right| left.cost.0.total_cmp(&right.cost.0));
    found
}

/// The time that the models predict for a planned call; `None` where the algorithm has no formula.
pub fn predict(row: usize, plan: &Plan, agreed: &Agreed, parameters: &Parameters) -> Option<Nanos> {
    (REGISTRY[row].cost)(plan, &scene(agreed, parameters))
}

/// What costs depend on besides the call.
pub fn scene(agreed: &Agreed, parameters: &Parameters) -> Scene {
    let Agreed { ranks, nodes, largest_node, cell_bytes, slots, .. } = *agreed;
    let parameters = &if agreed.crowding.is_shared() { parameters.for_shared_cores() } else { *parameters };
    let mut levels = parameters.levels(&agreed.hierarchy);
    // Nodes larger than the first one have groups that the first one does not have.
    let known: usize = levels.iter().map(|level| level.fan).product();
    if let (Some(outermost), true) = (levels.first_mut(), known < largest_node) {
        outermost.fan = (outermost.fan * largest_node).div_ceil(known.max(1));
    } else if levels.is_empty() {
        levels = vec![Level { fan: largest_node.max(1), crossing: parameters.crossing(None) }];
    }
    let machine = parameters.machine([]);
    Scene::new((ranks, nodes, largest_node), levels, (cell_bytes, slots), machine)
        .with_ranks_per_core(agreed.crowding.ranks_per_core())
}

fn candidates<'a>(shape: &'a Shape, agreed: &'a Agreed, scene: &'a Scene) -> impl Iterator<Item = Candidate> + 'a {
    let rows = rows_of(shape.collective).filter(|(_, row)| row.lacks(agreed.means(shape.order)).is_none());
    rows.flat_map(move |(row, _)| {
        combinations(row, shape, agreed).into_iter().filter_map(move |knobs| {
            let setting = Setting { row, knobs };
            let cost = (REGISTRY[row].cost)(&plan(shape, agreed, Epoch(1), &setting), scene)?;
            Some(Candidate { setting, cost })
        })
    })
}

/// The knobs of an algorithm that are compared: all combinations of a few values for each that it has. Of leaders these
/// are the numbers that have communicators.
fn combinations(row: usize, shape: &Shape, agreed: &Agreed) -> Vec<Knobs> {
    let most = agreed.largest_node.saturating_sub(1).max(2) as u32;
    let tile = agreed.fit.l1.0 as u32;
    let unset = Setting { row, knobs: Knobs::UNSET };
    REGISTRY[row].knobs.iter().fold(vec![Knobs::UNSET], |combinations, knob| {
        let values = match knob {
            // Where ranks share cores each layer of a tree waits for another turn, so one layer with all ranks is
            // compared too.
            Knob::Radix if agreed.crowding.is_shared() && most < 256 => vec![2, 3, 4, 8, 16, most],
            Knob::Radix => vec![2, 3, 4, 8, 16],
            Knob::Class => vec![0, KNOMIAL],
            Knob::Stages => vec![0, 1, 2],
            Knob::Up | Knob::Down => vec![0, PUSH],
            // The models can't tell which length is best.
            Knob::Tile if is_relay(&unset) || moves_in_trains(&unset, agreed) => vec![0],
            // A quarter of the first-level cache (`Fit::l1`), half of it, and all.
            Knob::Tile | Knob::Segment => vec![0, tile, 2 * tile, 4 * tile],
            Knob::Chunk if agreed.nodes > 1 => vec![0, SHORT_CHUNK],
            Knob::Leaders if agreed.nodes > 1 => (0..=agreed.leaders as u32).filter(|leaders| *leaders != 1).collect(),
            Knob::Buffers => vec![0, 1, 2],
            Knob::Chunk | Knob::Leaders | Knob::Try => vec![0],
        };
        let is_distinct = |value: &u32| match knob {
            Knob::Radix => *value <= most || *value == 2,
            // A tile or segment as long as the message is as good as none, and so is one that a cell does not hold.
            Knob::Tile | Knob::Segment => (*value as usize) < shape.bytes.0.min(agreed.cell_bytes.0),
            Knob::Chunk => (*value as usize) < shape.bytes.0,
            // Fewer buffers than the message has pieces.
            Knob::Buffers => (*value as usize) * agreed.cell_bytes.0 < shape.bytes.0,
            _ => true,
        };
        let values: Vec<u32> = values.into_iter().filter(|value| *value == 0 || is_distinct(value)).collect();
        let with = |knobs: &Knobs, value: &u32| match value {
            0 => *knobs,
            value => knobs.with(*knob, *value),
        };
        combinations.iter().flat_map(|known| values.iter().map(move |value| with(known, value))).collect()
    })
}

/// Bytes of a short step between nodes: more such steps overlap with the nodes' own phases.
const SHORT_CHUNK: u32 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coll::Reach;
    use crate::model::{Crossing, Far};
    use crate::topo::{Crowding, Hierarchy, Kind, Step};
    use crate::types::OperandOrder;

    fn agreed(sockets: u16, cores: u16) -> Agreed {
        let steps = [Step { fan: sockets, shares: None }, Step { fan: cores, shares: Some(Kind::L3) }];
        let ranks = usize::from(sockets * cores);
        Agreed { cell_bytes: Bytes(16 << 10), ..Agreed::on_one_node(ranks, Hierarchy::new(steps)) }
    }

    fn first_of(combining: Combining, map: &Map, collective: Collective, bytes: Bytes) -> Setting {
        map.pick(&Shape { bytes, ..combining.shape(collective, bytes) })
    }

    fn first(map: &Map, collective: Collective, bytes: Bytes) -> Setting {
        first_of(Combining::Kernel, map, collective, bytes)
    }

    fn name(map: &Map, collective: Collective, bytes: usize) -> &'static str {
        REGISTRY[first(map, collective, Bytes(bytes)).row].name
    }

    #[test]
    fn short_messages_take_trees_and_long_ones_tiles() {
        let map = Map::new(&agreed(2, 32), &Parameters::default());
        assert!(["tree", "dissemination"].contains(&name(&map, Collective::Allreduce, 8)));
        assert_ne!(name(&map, Collective::Barrier, 0), "flat");
        let map = Map::new(&agreed(2, 6), &Parameters::default());
        assert_ne!(name(&map, Collective::Allreduce, 8), "tiled");
        assert!(["tiled", "hierarchical"].contains(&name(&map, Collective::Allreduce, 1 << 20)));
    }

    /// Otherwise ranks that round in different directions would make different choices.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn models_are_asked_in_an_environment_of_their_own() {
        let ask = || {
            let map = Map::new(&agreed(1, 3), &Parameters::default());
            for collective in Collective::ALL {
                first(&map, collective, Bytes(if collective == Collective::Barrier { 0 } else { 17344 }));
            }
        };
        assert!(!crate::fpenv::tests::rounds(ask));
    }

    /// Such functions may take longer than all else.
    #[test]
    fn two_ranks_apply_functions_of_the_users_to_a_half_each() {
        let map = Map::new(&Agreed { cell_bytes: Bytes(128 << 10), ..agreed(1, 2) }, &Parameters::default());
        let pick = first_of(Combining::Ordered, &map, Collective::Allreduce, Bytes(4 << 20));
        assert_eq!(REGISTRY[pick.row].name, "tiled");
    }

    #[test]
    fn two_ranks_each_combine_all_of_an_allreduce() {
        // As probed on a processor of 2024, with assumed and with measured crossings.
        let far = Far { copy: 0.015, reduce: 0.019, ..Parameters::default().far };
        let assumed = Parameters { copy: 0.008, reduce: 0.016, far, ..Parameters::default() };
        let near = Crossing { latency: 42.0, stream: 0.021, shared: 0.005 };
        let measured = Parameters { write: 0.018, crossings: [near; 5], ..assumed };
        let slower = Parameters { copy: 0.020, reduce: 0.022, write: 0.020, ..assumed };
        for parameters in [assumed, measured, slower, Parameters::default()] {
            let agreed = Agreed { cell_bytes: Bytes(128 << 10), ..agreed(1, 2) };
            let map = Map::new(&agreed, &parameters);
            for bytes in SizeClass::all().map(SizeClass::judged_at).filter(|bytes| bytes.0 >= 8) {
                let name = name(&map, Collective::Allreduce, bytes.0);
                assert_eq!(name, "flat", "{bytes:?}");
            }
            assert_eq!(name(&map, Collective::Bcast, 4 << 10), "flat");
            assert_eq!(name(&map, Collective::Barrier, 0), "flat");
            if parameters == measured {
                // Each tile takes a step of the root and of its reader.
                assert_eq!(name(&map, Collective::Bcast, 12 << 10), "flat");
            }
        }
    }

    #[test]
    fn ranks_that_share_cores_take_few_turns() {
        for (ranks, crowding) in [(4, Crowding::new(4, 2.0)), (8, Crowding::new(8, 2.0)), (3, Crowding::new(3, 2.0))] {
            let cell_bytes = Bytes(128 << 10);
            let flat = Agreed::on_one_node(ranks, Hierarchy::flat(ranks, None));
            let map = Map::new(&Agreed { crowding, cell_bytes, ..flat }, &Parameters::default());
            for collective in Collective::ALL {
                assert_eq!(name(&map, collective, 8), "flat", "{} on {ranks}", collective.name());
            }
            for bytes in SizeClass::all().map(SizeClass::judged_at) {
                let pick = first(&map, Collective::Allreduce, bytes);
                let is_short = bytes <= Bytes(8 << 10);
                let is_one_layer = pick.knobs.set(Knob::Radix).is_none_or(|radix| radix as usize + 1 >= ranks);
                assert!(is_one_layer || !is_short, "{pick} of {bytes:?} on {ranks}");
                // A tile is a whole cell, unless the user sets it.
                let pick = first(&map, Collective::Bcast, bytes);
                assert!(pick.knobs.set(Knob::Tile).is_none(), "{pick} of {bytes:?} on {ranks}");
            }
        }
    }

    /// Flat algorithms and trees as measured on 8 and 5 ranks of 2 cores of a Zen 5, relays as on a Xeon
    /// (docs/PERFORMANCE.md, "Tried").
    #[test]
    fn longer_messages_take_trees_and_then_relays_where_ranks_share_cores() {
        let far = Far { copy: 0.023, reduce: 0.024, ..Parameters::default().far };
        let parameters = Parameters { copy: 0.008, reduce: 0.018, write: 0.02, far, ..Parameters::default() };
        let pair_of =
            |fan| Hierarchy::new([Step { fan: 2, shares: Some(Kind::L3) }, Step { fan, shares: Some(Kind::L2) }]);
        for (ranks, hierarchy, sizes) in [
            (8, pair_of(4), &[("flat", 8), ("tree", 16), ("tree", 32), ("relay", 64), ("relay", 1024)][..]),
            (
                8,
                Hierarchy::flat(8, Some(Kind::L3)),
                &[("flat", 1), ("tree", 16), ("tree", 32), ("relay", 64), ("relay", 1024)],
            ),
            (5, Hierarchy::flat(5, Some(Kind::L3)), &[("flat", 8), ("relay", 32), ("relay", 64), ("relay", 1024)]),
        ] {
            let crowding = Crowding::new(ranks, 2.0);
            let agreed =
                Agreed { crowding, slots: 4, cell_bytes: Bytes(256 << 10), ..Agreed::on_one_node(ranks, hierarchy) };
            let map = Map::new(&agreed, &parameters);
            for (expected, kib) in sizes {
                assert_eq!(name(&map, Collective::Allreduce, kib << 10), *expected, "{kib} KiB on {ranks}");
            }
        }
    }

    #[test]
    fn what_the_library_combines_is_combined_once_where_ranks_share_cores() {
        let agreed = Agreed { crowding: Crowding::new(5, 2.0), ..Agreed::on_one_node(5, Hierarchy::flat(5, None)) };
        let map = Map::new(&agreed, &Parameters::default());
        let name = |combining, map: &Map, bytes| {
            REGISTRY[first_of(combining, map, Collective::Allreduce, Bytes(bytes)).row].name
        };
        // One and a hundred long doubles.
        assert_eq!([16, 1600].map(|bytes| name(Combining::Kernel, &map, bytes)), ["flat", "flat"]);
        assert_eq!([16, 1600].map(|bytes| name(Combining::Library, &map, bytes)), ["flat", "tree"]);
        // Two ranks with cores of their own combine parts, where that gains more than a wait may take.
        let map = Map::new(&Agreed { cell_bytes: Bytes(128 << 10), ..self::agreed(1, 2) }, &Parameters::default());
        assert_eq!([16, 1600, 16_000].map(|bytes| name(Combining::Library, &map, bytes)), ["flat", "flat", "tiled"]);
    }

    /// As measured with `bench/shapes.c` on a Zen 3 (docs/PERFORMANCE.md, "Tried").
    #[test]
    fn functions_of_the_users_are_called_for_fewer_bytes_than_kernels() {
        let shared = |ranks| Agreed {
            crowding: Crowding::new(ranks, 2.0),
            slots: 4,
            cell_bytes: Bytes(256 << 10),
            ..Agreed::on_one_node(ranks, Hierarchy::flat(ranks, Some(Kind::L3)))
        };
        let alone = Agreed { cell_bytes: Bytes(128 << 10), ..self::agreed(1, 2) };
        for (agreed, kib, kernel, user) in [
            (shared(3), 1, "flat", "flat"),
            (shared(4), 16, "flat", "relay"),
            (alone, 4, "flat", "flat"),
            (alone, 8, "flat", "flat"),
            (alone, 32, "flat", "tiled"),
        ] {
            let map = Map::new(&agreed, &Parameters::default());
            let name =
                |combining| REGISTRY[first_of(combining, &map, Collective::Allreduce, Bytes(kib << 10)).row].name;
            assert_eq!((name(Combining::Kernel), name(Combining::Ordered)), (kernel, user), "{kib} KiB");
        }
    }

    #[test]
    fn leaders_take_long_messages_where_there_are_several() {
        let picked = |leaders, bytes| {
            let agreed = Agreed { nodes: 4, ranks: 48, leaders, ..agreed(2, 6) };
            let pick = first(&Map::new(&agreed, &Parameters::default()), Collective::Allreduce, bytes);
            pick.knobs.get(Knob::Leaders)
        };
        assert_eq!([picked(1, Bytes(1 << 20)), picked(4, Bytes(64))], [0, 0]);
        assert!((2..=4).contains(&picked(4, Bytes(1 << 20))));
    }

    #[test]
    fn what_a_pair_of_idle_cores_measures_is_not_for_ranks_that_share_cores() {
        let assumed = Parameters::default();
        let slower = |one: Crossing| Crossing { latency: 3.0 * one.latency, stream: 4.0 * one.stream, ..one };
        let measured = Parameters { crossings: assumed.crossings.map(slower), write: 2.0 * assumed.write, ..assumed };
        let distances = |shared: f64| {
            let flat = Agreed::on_one_node(4, Hierarchy::flat(4, None));
            let agreed = Agreed { crowding: Crowding::new(4, shared), ..flat };
            [&assumed, &measured].map(|parameters| {
                let scene = scene(&agreed, parameters);
                (scene.levels, scene.machine.write)
            })
        };
        let ([shared, as_shared], [own, as_own]) = (distances(2.0), distances(4.0));
        assert_eq!(shared, as_shared);
        assert_ne!(own, as_own);
    }

    #[test]
    fn few_buffers_cost_ranks_that_share_cores_more_turns() {
        let flat = Agreed::on_one_node(4, Hierarchy::flat(4, None));
        let crowded = Agreed { crowding: Crowding::new(4, 2.0), cell_bytes: Bytes(128 << 10), ..flat };
        for agreed in [crowded, Agreed { crowding: Crowding::NONE, ..crowded }] {
            let ranking = rank(Collective::Bcast, Bytes(512 << 10), &agreed, &Parameters::default());
            let cost = |knobs: Knobs| {
                let is_flat =
                    |found: &&Candidate| REGISTRY[found.setting.row].name == "flat" && found.setting.knobs == knobs;
                ranking.iter().find(is_flat).map(|found| found.cost.0).unwrap()
            };
            let [ring, one, two] = [0, 1, 2].map(|buffers| cost(Knobs::UNSET.with(Knob::Buffers, buffers)));
            assert!(ring < two && two < one, "{ring} {two} {one}");
            assert!(!agreed.crowding.is_shared() || two > 1.2 * ring, "{ring} {two}");
        }
    }

    #[test]
    fn all_ranks_judge_alike_in_whatever_order_they_ask() {
        let (agreed, parameters) = (agreed(2, 6), Parameters::default());
        let [one, other] = [(); 2].map(|()| Map::new(&agreed, &parameters));
        let ask =
            |map: &Map, class: SizeClass| Collective::ALL.map(|collective| first(map, collective, class.judged_at()));
        let mut forwards: Vec<_> = SizeClass::all().map(|class| ask(&one, class)).collect();
        forwards.reverse();
        let classes: Vec<SizeClass> = SizeClass::all().collect();
        let backwards: Vec<_> = classes.iter().rev().map(|class| ask(&other, *class)).collect();
        assert_eq!(forwards, backwards);
    }

    #[test]
    fn what_a_call_does_not_permit_is_never_picked() {
        let map = Map::new(&agreed(4, 8), &Parameters::default());
        for collective in Collective::ALL {
            for class in SizeClass::all() {
                let pick = first_of(Combining::Ordered, &map, collective, class.judged_at());
                let row = &REGISTRY[pick.row];
                assert_eq!((row.collective, row.lacks(map.agreed.means(OperandOrder::Rank))), (collective, None));
            }
        }
    }

    #[test]
    fn the_map_holds_the_best_of_the_ranking() {
        let (agreed, parameters) = (agreed(2, 6), Parameters::default());
        let map = Map::new(&agreed, &parameters);
        for collective in Collective::ALL {
            let bytes = Bytes(1024);
            let best = rank(collective, bytes, &agreed, &parameters)[0];
            assert_eq!(first(&map, collective, bytes), best.setting, "{}", collective.name());
        }
    }

    /// For all classes, on two ranks with a core each and on two that share one.
    #[test]
    fn on_two_ranks_flat_algorithms_win_ties() {
        let parameters = Parameters { copy: 0.020, reduce: 0.022, write: 0.020, ..Parameters::default() };
        let alone = Agreed { cell_bytes: Bytes(128 << 10), has_single_copy: false, ..agreed(1, 2) };
        let mut ties = 0;
        for agreed in [alone, Agreed { crowding: Crowding::new(2, 1.0), ..alone }] {
            let map = Map::new(&agreed, &parameters);
            for (collective, class) in
                Collective::ALL.iter().flat_map(|each| SizeClass::all().map(move |class| (*each, class)))
            {
                let bytes = class.judged_at();
                let ranking = rank(collective, bytes, &agreed, &parameters);
                let flat = Setting { row: rows_of(collective).next().expect("a row").0, knobs: Knobs::UNSET };
                let more = ranking.iter().find(|one| one.setting == flat).map(|flat| flat.cost.0 - ranking[0].cost.0);
                let is_excepted = REGISTRY[ranking[0].setting.row].reach == Reach::StagedTrains;
                let most = match collective {
                    Collective::Allreduce => 0.12 * ranking[0].cost.0,
                    _ => f64::min(250.0, 0.05 * ranking[0].cost.0),
                };
                let is_tie = !is_excepted && more.is_some_and(|more| more <= most);
                let expected = if is_tie && !agreed.crowding.is_shared() { flat } else { ranking[0].setting };
                ties += usize::from(expected != ranking[0].setting);
                assert_eq!(first(&map, collective, bytes), expected, "{collective:?} of {bytes:?}");
            }
        }
        assert!(ties > 0, "nothing was tested");
    }

    #[test]
    fn nodes_larger_than_the_first_are_judged_too() {
        let larger = Agreed { largest_node: 30, ranks: 40, nodes: 2, ..agreed(2, 6) };
        let scene = scene(&larger, &Parameters::default());
        assert!(scene.levels.iter().map(|level| level.fan).product::<usize>() >= 30);
        let unknown = Agreed { hierarchy: Hierarchy::flat(1, None), ..larger };
        assert_eq!(super::scene(&unknown, &Parameters::default()).levels[0].fan, 30);
        let alone = Agreed { largest_node: 1, ranks: 1, nodes: 1, ..unknown };
        assert!(
            Collective::ALL
                .iter()
                .all(|collective| !rank(*collective, Bytes(64), &alone, &Parameters::default()).is_empty())
        );
    }
}
