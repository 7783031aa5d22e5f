//! What was measured, kept for the next job on the same kind of machine: one file per kind, by its
//! [`description`](super::host::description), with the [`Probed`].

use super::host;
use super::{Probed, SingleCopy};
use crate::kept;
use std::io;
use std::path::{Path, PathBuf};

/// What is known about the kernels on this machine: from the file in `directory` if there is a good one, else measured, and
/// kept there. Without a directory always measured.
pub fn look_up_or_measure(directory: Option<&Path>) -> Probed {
    let Some(directory) = directory else { return Probed::measure() };
    let description = host::description();
    let file = file_in(directory, description);
    let kept = read(&file, description);
    // Who was not permitted single copies kept the rest: it may be another container, or set differently.
    let probed = match kept {
        None => Probed::measure(),
        Some(kept) if kept.single_copy.is_some() => return kept,
        Some(kept) => match SingleCopy::measure(1.0 / kept.copy.l2) {
            None => return kept,
            single_copy => Probed { single_copy, ..kept },
        },
    };
    // A directory that can't be written is no reason to fail or to complain: the program asked for nothing, and a directory that a user
    // named may be there on the first host alone.
    let _ = write(&file, description, &probed);
    probed
}

/// Measures it whatever is kept, and keeps that.
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

/// What `file` says about the machine of this description.
fn read(file: &Path, description: &str) -> Option<Probed> {
    Probed::from_bytes(kept::read(file, description)?.as_bytes())
}

/// Puts what is known about the machine of this description into `file`.
fn write(file: &Path, description: &str, probed: &Probed) -> io::Result<()> {
    kept::write(file, description, &probed.to_bytes())
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
