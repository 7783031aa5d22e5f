//! The report as text, for people.

use crate::choice::NATIVE;
use serde_json::Value;
use std::fmt::Write;

/// Which machine the report describes.
#[derive(Clone, Copy)]
enum MachineIs {
    This,
    Pretended,
}

/// The whole report: all sections.
pub fn of(report: &Value) -> String {
    let mut page = format!("huddle {}\n", text(&report["version"]));
    let machine_is = if report["machine"]["pretended"] == true { MachineIs::Pretended } else { MachineIs::This };
    // Writing to a string does not fail.
    let _ = machine(&mut page, &report["machine"])
        .and_then(|()| ranks(&mut page, &report["ranks"]))
        .and_then(|()| parameters(&mut page, &report["parameters"], machine_is))
        .and_then(|()| kernels(&mut page, &report["kernels"], machine_is))
        .and_then(|()| mpi(&mut page, &report["mpi"]))
        .and_then(|()| settings(&mut page, &report["settings"]))
        .and_then(|()| choice(&mut page, &report["choice"]));
    page
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A size as users write it.
fn size(value: &Value) -> String {
    match value.as_u64().unwrap_or(0) {
        0 => "unknown".to_owned(),
        n if n.is_multiple_of(1 << 20) => format!("{}M", n >> 20),
        n if n.is_multiple_of(1 << 10) => format!("{}K", n >> 10),
        n => n.to_string(),
    }
}

/// The count and the noun, in the plural where needed.
fn counted(count: &Value, noun: &str) -> String {
    if count.as_u64() == Some(1) { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn time(value: &Value) -> String {
    match value.as_f64() {
        None => "?".to_owned(),
        Some(ns) if ns < 1e3 => format!("{ns:.0} ns"),
        Some(ns) if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        Some(ns) => format!("{:.1} ms", ns / 1e6),
    }
}

type Written = std::fmt::Result;

fn machine(page: &mut String, machine: &Value) -> Written {
    let pretended = if machine["pretended"] == true { " (pretended)" } else { "" };
    writeln!(page, "\nMachine{pretended}")?;
    let containers: String =
        each(&machine["containers"]).map(|found| format!(", {} x {}", found["count"], text(&found["kind"]))).collect();
    writeln!(page, "  {}{containers}", counted(&machine["processors"], "processor"))?;
    let caches = &machine["caches"];
    let [line, l1, l2, l3] = ["line", "l1", "l2", "l3"].map(|name| size(&caches[name]));
    writeln!(page, "  caches: L1 {l1}, L2 {l2}, L3 {l3}; lines of {line} bytes")?;
    let fit = &machine["fit"];
    let [shortest, longest, ring] = ["shortest_tile", "longest_tile", "ring"].map(|name| size(&fit[name]));
    let cache = |name: &str| format!("{} {}", size(&fit[name]["cache"]), text(&fit[name]["origin"]));
    writeln!(
        page,
        "  tiles of {shortest} (L1: {}) to {longest}, rings of up to {ring} (L2: {})",
        cache("l1"),
        cache("l2")
    )?;
    if let Some(quota) = machine["cgroup_processors"].as_f64() {
        writeln!(page, "  the cgroup grants the time of {quota} processors")?;
    }
    match machine["problem"].as_str() {
        Some(problem) => writeln!(page, "  one flat level: {problem}"),
        None => Ok(()),
    }
}

fn ranks(page: &mut String, ranks: &Value) -> Written {
    writeln!(
        page,
        "\nRanks: {} on {}, in the order of the processors",
        ranks["per_node"],
        if ranks["nodes"] == 1 { "one node".to_owned() } else { format!("each of {} nodes", ranks["nodes"]) }
    )?;
    let levels: Vec<&Value> = each(&ranks["levels"]).collect();
    let places: u64 = levels.iter().filter_map(|level| level["groups"].as_u64()).product();
    // Groups of one level may have different sizes: the report has the most.
    let are_alike = Some(places) == ranks["per_node"].as_u64();
    let mut indent = String::from("  ");
    for (index, level) in levels.iter().enumerate() {
        let what = counted(&level["groups"], if index + 1 == levels.len() { "rank" } else { "group" });
        let verb = if level["groups"] == 1 { "has" } else { "share" };
        let most = if index == 0 || are_alike { "" } else { "up to " };
        writeln!(page, "{indent}{most}{what} that {verb} the {}", text(&level["share"]))?;
        indent.push_str("  ");
    }
    if levels.is_empty() {
        writeln!(page, "  one rank")?;
    }
    writeln!(page, "  slots: {} of {} for each rank and communicator", ranks["slots"], size(&ranks["cell"]))?;
    if ranks["passed"] != 0 {
        writeln!(
            page,
            "  and {} of the same length for each of the two ranks, which they pass to each other",
            ranks["passed"]
        )?;
    }
    if ranks["more_ranks_than_processors"] == true {
        writeln!(page, "  more ranks than processors: a rank that waits gives its processor away")?;
    }
    Ok(())
}

fn parameters(page: &mut String, parameters: &Value, machine_is: MachineIs) -> Written {
    let (copies, here) = match machine_is {
        MachineIs::Pretended => ("assumed", " here"),
        MachineIs::This => ("as probed, below", ""),
    };
    let between = match text(&parameters["origin"]) {
        "measured" => {
            "measured for kinds of neighbours that this machine has, else assumed; where ranks share cores, assumed"
        }
        origin => origin,
    };
    writeln!(page, "\nSpeed (of copies and sums: {copies}; between ranks: {between})")?;
    let per_byte = |value: &Value| 1.0 / value.as_f64().unwrap_or(f64::INFINITY);
    let [copy, reduce, write] =
        ["copy", "reduce", "write"].map(|name| per_byte(&parameters[format!("{name}_ns_per_byte")]));
    writeln!(page, "  a rank copies {copy:.1} GB/s, combines {reduce:.1} GB/s and fills slots at {write:.1} GB/s")?;
    for crossing in each(&parameters["crossings"]) {
        writeln!(
            page,
            "  between ranks that share the {}: {} for a line, {:.1} GB/s for one stream, {:.1} GB/s for all",
            text(&crossing["shares"]),
            time(&crossing["latency_ns"]),
            per_byte(&crossing["stream_ns_per_byte"]),
            per_byte(&crossing["shared_ns_per_byte"]),
        )?;
    }
    writeln!(page, "  ranks that share a core give it to each other in {}", time(&parameters["switch_ns"]))?;
    let single = &parameters["single_copy"];
    writeln!(
        page,
        "  a single copy takes {} and {:.2} ns/byte more than one of a rank's own memory; jobs find out whether ranks may make one",
        time(&single["call_ns"]),
        single["ns_per_byte"].as_f64().unwrap_or_default(),
    )?;
    between_nodes(page, "between nodes, assumed, also for the choice below", &parameters["network"])?;
    for measured in each(&parameters["networks"]) {
        let between: Vec<&str> = text(&measured["between"]).split_whitespace().collect();
        between_nodes(page, &format!("measured{here} between nodes: {}", between.join(" ")), &measured["network"])?;
    }
    Ok(())
}

fn between_nodes(page: &mut String, what: &str, network: &Value) -> Written {
    writeln!(
        page,
        "  {what}: {} on the wire, {} in each processor, {:.1} GB/s",
        time(&network["latency_ns"]),
        time(&network["overhead_ns"]),
        1.0 / network["ns_per_byte"].as_f64().unwrap_or(f64::INFINITY)
    )
}

fn kernels(page: &mut String, kernels: &Value, machine_is: MachineIs) -> Written {
    let place = match machine_is {
        MachineIs::Pretended => " here, not on the pretended machine",
        MachineIs::This => "",
    };
    writeln!(page, "\nKernels (probed{place})")?;
    writeln!(
        page,
        "  reductions: {}; longest copies: {}",
        text(&kernels["level"]),
        text(&kernels["copies"]["slot"]["huge"])
    )?;
    for (name, what) in [("copy", "copies"), ("light", "sums of doubles"), ("heavy", "products of complex doubles")] {
        let rate = |place: &str| kernels[name][place].as_f64().unwrap_or(0.0);
        let [l1, l2, llc, memory] = ["l1", "l2", "llc", "memory"].map(rate);
        writeln!(
            page,
            "  {what}: {l1:.0} GB/s in L1, {l2:.0} in L2, {llc:.0} in the last level, {memory:.0} in memory"
        )?;
    }
    Ok(())
}

fn mpi(page: &mut String, mpi: &Value) -> Written {
    writeln!(page, "\nMPI")?;
    for library in each(&mpi["libraries"]) {
        let engine = if library["has_engine"] == true { "" } else { "; no engine is installed beside this program" };
        writeln!(page, "  {} ({}{engine})", text(&library["library"]), text(&library["family"]))?;
    }
    if each(&mpi["libraries"]).next().is_none() {
        writeln!(page, "  no library found")?;
    }
    each(&mpi["programs"]).try_for_each(|program| writeln!(page, "  {}", text(program)))?;
    each(&mpi["engines"]).try_for_each(|engine| writeln!(page, "  engine {}", text(&engine["engine"])))
}

fn settings(page: &mut String, settings: &Value) -> Written {
    writeln!(page, "\nSettings")?;
    for option in each(&settings["options"]) {
        let name = text(&option["name"]);
        writeln!(page, "  {name:<22} {:<14} {}", text(&option["value"]), text(&option["origin"]))?;
        if let Some(complaint) = option["complaint"].as_str() {
            writeln!(page, "    {complaint}")?;
        }
    }
    each(&settings["unknown"]).try_for_each(|name| writeln!(page, "  {} is not known", text(name)))
}

fn choice(page: &mut String, choice: &Value) -> Written {
    writeln!(
        page,
        "\nChoice, by bytes as in HUDDLE_ALLREDUCE=<=8K:tree; times are predicted, not measured:\n\
         for the longest message of each line, 8M where it is open"
    )?;
    for (collective, ranges) in choice.as_object().into_iter().flatten() {
        writeln!(page, "  {collective}")?;
        let ranges: Vec<&Value> = each(ranges).collect();
        for (index, range) in ranges.iter().enumerate() {
            let is_last = index + 1 == ranges.len();
            let up_to = if is_last { "all longer".to_owned() } else { format!("<={}", size(&range["up_to"])) };
            let up_to = if ranges.len() == 1 { "all" } else { up_to.as_str() };
            let last = each(&range["times"]).last().unwrap_or(&Value::Null);
            let chosen = text(&range["algorithm"]);
            // Nothing is known of the library's times.
            let predicted = if chosen == NATIVE { String::new() } else { time(&last["ns"]) };
            write!(page, "    {up_to:<10} {chosen:<28} {predicted:>9}  {}", text(&range["why"]))?;
            match range["models_prefer"].as_str() {
                Some(best) if best != chosen => {
                    writeln!(page, "; the models prefer {best}: {}", time(&last["best_ns"]))?
                }
                _ => writeln!(page)?,
            }
        }
    }
    Ok(())
}
