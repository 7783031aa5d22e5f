//! Every algorithm of the registry under the checking scheduler, in random programs.
//!
//! `HUDDLE_PROGRAMS` sets how many (default 10 000), `HUDDLE_SEED` the first seed; a failure prints the seed, and
//! `HUDDLE_PROGRAMS=1 HUDDLE_SEED=<seed>` repeats it alone.

use huddle::coll::{REGISTRY, find};
use huddle::fabric::checked::Program;
use huddle::types::Collective;
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

/// Flags of a barrier, which need no claim, may overtake what a slow rank has yet to read on the same line: whether its
/// peer lent memory.
#[test]
fn barriers_leave_what_flags_told() {
    let row = |collective, name| find(collective, name).expect("a row");
    let rows = [
        row(Collective::Allgather, "single"),
        row(Collective::Scatter, "single"),
        row(Collective::Barrier, "flat"),
        row(Collective::Barrier, "flat"),
        row(Collective::Bcast, "flat"),
    ];
    let is_tight = |program: &Program| {
        program.slots * program.lines_per_cell == 2 && program.labels.iter().all(|label| *label == 0)
    };
    let programs = (1..).map(|seed| (seed, Program::random_of(seed, &rows))).filter(|(_, program)| is_tight(program));
    for (seed, program) in programs.take(1000) {
        if let Err(violation) = program.run(seed) {
            panic!("seed {seed}: {violation}");
        }
    }
}

/// Pieces on two ranks are cut evenly, also if a message is cut twice or its tiles share cells: no piece is longer than
/// the reach that the call states.
#[test]
fn pieces_of_two_ranks_stay_within_the_reach_of_the_call() {
    let all: Vec<usize> = (0..REGISTRY.len()).filter(|row| REGISTRY[*row].collective != Collective::Barrier).collect();
    let twice = find(Collective::Allreduce, "tree").expect("a row");
    let is_cut = |program: &Program| {
        program.labels.len() == 2 && program.labels[0] == program.labels[1] && program.cell.0 >= 512
    };
    for rows in [&all[..], &[twice]] {
        let programs = (1..).map(|seed| (seed, Program::random_of(seed, rows))).filter(|(_, program)| is_cut(program));
        for (seed, program) in programs.take(1000) {
            if let Err(violation) = program.run(seed) {
                panic!("seed {seed}: {violation}");
            }
        }
    }
}
