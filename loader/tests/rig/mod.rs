//! A directory in which the loader finds a fake MPI library and a fake engine, all built here with `cc`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

pub const FAKES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake");

/// The variables of launchers that give the rank on the node, and the rank.
pub const LOCAL_RANKS: [&str; 6] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PMI_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
];
pub const RANKS: [&str; 5] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PALS_RANKID", "SLURM_PROCID"];

/// A directory with libhuddle.so, fake MPIs, and the probe: once linked with no MPI, once with libmpi.so.40.
pub struct Rig {
    pub dir: PathBuf,
}

impl Rig {
    pub fn new(test: &str) -> Rig {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("huddle")).unwrap();
        fs::copy(library(), dir.join("libhuddle.so")).unwrap();
        let rig = Rig { dir };
        let soname = "-Wl,-soname,libmpi.so.40";
        rig.cc("libmpi.so.40", "mpi.c", &["-shared", "-fPIC", "-DOPENMPI", soname]);
        rig.cc("libmpich.so.12", "mpi.c", &["-shared", "-fPIC"]);
        rig.cc("probe", "probe.c", &["-pthread", "-ldl"]);
        let mpi = rig.path("libmpi.so.40");
        let link = ["-pthread", "-ldl", "-Wl,--no-as-needed,-rpath,$ORIGIN", &mpi];
        rig.cc("linked", "probe.c", &link);
        rig
    }

    pub fn with_engine(test: &str) -> Rig {
        let rig = Rig::new(test);
        rig.cc("huddle/libhuddle-openmpi.so", "engine.c", &["-shared", "-fPIC"]);
        rig
    }

    /// Like `with_engine`, with the profilers libfirst.so, which wraps four names, and libsecond.so, which wraps
    /// MPI_Allreduce only.
    pub fn with_profilers(test: &str) -> Rig {
        let rig = Rig::with_engine(test);
        rig.profiler("first", &[]);
        rig.profiler("second", &["-DONLY"]);
        rig
    }

    pub fn profiler(&self, name: &str, options: &[&str]) {
        let tag = format!("-DTAG=\"{name}\"");
        self.cc(&format!("lib{name}.so"), "prof.c", &[&["-shared", "-fPIC", &tag], options].concat());
    }

    /// A value of LD_PRELOAD.
    pub fn list(&self, libraries: &[&str]) -> String {
        let paths: Vec<_> = libraries.iter().map(|name| self.path(&format!("lib{name}.so"))).collect();
        paths.join(" ")
    }

    pub fn path(&self, file: &str) -> String {
        self.dir.join(file).to_str().unwrap().to_owned()
    }

    pub fn cc(&self, output: &str, source: &str, options: &[&str]) {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-w", "-o", &self.path(output), &format!("{FAKES}/{source}")]);
        assert!(cc.args(options).status().unwrap().success(), "cc {source}");
    }

    /// Runs a program with libhuddle.so, or `environment`'s LD_PRELOAD, preloaded and without any launcher's variables.
    pub fn preloaded(&self, program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(program);
        for rank in LOCAL_RANKS.iter().chain(&RANKS) {
            command.env_remove(rank);
        }
        let preload = self.path("libhuddle.so");
        command.args(arguments).env("LD_PRELOAD", preload).envs(environment.iter().copied());
        command.output().unwrap()
    }

    /// Standard output of a probe, which must succeed and print nothing on stderr.
    pub fn says(&self, probe: &str, arguments: &[&str], environment: &[(&str, &str)]) -> String {
        let output = self.preloaded(&self.path(probe), arguments, environment);
        assert_eq!(text(&output.stderr), "");
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Path of the library under test, built here: `cargo test` doesn't build a cdylib for its integration tests.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("library");
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--release", "--manifest-path", manifest, "--target-dir"]);
        assert!(cargo.arg(&target).status().unwrap().success());
        target.join("release/libhuddle_loader.so")
    })
}
