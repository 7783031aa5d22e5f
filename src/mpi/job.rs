//! What the ranks of a job agree on in `MPI_Init`, and the state of the engine.

use super::loader::abi::OwnTraffic;
use super::loader::{self, LOADER};
use super::recent;
use super::windows::Windows;
use crate::config::Config;
use crate::fabric::shm::{Asking, Pace, Traffic, Waiting};
use crate::model::Parameters;
use crate::mpi::handles::constants;
use crate::mpi::native::native;
use crate::topo::{Caches, Crowding, Kind};
use crate::tune::{Agreed, Map, Reason};
use mpi_sys::{MPI_Comm, MPI_Group};
use once_cell::sync::OnceCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A job: the processes of one `MPI_COMM_WORLD`. Built once, never freed.
pub struct Job {
    /// Rank 0's environment.
    pub config: Config,
    /// This process in `MPI_COMM_WORLD`.
    pub rank: u32,
    /// Processes in `MPI_COMM_WORLD`.
    pub size: usize,
    /// A duplicate of `MPI_COMM_WORLD`, with errors returned, for progress, bridges and the report; `MPI_COMM_WORLD`
    /// itself where nothing is accelerated.
    pub world: MPI_Comm,
    /// The group of `world`.
    pub group: MPI_Group,
    /// A duplicate of `MPI_COMM_SELF`, with errors returned, on which huddle asks the library what it accepts.
    pub self_comm: MPI_Comm,
    /// Per world rank a number that is equal on one node and differs between nodes.
    pub labels: Vec<u32>,
    /// Number of nodes; unknown where nothing is accelerated.
    pub nodes: Option<usize>,
    /// Per world rank its path through the machine; empty for ranks of other nodes.
    pub paths: Vec<Vec<u32>>,
    /// The kinds of the entries of a full path, on this node.
    pub kinds: Vec<Kind>,
    /// How many of these entries all ranks of this node share.
    pub trunk: usize,
    /// The smallest caches of all nodes.
    pub caches: Caches,
    /// How many ranks share a core, on the node where most do.
    pub crowding: Crowding,
    /// Whether all ranks can read the memory of all others on their host.
    pub has_single_copy: bool,
    /// Rank 0's parameters of the machine.
    pub parameters: Parameters,
    /// The models' choices, for each set of facts on which the ranks of a communicator agreed.
    pub maps: Mutex<Vec<(Agreed, Arc<Map>)>>,
    /// How ranks wait.
    pub waiting: Waiting,
    /// How often calls that do not wait for long let the MPI library make progress.
    pub pace: Pace,
    /// The program's own traffic in the library, where the loader counts it.
    pub own_traffic: Option<&'static OwnTraffic>,
    /// Whether any process may reach into windows of another one.
    pub windows: Windows,
    /// The attribute of communicators that holds their state.
    pub keyval: c_int,
    /// Number of communicators between nodes that this process has.
    pub bridges: AtomicU32,
    /// Numbers the communicators between nodes for which this process has reserved a place.
    pub sequence: AtomicU32,
    /// Why nothing is accelerated, if so.
    pub inactive: Option<Reason>,
    /// Whether all ranks run the same build of huddle. If not they have agreed on nothing, and `config` is this rank's
    /// own environment.
    pub is_one_build: bool,
}

// SAFETY: the handles are numbers or addresses that any thread may pass to MPI.
unsafe impl Sync for Job {}
// SAFETY: as above.
unsafe impl Send for Job {}

impl Job {
    /// A job with nothing but what every job has: no node, no communicator of its own.
    pub(super) fn idle(config: Config, rank: u32, size: usize) -> Self {
        let c = constants();
        let waiting = Waiting {
            is_oversubscribed: false,
            stall: config.stall,
            progress,
            keep_pace,
            traffic: traffic_now,
            patience: Waiting::PATIENCE,
            report: super::serve::report_stall,
        };
        Self {
            config,
            rank,
            size,
            world: c.comm_world,
            group: c.group_null,
            self_comm: c.comm_self,
            labels: Vec::new(),
            nodes: (size == 1).then_some(1),
            paths: Vec::new(),
            kinds: Vec::new(),
            caches: Caches::default(),
            trunk: 0,
            crowding: Crowding::NONE,
            has_single_copy: false,
            parameters: Parameters::default(),
            maps: Mutex::default(),
            waiting,
            pace: Pace::new(waiting.is_oversubscribed, Duration::ZERO, Instant::now()),
            own_traffic: LOADER.get().map(|loader| loader.traffic),
            windows: Windows::default(),
            keyval: c.keyval_invalid,
            bridges: AtomicU32::new(0),
            sequence: AtomicU32::new(0),
            inactive: None,
            is_one_build: true,
        }
    }

    /// Whether the program may have traffic in the library. On several nodes it always may: messages, also those of
    /// huddle itself, may wait in queues of this process.
    #[inline(always)]
    pub(super) fn traffic(&self) -> Traffic {
        match self.own_traffic {
            Some(own) if self.nodes == Some(1) => loader::traffic(own, || self.windows.may_be_reached()),
            _ => Traffic::Possible,
        }
    }

    /// Lowers the notice of windows if that is due at `now`; then as `traffic`.
    pub(super) fn traffic_at(&self, now: Instant) -> Traffic {
        self.windows.lower_if_due(now);
        self.traffic()
    }

    /// The models' choices on a communicator whose ranks agreed on these facts.
    pub fn map(&self, agreed: &Agreed) -> Arc<Map> {
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, map)) = maps.iter().find(|(known, _)| known == agreed) {
            return Arc::clone(map);
        }
        let map = Arc::new(Map::new(agreed, &self.parameters));
        maps.push((*agreed, Arc::clone(&map)));
        map
    }
}

static JOB: OnceCell<Job> = OnceCell::new();
static ACTIVE: AtomicPtr<Job> = AtomicPtr::new(std::ptr::null_mut());
static IS_LEFT: AtomicBool = AtomicBool::new(false);

/// The job, from the end of `MPI_Init` on.
pub fn job() -> Option<&'static Job> {
    JOB.get()
}

/// Why nothing is accelerated, when nothing is.
pub fn why_inactive() -> Reason {
    if IS_LEFT.load(Ordering::Relaxed) {
        return Reason::HuddleMissing;
    }
    job().and_then(|job| job.inactive).unwrap_or(Reason::NotRunning)
}

/// There will be no job, because some ranks run without huddle.
pub(super) fn leave() {
    IS_LEFT.store(true, Ordering::Relaxed);
}

/// The job while collectives are accelerated: between `MPI_Init` and `MPI_Finalize`, unless the ranks agreed otherwise.
#[inline(always)]
pub fn active() -> Option<&'static Job> {
    // [active] acquire: pairs with the release in `publish`.
    let job = ACTIVE.load(Ordering::Acquire);
    // SAFETY: null or the address of the job in its static cell.
    unsafe { job.as_ref() }
}

/// Makes the job known and, unless the ranks agreed otherwise, starts to accelerate.
pub(super) fn publish(job: Job) {
    let job = JOB.get_or_init(|| job);
    if job.inactive.is_none() {
        // [active] release: pairs with the acquire in `active`.
        ACTIVE.store(std::ptr::from_ref(job).cast_mut(), Ordering::Release);
    }
}

/// From here on everything is native.
pub(super) fn retire() {
    // [active] release: as in `publish`.
    ACTIVE.store(std::ptr::null_mut(), Ordering::Release);
    recent::forget_all();
}

/// Lets the MPI library make progress on the program's own traffic.
///
/// A probe for a message that is never sent, on a duplicate of `MPI_COMM_WORLD`, drives all pending operations of the
/// process in all MPI libraries that were tried; on a duplicate of `MPI_COMM_SELF` it does not in MPICH. A probe that
/// finds a message drives nothing. Messages of the network's measurement that their receiver gave up may stay there for
/// ever, so they have another tag.
pub fn progress() {
    if let Some(job) = active() {
        // SAFETY: MPI is initialised and not finalised while the job is active.
        unsafe { ask(job.world) };
    }
}

/// # Safety
/// MPI is initialised and not finalised; `world` is the duplicate of `MPI_COMM_WORLD`.
unsafe fn ask(world: MPI_Comm) {
    const NEVER_SENT: c_int = 0;
    let c = constants();
    let mut flag = 0;
    // SAFETY: the caller's promise; valid places.
    unsafe { native().iprobe(c.any_source, NEVER_SENT, world, &mut flag, c.status_ignore) };
}

/// How long it takes to ask the library while it has nothing to do: the median of the last of several probes. Intel MPI
/// pauses longer the more often it has found nothing, up to 43 times. If the probes take a millisecond in all, others
/// have the core, and the last time is returned.
///
/// # Safety
/// MPI is initialised and not finalised, no other thread calls it, and `world` is the duplicate of `MPI_COMM_WORLD`.
pub(super) unsafe fn time_to_ask(world: MPI_Comm) -> Duration {
    const FIRST: usize = 48;
    const MOST: Duration = Duration::from_millis(1);
    let begun = Instant::now();
    let mut last = [Duration::ZERO; 9];
    for time in 0..FIRST + last.len() {
        let started = Instant::now();
        // SAFETY: the caller's promise.
        unsafe { ask(world) };
        let took = started.elapsed();
        if begun.elapsed() > MOST {
            return took;
        }
        if let Some(index) = time.checked_sub(FIRST) {
            last[index] = took;
        }
    }
    last.sort_unstable();
    last[last.len() / 2]
}

/// Whether the program may have traffic of its own now.
fn traffic_now() -> Traffic {
    active().map_or(Traffic::Absent, Job::traffic)
}

/// Calls [`progress`] in a wait, if it is time for that at `now`, by the job's pace and `asking`.
fn keep_pace(now: Instant, asking: Asking) {
    if active().is_some_and(|job| job.pace.is_time_in_wait(now, asking, job.traffic_at(now))) {
        progress();
    }
}

/// Ends the job after an internal fault or an erroneous program was reported.
///
/// By `MPI_COMM_WORLD`: the process manager then ends it. To end any other communicator MPICH sends messages to its
/// ranks, and waits for ever if one of them computes or has begun to finalize (`ctests/mismatch.c`). But the process
/// manager then drops what it has not passed on yet, so the report of the fault gets some time. Meanwhile peers, and
/// other threads of this rank, go on.
pub fn abort() -> ! {
    const PASSED_ON: Duration = Duration::from_millis(100);
    std::thread::sleep(PASSED_ON);
    // SAFETY: faults are found between the native initialisation and MPI_Finalize, where this communicator is valid.
    unsafe { native().abort(constants().comm_world, 1) };
    std::process::abort()
}
