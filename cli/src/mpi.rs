//! MPI libraries and huddle's engines, found by their files: nothing is opened.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs that start or compile MPI programs.
const PROGRAMS: [&str; 8] =
    ["mpiexec", "mpiexec.mpich", "mpiexec.openmpi", "mpicc", "mpicc.mpich", "mpicc.openmpi", "srun", "mpirun"];

/// The names under which MPI libraries are linked, and the family whose engine serves them.
const LIBRARIES: [(&str, &str); 4] =
    [("libmpi.so.40", "openmpi"), ("libmpi.so.12", "mpich"), ("libmpich.so.12", "mpich"), ("libmpi_abi.so.1", "abi")];

/// MPI libraries, programs and engines as the report has them.
pub fn found() -> Value {
    let engines = engines();
    let libraries: Vec<Value> = libraries()
        .into_iter()
        .map(|(path, family)| {
            json!({ "library": path, "family": family, "has_engine": engines.iter().any(|(known, _)| known == family) })
        })
        .collect();
    let programs: Vec<PathBuf> = PROGRAMS.iter().filter_map(|name| in_path(name)).collect();
    let engines: Vec<Value> =
        engines.iter().map(|(family, path)| json!({ "family": family, "engine": path })).collect();
    json!({ "libraries": libraries, "programs": programs, "engines": engines })
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// MPI libraries that the dynamic linker's cache lists, or that lie where the linker looks first.
fn libraries() -> Vec<(PathBuf, &'static str)> {
    let listed = ["ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"]
        .iter()
        .find_map(|program| Command::new(program).arg("-p").output().ok().filter(|output| output.status.success()))
        .map_or_else(String::new, |output| String::from_utf8_lossy(&output.stdout).into_owned());
    let from_cache =
        listed.lines().filter_map(|line| line.split_once(" => ")).map(|(_, path)| PathBuf::from(path.trim()));
    let variable = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let nearby = std::env::split_paths(&variable)
        .flat_map(|directory| LIBRARIES.map(|(name, _)| directory.join(name)))
        .filter(|file| file.is_file());
    let mut found: Vec<(PathBuf, &'static str)> = Vec::new();
    for path in nearby.chain(from_cache) {
        let family = LIBRARIES.iter().find(|(name, _)| path.file_name().is_some_and(|file| file == *name));
        if let Some((_, family)) = family
            && !found.iter().any(|(known, _)| *known == path)
        {
            found.push((path, family));
        }
    }
    found
}

/// The engines that are installed beside this program: `../lib/huddle`.
fn engines() -> Vec<(String, PathBuf)> {
    let Some(directory) = std::env::current_exe()
        .ok()
        .and_then(|program| Some(program.parent().and_then(Path::parent)?.join("lib/huddle")))
    else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut engines: Vec<(String, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let family = name.strip_prefix("libhuddle-")?.strip_suffix(".so")?.to_owned();
            Some((family, entry.path()))
        })
        .collect();
    engines.sort();
    engines
}
