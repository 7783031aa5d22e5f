//! The time of what huddle chooses without settings grows as it should with the ranks of a node, 2 to 512 in the
//! simulator. Short calls grow with the logarithm of the ranks, long ones with the bytes that each rank must move, up
//! to a constant.

#[path = "scaling/machine.rs"]
mod machine;

use huddle::coll::rows_of;
use huddle::model::Parameters;
use huddle::topo::Kind;
use huddle::types::Collective;
use machine::{By, RANKS, chosen, long, short, time};

fn chosen_time(collective: Collective, bytes: usize, ranks: usize) -> f64 {
    let (row, plan) = chosen(collective, bytes, ranks, By::Default);
    time(row, &plan, ranks)
}

/// What the two ranks share that are furthest apart.
fn shared(ranks: usize) -> Option<Kind> {
    match ranks {
        0..=8 => Some(Kind::L3),
        9..=128 => Some(Kind::Package),
        _ => None,
    }
}

#[test]
fn short_calls_grow_with_the_logarithm() {
    // Each round may cross the machine twice; a block that is copied by itself takes this long.
    const BLOCK_NS: f64 = 40.0;
    for collective in Collective::ALL {
        for ranks in RANKS {
            let rounds = f64::from(ranks.ilog2());
            let latency = Parameters::default().crossing(None).latency;
            let blocks = if collective.has_blocks() { BLOCK_NS * ranks as f64 } else { 0.0 };
            let (found, most) = (chosen_time(collective, short(collective), ranks), 2.0 * rounds * latency + blocks);
            assert!(found <= most, "{} on {ranks} ranks: {found} ns, more than {most}", collective.name());
        }
    }
}

#[test]
fn long_calls_stay_within_a_constant_of_bytes_over_bandwidth() {
    for collective in Collective::ALL {
        let Some(bytes) = long(collective) else { continue };
        for ranks in RANKS {
            let (n, all) = (bytes as f64, (bytes * ranks) as f64);
            let Parameters { copy, reduce, .. } = Parameters::default();
            let stream = Parameters::default().crossing(shared(ranks)).stream;
            // The time for what one rank must move, and how many times that time is allowed.
            let (least, constant) = match collective {
                Collective::Bcast => (n * (stream + copy), 3.0),
                Collective::Reduce => (n * (stream + reduce), 8.0),
                Collective::Allreduce => (2.0 * n * (stream + reduce), 12.0),
                Collective::Scatter => (all * copy, 3.0),
                // Beyond a package all ranks read all blocks over the package's link.
                Collective::Allgather if shared(ranks).is_none() => continue,
                Collective::Allgather => (all * (stream + copy), 3.0),
                Collective::Barrier => continue,
            };
            let found = chosen_time(collective, bytes, ranks);
            let times = found / least;
            assert!(times <= constant, "{} on {ranks} ranks: {found} ns, {times} times {least}", collective.name());
        }
    }
}

#[test]
fn short_calls_are_near_the_best_algorithm() {
    for collective in Collective::ALL {
        for ranks in RANKS.into_iter().filter(|ranks| *ranks <= 64) {
            let by = |by| {
                let (row, plan) = chosen(collective, short(collective), ranks, by);
                time(row, &plan, ranks)
            };
            let best = rows_of(collective).map(|(_, row)| by(By::User(row.name))).fold(f64::INFINITY, f64::min);
            let found = by(By::Default);
            assert!(found <= 2.5 * best, "{} on {ranks} ranks: {found} ns, {best}", collective.name());
        }
    }
}
