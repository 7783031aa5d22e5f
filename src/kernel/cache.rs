//! What was measured, kept in a file for the next job on the same kind of machine.
//!
//! One file per kind of machine (its [`description`](super::host::description)): two lines, the description and the
//! [`Probed`]. It is written beside its place and renamed, so a reader sees all of it or nothing; a file that is unreadable,
//! damaged, or of another machine counts as none, and where it can't be written the next job measures again.

use super::Probed;
use super::host;
use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file is not longer than this.
const LONGEST: u64 = 64 << 10;

/// What is known about the kernels on this machine: from the file in `directory` if there is a good one, else measured, and
/// kept there. Without a directory always measured.
pub fn look_up_or_measure(directory: Option<&Path>) -> Probed {
    let Some(directory) = directory else { return Probed::measure() };
    let description = host::description();
    let file = file_in(directory, &description);
    read(&file, &description).unwrap_or_else(|| {
        let probed = Probed::measure();
        // A directory that can't be written is no reason to fail or to complain: the program asked for nothing.
        let _ = write(&file, &description, &probed);
        probed
    })
}

/// The file for a kind of machine.
fn file_in(directory: &Path, description: &str) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    description.hash(&mut hasher);
    directory.join(format!("kernels-{:016x}", hasher.finish()))
}

/// What `file` says about the machine of this description.
fn read(file: &Path, description: &str) -> Option<Probed> {
    if fs::metadata(file).ok().filter(|metadata| metadata.is_file())?.len() > LONGEST {
        return None;
    }
    let text = fs::read_to_string(file).ok()?;
    let (of, probed) = text.split_once('\n')?;
    if of == description { Probed::from_bytes(probed.as_bytes()) } else { None }
}

/// Where this process writes what becomes `file`.
fn before_renaming(file: &Path) -> PathBuf {
    file.with_extension(format!("{}.new", std::process::id()))
}

/// Puts what is known about the machine of this description into `file`.
fn write(file: &Path, description: &str, probed: &Probed) -> io::Result<()> {
    fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    let new = before_renaming(file);
    let text = [description.as_bytes(), b"\n", &probed.to_bytes(), b"\n"].concat();
    // What stands there was left by a process of this number that was killed, or is a trap of somebody else who may write
    // here: a link is not to be followed, a pipe not to be waited for.
    let _ = fs::remove_file(&new);
    let created = OpenOptions::new().write(true).create_new(true).open(&new);
    let written = created.and_then(|mut created| created.write_all(&text)).and_then(|()| fs::rename(&new, file));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
