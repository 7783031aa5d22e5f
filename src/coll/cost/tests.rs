use super::*;
use crate::coll::{Knob, Knobs, REGISTRY, Row};
use crate::fabric::simulated::{Placement, simulate};
use crate::model::{Crossing, Far, Level, Machine, Network, Parameters, SingleCopy};
use crate::topo::Kind;
use crate::types::{CommRank, Epoch, OperandOrder};

const NETWORK: Network = Network { latency: 2000.0, overhead: 500.0, gap: 2000.0, per_byte: 1.0 };

/// Sockets of cores, in the form that the simulator takes and in the form that the formulas take.
fn site(nodes: usize, sockets: usize, cores: usize, shared: f64) -> (Machine, Placement, Scene) {
    let across = Crossing { latency: 105.2, stream: 0.1, shared: 0.1 * shared };
    let inside = Crossing { latency: 28.5, stream: 0.05, shared: 0.05 * shared };
    let machine = Machine::plain(1.2, vec![across, inside], [0.05, 0.1], NETWORK);
    let ranks = nodes * sockets * cores;
    let placement = Placement {
        labels: (0..ranks).map(|rank| (rank / (sockets * cores)) as u32).collect(),
        paths: (0..ranks).map(|rank| vec![(rank / cores % sockets) as u32, rank as u32]).collect(),
        slots: 32,
        cell: Bytes(8192),
    };
    let levels = [Level { fan: sockets, crossing: across }, Level { fan: cores, crossing: inside }];
    let levels = levels.into_iter().filter(|level| level.fan > 1).collect();
    let scene = Scene::new((ranks, nodes, sockets * cores), levels, (Bytes(8192), 32), machine.clone());
    (machine, placement, scene)
}

fn plan(row: &Row, bytes: usize, radix: u32) -> Plan {
    Plan {
        epoch: Epoch(1),
        bytes: if row.collective == Collective::Barrier { Bytes::ZERO } else { Bytes(bytes) },
        granule: Bytes(8),
        root: CommRank(0),
        order: OperandOrder::Any,
        knobs: Knobs::UNSET.with(Knob::Radix, radix).with(Knob::Tile, 4096),
        scratch: Bytes::ZERO,
        reach: Bytes::ZERO,
    }
}

fn simulated(row: &Row, plan: &Plan, machine: &Machine, placement: &Placement) -> f64 {
    simulate(row, plan, machine, placement).iter().map(|time| time.0).fold(0.0, f64::max)
}

#[test]
fn pulled_and_pushed_signals_agree_with_the_simulator() {
    let row = &REGISTRY[crate::coll::find(Collective::Barrier, "tree").unwrap()];
    for (sockets, cores) in [(1, 2), (1, 6), (2, 6), (4, 8)] {
        let (machine, placement, scene) = site(1, sockets, cores, 0.0);
        for (radix, up, down) in [(2, 1, 1), (2, 1, 2), (2, 2, 1), (4, 2, 2), (8, 1, 2)] {
            let mut plan = plan(row, 0, radix);
            plan.knobs = plan.knobs.with(Knob::Up, up).with(Knob::Down, down);
            let Some(Nanos(formula)) = (row.cost)(&plan, &scene) else { unreachable!("trees have a formula") };
            let ratio = formula / simulated(row, &plan, &machine, &placement);
            assert!((0.8..1.25).contains(&ratio), "{sockets}x{cores} radix {radix} up {up} down {down}: {ratio}");
        }
    }
}

#[test]
fn ranks_share_no_more_cores_than_they_are() {
    let row = &REGISTRY[crate::coll::find(Collective::Allreduce, "flat").unwrap()];
    let cost = |ranks, ranks_per_core| {
        let (_, _, scene) = site(1, 1, ranks, 0.0);
        let scene = scene.with_ranks_per_core(ranks_per_core);
        let Some(Nanos(time)) = (row.cost)(&plan(row, 1 << 20, 2), &scene) else { unreachable!("flat has a formula") };
        time
    };
    // On the papers' machines a switch between ranks takes no time, so only work remains.
    assert!((cost(2, 4.0) / cost(2, 1.0) - 2.0).abs() < 0.01, "two ranks are all of their core");
    assert!((cost(8, 4.0) / cost(8, 1.0) - 4.0).abs() < 0.01, "two cores for eight ranks");
}

/// The formulas and the simulator charge the same accesses. The formulas follow one rank, the simulator all of them.
#[test]
fn formulas_agree_with_the_simulator() {
    for (nodes, sockets, cores) in [(1, 1, 2), (1, 1, 6), (1, 2, 6), (1, 4, 8), (2, 2, 3)] {
        let (machine, placement, scene) = site(nodes, sockets, cores, 0.0);
        for row in REGISTRY {
            for (bytes, radix, stages) in
                [(8, 2, 0), (8, 4, 0), (1024, 2, 0), (8192, 4, 2), (8192, 4, 0), (20_000, 2, 0), (20_000, 2, 2)]
            {
                let mut plan = plan(row, bytes, radix);
                plan.knobs = plan.knobs.with(Knob::Stages, stages);
                let Some(Nanos(formula)) = (row.cost)(&plan, &scene) else { continue };
                let simulated = simulated(row, &plan, &machine, &placement);
                let ratio = formula / simulated;
                let what = format!(
                    "{} {} {nodes}x{sockets}x{cores} {bytes} radix {radix} stages {stages}",
                    row.collective.name(),
                    row.name
                );
                assert!((0.5..1.5).contains(&ratio), "{what}: {formula:.0} and {simulated:.0}");
            }
        }
    }
}

/// If a long message moves in tiles, most pieces find no passed cell.
#[test]
fn two_ranks_move_long_messages_in_few_pieces() {
    let across = Crossing { latency: 50.0, stream: 0.02, shared: 0.008 };
    let machine = Machine::plain(1.2, vec![across], [0.03, 0.03], NETWORK);
    let levels = |fan| vec![Level { fan, crossing: across }];
    let cell = Bytes(128 << 10);
    for (collective, ranks) in [Collective::Bcast, Collective::Reduce].into_iter().flat_map(|one| [(one, 2), (one, 3)])
    {
        let scene = Scene::new((ranks, 1, ranks), levels(ranks), (cell, 16), machine.clone());
        let lines = |bytes: usize, piece: usize| {
            let row = &REGISTRY[crate::coll::find(collective, "tree").unwrap()];
            let mut plan = plan(row, bytes, 2);
            plan.knobs = plan.knobs.with(Knob::Segment, piece as u32);
            let node = Node::new(Way::Tree, collective, &plan, &scene);
            let none = Time { path: 0.0, work: 0.0, waits: 0.0 };
            node.with_lines_back(none, piece as f64, (bytes / piece) as f64).path
        };
        assert_eq!(lines(256 << 10, 32 << 10), 0.0);
        assert_eq!(lines(1 << 20, 128 << 10), 0.0);
        assert_eq!(lines(1 << 20, 32 << 10) > 0.0, ranks == 2);
    }
}

/// The cost of a call by that algorithm, with tiles and segments of `piece` bytes.
fn predicted(scene: &Scene, collective: Collective, name: &str, bytes: usize, piece: u32) -> f64 {
    predicted_with(scene, collective, name, bytes, Knobs::UNSET.with(Knob::Tile, piece).with(Knob::Segment, piece))
}

fn predicted_with(scene: &Scene, collective: Collective, name: &str, bytes: usize, knobs: Knobs) -> f64 {
    let row = &REGISTRY[crate::coll::find(collective, name).unwrap()];
    let plan = Plan { knobs: knobs.with(Knob::Radix, 2), ..plan(row, bytes, 2) };
    (row.cost)(&plan, scene).expect("a formula").0
}

/// On two ranks a long message moves in pieces as long as cells, or in tiles that share cells, and is combined at the
/// root. With shorter pieces more of them find no passed cell; where each rank combines a half, none does. As measured
/// on a Zen 5 (docs/PERFORMANCE.md, "Tried"), whose rates these are.
#[test]
fn long_messages_of_two_ranks_go_as_they_are() {
    let mut machine = Parameters::default().machine([Some(Kind::L3)]);
    (machine.copy, machine.reduce, machine.write) = (0.0083, 0.0178, 0.02);
    machine.far = Far { beyond: 1e6, copy: 0.02, reduce: 0.0225 };
    let levels = vec![Level { fan: 2, crossing: machine.crossings[0] }];
    let scene = Scene::new((2, 1, 2), levels, (Bytes(128 << 10), 16), machine);
    for (collective, bytes) in
        [Collective::Reduce, Collective::Bcast].into_iter().flat_map(|one| (20..27).map(move |power| (one, 1 << power)))
    {
        let [flat, tree, tiled] =
            ["flat", "tree", "tiled"].map(|name| predicted(&scene, collective, name, bytes, 32 << 10));
        let name = collective.name();
        assert!(flat < tree, "{name} of {bytes} bytes: {flat:.0} and {tree:.0} ns");
        // Tiles of a broadcast share cells.
        let most = if collective == Collective::Bcast { 1.1 } else { 1.0 };
        assert!(flat < most * tiled, "{name} of {bytes} bytes: {flat:.0} and {tiled:.0} ns");
    }
    for bytes in [64 << 10, 128 << 10, 256 << 10] {
        let [flat, tree, tiled] =
            ["flat", "tree", "tiled"].map(|name| predicted(&scene, Collective::Bcast, name, bytes, 24 << 10));
        assert!(tiled < flat && tiled < tree, "{bytes} bytes: {flat:.0}, {tree:.0} and {tiled:.0} ns");
    }
}

/// The slots of a rank that shares its core.
const SHARED_SLOTS: (Bytes, usize) = (Bytes(256 << 10), 4);

/// `ranks` ranks on two cores.
fn two_cores(ranks: usize, machine: Machine) -> Scene {
    let levels = vec![Level { fan: ranks, crossing: machine.crossings[0] }];
    Scene::new((ranks, 1, ranks), levels, SHARED_SLOTS, machine).with_ranks_per_core(ranks as f64 / 2.0)
}

/// A Xeon with the rates that the probe of kernels finds there.
fn xeon() -> Machine {
    let mut machine = Parameters::default().machine([Some(Kind::L3)]);
    (machine.copy, machine.reduce, machine.write) = (0.019, 0.021, 0.02);
    machine.far = Far { beyond: (2 << 20) as f64, copy: 0.073, reduce: 0.074 };
    machine.single_copy = SingleCopy { call: 442.0, per_byte: 0.02 };
    machine
}

/// The cost of a Scatter of blocks of that length by that algorithm.
fn scattered(scene: &Scene, name: &str, block: usize) -> f64 {
    predicted(scene, Collective::Scatter, name, block, 4096)
}

/// If a root's slots hold all blocks, the root lays them out and goes on. If they do not, it waits for all others in
/// any case, and single copies move less data. With the assumed rates, and with those of a Xeon (docs/PERFORMANCE.md,
/// "Tried").
#[test]
fn roots_that_share_cores_let_others_fetch_what_their_slots_do_not_hold() {
    let (cell, slots) = SHARED_SLOTS;
    let assumed = Parameters::default().machine([Some(Kind::L3)]);
    for (ranks, mut machine) in [4, 5, 8].map(|ranks| (ranks, assumed.clone())).into_iter().chain([(4, xeon())]) {
        // The last-level cache holds all data.
        machine.memory.beyond = f64::INFINITY;
        let scene = two_cores(ranks, machine);
        let held = cell.0 * slots / ranks / 64 * 64;
        for (block, is_held) in [(held / 4, true), (held, true), (held + (held / 8), false), (4 * held, false)] {
            let (flat, single) = (scattered(&scene, "flat", block), scattered(&scene, "single", block));
            assert_eq!(flat < single, is_held, "{ranks} ranks, {block} bytes: {flat:.0} and {single:.0} ns");
        }
    }
}

/// A root that shares its core continues while its ring has room. A root that waits for its readers makes them take
/// turns. Readers on a core find in its caches what the first of them has read. As measured on a Xeon
/// (docs/PERFORMANCE.md, "Tried").
#[test]
fn roots_that_share_cores_fill_their_ring() {
    for (ranks, bytes) in [(4, 768 << 10), (4, 1 << 20), (5, 512 << 10), (5, 768 << 10), (6, 512 << 10)] {
        let scene = two_cores(ranks, xeon());
        let cost = |buffers| {
            let knobs = Knobs::UNSET.with(Knob::Buffers, buffers);
            predicted_with(&scene, Collective::Bcast, "flat", bytes, knobs)
        };
        // The whole ring, and one buffer.
        let [ring, one] = [0, 1].map(cost);
        assert!(ring < one, "{ranks} ranks, {bytes} bytes: {ring:.0} and {one:.0} ns");
    }
}

/// Beyond half of the last-level cache all data are copied from memory, and twice through slots. The rate that the
/// probe found for single copies in caches does not matter then. As measured on two machines of 32 MiB
/// (docs/PERFORMANCE.md, "Tried").
#[test]
fn roots_that_share_cores_let_others_fetch_from_memory() {
    for (copy, from_memory, per_byte) in [(0.021, 0.077, 0.101), (0.02, 0.07, 0.042), (0.02, 0.07, 0.085)] {
        let mut machine = Parameters::default().machine([Some(Kind::L3)]);
        (machine.copy, machine.write, machine.far.copy) = (copy, copy, 2.0 * copy);
        machine.memory = Far { beyond: 16e6, copy: from_memory, reduce: from_memory };
        machine.single_copy = SingleCopy { call: 1700.0, per_byte };
        for (ranks, blocks) in [
            (4, [(512 << 10, false), (1 << 20, true), (4 << 20, true)]),
            (8, [(64 << 10, false), (256 << 10, true), (4 << 20, true)]),
        ] {
            let scene = two_cores(ranks, machine.clone());
            for (block, is_lent) in blocks {
                let cost = |name| scattered(&scene, name, block);
                let (single, slots) = (cost("single"), f64::min(cost("flat"), cost("tiled")));
                assert_eq!(
                    single < slots,
                    is_lent,
                    "{per_byte}: {ranks} ranks, {block} bytes: {single:.0} and {slots:.0} ns"
                );
            }
        }
    }
}

/// In a flat Reduce only the root waits. For messages beyond the caches trees are better. As measured on 4 and 8 ranks
/// of a Zen 5 (docs/PERFORMANCE.md, "Tried"), whose rates these are.
#[test]
fn who_waits_in_a_reduce_is_held_up_where_ranks_share_cores() {
    let mut machine = Parameters::default().machine([Some(Kind::L3)]);
    (machine.copy, machine.reduce, machine.write) = (0.008, 0.018, 0.02);
    machine.far = Far { beyond: (1 << 20) as f64, copy: 0.023, reduce: 0.024 };
    let piece = SHARED_SLOTS.0.0 as u32;
    for ranks in [4, 8] {
        let scene = two_cores(ranks, machine.clone());
        let cost = |name, bytes| predicted(&scene, Collective::Reduce, name, bytes, piece);
        for (bytes, is_flat) in [(128 << 10, true), (256 << 10, true), (1 << 20, false), (4 << 20, false)] {
            let (flat, others) = (cost("flat", bytes), f64::min(cost("tree", bytes), cost("tiled", bytes)));
            assert_eq!(flat < others, is_flat, "{ranks} ranks, {bytes} bytes: {flat:.0} and {others:.0} ns");
        }
    }
}

/// Where ranks share cores each wait takes a turn of all ranks of the core. Ranks wait for other groups, and again if
/// results are collected in two stages. As measured on 8 ranks of a Zen 5 (docs/PERFORMANCE.md, "Tried").
#[test]
fn groups_wait_for_each_other_where_ranks_share_cores() {
    let machine = Parameters::default().machine([Some(Kind::L3), Some(Kind::L2)]);
    let level = |fan, crossing: usize| Level { fan, crossing: machine.crossings[crossing] };
    let scene = Scene::new((8, 1, 8), vec![level(2, 0), level(4, 1)], SHARED_SLOTS, machine.clone());
    let shared = scene.with_ranks_per_core(4.0);
    let turn = 4.0 * machine.switch;
    let piece = Knobs::UNSET.with(Knob::Tile, SHARED_SLOTS.0.0 as u32);
    let cost = |name, knobs| predicted_with(&shared, Collective::Allreduce, name, 8 << 10, knobs);
    let tiled = cost("tiled", piece);
    let [one, two] = [1, 2].map(|stages| cost("hierarchical", piece.with(Knob::Stages, stages)));
    assert!(one > tiled + turn && two > one + turn, "{tiled:.0}, {one:.0} and {two:.0} ns");
}

/// As many bytes as a core's own caches hold are copied at the rates of these caches.
#[test]
fn rates_change_by_degrees_beyond_the_caches() {
    let (near, far) = (0.02, Far { beyond: 1e6, copy: 0.06, reduce: 0.1 });
    let machine = Machine { far, ..Machine::plain(0.0, Vec::new(), [near, near], NETWORK) };
    let scene = Scene::new((1, 1, 1), Vec::new(), (Bytes(8192), 32), machine);
    let copy = |touched| scene.rates(touched).copy(1.0);
    assert_eq!([copy(0.0), copy(1e6)], [near; 2]);
    assert!((copy(2e6) - 0.04).abs() < 1e-9 && (copy(4e6) - 0.05).abs() < 1e-9);
    assert!((scene.rates(1e12).combine(1.0) - far.reduce).abs() < 1e-4);
    assert!((scene.rates(2e6).write(1000.0) - 40.0).abs() < 1e-9);
}

/// From 24 to 32 KiB on, as measured on 3 and 4 ranks of a Xeon (docs/PERFORMANCE.md, "Tried"), whose rates these are.
#[test]
fn relays_serve_allreduces_whose_operands_are_beyond_a_first_level_cache_where_ranks_share_cores() {
    for ranks in [3, 4] {
        let scene = two_cores(ranks, xeon());
        for (bytes, is_flat) in [(8 << 10, true), (16 << 10, true), (32 << 10, false), (64 << 10, false)] {
            let cost = |name, tile| predicted(&scene, Collective::Allreduce, name, bytes, tile);
            let (flat, relay) = (cost("flat", 0), cost("relay", (bytes / 2).max(12 << 10) as u32));
            assert_eq!(flat < relay, is_flat, "{ranks} ranks, {bytes} bytes: {flat:.0} and {relay:.0} ns");
        }
    }
}

#[test]
fn relays_have_a_cost_where_ranks_share_cores_of_one_node() {
    for collective in [Collective::Allreduce, Collective::Reduce] {
        let row = &REGISTRY[crate::coll::find(collective, "relay").unwrap()];
        let cost = |nodes, ranks, ranks_per_core| {
            let (_, _, scene) = site(nodes, 1, ranks, 0.0);
            (row.cost)(&plan(row, 1 << 20, 2), &scene.with_ranks_per_core(ranks_per_core))
        };
        assert!(cost(1, 8, 1.0).is_none() && cost(2, 8, 4.0).is_none());
        let [two, four, many] =
            [(8, 2.0), (8, 4.0), (64, 2.0)].map(|(ranks, shared)| cost(1, ranks, shared).unwrap().0);
        assert!(two > 0.0 && four > two, "{two} and {four}");
        // A stint passes through all ranks, however many cores there are.
        assert!(many > 5.0 * two, "{two} and {many}");
    }
}
