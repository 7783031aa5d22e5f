//! What the engine learns about the program's own traffic: requests, windows, and traffic whose end nobody sees.

mod rig;

use rig::{FAKES, Rig};
use std::process::Command;

/// The traffic that the engine sees after each step: the number of open requests, or -1 for traffic whose end nobody
/// sees.
fn traffic_after(rig: &Rig, program: &str, steps: &[&str], environment: &[(&str, &str)]) -> Vec<String> {
    let asking = steps.iter().flat_map(|step| [*step, "ask:huddle_is_active"]);
    let arguments: Vec<&str> = asking.collect();
    let said = rig.says(program, &arguments, environment);
    assert!(!said.contains("damaged"), "{said}");
    said.lines().filter_map(|line| line.strip_prefix("huddle_is_active: ")).map(str::to_owned).collect()
}

/// Checks that after each step the engine sees the traffic given beside it.
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
        // Persistent requests, which keep their handles.
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

/// The arguments of a call and its result pass unchanged, however many requests it has.
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

/// With Debian's two libraries, whose handles and behaviour differ.
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
    // By the names that the loader sees, more requests are completed than were begun.
    let unseen = ["call:MPI_Isend", "longs:MPI_Waitall=11", "call:MPI_Isend"];
    assert_eq!(traffic_after(&rig, "linked", &unseen, &[]), ["1", "-1", "-1"]);
    for name in ["MPI_Bsend", "PMPI_Bsend"] {
        let call = format!("call:{name}");
        let calls = ["call:MPI_Gather", &call, "call:MPI_Isend", "longs:MPI_Wait=1"];
        assert_eq!(traffic_after(&rig, "linked", &calls, &[]), ["0", "-1", "-1", "-1"], "{name}");
    }
}

/// The note is never cleared. The notice stays until the engine lowers it, which this fake engine does not do.
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

/// This holds wherever the profiler comes. A profiler before this library gets calls by names that the MPI library
/// lacks.
#[test]
fn a_request_that_a_profiler_hands_on_is_opened_once() {
    let rig = Rig::with_profilers("profiled_requests");
    rig.profiler("sender", &["-DONLY", "-DSENDS"]);
    // The first call fills the table, and only then is it known that a profiler follows. The last step opens four
    // requests, two of them by MPI_Irecv_c.
    let steps = [("call:MPI_Gather", "0"), ("call:MPI_Isend", "1"), ("longs:MPI_Wait=1", "0"), ("narrow", "4")];
    for libraries in [["huddle", "sender"], ["sender", "huddle"], ["huddle", "first"]] {
        check_traffic(&rig, "linked", &steps, &[("LD_PRELOAD", &rig.list(&libraries))]);
    }
}
