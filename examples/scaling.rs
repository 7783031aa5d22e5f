//! Prints the simulated time of every algorithm, and of what huddle chooses, against the number of ranks: a line of
//! JSON each. `scripts/bench` draws docs/pictures/scaling-*.svg from it.
//!
//!     cargo run --release --no-default-features --example scaling [COLLECTIVE…]

#[path = "../tests/scaling/machine.rs"]
mod machine;

use huddle::coll::{REGISTRY, rows_of};
use huddle::types::Collective;
use machine::{By, RANKS, chosen, long, short, time};

fn print(collective: Collective, bytes: usize, ranks: usize, by: By) {
    let (row, plan) = chosen(collective, bytes, ranks, by);
    let label = match by {
        By::User(algorithm) => algorithm,
        By::Default => "chosen",
    };
    println!(
        r#"{{"collective": "{}", "bytes": {bytes}, "ranks": {ranks}, "algorithm": "{label}", "row": "{}", "ns": {:.1}}}"#,
        collective.name(),
        REGISTRY[row].name,
        time(row, &plan, ranks)
    );
}

/// Long calls of flat algorithms take a number of steps that grows with the square of the ranks, and minutes to
/// simulate.
fn most_ranks(bytes: usize) -> usize {
    if bytes > 8 { 128 } else { 512 }
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for collective in Collective::ALL {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == collective.name()) {
            continue;
        }
        for bytes in [short(collective)].into_iter().chain(long(collective)) {
            for ranks in RANKS {
                for (_, row) in rows_of(collective).filter(|_| ranks <= most_ranks(bytes)) {
                    print(collective, bytes, ranks, By::User(row.name));
                }
                print(collective, bytes, ranks, By::Default);
            }
        }
    }
}
