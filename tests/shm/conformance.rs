//! Right results: every algorithm, all roots, lengths around every border, in place and not, through all entries, call
//! after call without any other synchronisation.

use crate::case::{Case, Way};
use crate::world::{SLEEPING, SPINNING, World, YIELDING};
use huddle::coll::phase::short::is_halved;
use huddle::coll::{Knob, REGISTRY, Short};
use huddle::fabric::INLINE;
use huddle::fabric::checked::Random;
use huddle::fabric::shm::{Context, Waiting};
use huddle::types::{Collective, CommRank, Epoch};
use std::sync::Arc;
use std::time::Duration;

/// Packed lengths around the borders: an element, the payload of a flag, a cell, several.
fn lengths(cell: usize) -> Vec<usize> {
    let mut lengths = vec![1, 7, INLINE.0 - 1, INLINE.0];
    lengths.extend(INLINE.0 + 1..=INLINE.0 + 24);
    lengths.extend([cell / 2, cell - 1, cell, cell + 1, 2 * cell, 3 * cell + 5]);
    lengths
}

/// Calls in random order: all algorithms with all roots and all lengths. One call in `thin` is kept.
fn program(world: &World, thin: usize, seed: u64) -> Vec<Case> {
    let random = &mut Random::new(seed);
    let mut shapes = Vec::new();
    for (row, algorithm) in REGISTRY.iter().enumerate() {
        let roots = if algorithm.collective.has_root() { world.size() } else { 2 };
        let lengths = if algorithm.collective == Collective::Barrier { vec![0; 4] } else { lengths(world.cell) };
        for length in lengths {
            shapes.extend((0..roots as u32).map(|root| (row, CommRank(root), length)));
        }
    }
    let mut calls = Vec::new();
    let mut epoch = 0;
    while !shapes.is_empty() {
        let (row, root, length) = shapes.swap_remove(random.below(shapes.len()));
        if random.one_in(thin) {
            // Now and then the epoch skips a call, which huddle left to the native library.
            epoch += if random.one_in(20) { 2 } else { 1 };
            // `Case::new` sets no buffers: other tests want a root to run as far ahead as the ring reaches. A row
            // without the knob stays as if nobody had set it.
            let has_buffers = REGISTRY[row].knobs.contains(&Knob::Buffers);
            let buffers = if has_buffers { random.below(4) as u32 } else { 0 };
            calls.push(Case::new(world, row, (Epoch(epoch), root, length), random).with_buffers(world, buffers));
        }
    }
    calls
}

/// Runs a program on every rank and returns it; now and then a rank is late.
fn run(world: &World, waiting: &'static Waiting, thin: usize, seed: u64) -> Vec<Case> {
    run_on(world, world.contexts(), waiting, thin, seed)
}

fn run_on(world: &World, contexts: Vec<Arc<Context>>, waiting: &'static Waiting, thin: usize, seed: u64) -> Vec<Case> {
    let calls = program(world, thin, seed);
    world.run_on(contexts, |rank| {
        let mut random = Random::new(seed ^ u64::from(rank.me.0) << 32);
        for case in &calls {
            if random.one_in(40) {
                std::thread::sleep(Duration::from_micros(random.below(200) as u64));
            }
            let outcome = case.call(&rank, waiting);
            assert_eq!(outcome, Ok(()), "{case:?}");
        }
    });
    calls
}

/// Hierarchies: none, two packages, two packages of two caches each in a round-robin binding.
fn hierarchies(size: usize) -> [Vec<Vec<u32>>; 3] {
    let ranks = || 0..size as u32;
    [
        vec![Vec::new(); size],
        ranks().map(|rank| vec![rank * 2 / size as u32]).collect(),
        ranks().map(|rank| vec![rank % 2, rank / 2 % 2]).collect(),
    ]
}

/// Rings of 2, 4 and 8, small and usual cells, and some in which pieces go round, on every hierarchy in turn.
fn machines(size: usize) -> Vec<World> {
    let hierarchies = hierarchies(size);
    let shapes = [(2, 128), (8, 128), (2, 8192), (8, 8192), (2, 384), (8, 960), (4, 40960)];
    let machine = |(index, (slots, cell)): (usize, (usize, usize))| World {
        paths: hierarchies[index % 3].clone(),
        lines: slots << (index % 3),
        ..World::single(size, slots, cell)
    };
    shapes.into_iter().enumerate().map(machine).collect()
}

fn all_machines(size: usize, waiting: &'static Waiting, thin: usize) {
    let machines = machines(size);
    // Calls on machines with long cells take longer, so fewer are kept.
    let thin = |world: &World| if world.cell > 8192 { 6 * thin } else { thin };
    let run = |(world, seed): (&World, u64)| run(world, waiting, thin(world), seed);
    let calls: Vec<Case> = machines.iter().zip(1..).flat_map(run).collect();
    println!("{size} ranks, {} machines, {} calls", machines.len(), calls.len());
    for (row, algorithm) in REGISTRY.iter().enumerate() {
        let has_short = calls.iter().any(|case| case.row == row && case.has_short());
        let is_tried = TRIED.contains(&algorithm.collective) && algorithm.name == "single";
        assert_eq!(has_short, algorithm.name == "flat" || is_tried, "row {row}");
        let ways = [Way::Run, Way::Start(0), Way::Short];
        for way in ways.into_iter().filter(|way| has_short || !matches!(way, Way::Short)) {
            let is_called = |case: &Case| case.row == row && case.is_called(way);
            assert!(calls.iter().any(is_called), "row {row}, {way:?}: never called");
        }
    }
    for collective in Collective::ALL.into_iter().filter(|one| one.has_root()) {
        for halved in [false, true] {
            let moves = |case: &Case| {
                case.is_called(Way::Short) && REGISTRY[case.row].name == "flat" && is_halved(&case.plan) == halved
            };
            let is_called = calls.iter().any(|case| case.collective() == collective && moves(case));
            assert!(is_called, "{collective:?}, in halves: {halved}: never called");
        }
    }
    if size > 1 {
        each_kind_of_short_call_is_called(&calls);
    }
    if size == 2 {
        TRIED.into_iter().for_each(|collective| short_calls_are_lent_and_not(&calls, collective));
    }
}

/// Kinds that have functions of their own, for what the compiler knows of the data (`ShortCall`).
fn each_kind_of_short_call_is_called(calls: &[Case]) {
    type IsKind = fn(Short) -> bool;
    let kinds: [(&str, IsKind); 2] = [
        ("in lines", |short| matches!(short, Short::InLines(_))),
        ("in short pieces", |short| matches!(short, Short::InShortPieces)),
    ];
    for collective in Collective::ALL.into_iter().filter(|one| *one != Collective::Barrier) {
        for (name, is_kind) in kinds {
            let is_called =
                |case: &Case| case.collective() == collective && case.short_as_called().is_some_and(is_kind);
            assert!(calls.iter().any(is_called), "{collective:?}, {name}: never called");
        }
    }
}

/// The collectives whose short calls are tried: with slots and with lent memory.
const TRIED: [Collective; 2] = [Collective::Bcast, Collective::Scatter];

/// Short calls that are tried go both ways by plain functions, whole and in halves, as roots find and as receivers
/// find.
fn short_calls_are_lent_and_not(calls: &[Case], collective: Collective) {
    for (halved, is_root, lent) in [false, true].into_iter().flat_map(|halved| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(root, lent)| (halved, root, lent))
    }) {
        let went = |case: &Case| {
            let ranks = (0..2).filter(|rank| case.is_root(*rank) == is_root);
            is_halved(&case.plan) == halved && ranks.map(|rank| case.was_lent(rank)).any(|was| was == Some(lent))
        };
        let has_gone = calls.iter().any(|case| case.collective() == collective && went(case));
        assert!(has_gone, "{collective:?}, in halves: {halved}, root: {is_root}, lent: {lent}: never");
    }
}

#[test]
fn one_rank() {
    all_machines(1, &SPINNING, 1);
}

#[test]
fn two_ranks() {
    all_machines(2, &SPINNING, 1);
}

#[test]
fn two_ranks_that_sleep() {
    all_machines(2, &SLEEPING, 1);
}

// More ranks than most test machines have cores, and yet they spin: a call takes as long as ten calls of ranks that
// give their cores away.
#[test]
fn three_ranks() {
    all_machines(3, &SPINNING, 6);
}

#[test]
fn three_ranks_that_yield() {
    all_machines(3, &YIELDING, 2);
}

#[test]
fn three_ranks_that_sleep() {
    all_machines(3, &SLEEPING, 2);
}

#[test]
fn four_ranks() {
    all_machines(4, &SPINNING, 8);
}

#[test]
fn four_ranks_that_yield() {
    all_machines(4, &YIELDING, 2);
}

#[test]
fn four_ranks_that_sleep() {
    all_machines(4, &SLEEPING, 2);
}

#[test]
fn seven_ranks() {
    all_machines(7, &SPINNING, 24);
}

#[test]
fn seven_ranks_that_yield() {
    all_machines(7, &YIELDING, 4);
}

#[test]
fn seven_ranks_that_sleep() {
    all_machines(7, &SLEEPING, 4);
}

/// Blocks of ranks, uneven ones, round-robin, nodes of one rank, and no order at all.
const NODES: &[&[u32]] = &[
    &[0, 0, 1, 1],
    &[0, 0, 0, 1],
    &[0, 1, 1, 1, 2],
    &[0, 1, 0, 1, 0],
    &[0, 1, 2, 0, 1, 2, 0],
    &[5, 3, 3, 5, 5, 4],
    &[0, 0, 0, 1, 1, 1, 1],
];

#[test]
fn several_nodes() {
    for (seed, (labels, slots)) in (100..).zip(NODES.iter().zip([2, 8, 2, 2, 8, 2, 2])) {
        let paths = (0..labels.len() as u32).map(|rank| vec![rank % 2]).collect();
        let single = World::single(labels.len(), slots, if slots == 2 { 128 } else { 8192 });
        let world = World { labels: labels.to_vec(), paths, leaders: 2, ..single };
        for (waiting, thin) in [(&SPINNING, 40), (&YIELDING, 4), (&SLEEPING, 4)] {
            let calls = run(&world, waiting, thin, seed);
            println!("nodes {labels:?}: {} calls", calls.len());
        }
    }
}

/// A segment serves several communicators, one after the other, which count their calls from 1 again.
#[test]
fn a_segment_is_used_again() {
    let world = World::single(4, 2, 128);
    let mut contexts = world.contexts();
    for (seed, waiting) in (200..).zip([&SPINNING, &SLEEPING, &SPINNING]) {
        run_on(&world, contexts.clone(), waiting, 10, seed);
        assert!(contexts.iter().all(|context| context.is_idle()));
        contexts[0].clear();
        let renew = |(me, context): (u32, Arc<Context>)| {
            let mut context = Arc::into_inner(context).expect("its rank has gone");
            context.renew(world.layout(CommRank(me)));
            Arc::new(context)
        };
        contexts = (0..).zip(contexts).map(renew).collect();
    }
}
