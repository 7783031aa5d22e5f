//! Which system this process runs on.

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A number that processes share if they run on one system and see each other's process numbers. It is made of the
/// system's boot id, its name, and the PID namespace of the process. `None` where the system does not tell.
///
/// Systems that were copied while they ran may share it too, if they have the same name. Their processes notice this
/// when they look for each other's memory.
pub fn identity() -> Option<u64> {
    let of_whom: OsString = fs::read_link("/proc/self/ns/pid").ok()?.into();
    let mut hash = DefaultHasher::new();
    (boot_id()?, name()?, of_whom).hash(&mut hash);
    Some(hash.finish())
}

/// A text that differs each time the system starts.
pub(super) fn boot_id() -> Option<String> {
    line("/proc/sys/kernel/random/boot_id")
}

/// The name of the system.
pub(super) fn name() -> Option<String> {
    line("/proc/sys/kernel/hostname")
}

/// The text of a file of one line; `None` if there is no text.
pub(super) fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim_end().to_owned()).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn processes_have_it_in_common() {
        assert!(identity().is_some_and(|mine| Some(mine) == identity()));
        let theirs = Command::new("readlink").arg("/proc/self/ns/pid").output().expect("a process");
        let mine = fs::read_link("/proc/self/ns/pid").expect("a name");
        assert_eq!(String::from_utf8_lossy(&theirs.stdout).trim_end(), mine.to_string_lossy());
    }
}
