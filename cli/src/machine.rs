//! The machine, and the places of a job's ranks in it.

use huddle::config::{Cache, Config, Ring};
use huddle::kernel::{self, Probed, SingleCopy};
use huddle::model::{Network, Parameters};
use huddle::sync::Passed;
use huddle::topo::{
    ASSUMED_L1, ASSUMED_L2, Caches, Containers, Crowding, Fit, Hierarchy, Kind, Levels, cgroup_quota, place,
};
use huddle::tune::Agreed;
use huddle::tune::measured::{self, Origin};
use huddle::tune::network;
use huddle::types::NodeRank;
use serde_json::{Value, json};
use std::path::PathBuf;

/// What was found out about a machine.
pub struct Found {
    containers: Containers,
    /// Why nothing is known of the machine's structure; `None` if something is.
    pub problem: Option<String>,
    /// The parameters that costs depend on.
    pub parameters: Parameters,
    origin: Origin,
    probed: Probed,
    /// What jobs have measured between nodes, and by which library.
    networks: Vec<(String, Network)>,
}

impl Found {
    /// This machine, or the one that is pretended.
    pub fn look(config: &Config) -> Self {
        let (containers, problem) = match load(config.topology.as_deref()) {
            Ok(containers) => (containers, None),
            Err(problem) => (Containers::default(), Some(problem)),
        };
        let directory = config.cache.directory();
        let probed = kernel::cache::look_up_or_measure(directory.as_deref());
        let (parameters, origin) = if containers.is_pretended() {
            (Parameters::default(), Origin::Assumed)
        } else {
            measured::parameters(directory.as_deref(), &probed)
        };
        let networks = directory.as_deref().map(network::all_kept).unwrap_or_default();
        Self { containers, problem, parameters, origin, probed, networks }
    }

    /// Measures kernels and crossings anew, whatever was kept, and keeps the results. Returns the directory.
    pub fn probe(&mut self, config: &Config) -> Result<PathBuf, String> {
        let directory = config.cache.directory().ok_or(match config.cache {
            Cache::Off => "HUDDLE_CACHE=off keeps nothing: set it to a directory",
            Cache::Home | Cache::Directory(_) => "no home directory: set HUDDLE_CACHE to a directory",
        })?;
        if self.containers.is_pretended() || self.containers.pus() < 2 {
            return Err("only a real machine of several processors can be measured".to_owned());
        }
        let cannot_write = |error| format!("can't write to {}: {error}", directory.display());
        self.probed = kernel::cache::measure_anew(&directory).map_err(cannot_write)?;
        // From now on slots are written as calls write them.
        self.probed.clone().put_to_use();
        measured::measure(&self.containers, &self.probed, &directory).map_err(cannot_write)?;
        Ok(directory)
    }

    /// The kernels that are in use, and their rates.
    pub fn kernels_to_json(&self) -> Value {
        serde_json::from_slice(&self.probed.to_bytes()).unwrap_or_default()
    }

    /// The number of hardware threads.
    pub fn processors(&self) -> usize {
        match self.containers.pus() {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            pus => pus,
        }
    }

    /// The machine as the report has it.
    pub fn to_json(&self) -> Value {
        let kinds = self.containers.kinds().iter().enumerate();
        let kinds: Vec<Value> =
            kinds.map(|(index, kind)| json!({ "kind": kind.name(), "count": self.containers.count(index) })).collect();
        let caches = self.containers.caches();
        json!({
            "pretended": self.containers.is_pretended(),
            "processors": self.processors(),
            "containers": kinds,
            "caches": { "line": caches.line, "l1": caches.l1, "l2": caches.l2, "l3": caches.l3 },
            "fit": fit_to_json(caches),
            "cgroup_processors": cgroup_quota(),
            "problem": self.problem,
        })
    }

    /// The parameters that costs depend on, and where they come from.
    pub fn parameters_to_json(&self) -> Value {
        let Parameters {
            local, copy, reduce, write, ahead, overlap, far, single_copy, software, switch, network, ..
        } = self.parameters;
        let shares = std::iter::once(None).chain(Kind::ALL.map(Some));
        let crossings: Vec<Value> = shares
            .map(|shares| {
                let crossing = self.parameters.crossing(shares);
                json!({
                    "shares": shares.map_or("node", Kind::name),
                    "latency_ns": crossing.latency,
                    "stream_ns_per_byte": crossing.stream,
                    "shared_ns_per_byte": crossing.shared,
                })
            })
            .collect();
        json!({
            "origin": match self.origin {
                Origin::Assumed => "assumed: huddle probe measures",
                Origin::Measured => "measured",
            },
            "local_ns": local,
            "copy_ns_per_byte": copy,
            "reduce_ns_per_byte": reduce,
            "write_ns_per_byte": write,
            "data_after_flag": ahead,
            "overlap": { "copy": overlap.copy, "reduce": overlap.reduce },
            "switch_ns": switch,
            "far": { "beyond": far.beyond, "copy_ns_per_byte": far.copy, "reduce_ns_per_byte": far.reduce },
            "single_copy": { "call_ns": single_copy.call, "ns_per_byte": single_copy.per_byte },
            "call_ns": software.call,
            "step_ns": software.step,
            "crossings": crossings,
            "network": network_to_json(&network),
            "networks": self
                .networks
                .iter()
                .map(|(what, network)| json!({ "between": what, "network": network_to_json(network) }))
                .collect::<Vec<_>>(),
        })
    }
}

fn network_to_json(network: &Network) -> Value {
    let Network { latency, overhead, gap, per_byte } = network;
    json!({ "latency_ns": latency, "overhead_ns": overhead, "gap_ns": gap, "ns_per_byte": per_byte })
}

/// Sizes that follow from the caches, and whether each cache was found or assumed.
fn fit_to_json(caches: Caches) -> Value {
    let Fit { l1, l2 } = caches.fit();
    let from = |found: u32, assumed: u32| match found {
        0 => json!({ "cache": assumed, "origin": "assumed" }),
        found => json!({ "cache": found, "origin": "found" }),
    };
    json!({
        "shortest_tile": l1.0,
        "longest_tile": l2.0,
        "ring": caches.ring().0,
        "l1": from(caches.l1, ASSUMED_L1),
        "l2": from(caches.l2, ASSUMED_L2),
    })
}

#[cfg(feature = "hwloc")]
fn load(topology: Option<&str>) -> Result<Containers, String> {
    huddle::topo::hwloc::load(topology)
}

#[cfg(not(feature = "hwloc"))]
fn load(_topology: Option<&str>) -> Result<Containers, String> {
    Err("this program was built without hwloc".to_owned())
}

/// A job on machines like this one, with its ranks in the order of the processors on each.
pub struct Job {
    /// What a communicator of all ranks agrees on.
    pub agreed: Agreed,
}

impl Job {
    /// A job with `ranks` ranks on each of `nodes` nodes.
    pub fn new(machine: &Found, ranks: usize, nodes: usize, config: &Config) -> Self {
        let containers = &machine.containers;
        let levels = Levels::from_paths(&place::paths_in_order(containers, ranks), NodeRank(0));
        let processors = machine.processors() as f64;
        let cores = cgroup_quota().map_or(processors, |quota| quota.min(processors));
        let crowding = Crowding::new(ranks, cores);
        let Ring { slots, cell, .. } = config.ring(ranks, containers.caches(), crowding);
        let agreed = Agreed {
            ranks: ranks * nodes,
            nodes,
            largest_node: ranks,
            is_block_placed: true,
            cell_bytes: cell,
            slots,
            crowding,
            leaders: if nodes > 1 { config.leaders().min(ranks) } else { 1 },
            fit: containers.caches().fit(),
            hierarchy: Hierarchy::of(&levels, containers.kinds(), containers.trunk()),
            // A process that may not read its own memory in this way may not read that of others.
            has_single_copy: config.may_copy_singly && SingleCopy::measure(0.0).is_some(),
        };
        Self { agreed }
    }

    /// The job as the report has it.
    pub fn to_json(&self, machine: &Found) -> Value {
        let steps: Vec<Value> = self
            .agreed
            .hierarchy
            .steps()
            .iter()
            .map(|step| json!({ "groups": step.fan, "share": step.shares.map_or("node", Kind::name) }))
            .collect();
        let paths = place::paths_in_order(&machine.containers, self.agreed.largest_node);
        json!({
            "per_node": self.agreed.largest_node,
            "nodes": self.agreed.nodes,
            "more_ranks_than_processors": self.agreed.crowding.is_shared(),
            "cell": self.agreed.cell_bytes.0,
            "slots": self.agreed.slots,
            "passed": Passed::at_first(self.agreed.largest_node, self.agreed.cell_bytes),
            "levels": steps,
            "paths": paths,
        })
    }
}
