//! The containers found on this machine, kept until it starts again: hwloc takes milliseconds to open its plugins and
//! look around (`bench/limits.c init`, with and without `HUDDLE_CACHE=off`).

use super::{Containers, host};
use crate::kept;
use std::ffi::OsStr;
use std::path::Path;

/// The containers of this machine: read from the file in `directory` if there is a valid one, else found by `find` and
/// kept there. Without a directory, or where environment variables tell hwloc what to see, they are always found anew.
///
/// # Errors
/// Those of `find`.
pub fn look_up_or_find(
    directory: Option<&Path>,
    find: impl FnOnce() -> Result<Containers, String>,
) -> Result<Containers, String> {
    let is_usual = !std::env::vars_os().any(|(name, _)| is_for_hwloc(&name));
    let Some((directory, description)) = directory.filter(|_| is_usual).zip(description()) else { return find() };
    look_up(directory, &description, find)
}

fn look_up(
    directory: &Path,
    description: &str,
    find: impl FnOnce() -> Result<Containers, String>,
) -> Result<Containers, String> {
    // The file is named by the host alone, so a machine that starts again replaces its own file.
    let file = kept::file_in(directory, "containers", &host::name().unwrap_or_default());
    if let Some(containers) = kept::read(&file, description).and_then(|text| from_text(text.trim_end())) {
        return Ok(containers);
    }
    let found = find()?;
    // A directory that can't be written is no reason to fail or to complain: the program did not ask for the file.
    let _ = kept::write(&file, description, to_text(&found).as_bytes());
    Ok(found)
}

/// Whether a variable may change what hwloc sees.
fn is_for_hwloc(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"HWLOC_")
}

/// Describes this machine since it started, with the processors and memories that it has now; `None` where the system
/// does not tell.
fn description() -> Option<String> {
    /// Raised when containers, or how they are found, change.
    const REVISION: u32 = 1;
    let boot = host::boot_id()?;
    let processors = host::line("/sys/devices/system/cpu/online")?;
    let memories = host::line("/sys/devices/system/node/online").unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    Some(format!("huddle {version} {REVISION}: start {boot}, processors {processors}, memories {memories}"))
}

/// Two digits for each byte of the wire format.
fn to_text(containers: &Containers) -> String {
    containers.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_text(text: &str) -> Option<Containers> {
    let (digits, beyond) = text.as_bytes().as_chunks::<2>();
    let byte = |digits: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let bytes: Vec<u8> = digits.iter().map(byte).collect::<Option<_>>()?;
    if beyond.is_empty() { Containers::parse(&bytes) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A machine with something in every field.
    fn machine() -> Containers {
        Containers::from_bytes(&[&[0, 1, 2][..], &[64, 1, 2, 3, 2, 5, 7, 0, 1].map(u32::to_le_bytes).concat()].concat())
    }

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("huddle-found-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    fn unexpected() -> Result<Containers, String> {
        Err("looked again".into())
    }

    #[test]
    fn the_second_job_reads_what_the_first_one_found() {
        let directory = scratch("second");
        assert_ne!(machine(), Containers::default());
        assert_eq!(look_up(&directory, "this start", || Ok(machine())), Ok(machine()));
        assert_eq!(look_up(&directory, "this start", unexpected), Ok(machine()));
        // The machine started again, and is another one.
        assert_eq!(look_up(&directory, "another start", || Ok(Containers::default())), Ok(Containers::default()));
        assert_eq!(look_up(&directory, "another start", unexpected), Ok(Containers::default()));
        assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 1);
        fs::remove_dir_all(directory).expect("it was there");
    }

    #[test]
    fn what_could_not_be_found_or_is_damaged_is_not_believed() {
        let directory = scratch("damaged");
        assert_eq!(look_up(&directory, "start", unexpected), unexpected());
        assert_eq!(look_up(&directory, "start", || Ok(machine())), Ok(machine()));
        let file = fs::read_dir(&directory).expect("a directory").next().expect("a file").expect("an entry").path();
        let good = fs::read_to_string(&file).expect("text");
        let odd = format!("{}0\n", good.trim_end());
        for bad in ["start\n", "start\nzz\n", &good[..good.len() - 3], &odd, "start\n0001\n"] {
            fs::write(&file, bad).expect("a file");
            assert_eq!(look_up(&directory, "start", unexpected), unexpected(), "{bad:?}");
        }
        fs::remove_dir_all(directory).expect("it was there");
    }

    #[test]
    fn this_machine_has_a_description_that_lasts() {
        assert!(description().is_some_and(|text| !text.contains('\n')));
        assert_eq!(description(), description());
        assert!(is_for_hwloc(OsStr::new("HWLOC_SYNTHETIC")) && !is_for_hwloc(OsStr::new("PATH")));
    }
}
