//! Every algorithm of the registry under the checking scheduler, in random programs.
//!
//! `HUDDLE_PROGRAMS` sets how many (default 10 000), `HUDDLE_SEED` the first seed; a failure prints the seed, and
//! `HUDDLE_PROGRAMS=1 HUDDLE_SEED=<seed>` repeats it alone.

use huddle::coll::REGISTRY;
use huddle::fabric::checked::Program;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn random_programs_keep_all_rules() {
    let (first, count) = (number("HUDDLE_SEED", 1), number("HUDDLE_PROGRAMS", 10_000));
    let next = AtomicU64::new(first);
    let worker = || {
        let mut calls = vec![0u64; REGISTRY.len()];
        let (mut failures, mut operations) = (Vec::new(), 0);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return (calls, failures, operations);
            }
            let program = Program::random(seed);
            program.calls.iter().for_each(|call| calls[call.row] += 1);
            match program.run(seed) {
                Ok(stats) => operations += stats.operations,
                Err(violation) => failures.push((seed, violation.to_string())),
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let results: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker")).collect()
    });
    let operations: u64 = results.iter().map(|(_, _, operations)| operations).sum();
    println!("{count} programs, {operations} operations");
    for (index, row) in REGISTRY.iter().enumerate() {
        let calls: u64 = results.iter().map(|(calls, _, _)| calls[index]).sum();
        println!("{:>9} {:<6} {calls} calls", row.collective.name(), row.name);
        assert!(count < 1000 || calls > 0, "no program called it");
    }
    let failures: Vec<_> = results.into_iter().flat_map(|(_, failures, _)| failures).collect();
    failures.iter().take(20).for_each(|(seed, violation)| println!("seed {seed}: {violation}"));
    assert!(failures.is_empty(), "{} of {count} programs failed", failures.len());
}
