//! `huddle info` as users run it.

use serde_json::Value;
use std::process::Command;

/// The output with these arguments and variables, and with no other variables of huddle or hwloc.
fn info(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_huddle"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HUDDLE_") || name.starts_with("HWLOC_")) {
        command.env_remove(name);
    }
    // Leaves measurements of the user alone.
    command.env("HUDDLE_CACHE", std::env::temp_dir().join(format!("huddle-info-{}", std::process::id())));
    let output = command.arg("info").args(arguments).envs(variables.iter().copied()).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn json(arguments: &[&str], variables: &[(&str, &str)]) -> Value {
    let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&info(&arguments, variables)).expect("JSON")
}

const WESTMERE: &str = "package:2 [numa] l3:1(size=12582912) l2:6 core:1 pu:1";

#[test]
fn a_pretended_machine_and_its_ranks() {
    for (arguments, variables) in [
        (vec!["-n", "12", "--topology", WESTMERE], vec![]),
        (vec!["-n", "12"], vec![("HUDDLE_TOPOLOGY", WESTMERE)]),
        (vec![], vec![("HWLOC_SYNTHETIC", WESTMERE)]),
    ] {
        let report = json(&arguments, &variables);
        assert_eq!(report["machine"]["pretended"], true);
        assert_eq!(report["machine"]["processors"], 12);
        assert_eq!(report["machine"]["caches"]["l3"], 12_582_912);
        let levels = report["ranks"]["levels"].as_array().expect("levels");
        assert_eq!((&levels[0]["groups"], &levels[0]["share"]), (&Value::from(2), &Value::from("node")));
        assert_eq!((&levels[1]["groups"], &levels[1]["share"]), (&Value::from(6), &Value::from("L3 cache")));
    }
}

#[test]
fn a_place_that_hwloc_cannot_tell_is_one_flat_level() {
    let report = json(&["-n", "3"], &[("HUDDLE_TOPOLOGY", "rubbish")]);
    let problem = report["machine"]["problem"].as_str().expect("a reason");
    assert!(problem.contains("rubbish"), "{problem}");
    assert_eq!(report["ranks"]["levels"].as_array().map(Vec::len), Some(1));
    assert!(info(&[], &[("HUDDLE_TOPOLOGY", "rubbish")]).contains("one flat level: HUDDLE_TOPOLOGY=\"rubbish\""));
}

#[test]
fn sizes_follow_from_the_caches_and_have_origins() {
    let small = "package:1 l3:1(size=4194304) l2:2(size=524288) l1:1(size=16384) core:1 pu:1";
    let report = json(&["-n", "2", "--topology", small], &[]);
    let fit = &report["machine"]["fit"];
    assert_eq!((&fit["shortest_tile"], &fit["longest_tile"]), (&(4 << 10).into(), &(128 << 10).into()));
    assert_eq!((&fit["l2"]["cache"], &fit["l2"]["origin"]), (&(512 << 10).into(), &"found".into()));
    // 16 slots take twice the second-level cache.
    assert_eq!((&fit["ring"], &report["ranks"]["cell"]), (&(1 << 20).into(), &(64 << 10).into()));
    let unknown = json(&["-n", "2"], &[("HUDDLE_TOPOLOGY", "rubbish")]);
    assert_eq!(unknown["machine"]["fit"]["l1"]["origin"], "assumed");
    assert_eq!((&unknown["machine"]["fit"]["ring"], &unknown["ranks"]["slots"]), (&(2 << 20).into(), &16.into()));
    assert!(
        info(&[], &[("HUDDLE_TOPOLOGY", small)]).contains("tiles of 4K (L1: 16K found) to 128K, rings of up to 1M")
    );
}

#[test]
fn choices_have_reasons_and_times() {
    let variables = [("HUDDLE_ALLREDUCE", "<=1K:tree:radix=2,native")];
    let report = json(&["-n", "12", "--topology", WESTMERE], &variables);
    let allreduce = &report["choice"]["Allreduce"];
    assert_eq!(
        (&allreduce[0]["algorithm"], &allreduce[0]["why"]),
        (&"tree:radix=2".into(), &"forced by the environment".into())
    );
    assert!(allreduce[0]["times"][0]["ns"].as_f64().expect("a time") > 0.0);
    let last = allreduce.as_array().and_then(|ranges| ranges.last()).expect("ranges");
    assert_eq!((&last["algorithm"], &last["times"][0]["ns"]), (&Value::from("native"), &Value::Null));
    for range in report["choice"]["Bcast"].as_array().expect("ranges") {
        let (chosen, best) = (&range["algorithm"], &range["models_prefer"]);
        let reasons = ["predicted to be about as fast, and waits the least", "predicted to be the fastest"];
        assert_eq!(range["why"], reasons[usize::from(chosen == best)]);
        assert!(chosen == best || chosen == "flat", "{chosen}, {best}");
    }
    assert_eq!(report["choice"]["Barrier"].as_array().map(Vec::len), Some(1), "barriers have one size");
}

#[test]
fn without_trials_nothing_is_said_to_be_tried() {
    let reasons = |variables: &[(&str, &str)]| {
        let report = json(&["-n", "2", "--topology", "core:2 pu:1"], variables);
        report["choice"].to_string()
    };
    let (tried, fixed) = ("slots and memory are both tried", "with HUDDLE_TRIALS=0");
    let (usual, untried) = (reasons(&[]), reasons(&[("HUDDLE_TRIALS", "0")]));
    assert!(untried.contains(fixed) == usual.contains(tried) && !untried.contains(tried) && !usual.contains(fixed));
}

#[test]
fn a_complaint_stands_at_its_own_variable() {
    let report = json(&["-n", "2"], &[("HUDDLE_CACHES", "off")]);
    let options = report["settings"]["options"].as_array().expect("options");
    assert!(options.iter().all(|option| option["complaint"].is_null()), "{options:?}");
    assert_eq!(report["settings"]["unknown"], serde_json::json!(["HUDDLE_CACHES"]));
}

#[test]
fn what_is_forced_but_can_not_be_had_is_not_called_forced() {
    let single = [("HUDDLE_BCAST", "single"), ("HUDDLE_SINGLE_COPY", "0"), ("HUDDLE_NODE_RANKS", "2")];
    let report = json(&["-n", "2"], &single);
    for range in report["choice"]["Bcast"].as_array().expect("ranges") {
        assert_ne!(range["algorithm"], "single");
        assert!(range["why"].as_str().is_some_and(|why| why.starts_with("single is forced, but needs ")), "{range}");
    }
    let origin = |name: &str| {
        let options = report["settings"]["options"].as_array().expect("options");
        options.iter().find(|option| option["name"] == name).expect("it is listed")["origin"].clone()
    };
    assert_eq!(origin("HUDDLE_BCAST"), "environment");
    assert_eq!(origin("HUDDLE_NODE_RANKS"), "environment, for jobs: here --nodes holds");
}

#[test]
fn what_no_job_serves_is_native_without_a_preference() {
    for (arguments, variables, why) in [
        (vec!["-n", "1"], vec![], "The communicator has one rank, which exchanges nothing"),
        (vec!["-n", "1", "--nodes", "3"], vec![], "No two ranks of the communicator share a node"),
        (vec!["-n", "2"], vec![("HUDDLE_DISABLE", "1"), ("HUDDLE_BCAST", "flat")], "HUDDLE_DISABLE is set"),
    ] {
        let report = json(&arguments, &variables);
        for (collective, ranges) in report["choice"].as_object().expect("collectives") {
            let range = &ranges[0];
            assert_eq!(ranges.as_array().map(Vec::len), Some(1), "{collective}");
            assert_eq!((&range["algorithm"], &range["why"]), (&"native".into(), &why.into()), "{collective}");
            assert_eq!(range["models_prefer"], Value::Null, "{collective}");
        }
        let text = info(&arguments, &variables);
        let (_, choices) = text.split_once("\nChoice").expect("the section");
        assert_eq!(choices.lines().filter(|line| line.ends_with(why)).count(), 6, "{choices}");
        assert!(!choices.contains("?"), "{choices}");
    }
}

#[test]
fn settings_have_origins() {
    let report = json(&[], &[("HUDDLE_WARMUP", "7"), ("HUDDLE_SLOTS", "3"), ("HUDDLE_NONSENSE", "1")]);
    let options = report["settings"]["options"].as_array().expect("options");
    let option = |name: &str| options.iter().find(|option| option["name"] == name).expect("documented");
    assert_eq!(
        (&option("HUDDLE_WARMUP")["value"], &option("HUDDLE_WARMUP")["origin"]),
        (&"7".into(), &"environment".into())
    );
    assert_eq!(option("HUDDLE_SLOTS")["value"], "auto");
    assert!(option("HUDDLE_SLOTS")["complaint"].as_str().expect("a complaint").contains("power of two"));
    assert_eq!(option("HUDDLE_BRIDGES")["origin"], "default");
    assert_eq!(report["settings"]["unknown"][0], "HUDDLE_NONSENSE");
}

#[test]
fn the_text_has_every_section() {
    let text = info(&["-n", "12", "--nodes", "2", "--topology", WESTMERE], &[]);
    for section in [
        "Machine (pretended)",
        "Ranks: 12 on each of 2 nodes",
        "Speed (",
        "Kernels (probed here, not on the pretended machine)",
        "MPI",
        "Settings",
        "Choice, by bytes",
    ] {
        assert!(text.contains(&format!("\n{section}")), "{section}");
    }
}

#[test]
fn a_probe_is_kept_and_shown() {
    let directory = std::env::temp_dir().join(format!("huddle-probe-{}", std::process::id()));
    let probe = |cache: &std::ffi::OsStr| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_huddle"));
        command.arg("probe").env("HUDDLE_CACHE", cache).env_remove("HWLOC_SYNTHETIC").output().expect("it runs")
    };
    let variables = [("HUDDLE_CACHE", directory.to_str().expect("text"))];
    if probe(directory.as_os_str()).status.success() {
        assert_eq!(json(&[], &variables)["parameters"]["origin"], "measured");
    }
    let _ = std::fs::remove_dir_all(directory);
}

#[test]
fn a_probe_that_nothing_would_keep_says_why() {
    for (cache, why) in [("off", "HUDDLE_CACHE=off keeps nothing"), ("", "no home directory: set HUDDLE_CACHE")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_huddle"));
        command.env_remove("XDG_CACHE_HOME").env("HOME", "/nonexistent/home").env("HUDDLE_CACHE", cache);
        let output = command.arg("probe").output().expect("it runs");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && complaint.contains(why), "{complaint}");
    }
}

#[test]
fn a_probe_complains_of_a_wrong_place() {
    let home = std::env::temp_dir().join(format!("huddle-home-{}", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_huddle"));
    command.env_remove("XDG_CACHE_HOME").env("HOME", &home).env("HUDDLE_CACHE", "relative");
    let output = command.arg("probe").output().expect("it runs");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    let _ = std::fs::remove_dir_all(home);
    assert!(complaint.contains("HUDDLE_CACHE=\"relative\": "), "{complaint}");
}

#[test]
fn no_mpi_is_linked() {
    let Ok(output) = Command::new("ldd").arg(env!("CARGO_BIN_EXE_huddle")).output() else { return };
    let libraries = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(libraries.contains("libc") && !libraries.contains("libmpi"), "{libraries}");
}

#[test]
fn numbers_of_ranks_and_nodes_that_no_job_has_are_refused() {
    for (option, range) in [("-n", "1 to 1024"), ("--ranks", "1 to 1024"), ("--nodes", "1 to 100000")] {
        for number in ["0", "-1", "100001", "99999999999999999999", "x", ""] {
            let arguments = ["info", option, number];
            let output = Command::new(env!("CARGO_BIN_EXE_huddle")).args(arguments).output().expect("it runs");
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            let expected = format!("not a number from {range}");
            assert!(!output.status.success() && complaint.contains(&expected), "{option} {number}: {complaint}");
        }
    }
    let help = info(&["--help"], &[]);
    assert!(help.contains("from 1 to 1024") && help.contains("from 1 to 100000"), "{help}");
}

#[test]
fn a_machine_that_is_none_is_refused() {
    let arguments = ["info", "--topology", "bogus"];
    let output = Command::new(env!("CARGO_BIN_EXE_huddle")).args(arguments).output().expect("it runs");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && complaint.contains("--topology"), "{complaint}");
}
