//! `huddle`: tells what huddle finds on a machine, what it would choose there, and why. It links no MPI.

mod choice;
mod machine;
mod mpi;
mod settings;
mod text;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use huddle::config::{Complaint, Config, RawEnvironment};
use serde_json::json;
use std::process::ExitCode;

/// Tells what huddle does on a machine, and why.
#[derive(Parser)]
#[command(name = "huddle", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Prints the machine, the ranks' place in it, what is known of its speed, the MPI libraries, all settings, and
    /// what is chosen for each collective and size.
    Info(Info),
    /// Measures, on an idle machine, the speed of copies and sums, whatever was kept of that, and how fast lines move
    /// between the processors, for the models: some ten milliseconds. Jobs find the result where HUDDLE_CACHE says.
    Probe,
}

/// Options of `huddle info`.
#[derive(clap::Args)]
struct Info {
    /// Ranks on each node; from 1 to 1024; as many as processors, where not given
    #[arg(value_parser = up_to::<MOST_RANKS>, short = 'n', long, value_name = "N", allow_negative_numbers = true)]
    ranks: Option<usize>,
    /// Nodes; from 1 to 100000
    #[arg(value_parser = up_to::<MOST_NODES>, long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    nodes: usize,
    /// A machine to pretend, in hwloc's synthetic syntax such as "package:2 l3:1 core:6 pu:1"
    #[arg(long, value_name = "SYNTHETIC")]
    topology: Option<String>,
    /// For programs: one JSON object
    #[arg(long)]
    json: bool,
}

/// Choices for this many ranks of a node take some seconds.
const MOST_RANKS: usize = 1024;
/// With `MOST_RANKS` ranks on each of these nodes, MPI can still count all ranks.
const MOST_NODES: usize = 100_000;

fn up_to<const MOST: usize>(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=MOST).contains(&number) => Ok(number),
        _ => Err(format!("not a number from 1 to {MOST}")),
    }
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let raw = RawEnvironment::from_process();
    let (mut config, complaints) = Config::parse(&raw);
    let info = match command {
        Command::Info(info) => info,
        Command::Probe => return probe(&config, &complaints),
    };
    let is_pretended = info.topology.is_some();
    config.topology = info.topology.or(config.topology);
    let machine = machine::Found::look(&config);
    if is_pretended && let Some(problem) = &machine.problem {
        let problem = problem.trim_start_matches("HUDDLE_TOPOLOGY=");
        let mut program = Arguments::command();
        program.build();
        let command = program.find_subcommand_mut("info").expect("the command that runs");
        command.error(ErrorKind::ValueValidation, format!("--topology {problem}")).exit();
    }
    let ranks = info.ranks.unwrap_or(machine.processors()).clamp(1, MOST_RANKS);
    let job = machine::Job::new(&machine, ranks, info.nodes, &config);
    let report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "machine": machine.to_json(),
        "ranks": job.to_json(&machine),
        "parameters": machine.parameters_to_json(),
        "kernels": machine.kernels_to_json(),
        "mpi": mpi::found(),
        "settings": settings::all(&raw, &complaints, config.cache.directory().as_deref()),
        "choice": choice::all(&config, &job.agreed, &machine.parameters),
    });
    // A closed pipe, as with `huddle info | head`, is no failure.
    let output = if info.json { format!("{report:#}\n") } else { text::of(&report) };
    match std::io::Write::write_all(&mut std::io::stdout(), output.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// Measures this machine and keeps the result. As in jobs, a variable with a wrong value counts as not set, and a line
/// says so.
fn probe(config: &Config, complaints: &[Complaint]) -> ExitCode {
    for complaint in complaints {
        eprintln!("huddle: {complaint}");
    }
    let mut machine = machine::Found::look(config);
    match machine.probe(config) {
        Ok(directory) => {
            println!("kept in {}; `huddle info` shows it", directory.display());
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("huddle: {problem}");
            ExitCode::FAILURE
        }
    }
}
