//! Small files in which jobs keep what they found out about a machine, for the next ones.
//!
//! A file holds a line that describes its subject, and what is known of that. It is written beside its place and
//! renamed (`replace`, which the report uses too), so a reader sees all of it or nothing. A file that is unreadable,
//! too long or about something else counts as none; what its text means is the caller's affair. Where a file can't be
//! written, the next job finds out again.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A longer file is not one of these.
const LONGEST: u64 = 256 << 10;

/// The file in `directory` that holds this `kind` of knowledge about `what`.
pub fn file_in(directory: &Path, kind: &str, what: &str) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    directory.join(format!("{kind}-{:016x}", hasher.finish()))
}

/// The text of `file` after its first line; `None` unless that line is `description`.
pub fn read(file: &Path, description: &str) -> Option<String> {
    let mut text = read_whole(file)?;
    let rest = text.strip_prefix(description)?.strip_prefix('\n')?.len();
    Some(text.split_off(text.len() - rest))
}

/// The text of `file`, with its first line; `None` if this module can't have written the file, or it is unreadable.
pub(crate) fn read_whole(file: &Path) -> Option<String> {
    // To open a pipe must not wait for who writes into it.
    let mut opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file).ok()?;
    let metadata = opened.metadata().ok().filter(|metadata| metadata.is_file() && metadata.len() <= LONGEST)?;
    let mut text = String::with_capacity(metadata.len() as usize);
    opened.read_to_string(&mut text).is_ok().then_some(text)
}

/// Where this process writes what becomes `file`: in the same directory, so that renaming does not cross file systems.
/// Processes of the same number on other hosts, or in other containers, have other names in a directory that they
/// share.
pub(crate) fn before_renaming(file: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    static OWN: OnceLock<u64> = OnceLock::new();
    let own = OWN.get_or_init(|| RandomState::new().build_hasher().finish());
    name.push(format!(".{}-{own:016x}.new", std::process::id()));
    file.with_file_name(name)
}

/// How long a file may become: the limit that `ulimit -f` sets.
pub(crate) fn longest_file() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a valid place for the result.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}

/// Puts `contents` in place of the file at `file`, or of a link there. Readers see the old file or the whole new one.
///
/// # Errors
/// If it can't be written; then nothing is left of it.
pub(crate) fn replace(file: &Path, contents: &[u8]) -> io::Result<()> {
    if contents.len() as u64 > longest_file() {
        return Err(io::Error::from_raw_os_error(libc::EFBIG)); // writing would kill the process (SIGXFSZ)
    }
    let new = before_renaming(file);
    // What stands there is a trap of somebody else who may write here: a link is not to be followed, a pipe not to be
    // waited for.
    let _ = fs::remove_file(&new);
    let mut created = OpenOptions::new().write(true).create_new(true).open(&new)?;
    let written = created.write_all(contents).and_then(|()| fs::rename(&new, file));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&new);
    }
    written
}

/// Writes `text` into `file`, after a line with its `description`. The directory of `file` need not be there.
///
/// # Errors
/// If it can't be written; then nothing is left of it.
pub fn write(file: &Path, description: &str, text: &[u8]) -> io::Result<()> {
    fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    replace(file, &[description.as_bytes(), b"\n", text, b"\n"].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_at_the_temporary_name_is_not_followed() {
        let directory = std::env::temp_dir().join(format!("huddle-kept-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (file, victim) = (directory.join("file"), directory.join("victim"));
        fs::write(&victim, "precious").unwrap();
        for target in [&victim, &directory.join("missing")] {
            symlink(target, before_renaming(&file)).unwrap();
            replace(&file, b"new").unwrap();
            assert!(fs::symlink_metadata(&file).unwrap().is_file());
            assert_eq!(fs::read(&file).unwrap(), b"new");
        }
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "nothing was made or left");
        fs::remove_dir_all(&directory).unwrap();
    }
}
