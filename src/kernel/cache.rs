//! Measurements of the kernels, kept for the next job on the same kind of machine. Each kind has one file, identified
//! by its [`description`](super::host::description), which holds the [`Probed`].

use super::host;
use super::{Probed, SingleCopy};
use crate::kept;
use std::io;
use std::path::{Path, PathBuf};

/// The measurements of the kernels on this machine: read from the file in `directory` if there is a valid one, else
/// measured and written there. Without a directory they are always measured.
pub fn look_up_or_measure(directory: Option<&Path>) -> Probed {
    let Some(directory) = directory else { return Probed::measure() };
    let description = host::description();
    let file = file_in(directory, description);
    let kept = read(&file, description);
    // A process that was not permitted single copies kept the rest. It may have run in another container, or with other
    // settings, so single copies are tried again.
    let probed = match kept {
        None => Probed::measure(),
        Some(kept) if kept.single_copy.is_some() => return kept,
        Some(kept) => match SingleCopy::measure(1.0 / kept.copy.l2) {
            None => return kept,
            single_copy => Probed { single_copy, ..kept },
        },
    };
    // A directory that can't be written is no reason to fail or to complain: the program did not ask for the file, and
    // a directory that a user named may exist on the first host alone.
    let _ = write(&file, description, &probed);
    probed
}

/// Measures the kernels whether or not measurements are kept, and keeps the new ones.
///
/// # Errors
/// If the directory can't be written.
pub fn measure_anew(directory: &Path) -> io::Result<Probed> {
    let description = host::description();
    let probed = Probed::measure();
    write(&file_in(directory, description), description, &probed)?;
    Ok(probed)
}

/// The file for a kind of machine.
fn file_in(directory: &Path, description: &str) -> PathBuf {
    kept::file_in(directory, "kernels", description)
}

/// Reads the measurements of the machine with this description from `file`; `None` if there are no valid ones.
fn read(file: &Path, description: &str) -> Option<Probed> {
    Probed::from_bytes(kept::read(file, description)?.as_bytes())
}

/// Writes the measurements of the machine with this description to `file`.
fn write(file: &Path, description: &str, probed: &Probed) -> io::Result<()> {
    kept::write(file, description, &probed.to_bytes())
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
