//! What happens in `MPI_Init`: the ranks find each other, agree on the environment, and learn on which nodes all of
//! them run.

use super::agree::{allgather, allgather_u32, bcast_bytes, duplicate, expect, meet, minimum};
use super::communicator::{create_keyval, keep_native};
use super::job::{self, Job};
use super::member::Member;
use super::network;
use super::peers::Announcement;
use super::survival;
use crate::callers;
use crate::config::{Config, RawEnvironment};
use crate::fabric::shm::{Pace, Waiting, are_trials_held, forgo_trials};
use crate::fpenv::in_default;
use crate::kernel::{self, Probed};
use crate::log;
use crate::model::Parameters;
use crate::mpi::handles::{self, constants};
use crate::mpi::native::native;
use crate::topo::place::{self, Containers, CpuMask, Kind};
use crate::topo::{Caches, Crowding, found, host};
use crate::tune::{Reason, measured};
use mpi_sys::MPI_Comm;
use std::ffi::c_int;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// A number that differs between builds of different sources (build.rs), and so between any two that could choose an
/// algorithm or lay out memory differently. Where ranks find several, the job stays native.
pub(super) fn protocol() -> c_int {
    /// A text that is read at run time: scripts/test-partial finds it in an engine, and makes another build of that by
    /// changing it.
    const SOURCES: &str = concat!("huddle's sources ", env!("HUDDLE_SOURCES"));
    let number = black_box(SOURCES).rsplit(' ').next().and_then(|digits| u64::from_str_radix(digits, 16).ok());
    (number.unwrap_or_default() >> 33) as c_int
}

/// Advice to users about ranks without huddle.
pub(super) const REMEDY: &str = "LD_PRELOAD must reach every host and program of the job (Open MPI: mpiexec -x LD_PRELOAD; static \
     binaries can't be served: run without huddle)";

/// Sets the job up. Collective over `MPI_COMM_WORLD`, right after the native `MPI_Init`. If huddle lacks something the
/// job stays native; if MPI fails the job ends.
///
/// # Safety
/// MPI has just been initialised.
pub unsafe fn start(announcement: Option<Announcement>) {
    // SAFETY: the caller's promise.
    if let Err(problem) = unsafe { handles::fill(native()) } {
        // The same binary on all ranks comes to the same verdict.
        log::error(format_args!("{problem}; collectives stay native"));
        return;
    }
    let (rank, size) = rank_and_size(constants().comm_world);
    log::set_rank(rank);
    if is_left(announcement, size) {
        return;
    }
    if meet(constants().comm_world, protocol()) {
        // SAFETY: MPI is initialised.
        let keyval = unsafe { create_keyval() };
        let Agreement { config, misfit, hosts, mask } = agree_on_environment(constants().comm_world, rank, keyval);
        match inactive_reason(&config, misfit, size) {
            Some(reason) => stay_native(Job::idle(config, rank, size as usize), reason),
            None => {
                let keyval = keyval.unwrap_or(constants().keyval_invalid);
                in_default(|| accelerate(config, (hosts, mask), rank, size, keyval));
            }
        }
    } else {
        let (config, _) = Config::parse(&RawEnvironment::from_process());
        let config = from_here(config);
        stay_native(Job { is_one_build: false, ..Job::idle(config, rank, size as usize) }, Reason::HuddleMissing);
    }
    super::finish::at_finalize();
    announce();
}

fn accelerate(config: Config, (hosts, mask): (Hosts, Mask), rank: u32, size: c_int, keyval: c_int) {
    if !config.holds_trials {
        forgo_trials();
    }
    if !config.may_copy_singly {
        kernel::withhold_single_copies();
    }
    // `Node::find` frees its communicator before the next ones are made: in MPICH and its kin making the third that
    // exists takes milliseconds.
    let node = Node::find(constants().comm_world, &config, hosts, &mask);
    let (world, self_comm) = (duplicate(constants().comm_world), duplicate_of_self());
    let parameters = agree_on_parameters(world, rank, &config, &node);
    for comm in [world, self_comm] {
        keep_native(keyval, comm, Reason::NoContext);
    }
    let mut group = constants().group_null;
    // The duplicate's own group: MPICH 4.0.2 crashes in Comm_create_group on a group that was taken from another
    // communicator.
    // SAFETY: valid communicator and place.
    unsafe { native().comm_group(world, &mut group) };
    let nodes = node.labels.iter().enumerate().filter(|(rank, label)| *rank as u32 == **label).count();
    learn_of_callers();
    let idle = Job::idle(config, rank, size as usize);
    let is_oversubscribed = node.crowding.is_shared();
    // SAFETY: within MPI_Init; a duplicate of MPI_COMM_WORLD.
    let asking = if is_oversubscribed { Duration::ZERO } else { unsafe { job::time_to_ask(world) } };
    job::publish(Job {
        world,
        group,
        self_comm,
        labels: node.labels,
        nodes: Some(nodes),
        paths: node.paths,
        kinds: node.kinds,
        caches: node.caches,
        parameters,
        trunk: node.trunk,
        crowding: node.crowding,
        has_single_copy: node.has_single_copy,
        waiting: Waiting { is_oversubscribed, patience: node.patience, ..idle.waiting },
        pace: Pace::new(is_oversubscribed, asking, Instant::now()),
        keyval,
        ..idle
    });
}

/// Leaves everything native, on all ranks alike. What they have agreed on so far is enough to say why and to write the
/// report, so nobody looks at the machine or makes a communicator. All ranks come here together, also if their own
/// environments or their builds differ.
fn stay_native(job: Job, reason: Reason) {
    learn_of_callers();
    if job.rank == 0 && matches!(reason, Reason::HuddleMissing | Reason::SurvivesFailures) {
        log::warning(format_args!("all collectives of the job stay native: {}", reason.meaning()));
    }
    job::publish(Job { inactive: Some(reason), ..job });
}

/// Why nothing is accelerated, if so. `misfit` is why the ranks can't work together.
fn inactive_reason(config: &Config, misfit: Option<Reason>, size: c_int) -> Option<Reason> {
    if config.is_disabled {
        return Some(Reason::Disabled);
    }
    match misfit {
        Some(Reason::SurvivesFailures) | None if size == 1 => Some(Reason::SingleRank),
        misfit => misfit,
    }
}

fn announce() {
    let Some(job) = job::job() else { return };
    if job.inactive.is_none() {
        crate::report::activate();
    }
    if job.rank != 0 {
        return;
    }
    if let Some(path) = &job.config.report
        && let Some(obstacle) = crate::report::obstacle(path)
    {
        log::warning(format_args!("can't write the report to {} as things are now: {obstacle}", path.display()));
    }
    if !job.config.is_verbose {
        return;
    }
    let mpi = super::loader::LOADER.get().map_or("", |loader| loader.mpi_version.as_str());
    let mpi = mpi.lines().next().unwrap_or_default().trim_end_matches(',');
    let state = job
        .inactive
        .map_or_else(|| "active".to_owned(), |reason| format!("inactive ({}): {}", reason.name(), reason.meaning()));
    let alone = match started(|name| std::env::var(name).ok()) {
        Some(started) if job.size == 1 && started > 1 => format!(
            " {started} processes were started together, but each is a job of its own: is this mpiexec that of the program's MPI?"
        ),
        _ => String::new(),
    };
    let sharing = if job.waiting.is_oversubscribed { ", more ranks than cores" } else { "" };
    let nodes = match job.nodes {
        None => String::new(),
        Some(1) => " on one node".to_owned(),
        Some(nodes) => format!(" on {nodes} nodes"),
    };
    let untried = if are_trials_held() { "" } else { ", without trials" };
    let version = env!("CARGO_PKG_VERSION");
    let ranks = if job.size == 1 { "1 rank".to_owned() } else { format!("{} ranks", job.size) };
    let build = super::own::build_id().map_or_else(String::new, |id| format!(" (build {id:.12})"));
    log::info(format_args!("huddle {version}{build} on {mpi}: {ranks}{nodes}{sharing}; {state}{untried}{alone}"));
}

/// How many processes the launcher started together, if it says so. With an `mpiexec` of another MPI each is a job of
/// its own.
fn started(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"].into_iter().find_map(|name| variable(name)?.parse().ok())
}

/// Whether everything stays native because some ranks run without huddle. Then all ranks with huddle know it.
fn is_left(announcement: Option<Announcement>, size: c_int) -> bool {
    let Some(missing) = announcement.and_then(|announcement| announcement.missing(size as u32)) else {
        return false;
    };
    job::leave();
    if missing.is_told_here {
        log::warning(format_args!(
            "rank {} runs without huddle or with another version of it, so all collectives of the job stay native; {REMEDY}",
            missing.rank
        ));
    }
    true
}

/// A duplicate of `MPI_COMM_SELF`, with errors returned. The call may block, since there is nobody to wait for.
fn duplicate_of_self() -> MPI_Comm {
    let mut new = constants().comm_null;
    // SAFETY: valid communicators and a valid place; nobody else takes part.
    unsafe {
        native().comm_dup(constants().comm_self, &mut new);
        native().comm_set_errhandler(new, constants().errors_return);
    }
    new
}

pub(super) fn rank_and_size(comm: MPI_Comm) -> (u32, c_int) {
    let (mut rank, mut size) = (0, 0);
    // SAFETY: valid communicator and places.
    unsafe {
        native().comm_rank(comm, &mut rank);
        native().comm_size(comm, &mut size);
    }
    (rank as u32, size)
}

fn learn_of_callers() {
    let mut provided = 0;
    // SAFETY: a valid place.
    unsafe { native().query_thread(&mut provided) };
    callers::begin(provided == constants().thread_multiple);
}

/// What the ranks have agreed on before anyone looks at the machine.
struct Agreement {
    /// Rank 0's environment, parsed.
    config: Config,
    /// Set, on all ranks, unless all serve the same names and have an attribute for communicators, or if the job is to
    /// survive failing ranks.
    misfit: Option<Reason>,
    hosts: Hosts,
    mask: Mask,
}

/// Where this rank may run.
struct Mask {
    own: CpuMask,
    /// Bytes of the longest mask of all ranks.
    longest: usize,
}

/// Where the ranks of the job run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hosts {
    /// All on one system, on which they see each other's processes.
    One,
    /// On several systems; or on one, without knowing it.
    Several,
}

impl Hosts {
    /// Two numbers for the host of a rank, from its identity if that is known. All ranks are on one host if the minima
    /// of both numbers are opposites.
    fn numbers(identity: Option<u64>) -> [c_int; 2] {
        // With a host of unknown identity they never are.
        identity.map_or([0, -1], |identity| {
            let number = (identity >> 33) as c_int;
            [number, -number]
        })
    }

    /// Where the ranks run, from the minima of both numbers over all ranks.
    fn of(least: c_int, opposite: c_int) -> Self {
        if least == -opposite { Self::One } else { Self::Several }
    }
}

/// Called by all ranks, which are of one build.
fn agree_on_environment(world: MPI_Comm, rank: u32, keyval: Option<c_int>) -> Agreement {
    let own = RawEnvironment::from_process();
    let agreed = RawEnvironment::from_bytes(&bcast_bytes(world, own.to_bytes())).unwrap_or_default();
    let difference = own.differs_from(&agreed);
    let differs = if difference.is_some() { rank as c_int } else { c_int::MAX };
    // The loaders have read HUDDLE_PMPI already, each for itself: ranks that differ in it can't work together.
    let served_names = |raw: &RawEnvironment| Config::parse(raw).0.serves_pmpi;
    let same_names = c_int::from(served_names(&own) == served_names(&agreed));
    let has_keyval = c_int::from(keyval.is_some());
    let is_ended_by_failures = c_int::from(!survival::is_wanted());
    let [host, opposite] = Hosts::numbers(host::identity());
    let mask = CpuMask::of_this_process();
    let numbers = [differs, same_names, has_keyval, is_ended_by_failures, host, opposite, -(mask.length() as c_int)];
    let [first, same_names, has_keyval, is_ended_by_failures, host, opposite, longest] = minimum(world, numbers);
    // Where the served names differ the line that the job stays native says so.
    if let (Some(difference), true) = (difference, first == differs && same_names == 1) {
        log::warning(format_args!("the environment differs from rank 0's, which all ranks use: {difference}"));
    }
    let (config, complaints) = Config::parse(&agreed);
    if rank == 0 {
        for complaint in complaints {
            log::warning(format_args!("{}", complaint.below(&super::own::prefix())));
        }
    }
    let misfit = if same_names != 1 || has_keyval != 1 {
        Some(Reason::HuddleMissing)
    } else {
        (is_ended_by_failures != 1).then_some(Reason::SurvivesFailures)
    };
    let mask = Mask { own: mask, longest: longest.unsigned_abs() as usize };
    Agreement { config: from_here(config), misfit, hosts: Hosts::of(host, opposite), mask }
}

/// Makes a relative path absolute: it counts from where the program starts, wherever the program is when it ends.
fn from_here(mut config: Config) -> Config {
    config.report = config.report.map(|path| std::path::absolute(&path).unwrap_or(path));
    config
}

/// Rank 0's parameters of the machine, and of the network where there are several nodes; the same on all ranks.
fn agree_on_parameters(world: MPI_Comm, rank: u32, config: &Config, node: &Node) -> Parameters {
    // Nothing is measured where ranks share cores: there a message takes as long as others have the core.
    let has_network = !node.crowding.is_shared();
    let network = if has_network { network::find(world, rank, &node.labels, config) } else { None };
    let mut bytes = Vec::new();
    if rank == 0 {
        let (parameters, _) = measured::parameters(config.cache.directory().as_deref(), Probed::in_use());
        let network = network.unwrap_or(parameters.network);
        bytes = Parameters { network, ..parameters }.to_bytes();
    }
    Parameters::from_bytes(&bcast_bytes(world, bytes)).unwrap_or_default()
}

/// What the ranks of the job know about their nodes.
struct Node {
    labels: Vec<u32>,
    paths: Vec<Vec<u32>>,
    kinds: Vec<Kind>,
    trunk: usize,
    caches: Caches,
    crowding: Crowding,
    /// How long this rank yields before it sleeps.
    patience: Duration,
    has_single_copy: bool,
}

impl Node {
    /// If all ranks are on one host, `world` serves as the communicator of the node: MPI has no nonblocking way to make
    /// one.
    fn find(world: MPI_Comm, config: &Config, hosts: Hosts, mask: &Mask) -> Self {
        let c = constants();
        let (rank, size) = rank_and_size(world);
        let mut physical = world;
        if hosts == Hosts::Several {
            // SAFETY: valid communicator and place.
            let code = unsafe { native().comm_split_type(world, c.comm_type_shared, 0, c.info_null, &mut physical) };
            expect("MPI_Comm_split_type", code);
        }
        let (node_rank, node_size) = rank_and_size(physical);
        let world_ranks = match hosts {
            Hosts::One => (0..size as u32).collect(),
            Hosts::Several => allgather_u32(physical, rank, node_size as usize),
        };

        let own = Member::of_this_process(&mask.own).to_bytes(mask.longest);
        let all = allgather(physical, &own, node_size as usize);
        let members: Vec<Member> = all.chunks(own.len()).map(Member::from_bytes).collect();
        let has_single_copy = members.iter().all(Member::is_readable);
        let masks: Vec<CpuMask> = members.into_iter().map(|member| member.mask).collect();
        let containers = Self::containers(physical, node_rank, config);
        Self::choose_kernels(physical, node_rank, config);
        let mut paths = vec![Vec::new(); size as usize];
        for (rank, path) in world_ranks.iter().zip(place::paths(&containers, &masks)) {
            paths[*rank as usize] = path;
        }

        let virtual_nodes = config.virtual_nodes(node_size as usize);
        let leader_of = |member: usize| {
            let leader = virtual_nodes.as_ref().and_then(|nodes| nodes.iter().position(|node| *node == nodes[member]));
            world_ranks[leader.unwrap_or(0)]
        };
        let labels = match hosts {
            Hosts::One => (0..size as usize).map(leader_of).collect(),
            Hosts::Several => allgather_labels(world, leader_of(node_rank as usize), size as usize),
        };

        let crowding = Crowding::of(&masks, crate::topo::cgroup_quota());
        // If ranks share only the time that a cgroup has, each yield returns at once and uses some of that time: then
        // ranks sleep after their first yields, whatever time has passed.
        let patience = if Crowding::of(&masks, None).is_shared() { Waiting::PATIENCE } else { Duration::ZERO };
        let Caches { line, l1, l2, l3 } = containers.caches();
        // A size that is unknown on some rank does not count there.
        let known = |bytes: u32| c_int::try_from(bytes).ok().filter(|bytes| *bytes > 0).unwrap_or(c_int::MAX);
        let most = -(crowding.to_number() as c_int);
        let numbers = [most, c_int::from(has_single_copy), known(l1), known(l2), known(l3)];
        let [most, single, l1, l2, l3] = minimum(world, numbers);
        let found = |bytes: c_int| if bytes == c_int::MAX { 0 } else { bytes as u32 };
        let caches = Caches { line, l1: found(l1), l2: found(l2), l3: found(l3) };
        if hosts == Hosts::Several {
            // SAFETY: a communicator of huddle's own.
            unsafe { native().comm_free(&mut physical) };
        }
        let (kinds, trunk) = (containers.kinds().to_vec(), containers.trunk());
        let crowding = Crowding::from_number(most.unsigned_abs());
        Self { labels, paths, kinds, trunk, caches, crowding, patience, has_single_copy: single == 1 }
    }

    /// The leader of the node measures its kernels, or reads what was measured before, and tells the others: ranks that
    /// all measured at once would disturb each other.
    fn choose_kernels(physical: MPI_Comm, node_rank: u32, config: &Config) {
        let mut bytes = Vec::new();
        if node_rank == 0 {
            bytes = kernel::cache::look_up_or_measure(config.cache.directory().as_deref()).to_bytes();
        }
        if let Some(probed) = Probed::from_bytes(&bcast_bytes(physical, bytes)) {
            probed.put_to_use();
        }
    }

    /// The leader of the node looks at the machine, or reads what was found before, and tells the others: loading hwloc
    /// takes milliseconds.
    fn containers(physical: MPI_Comm, node_rank: u32, config: &Config) -> Containers {
        let mut bytes = Vec::new();
        if node_rank == 0 {
            let topology = config.topology.as_deref();
            let directory = config.cache.directory().filter(|_| topology.is_none());
            match found::look_up_or_find(directory.as_deref(), || crate::topo::hwloc::load(topology)) {
                Ok(containers) => bytes = containers.to_bytes(),
                Err(problem) => log::warning(format_args!("{problem}; the node is taken as one flat level")),
            }
        }
        Containers::from_bytes(&bcast_bytes(physical, bytes))
    }
}

/// The labels of all `size` ranks. Over several hosts a blocking Allgather takes the fewest messages.
fn allgather_labels(world: MPI_Comm, label: u32, size: usize) -> Vec<u32> {
    let (n, byte, mut labels) = (size_of::<u32>() as c_int, constants().byte, vec![0_u32; size]);
    let (from, to) = ((&raw const label).cast(), labels.as_mut_ptr().cast());
    // SAFETY: buffers of one number, and of one for each rank.
    expect("MPI_Allgather", unsafe { native().allgather(from, n, byte, to, n, byte, world) });
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_say_how_many_processes_they_start() {
        let of = |set: &'static [(&str, &str)]| {
            started(|name| set.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(of(&[("PMI_SIZE", "4"), ("PMI_RANK", "1")]), Some(4));
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "3")]), Some(3));
        assert_eq!(of(&[("PMI_SIZE", "many")]).or(of(&[])), None);
    }

    #[test]
    fn ranks_are_on_one_host_if_all_tell_the_same() {
        fn hosts(identities: &[Option<u64>]) -> Hosts {
            let numbers: Vec<_> = identities.iter().map(|identity| Hosts::numbers(*identity)).collect();
            let least = |index: usize| numbers.iter().map(|pair| pair[index]).min().expect("a rank");
            Hosts::of(least(0), least(1))
        }
        let (here, there) = (Some(1 << 40), Some(u64::MAX));
        assert_eq!(hosts(&[here, here]), Hosts::One);
        assert_eq!(hosts(&[there, there, there]), Hosts::One);
        let several = [[here, there], [there, here], [None, here], [here, None], [None, None], [None, Some(0)]];
        assert!(several.iter().all(|identities| hosts(identities) == Hosts::Several));
    }
}
