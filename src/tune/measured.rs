//! The parameters of this machine: from what was measured and kept, else assumed.
//!
//! Rates of copies and reductions come from the kernels' probe, which every job has. What crossings between ranks cost is
//! measured by `huddle probe`, on an idle machine, by pairs of threads bound to processors that share a container of each kind
//! (a few milliseconds), and kept beside the kernels' file. A job does not measure it: in MPI_Init the other ranks wait on
//! the very processors. The network is assumed.

use crate::kernel::{Probed, host};
use crate::model::{Crossing, Parameters};
use crate::topo::{Containers, CpuMask, Kind};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Where the crossings of [`Parameters`] come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody has measured this kind of machine.
    Assumed,
    /// `huddle probe` has.
    Measured,
}

/// The parameters of this machine, with the rates of `probed`; `directory` is where measurements are kept.
pub fn parameters(directory: Option<&Path>, probed: &Probed) -> (Parameters, Origin) {
    let kept = directory.and_then(|directory| read(&file_in(directory)));
    let origin = if kept.is_some() { Origin::Measured } else { Origin::Assumed };
    (with_rates(kept.unwrap_or_default(), probed), origin)
}

/// Operands lie in the second-level cache, as those of most calls do.
fn with_rates(parameters: Parameters, probed: &Probed) -> Parameters {
    Parameters { copy: 1.0 / probed.copy.l2, reduce: 1.0 / probed.light.l2, ..parameters }
}

/// Measures the crossings of this machine on an idle system, and keeps them in `directory`.
///
/// # Errors
/// If they can't be written.
pub fn measure(containers: &Containers, directory: &Path) -> io::Result<Parameters> {
    let mut parameters = Parameters::default();
    for (shares, pair) in pairs(containers) {
        let Some(measured) = crossing(pair) else { continue };
        let at = shares.map_or(0, |kind: Kind| 1 + kind as usize);
        // All streams of a group together cannot be measured by a pair: their share is assumed.
        let Crossing { stream, shared, .. } = parameters.crossings[at];
        parameters.crossings[at] = Crossing { shared: measured.stream * shared / stream, ..measured };
    }
    fs::create_dir_all(directory)?;
    let file = file_in(directory);
    let new = file.with_extension(format!("{}.new", std::process::id()));
    let text = format!("{}\n{}\n", host::description(), parameters.to_text());
    fs::write(&new, text).and_then(|()| fs::rename(&new, &file)).inspect_err(|_| drop(fs::remove_file(&new)))?;
    Ok(parameters)
}

/// The file for this kind of machine.
fn file_in(directory: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    host::description().hash(&mut hasher);
    directory.join(format!("crossings-{:016x}", hasher.finish()))
}

/// What was kept of this kind of machine; a file that is damaged or of another machine counts as none.
fn read(file: &Path) -> Option<Parameters> {
    let text = fs::read_to_string(file).ok()?;
    let (of, numbers) = text.split_once('\n')?;
    if of == host::description() { Parameters::from_text(numbers) } else { None }
}

/// For what two processors may share, from the node alone inwards, the first pair that shares just that.
fn pairs(containers: &Containers) -> Vec<(Option<Kind>, [u32; 2])> {
    let all = containers.processors();
    let mut found: Vec<(Option<Kind>, [u32; 2])> = Vec::new();
    for (index, (first, path)) in all.iter().enumerate() {
        for (second, other) in &all[index + 1..] {
            let common = path.iter().zip(*other).take_while(|(left, right)| left == right).count();
            let shares = common.checked_sub(1).map(|index| containers.kinds()[index]);
            if !found.iter().any(|(known, _)| *known == shares) {
                found.push((shares, [*first, *second]));
            }
        }
        // Every pair of kinds occurs with one of the first processors, or hardly ever.
        if index > 64 {
            break;
        }
    }
    found
}

/// Bytes of the message whose transfer is measured.
const MESSAGE: usize = 32 << 10;
const LINES: usize = MESSAGE / 64;
const ROUNDS: u64 = 400;

/// A word in a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Word(AtomicU64);

/// What two threads share that play ping-pong.
struct Table {
    ping: Word,
    pong: Word,
    lines: Vec<Word>,
}

/// Between two processors; none where threads can't be bound to them, or are disturbed all the time.
fn crossing(pair: [u32; 2]) -> Option<Crossing> {
    let table =
        Table { ping: Word::default(), pong: Word::default(), lines: (0..LINES).map(|_| Word::default()).collect() };
    let [first, second] = pair.map(|processor| CpuMask::from_iter([processor]));
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| second.bind_this_thread() && answer(&table));
        let asking = scope.spawn(|| first.bind_this_thread().then(|| ask(&table)));
        let asked = asking.join().ok().flatten();
        // A thread that could not be bound must not keep the other waiting.
        table.ping.0.store(u64::MAX, Ordering::Release);
        let answered = answering.join().unwrap_or(false);
        asked.flatten().filter(|_| answered)
    })
}

/// Waits for `word` to reach `value`; whether it did before the other gave up.
fn await_word(word: &AtomicU64, value: u64) -> bool {
    let started = Instant::now();
    loop {
        let found = word.load(Ordering::Acquire);
        if found >= value {
            return found != u64::MAX;
        }
        if started.elapsed().as_millis() > 200 {
            return false;
        }
        std::hint::spin_loop();
    }
}

/// The second thread: answers, and writes the lines that the first one reads, every other round.
fn answer(table: &Table) -> bool {
    for round in 1..=2 * ROUNDS {
        if !await_word(&table.ping.0, round) {
            return false;
        }
        if round > ROUNDS {
            table.lines.iter().for_each(|line| line.0.store(round, Ordering::Relaxed));
        }
        table.pong.0.store(round, Ordering::Release);
    }
    true
}

/// The first thread: the shortest round trip, and the shortest time to read lines that the other has just written.
fn ask(table: &Table) -> Option<Crossing> {
    let (mut trip, mut read) = (f64::INFINITY, f64::INFINITY);
    for round in 1..=2 * ROUNDS {
        let started = Instant::now();
        table.ping.0.store(round, Ordering::Release);
        if !await_word(&table.pong.0, round) {
            return None;
        }
        if round <= ROUNDS {
            trip = trip.min(started.elapsed().as_nanos() as f64);
            continue;
        }
        let started = Instant::now();
        let sum: u64 = table.lines.iter().map(|line| line.0.load(Ordering::Relaxed)).sum();
        std::hint::black_box(sum);
        read = read.min(started.elapsed().as_nanos() as f64);
    }
    let latency = trip / 2.0;
    let stream = ((read - latency) / MESSAGE as f64).max(1e-3);
    (latency > 0.0).then_some(Crossing { latency, stream, shared: stream })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(test: &str) -> PathBuf {
        std::env::temp_dir().join(format!("huddle-measured-{}-{test}", std::process::id()))
    }

    #[test]
    fn nothing_kept_is_assumed_with_the_rates_of_the_kernels() {
        let probed = Probed::default();
        let (parameters, origin) = parameters(Some(&directory("none")), &probed);
        assert_eq!(origin, Origin::Assumed);
        assert_eq!(parameters.crossings, Parameters::default().crossings);
        assert!((parameters.copy * probed.copy.l2 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn what_was_measured_is_kept_and_damage_is_noticed() {
        let directory = directory("kept");
        let here: Vec<u32> = CpuMask::of_this_process().iter().take(2).collect();
        let pus: Vec<_> = here.iter().map(|pu| (*pu, [Some(0), Some(0), Some(0), Some(*pu)])).collect();
        let measured = measure(&Containers::new(false, &pus), &directory).unwrap();
        assert!(measured.crossings.iter().all(|crossing| crossing.latency > 0.0 && crossing.stream > 0.0));
        let (kept, origin) = parameters(Some(&directory), &Probed::default());
        assert_eq!((kept.crossings, origin), (measured.crossings, Origin::Measured));
        fs::write(file_in(&directory), "something else\n1 2 3\n").unwrap();
        assert_eq!(parameters(Some(&directory), &Probed::default()).1, Origin::Assumed);
        let _ = fs::remove_dir_all(directory);
    }

    #[test]
    fn a_pair_for_each_distance() {
        // Two packages of two L3 of two cores.
        let pus: Vec<_> = (0..8).map(|pu| (pu, [Some(pu / 4), Some(pu / 4), Some(pu / 2), Some(pu)])).collect();
        let found = pairs(&Containers::new(false, &pus));
        assert_eq!(found, [(Some(Kind::L3), [0, 1]), (Some(Kind::NumaDomain), [0, 2]), (None, [0, 4])]);
    }
}
