//! The cost of choosing an algorithm: in a call, in the first call of a size, and when a communicator is built.
//!
//! `cargo bench --package huddle-benches --bench choose`

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use huddle::config::Config;
use huddle::model::Parameters;
use huddle::topo::{Hierarchy, Kind, Step};
use huddle::tune::{Agreed, Map, OperatorClass, Shape, choose};
use huddle::types::{Bytes, Collective, CommRank, Epoch, OperandOrder};
use std::hint::black_box;

fn agreed(sockets: u16, cores: u16) -> Agreed {
    let steps = [Step { fan: sockets, shares: None }, Step { fan: cores, shares: Some(Kind::L3) }];
    let ranks = usize::from(sockets * cores);
    Agreed { cell_bytes: Bytes(16 << 10), ..Agreed::on_one_node(ranks, Hierarchy::new(steps)) }
}

fn shape(collective: Collective, bytes: usize) -> Shape {
    Shape {
        collective,
        bytes: Bytes(bytes),
        granule: Bytes(8),
        root: CommRank(0),
        operator: OperatorClass::Predefined,
        order: OperandOrder::Any,
    }
}

/// Calls of all lengths, one after another.
fn shapes() -> Vec<Shape> {
    (3..22).map(|power| shape(Collective::Allreduce, 8 << power)).collect()
}

fn choices(c: &mut Criterion) {
    let (config, agreed, shapes) = (Config::default(), agreed(2, 6), shapes());
    let map = Map::new(&agreed, &Parameters::default());
    let mut group = c.benchmark_group("choose");
    let mut calls = shapes.iter().cycle();
    group.bench_function("choose", |b| {
        b.iter(|| choose(&config, black_box(calls.next().expect("endless")), &agreed, &map, Epoch(1)));
    });
    let mut calls = shapes.iter().cycle();
    group.bench_function("look-up in the map", |b| {
        b.iter(|| map.pick(black_box(calls.next().expect("endless"))));
    });
}

fn maps(c: &mut Criterion) {
    let mut group = c.benchmark_group("map");
    group.sample_size(10);
    for (sockets, cores) in [(1, 2), (2, 6), (4, 8), (8, 16)] {
        let agreed = agreed(sockets, cores);
        let new = || Map::new(&agreed, &Parameters::default());
        group.bench_function(format!("{sockets}x{cores}"), |b| b.iter(new));
        for collective in [Collective::Allreduce, Collective::Bcast] {
            let first = |map: Map| map.pick(&shape(collective, 8));
            let name = format!("{sockets}x{cores}, first {}", collective.name());
            group.bench_function(name, |b| b.iter_batched(new, first, BatchSize::PerIteration));
            let other = |map: Map| map.pick(&shape(collective, 64 << 10));
            let used = || {
                let map = new();
                map.pick(&shape(collective, 8));
                map
            };
            let name = format!("{sockets}x{cores}, {} of another size", collective.name());
            group.bench_function(name, |b| b.iter_batched(used, other, BatchSize::PerIteration));
        }
    }
}

criterion_group!(benches, choices, maps);
criterion_main!(benches);
