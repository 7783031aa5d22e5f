//! What scripts do when they are asked for their usage.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn scripts() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let entries = directory.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let is_shell =
        |path: &PathBuf| std::fs::read_to_string(path).is_ok_and(|text| text.starts_with("#!/usr/bin/env bash"));
    entries.filter(is_shell).collect()
}

/// Runs a script; ends it if it starts its work all the same.
fn run(script: &Path, argument: &str) -> Output {
    Command::new("timeout").arg("5").arg(script).arg(argument).current_dir("/").output().unwrap()
}

#[test]
fn scripts_tell_their_usage_and_do_nothing_else() {
    let scripts = scripts();
    assert!(scripts.len() > 9);
    for script in scripts {
        let name = script.file_name().unwrap().to_str().unwrap();
        let output = run(&script, "--help");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
        assert!(
            text.starts_with(&format!("{name}: ")) && text.contains(&format!("\n  scripts/{name}")),
            "{name}: {text}"
        );
        assert!(!text.contains("set -"), "{name}: {text}");
    }
}

#[test]
fn scripts_refuse_what_they_do_not_know() {
    for script in scripts() {
        let output = run(&script, "--nonsense");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.status.code() != Some(124), "{output:?}");
        assert!(complaint.contains("usage: ") || complaint.contains("--help"), "{complaint}");
    }
}

#[test]
fn nothing_is_made_for_a_compiler_of_no_mpi() {
    let prefix = std::env::temp_dir().join(format!("huddle-install-{}", std::process::id()));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/install");
    for (compiler, why) in [("true", "not the compiler of an MPI"), ("nonsense", "not found")] {
        let mut command = Command::new("timeout");
        let output =
            command.arg("5").arg(&script).args(["--mpicc", compiler, "--prefix"]).arg(&prefix).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && complaint.contains(why), "{output:?}");
        assert!(!prefix.exists() && output.stdout.is_empty(), "{output:?}");
    }
}
