//! The loader in front of a fake MPI library and a fake engine.

mod rig;

use rig::{LOCAL_RANKS, RANKS, Rig, library, text};
use std::fs;
use std::process::Command;

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

/// The calls that the tests of profilers make.
const CALLS: [&str; 5] =
    ["call:MPI_Init", "call:MPI_Allreduce", "call:PMPI_Allreduce", "call:MPI_Barrier", "call:MPI_Gather"];

/// The output of `CALLS` with the profiler libfirst.so, wherever it comes in the order of libraries.
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
    // A batch script's own variables are also in the environment of the launcher that the script starts.
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
