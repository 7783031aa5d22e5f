//! The parameters of this machine: measured and kept ones where there are any, else assumed ones.
//!
//! Rates of copies and reductions come from the kernels' probe, which every job has. `huddle probe` measures what
//! crossings between ranks cost, on an idle machine, by pairs of threads bound to processors that share a container of
//! each kind (some ten milliseconds). It keeps the results beside the kernels' file. A job does not measure crossings,
//! since in MPI_Init the other ranks wait on those very processors. Where ranks share cores the assumed crossings count
//! all the same ([`Parameters::for_shared_cores`]). Jobs on several nodes measure the network
//! ([`network`](super::network)).

use crate::kept;
use crate::kernel::exchange::{self, Times};
use crate::kernel::{Probed, host, switch};
use crate::model::{Crossing, Far, Parameters};
use crate::topo::{Containers, CpuMask, Kind};
use std::io;
use std::path::{Path, PathBuf};

/// Where the crossings of [`Parameters`] come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody has measured this kind of machine.
    Assumed,
    /// `huddle probe` has measured it.
    Measured,
}

/// The parameters of this machine, with the rates of `probed`; `directory` is where measurements are kept.
pub fn parameters(directory: Option<&Path>, probed: &Probed) -> (Parameters, Origin) {
    let kept = directory.and_then(|directory| read(&file_in(directory)));
    let origin = if kept.is_some() { Origin::Measured } else { Origin::Assumed };
    (with_rates(kept.unwrap_or_default(), probed), origin)
}

/// Puts the rates of `probed` into `parameters`. Operands of most calls lie in the second-level cache, those of long
/// ones beyond it.
fn with_rates(parameters: Parameters, probed: &Probed) -> Parameters {
    let (copy, reduce) = (1.0 / probed.copy.l2, 1.0 / probed.light.l2);
    let beyond = if probed.caches.l2 > 0 { probed.caches.l2 as f64 } else { parameters.far.beyond };
    let far = Far { beyond, copy: (1.0 / probed.copy.llc).max(copy), reduce: (1.0 / probed.light.llc).max(reduce) };
    // Only half of the last-level cache counts: slots and other data of the ranks take the other half.
    let (beyond, copy_to_memory) = (probed.caches.llc as f64 / 2.0, (1.0 / probed.copy.memory).max(far.copy));
    let memory = Far { beyond, copy: copy_to_memory, reduce: (1.0 / probed.light.memory).max(far.reduce) };
    let single_copy = probed.single_copy.unwrap_or(parameters.single_copy);
    Parameters { copy, reduce, far, memory, single_copy, write: parameters.write.max(copy), ..parameters }
}

/// Measures the crossings of this machine on an idle system, and keeps them in `directory`, if there are any that can
/// be measured; `probed` are its kernels.
///
/// # Errors
/// If they can't be written.
pub fn measure(containers: &Containers, probed: &Probed, directory: &Path) -> io::Result<Parameters> {
    let file = file_in(directory);
    let kept = read(&file);
    // A crossing that can't be measured now stays as it was.
    let mut parameters = with_rates(kept.unwrap_or_default(), probed);
    let mut writes = Vec::new();
    for (shares, pair) in pairs(containers) {
        let Some(Times { line, write, read }) = fastest(pair) else { continue };
        let at = shares.map_or(0, |kind: Kind| 1 + kind as usize);
        // A pair can't measure all streams of a group together: their share is assumed.
        let Crossing { stream, shared, .. } = parameters.crossings[at];
        parameters.crossings[at] = Crossing { latency: line, stream: read, shared: read * shared / stream };
        writes.push(write);
    }
    // The least, that of the nearest pair, counts: most readers of a slot are near.
    let is_measured = !writes.is_empty();
    parameters.write = writes.into_iter().min_by(f64::total_cmp).unwrap_or(parameters.write).max(parameters.copy);
    parameters.switch = switch().map_or(parameters.switch, Parameters::switch_from);
    // Kept crossings that are faster were measured with fewer disturbances.
    if let Some(kept) = kept
        && kept.crossings.iter().zip(&parameters.crossings).all(|(kept, new)| kept.latency <= new.latency)
    {
        return Ok(with_rates(kept, probed));
    }
    if !is_measured {
        return Ok(parameters);
    }
    kept::write(&file, host::description(), parameters.to_text().as_bytes())?;
    Ok(parameters)
}

/// The file for this kind of machine.
fn file_in(directory: &Path) -> PathBuf {
    kept::file_in(directory, "crossings", host::description())
}

/// Attempts of each measurement.
const ATTEMPTS: usize = 5;

/// The kept measurements of this kind of machine; `None` for a file that is damaged or of another machine.
fn read(file: &Path) -> Option<Parameters> {
    Parameters::from_text(&kept::read(file, host::description())?)
}

/// The first pair of processors for each kind that two may share as the innermost, and for the node alone.
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
        // Every distance occurs with one of the first processors, or hardly ever.
        if index > 64 {
            break;
        }
    }
    found
}

/// The times between two processors; `None` where threads can't be bound to them, or are disturbed all the time.
fn exchange_between(pair: [u32; 2]) -> Option<Times> {
    let [first, second] = pair.map(|processor| CpuMask::from_iter([processor]));
    // A thread that can't be bound drops its side, which ends the other.
    let (asking, answering) = exchange::sides();
    std::thread::scope(|scope| {
        let answered = scope.spawn(|| if second.bind_this_thread() { answering.run() } else { None });
        let asked = scope.spawn(|| if first.bind_this_thread() { asking.run() } else { None });
        exchange::times(asked.join().ok().flatten(), answered.join().ok().flatten())
    })
}

/// The least time in which two threads hand a processor to each other; `None` where they can't be bound to one.
fn switch() -> Option<f64> {
    let first = CpuMask::of_this_process().iter().next()?;
    let attempts = (0..ATTEMPTS).filter_map(|_| {
        let (asking, answering) = switch::sides();
        let bound = |side: switch::Side| {
            let mask = CpuMask::from_iter([first]);
            move || if mask.bind_this_thread() { side.run() } else { None }
        };
        std::thread::scope(|scope| {
            let answered = scope.spawn(bound(answering));
            let asked = scope.spawn(bound(asking));
            asked.join().ok().flatten().and(answered.join().ok().flatten())
        })
    });
    attempts.min_by(f64::total_cmp)
}

/// The attempt with the fastest lines: other work on the machine, and its slower minutes, only add to them.
fn fastest(pair: [u32; 2]) -> Option<Times> {
    let attempts = (0..ATTEMPTS).filter_map(|_| exchange_between(pair));
    attempts.min_by(|left, right| left.line.total_cmp(&right.line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
        let measured = measure(&Containers::new(&pus), &Probed::default(), &directory).unwrap();
        assert!(measured.switch > 0.0);
        assert!(measured.crossings.iter().all(|crossing| crossing.latency > 0.0 && crossing.stream > 0.0));
        let (kept, origin) = parameters(Some(&directory), &Probed::default());
        assert_eq!((kept.crossings, origin), (measured.crossings, Origin::Measured));
        fs::write(file_in(&directory), "something else\n1 2 3\n").unwrap();
        assert_eq!(parameters(Some(&directory), &Probed::default()).1, Origin::Assumed);
        // A pipe in its place is not waited for.
        fs::remove_file(file_in(&directory)).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(file_in(&directory)).status().unwrap().success());
        assert_eq!(parameters(Some(&directory), &Probed::default()).1, Origin::Assumed);
        let _ = fs::remove_dir_all(directory);
    }

    #[test]
    fn a_pair_for_each_distance() {
        // Two packages of two L3 of two cores.
        let pus: Vec<_> = (0..8).map(|pu| (pu, [Some(pu / 4), Some(pu / 4), Some(pu / 2), Some(pu)])).collect();
        let found = pairs(&Containers::new(&pus));
        assert_eq!(found, [(Some(Kind::L3), [0, 1]), (Some(Kind::NumaDomain), [0, 2]), (None, [0, 4])]);
    }
}
