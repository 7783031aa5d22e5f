//! The loader in front of a fake MPI library and a fake engine, all built here with `cc`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const FAKES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake");

/// What launchers tell: the rank on the node, and the rank.
const LOCAL_RANKS: [&str; 6] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PMI_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
];
const RANKS: [&str; 5] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PALS_RANKID", "SLURM_PROCID"];

/// A directory with libhuddle.so, fake MPIs, and the probe, linked with none or with libmpi.so.40.
struct Rig {
    dir: PathBuf,
}

impl Rig {
    fn new(test: &str) -> Rig {
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

    fn with_engine(test: &str) -> Rig {
        let rig = Rig::new(test);
        rig.cc("huddle/libhuddle-openmpi.so", "engine.c", &["-shared", "-fPIC"]);
        rig
    }

    /// Also with the profilers libfirst.so, which wraps four names, and libsecond.so, which wraps MPI_Allreduce only.
    fn with_profilers(test: &str) -> Rig {
        let rig = Rig::with_engine(test);
        rig.profiler("first", &[]);
        rig.profiler("second", &["-DONLY"]);
        rig
    }

    fn profiler(&self, name: &str, options: &[&str]) {
        let tag = format!("-DTAG=\"{name}\"");
        self.cc(&format!("lib{name}.so"), "prof.c", &[&["-shared", "-fPIC", &tag], options].concat());
    }

    /// A value of LD_PRELOAD.
    fn list(&self, libraries: &[&str]) -> String {
        let paths: Vec<_> = libraries.iter().map(|name| self.path(&format!("lib{name}.so"))).collect();
        paths.join(" ")
    }

    fn path(&self, file: &str) -> String {
        self.dir.join(file).to_str().unwrap().to_owned()
    }

    fn cc(&self, output: &str, source: &str, options: &[&str]) {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-w", "-o", &self.path(output), &format!("{FAKES}/{source}")]);
        assert!(cc.args(options).status().unwrap().success(), "cc {source}");
    }

    /// Output of a program that has libhuddle.so, or `environment`'s LD_PRELOAD, preloaded and no launcher's environment.
    fn preloaded(&self, program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(program);
        for rank in LOCAL_RANKS.iter().chain(&RANKS) {
            command.env_remove(rank);
        }
        let preload = self.path("libhuddle.so");
        command.args(arguments).env("LD_PRELOAD", preload).envs(environment.iter().copied());
        command.output().unwrap()
    }

    /// Standard output of a probe that must end well and say nothing on stderr.
    fn says(&self, probe: &str, arguments: &[&str], environment: &[(&str, &str)]) -> String {
        let output = self.preloaded(&self.path(probe), arguments, environment);
        assert_eq!(text(&output.stderr), "");
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The library under test. `cargo test` doesn't build a cdylib for its integration tests.
fn library() -> &'static Path {
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

#[test]
fn arguments_arrive_under_both_names() {
    let rig = Rig::with_engine("both_names");
    let calls = ["MPI_Init", "MPI_Allreduce", "PMPI_Allreduce", "MPI_Barrier", "PMPI_Gather"];
    let calls = calls.map(|name| format!("call:{name}"));
    let said = rig.says("linked", &calls.each_ref().map(String::as_str), &[]);
    let expected = "MPI_Init: engine\nMPI_Allreduce: engine\nPMPI_Allreduce: engine\n\
                    MPI_Barrier: native\nPMPI_Gather: native profiling\n";
    assert_eq!(said, expected);
}

#[test]
fn profiling_names_can_stay_native() {
    let rig = Rig::with_engine("pmpi");
    let calls = ["call:PMPI_Allreduce", "call:MPI_Allreduce"];
    let said = rig.says("linked", &calls, &[("HUDDLE_PMPI", "0")]);
    assert_eq!(said, "PMPI_Allreduce: native profiling\nMPI_Allreduce: engine\n");
    assert!(rig.says("linked", &calls, &[("HUDDLE_PMPI", "1")]).starts_with("PMPI_Allreduce: engine"));
}

#[test]
fn both_names_are_counted() {
    let rig = Rig::with_engine("counting");
    let calls = ["call:MPI_Gather", "call:PMPI_Gather", "threads:MPI_Gather", "ask:huddle_counters"];
    let said = rig.says("linked", &calls, &[]);
    let counted = names().iter().filter(|(kind, _)| ["Counted", "Begun"].contains(kind)).count();
    let library = format!("Open MPI v4.0, a fake of /libmpi.so.40 among {counted}");
    assert!(said.ends_with(&format!("{library}\nhuddle_counters: 18\n")), "{said}");
}

/// What the engine sees of traffic after each of these: requests that are open, or -1 for such as nobody sees the end of.
fn traffic_after(rig: &Rig, program: &str, steps: &[&str], environment: &[(&str, &str)]) -> Vec<String> {
    let asking = steps.iter().flat_map(|step| [*step, "ask:huddle_is_active"]);
    let arguments: Vec<&str> = asking.collect();
    let said = rig.says(program, &arguments, environment);
    assert!(!said.contains("damaged"), "{said}");
    said.lines().filter_map(|line| line.strip_prefix("huddle_is_active: ")).map(str::to_owned).collect()
}

/// After each step the engine sees what stands beside it.
fn check_traffic(rig: &Rig, program: &str, steps: &[(&str, &str)], environment: &[(&str, &str)]) {
    let (calls, expected): (Vec<&str>, Vec<&str>) = steps.iter().copied().unzip();
    assert_eq!(traffic_after(rig, program, &calls, environment), expected, "{environment:?}");
}

#[test]
fn requests_are_open_until_they_are_completed() {
    let rig = Rig::with_engine("requests");
    let steps = [
        ("call:MPI_Gather", "0"),
        ("call:MPI_Isend", "1"),
        ("call:PMPI_Isend", "2"),
        ("call:MPI_Ibarrier", "3"),
        ("longs:MPI_Wait=2", "3"),
        ("longs:MPI_Wait=1", "2"),
        ("longs:PMPI_Test=0", "2"),
        ("longs:PMPI_Test=1", "1"),
        ("call:MPI_Allreduce", "1"),
        ("call:MPI_Isend", "2"),
        ("longs:MPI_Waitall=01021", "0"),
        ("call:MPI_Isend", "1"),
        ("longs:MPI_Testsome=22", "1"),
        ("longs:PMPI_Testsome=21", "0"),
        ("longs:MPI_Waitall=", "0"),
        // Persistent ones, which keep their handles.
        ("longs:MPI_Startall=3456", "4"),
        ("longs:MPI_Start=7", "5"),
        ("longs:MPI_Wait=8", "5"),
        ("longs:MPI_Wait=4", "4"),
        ("longs:MPI_Wait=4", "4"),
        ("longs:MPI_Testany=254", "4"),
        ("longs:MPI_Testany=52", "3"),
        ("call:MPI_Isend", "4"),
        ("longs:MPI_Testsome=2610", "2"),
        ("longs:MPI_Test=7", "1"),
        ("longs:MPI_Start=7", "2"),
        ("longs:MPI_Waitall=3746", "0"),
        ("longs:MPI_Startall=34", "2"),
        ("longs:MPI_Testany=2344", "2"),
        ("longs:MPI_Testany=2340", "0"),
    ];
    check_traffic(&rig, "linked", &steps, &[]);
    check_traffic(&rig, "linked", &steps, &[("HUDDLE_PMPI", "0")]);
}

/// Arguments and the answer pass, however many requests there are.
#[test]
fn calls_that_complete_requests_arrive_as_they_are() {
    let rig = Rig::with_engine("completing");
    let many = "12".repeat(40);
    let waitall = format!("longs:MPI_Waitall={many}");
    let calls =
        ["longs:MPI_Start=5", "longs:MPI_Test=2", "longs:PMPI_Testsome=1111", &waitall, "longs:PMPI_Testany=121"];
    let said = rig.says("linked", &calls, &[]);
    let expected = "\
Start 5
= 30
Test 0x20 completes 0
= 0
Testsome 4 0x20 completes 4
= 0
Waitall 80 0x20 completes 40
= 33
Testany 3 0x20 completes 1
= 0
";
    assert_eq!(said, expected);
}

#[test]
fn handles_are_as_long_as_those_of_the_mpi() {
    let rig = Rig::new("ints");
    rig.cc("huddle/libhuddle-mpich.so", "engine.c", &["-shared", "-fPIC"]);
    let open = format!("open:{}", rig.path("libmpich.so.12"));
    let steps = [
        (open.as_str(), "0"),
        ("call:MPI_Isend", "1"),
        ("call:MPI_Isend", "2"),
        ("ints:MPI_Waitall=0212", "1"),
        ("ints:MPI_Wait=1", "0"),
    ];
    check_traffic(&rig, "probe", &steps, &[]);
}

/// With Debian's two libraries, whose handles and habits differ.
#[test]
fn requests_of_real_mpis_are_open_until_they_are_completed() {
    let rig = Rig::new("real");
    for family in ["mpich", "openmpi"] {
        let (engine, mpicc) = (format!("huddle/libhuddle-{family}.so"), &*format!("mpicc.{family}"));
        rig.cc(&engine, "engine.c", &["-shared", "-fPIC", "-DSERVES_NOTHING"]);
        let (program, source) = (rig.path(mpicc), format!("{FAKES}/requests.c"));
        let status = Command::new(mpicc).args(["-O1", "-w", "-o", &program, &source, "-ldl"]).status();
        assert!(status.expect("scripts/setup installs it").success(), "{mpicc}");
        let said = rig.says(mpicc, &[], &[]);
        let counts = |what: &str| said.lines().filter_map(|line| line.strip_prefix(what)).collect::<Vec<_>>();
        assert_eq!([counts("begun "), counts("started ")], [[3; 8], [3; 8]].map(|n| n.map(|n| n.to_string()).to_vec()));
        assert_eq!(counts("completed "), ["0"; 17], "{mpicc}");
        let others = ["freed ", "cancelled ", "failed ", "duplicated ", "attached "].map(|what| counts(what).join(" "));
        assert_eq!(others, ["0", "0", "0", "0", "-1"], "{mpicc}");
    }
}

#[test]
fn traffic_whose_end_nobody_sees_is_noted_for_good() {
    let rig = Rig::with_engine("endless");
    // More is completed than was begun, by the names that are seen.
    let unseen = ["call:MPI_Isend", "longs:MPI_Waitall=11", "call:MPI_Isend"];
    assert_eq!(traffic_after(&rig, "linked", &unseen, &[]), ["1", "-1", "-1"]);
    for name in ["MPI_Bsend", "PMPI_Bsend"] {
        let call = format!("call:{name}");
        let calls = ["call:MPI_Gather", &call, "call:MPI_Isend", "longs:MPI_Wait=1"];
        assert_eq!(traffic_after(&rig, "linked", &calls, &[]), ["0", "-1", "-1", "-1"], "{name}");
    }
}

/// Both for good: the engine lowers the notice.
#[test]
fn windows_are_noted_and_who_reaches_into_them_raises_a_notice() {
    let rig = Rig::with_engine("windows");
    for (name, after) in [
        ("MPI_Win_create", ["100", "101", "100"]),
        ("PMPI_Win_create", ["100", "101", "100"]),
        ("MPI_Win_fence", ["100", "101", "100"]),
        ("MPI_Win_lock", ["1100", "1101", "1100"]),
        ("PMPI_Win_flush", ["1100", "1101", "1100"]),
        ("MPI_Rget", ["1001", "1002", "1001"]),
    ] {
        let call = format!("call:{name}");
        let calls = ["call:MPI_Gather", &call, "call:MPI_Isend", "longs:MPI_Wait=1"];
        assert_eq!(traffic_after(&rig, "linked", &calls, &[]), [&["0"], &after[..]].concat(), "{name}");
    }
}

#[test]
fn a_notice_is_raised_where_the_engine_wants_it() {
    let rig = Rig::with_engine("notice");
    let steps = [
        ("call:MPI_Win_create", "100"),
        ("call:MPI_Win_lock", "1100"),
        ("call:MPI_Gather", "100"),
        ("call:MPI_Win_flush", "1100"),
        ("call:MPI_Win_flush", "1100"),
        ("call:MPI_Win_fence", "100"),
        ("call:PMPI_Rget", "1101"),
    ];
    check_traffic(&rig, "linked", &steps, &[("FAKE_SHARED", "1")]);
}

/// However a profiler comes to the call. One that comes before this library gets calls by names that the MPI lacks.
#[test]
fn a_request_that_a_profiler_hands_on_is_opened_once() {
    let rig = Rig::with_profilers("profiled_requests");
    rig.profiler("sender", &["-DONLY", "-DSENDS"]);
    // Four of the last step are opened, two of them by MPI_Irecv_c.
    let steps = [("call:MPI_Gather", "0"), ("call:MPI_Isend", "1"), ("longs:MPI_Wait=1", "0"), ("narrow", "4")];
    for libraries in [["huddle", "sender"], ["sender", "huddle"], ["huddle", "first"]] {
        check_traffic(&rig, "linked", &steps, &[("LD_PRELOAD", &rig.list(&libraries))]);
    }
}

#[test]
fn threads_resolve_once() {
    let rig = Rig::with_engine("threads");
    for _ in 0..8 {
        let said = rig.says("linked", &["threads:MPI_Allreduce"], &[("FAKE_SLOW", "1")]);
        assert_eq!(said, "MPI_Allreduce: engine\n");
    }
}

#[test]
fn finds_an_mpi_opened_locally() {
    let rig = Rig::with_engine("local");
    let open = format!("open:{}", rig.path("libmpi.so.40"));
    let calls = ["ask:huddle_is_active", &open, "call:PMPI_Allreduce", "ask:huddle_counters"];
    let said = rig.says("probe", &calls, &[]);
    let expected = "huddle_is_active: 0\nPMPI_Allreduce: engine\nOpen MPI v4.0, a fake of /libmpi.so.40";
    assert!(said.starts_with(expected), "{said}");
}

/// The calls of the tests of profilers.
const CALLS: [&str; 5] =
    ["call:MPI_Init", "call:MPI_Allreduce", "call:PMPI_Allreduce", "call:MPI_Barrier", "call:MPI_Gather"];

/// What `CALLS` say with the profiler libfirst.so, wherever it is.
const PROFILED: &str = "first: MPI_Init: engine\nfirst: MPI_Allreduce: engine\nPMPI_Allreduce: engine\n\
                        MPI_Barrier: native\nfirst: MPI_Gather: native profiling\n";

#[test]
fn a_linked_profiler_sees_the_calls() {
    let rig = Rig::with_profilers("linked_profiler");
    let (first, second, mpi) = (rig.path("libfirst.so"), rig.path("libsecond.so"), rig.path("libmpi.so.40"));
    let link = ["-pthread", "-ldl", "-Wl,--no-as-needed,-rpath,$ORIGIN", &first, &second, &mpi];
    rig.cc("profiled", "probe.c", &link);
    assert_eq!(rig.says("profiled", &CALLS, &[]), PROFILED);
}

#[test]
fn a_preloaded_profiler_sees_the_calls() {
    let rig = Rig::with_profilers("preloaded_profiler");
    for libraries in [&["first", "huddle"], &["huddle", "first"]] {
        assert_eq!(rig.says("linked", &CALLS, &[("LD_PRELOAD", &rig.list(libraries))]), PROFILED, "{libraries:?}");
    }
    let said = rig.says("linked", &CALLS, &[("LD_PRELOAD", &rig.list(&["huddle", "second"]))]);
    let expected = "MPI_Init: engine\nsecond: MPI_Allreduce: engine\nPMPI_Allreduce: engine\n\
                    MPI_Barrier: native\nMPI_Gather: native\n";
    assert_eq!(said, expected);
}

#[test]
fn a_profiler_sees_the_calls_of_an_mpi_opened_locally() {
    let rig = Rig::with_profilers("local_profiler");
    let open = format!("open:{}", rig.path("libmpi.so.40"));
    let calls = [&[open.as_str()], &CALLS[..]].concat();
    let said = rig.says("probe", &calls, &[("LD_PRELOAD", &rig.list(&["huddle", "first"]))]);
    assert_eq!(said, PROFILED);
}

#[test]
fn profilers_hand_on_to_each_other() {
    let rig = Rig::with_profilers("two_profilers");
    rig.profiler("chain", &["-DHAND_ON", "-DONLY"]);
    for libraries in [["huddle", "chain", "first"], ["chain", "huddle", "first"], ["chain", "first", "huddle"]] {
        let said = rig.says("linked", &CALLS, &[("LD_PRELOAD", &rig.list(&libraries))]);
        let expected = PROFILED.replacen("first: MPI_Allreduce", "chain: first: MPI_Allreduce", 1);
        assert_eq!(said, expected, "{libraries:?}");
    }
}

#[test]
fn the_definition_of_the_program_wins() {
    let rig = Rig::with_profilers("own");
    let link = ["-DOWN", "-rdynamic", "-pthread", "-ldl", "-Wl,--no-as-needed,-rpath,$ORIGIN"];
    rig.cc("own", "probe.c", &[&link[..], &[&rig.path("libmpi.so.40")]].concat());
    let said = rig.says("own", &CALLS, &[("LD_PRELOAD", &rig.list(&["huddle", "first"]))]);
    assert_eq!(said, PROFILED.replacen("first: MPI_Allreduce", "own: MPI_Allreduce", 1));
}

#[test]
fn a_profiler_works_without_an_engine() {
    let rig = Rig::new("native_profiler");
    rig.profiler("first", &[]);
    let preload = rig.list(&["huddle", "first"]);
    let output = rig.preloaded(&rig.path("linked"), &CALLS, &[("LD_PRELOAD", &preload)]);
    assert_eq!(text(&output.stdout), PROFILED.replace("engine", "native profiling"));
}

#[test]
fn a_second_mpi_is_no_profiler() {
    let rig = Rig::with_engine("second_mpi");
    rig.cc("libother.so", "mpi.c", &["-shared", "-fPIC"]);
    let preload = rig.list(&["huddle", "other"]);
    let said = rig.says("linked", &["call:MPI_Allreduce", "call:PMPI_Allreduce"], &[("LD_PRELOAD", &preload)]);
    assert_eq!(said, "MPI_Allreduce: engine\nPMPI_Allreduce: engine\n");
}

#[test]
fn comparing_leaves_profilers_out() {
    let rig = Rig::with_profilers("compare");
    let environment = [("HUDDLE_PMPI", "0"), ("LD_PRELOAD", &rig.list(&["huddle", "first"]))];
    let expected = "MPI_Init: engine\nMPI_Allreduce: engine\nPMPI_Allreduce: native profiling\n\
                    MPI_Barrier: native\nMPI_Gather: native\n";
    assert_eq!(rig.says("linked", &CALLS, &environment), expected);
}

#[test]
fn a_profiled_call_counts_once() {
    let rig = Rig::with_profilers("counting_once");
    let calls = ["call:MPI_Gather", "call:PMPI_Gather", "narrow", "count:MPI_Gather", "count:MPI_Gatherv"];
    let calls = [&calls[..], &["count:MPI_Gatherv_c", "count:MPI_Alltoallv_c"]].concat();
    for libraries in [["huddle", "first"], ["first", "huddle"]] {
        let said = rig.says("linked", &calls, &[("LD_PRELOAD", &rig.list(&libraries))]);
        let counted: Vec<_> =
            said.lines().filter(|line| line.starts_with("MPI_") && !line.contains("native")).collect();
        let expected = ["MPI_Gather: 2", "MPI_Gatherv: 3", "MPI_Gatherv_c: 0", "MPI_Alltoallv_c: 2"];
        assert_eq!(counted, expected, "{libraries:?}");
    }
}

#[test]
fn a_profiler_sees_the_c_forms_that_the_mpi_lacks() {
    let rig = Rig::with_profilers("narrow_profiled");
    for libraries in [["huddle", "first"], ["first", "huddle"]] {
        let preload = rig.list(&libraries);
        let said = rig.says("linked", &["narrow"], &[("LD_PRELOAD", &preload)]);
        assert_eq!(said.matches("first: Gatherv").count(), 3, "{libraries:?}");
        let said = rig.says("linked", &["narrow"], &[("LD_PRELOAD", &preload), ("HUDDLE_PMPI", "0")]);
        assert!(!said.contains("first: "), "{libraries:?}");
    }
}

#[test]
fn stays_native_without_an_engine() {
    let rig = Rig::new("no_engine");
    let open = format!("open:{}", rig.path("libmpich.so.12"));
    let calls = [&open, "call:MPI_Allreduce", "call:PMPI_Allreduce", "ask:huddle_version"];
    let output = rig.preloaded(&rig.path("probe"), &calls, &[]);
    let expected = "MPI_Allreduce: native\nPMPI_Allreduce: native profiling\nhuddle_version: 0\n";
    assert_eq!(text(&output.stdout), expected);
    let line = text(&output.stderr);
    assert!(line.starts_with("huddle warning: ") && line.contains("libhuddle-mpich.so does not open: "), "{line}");
    let end = " No such file or directory (scripts/install --mpicc builds engines); collectives stay native\n";
    assert!(line.ends_with(end), "{line}");
    assert!(line.matches("libhuddle-mpich.so").count() == 1 && line.lines().count() == 1, "{line}");
}

#[test]
fn warns_once_per_node() {
    let rig = Rig::new("warns");
    let lines = |environment: &[(&str, &str)]| {
        let output = rig.preloaded(&rig.path("linked"), &["call:MPI_Allreduce"], environment);
        text(&output.stderr).lines().count()
    };
    for local in LOCAL_RANKS {
        assert_eq!(lines(&[(local, "0"), ("PMI_RANK", "5")]), 1, "{local}");
        assert_eq!(lines(&[(local, "1"), ("PMI_RANK", "0")]), 0, "{local}");
    }
    for rank in RANKS {
        assert_eq!((lines(&[(rank, "0")]), lines(&[(rank, "1")])), (1, 0), "{rank}");
    }
    // A batch script's own environment comes along with that of the launcher which it starts.
    assert_eq!(lines(&[("SLURM_LOCALID", "0"), ("MPI_LOCALRANKID", "1")]), 0);
    assert_eq!(lines(&[("SLURM_PROCID", "0"), ("PMI_RANK", "1")]), 0);
}

#[test]
fn tells_what_an_engine_lacks() {
    let rig = Rig::new("lacks");
    rig.cc("libneeded.so", "mpi.c", &["-shared", "-fPIC"]);
    let needed = rig.path("libneeded.so");
    let link = ["-shared", "-fPIC", "-Wl,--no-as-needed", &needed];
    rig.cc("huddle/libhuddle-openmpi.so", "engine.c", &link);
    fs::remove_file(&needed).unwrap();
    let environment = [("OMPI_COMM_WORLD_RANK", "7"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")];
    let output = rig.preloaded(&rig.path("linked"), &["call:MPI_Allreduce"], &environment);
    let line = text(&output.stderr);
    assert!(line.contains("/huddle/libhuddle-openmpi.so does not open: ") && line.contains("libneeded.so"), "{line}");
}

#[test]
fn stays_native_when_the_engine_refuses() {
    let rig = Rig::with_engine("refuses");
    let output = rig.preloaded(&rig.path("linked"), &["call:MPI_Allreduce"], &[("FAKE_REFUSE", "1")]);
    assert_eq!(text(&output.stdout), "MPI_Allreduce: native\n");
    assert!(text(&output.stderr).contains("refused to open (1); collectives stay native\n"));
}

#[test]
fn hands_on_the_c_forms_that_the_mpi_lacks() {
    let rig = Rig::with_engine("narrow");
    let expected = "\
Bcast 0x10 3 4 5 7
= 21
Bcast 0x10 -1 4 5 7
Ialltoall 0x10 1 2 0x20 3 4 7 0x30
= 22
Imrecv 0x10 1 2 0x20 0x30
= 26
Irecv 0x10 1 2 3 4 7 0x30
= 27
Irecv 0x10 -1 2 3 4 7 0x30
Gatherv 0x10 2 3 0x20 counts 5 6 7 at 0 5 11 4 1 7
= 23
Gatherv 0x10 2 3 0x20 0x50 4 0 7
Gatherv 0x10 2 3 0x20 counts 5 -1 7 at 0 -1 11 4 -4 8
Alltoallv 2 send 5 6 7 at 0 5 11 receive 8 -1 9 at 0 5 11 0x20 3 7
= 24
Alltoallv 2 receive 5 6 7 at 0 5 11 0x20 3 8
Reduce_scatter 0x10 0x20 counts 5 6 2 3 8
= 25
";
    assert_eq!(rig.says("linked", &["narrow"], &[]), expected);
    let absent = ["absent:MPI_Allreduce_init", "absent:PMPI_Ialltoallw_c"];
    let said = rig.says("linked", &absent, &[]);
    assert_eq!(said, "MPI_Allreduce_init: absent\nPMPI_Ialltoallw_c: absent\n");
}

#[test]
fn aborts_with_a_line_where_nothing_can_be_called() {
    let rig = Rig::with_engine("abort");
    for (probe, call, line) in [
        ("linked", "call:PMPI_Iscan", "PMPI_Iscan is not in this MPI library"),
        ("linked", "call:MPI_Scan_c", "MPI_Scan_c is not in this MPI library"),
        ("probe", "call:PMPI_Scan", "PMPI_Scan was called, but no MPI library is loaded"),
    ] {
        let output = rig.preloaded(&rig.path(probe), &[call], &[]);
        assert_eq!(text(&output.stderr), format!("huddle error: {line}\n"));
        assert!(!output.status.success());
    }
}

#[test]
fn leaves_programs_without_mpi_alone() {
    let rig = Rig::new("inert");
    let programs: [&[&str]; 3] =
        [&["ls", "/"], &["bash", "-c", "true | true"], &["python3", "-c", "import ctypes, socket"]];
    for command in programs {
        if Command::new(command[0]).arg("--version").output().is_err() {
            continue;
        }
        let output = rig.preloaded(command[0], &command[1..], &[]);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn exports_the_table_and_nothing_else() {
    let mut nm = Command::new("nm");
    let output = nm.args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    let output = text(&output.stdout);
    let mut exported: Vec<_> = output.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect();
    let both = |(kind, name): &(&str, &str)| match *kind {
        "Api" => vec![name.to_string()],
        _ => vec![name.to_string(), format!("P{name}")],
    };
    let mut expected: Vec<_> = names().iter().flat_map(both).collect();
    exported.sort();
    expected.sort();
    assert_eq!(exported, expected);
}

#[allow(unused_imports)]
#[path = "../src/names.rs"]
mod table;

/// The table of names, with their kinds.
fn names() -> Vec<(&'static str, &'static str)> {
    macro_rules! rows {
        ($($kind:ident: $($name:ident)*;)*) => {
            vec![$($((stringify!($kind), stringify!($name)),)*)*]
        };
    }
    table::names!(rows)
}
