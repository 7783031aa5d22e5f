//! What huddle knows of a communicator: how many collectives it has seen, and the context that its third one builds.
//!
//! The state is an attribute of the communicator, so it dies with it and a reused handle never finds its predecessor's.

use super::bridge::BridgeComm;
use super::job::{Job, job};
use crate::fabric::shm::{Context, Geometry, Segment};
use crate::log;
use crate::mpi::handles::constants;
use crate::mpi::native::native;
use crate::topo::{Layout, Levels};
use crate::tune::{Agreed, Reason};
use crate::types::{CommRank, Epoch, NodeRank};
use mpi_sys::{MPI_Comm, MPI_Group};
use once_cell::sync::OnceCell;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// The state of one communicator in this process.
pub struct Communicator {
    /// Blocking collectives that began here, accelerated or not.
    calls: AtomicU64,
    standing: OnceCell<Standing>,
}

/// What becomes of a communicator's collectives.
pub enum Standing {
    /// They stay native, all of them, on all ranks.
    Native(Reason),
    /// They run on shared memory where the choice says so.
    Shared(Box<Shared>),
}

/// A communicator with shared memory.
pub struct Shared {
    /// Its segment on this node.
    pub context: Context,
    /// What the choice of algorithm may know of it.
    pub agreed: Agreed,
    /// The leaders' communicator, on leaders of communicators that span nodes.
    pub bridge: Option<BridgeComm>,
    /// Memory that calls reuse: scratch, packed input, packed output.
    memory: [UnsafeCell<Vec<u64>>; 3],
}

// SAFETY: MPI allows one collective at a time on a communicator, so one thread at a time uses `memory`; the rest is Sync.
unsafe impl Sync for Shared {}

/// The purposes of a communicator's reused memory.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// Scratch memory of the algorithm.
    Scratch,
    /// A packed copy of the input.
    Send,
    /// A packed copy of the output.
    Recv,
}

impl Shared {
    /// At least `n` bytes, aligned for any element, that stay valid until the next call for the same purpose.
    pub fn memory(&self, purpose: Purpose, n: usize) -> *mut u8 {
        // SAFETY: one call at a time (MPI's rule), which asks once per purpose; the borrow ends here.
        let memory = unsafe { &mut *self.memory[purpose as usize].get() };
        let words = n.div_ceil(8);
        if memory.len() < words {
            *memory = vec![0; words];
        }
        memory.as_mut_ptr().cast()
    }
}

impl Communicator {
    /// Counts a call; its ordinal is its epoch.
    #[inline]
    pub fn next_epoch(&self) -> Epoch {
        // Relaxed, and not one operation: MPI allows one collective at a time on a communicator.
        let epoch = self.calls.load(Ordering::Relaxed) + 1;
        self.calls.store(epoch, Ordering::Relaxed);
        Epoch(epoch)
    }

    /// What becomes of call `epoch`. The call whose ordinal is the configured one builds the context, by native collectives
    /// on the communicator itself, which all its ranks are in at that moment.
    #[inline]
    pub fn standing(&self, job: &Job, comm: MPI_Comm, epoch: Epoch) -> Result<&Shared, Reason> {
        match self.standing.get() {
            Some(Standing::Shared(shared)) => Ok(shared),
            Some(Standing::Native(reason)) => Err(*reason),
            None if epoch.0 < u64::from(job.config.warmup) => Err(Reason::WarmUp),
            None => {
                let _ = self.standing.set(build(job, comm));
                self.standing(job, comm, epoch)
            }
        }
    }
}

// The state of the communicator that was used last is kept outside its attribute: `Comm_get_attr` takes 6 to 11 ns. Any
// deletion anywhere invalidates it, since handles are reused at once.

/// Counts deletions.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// A remembered state.
#[derive(Clone, Copy)]
struct Remembered {
    comm: MPI_Comm,
    generation: u64,
    state: *const Communicator,
}

/// The cache where one thread at a time calls MPI: thread-locals of a library that was opened late cost a function call.
struct OneThread(UnsafeCell<Option<Remembered>>);
// SAFETY: used below MPI_THREAD_MULTIPLE only, where MPI calls of different threads are ordered by the program.
unsafe impl Sync for OneThread {}
static ONE_THREAD: OneThread = OneThread(UnsafeCell::new(None));

thread_local! {
    static EACH_THREAD: Cell<Option<Remembered>> = const { Cell::new(None) };
}

/// The state of `comm`, created at its first collective; `None` where MPI finds no fault with asking but nothing can be
/// attached, or `comm` is not a communicator: the native call will say.
#[inline]
pub fn find(job: &Job, comm: MPI_Comm) -> Option<&'static Communicator> {
    let remembered = if job.is_threaded {
        EACH_THREAD.get()
    } else {
        // SAFETY: one thread at a time, as above.
        unsafe { *ONE_THREAD.0.get() }
    };
    match remembered {
        Some(last) if last.comm == comm && last.generation == GENERATION.load(Ordering::Relaxed) => {
            // SAFETY: not deleted since, as the generation shows.
            Some(unsafe { &*last.state })
        }
        _ => look_up(job, comm),
    }
}

#[cold]
fn look_up(job: &Job, comm: MPI_Comm) -> Option<&'static Communicator> {
    if comm == constants().comm_null {
        return None;
    }
    let generation = GENERATION.load(Ordering::Relaxed);
    let mut state: *mut Communicator = std::ptr::null_mut();
    let mut found = 0;
    // SAFETY: MPI is active; the attribute's value is a pointer that `create` stored.
    let code = unsafe { native().comm_get_attr(comm, job.keyval, (&raw mut state).cast(), &mut found) };
    if code != constants().success {
        return None;
    }
    if found == 0 {
        let new = Communicator { calls: AtomicU64::new(0), standing: OnceCell::new() };
        state = Box::into_raw(Box::new(new));
        // SAFETY: as above; `delete` frees the box.
        let code = unsafe { native().comm_set_attr(comm, job.keyval, state.cast()) };
        if code != constants().success {
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(state) });
            return None;
        }
    }
    let remembered = Some(Remembered { comm, generation, state });
    if job.is_threaded {
        EACH_THREAD.set(remembered);
    } else {
        // SAFETY: one thread at a time, as above.
        unsafe { *ONE_THREAD.0.get() = remembered };
    }
    // SAFETY: lives until the attribute is deleted, which MPI forbids while a collective on it is under way.
    Some(unsafe { &*state })
}

/// Marks `comm` as one whose collectives are never touched.
pub fn keep_native(job_keyval: c_int, comm: MPI_Comm, reason: Reason) {
    let state = Communicator { calls: AtomicU64::new(0), standing: OnceCell::with_value(Standing::Native(reason)) };
    let state = Box::into_raw(Box::new(state));
    // SAFETY: a valid communicator without the attribute; `delete` frees the box.
    unsafe { native().comm_set_attr(comm, job_keyval, state.cast()) };
}

/// The copy callback of huddle's attributes: duplicates start without. Open MPI takes no null pointer for it.
pub unsafe extern "C" fn do_not_copy(
    _: MPI_Comm,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: MPI's place for the answer.
    unsafe { *flag = 0 };
    constants().success
}

/// The delete callback of the attribute: local, as all ranks run it at times of their own.
pub unsafe extern "C" fn delete(_: MPI_Comm, _: c_int, value: *mut c_void, _: *mut c_void) -> c_int {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    // SAFETY: `look_up` or `keep_native` stored the box; MPI deletes an attribute once.
    drop(unsafe { Box::from_raw(value.cast::<Communicator>()) });
    constants().success
}

/// What a leader tells the members of its node, and everyone else whether it can go on.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Offer {
    process: u64,
    descriptor: u64,
    /// Stands in the segment's header; zero where there is no segment.
    nonce: u64,
    /// For the communicator between nodes; the lowest leader's counts. Zero where it can't have one more.
    bridge: u64,
}

fn build(job: &Job, comm: MPI_Comm) -> Standing {
    match members(job, comm) {
        Err(reason) => Standing::Native(reason),
        Ok((layout, rank, world_ranks)) => match share(job, comm, layout, rank, &world_ranks) {
            Ok(shared) => Standing::Shared(shared),
            Err(reason) => Standing::Native(reason),
        },
    }
}

/// The communicator's ranks on their nodes, this rank, and the world rank of each. All ranks come to the same verdict.
fn members(job: &Job, comm: MPI_Comm) -> Result<(Layout, CommRank, Vec<c_int>), Reason> {
    let (mut is_inter, mut size, mut rank) = (0, 0, 0);
    // SAFETY: valid communicator and places.
    unsafe {
        native().comm_test_inter(comm, &mut is_inter);
        native().comm_size(comm, &mut size);
        native().comm_rank(comm, &mut rank);
    }
    if is_inter != 0 {
        return Err(Reason::Intercommunicator);
    }
    if size == 1 {
        return Err(Reason::SingleRank);
    }
    let ranks: Vec<c_int> = (0..size).collect();
    let mut world_ranks = vec![0; size as usize];
    let mut group: MPI_Group = constants().group_null;
    // SAFETY: valid communicator, groups and places of `size` elements.
    unsafe {
        native().comm_group(comm, &mut group);
        native().group_translate_ranks(group, size, ranks.as_ptr(), job.group, world_ranks.as_mut_ptr());
        native().group_free(&mut group);
    }
    if world_ranks.iter().any(|rank| *rank < 0 || *rank as usize >= job.size) {
        return Err(Reason::OutsideCommWorld);
    }
    let labels: Vec<u32> = world_ranks.iter().map(|rank| job.labels[*rank as usize]).collect();
    let me = CommRank(rank as u32);
    Ok((Layout::new(&labels, me), me, world_ranks))
}

fn geometry(job: &Job, ranks: usize) -> Geometry {
    Geometry { ranks, slots: job.config.slots, cell: job.config.slot_bytes }
}

fn share(
    job: &Job,
    comm: MPI_Comm,
    layout: Layout,
    me: CommRank,
    world_ranks: &[c_int],
) -> Result<Box<Shared>, Reason> {
    let (node, node_rank) = layout.place(me);
    let members = layout.members(node).to_vec();
    let geometry = geometry(job, members.len());
    if layout.largest_node() == 1 {
        return Err(Reason::OneRankPerNode);
    }
    let is_leader = node_rank == NodeRank::LEADER;
    let spans_nodes = layout.nodes() > 1;

    // 1. Leaders reserve memory and tell everyone.
    let mut own = None;
    let mut offer = Offer::default();
    if is_leader {
        (own, offer) = make_offer(job, geometry, spans_nodes, me);
    }
    let offers = exchange(comm, offer, layout.size());
    let of_leader = |node| offers[layout.members(node)[0].index()];
    let nodes = (0..layout.nodes() as u32).map(crate::types::NodeIndex);
    let leaders_ready = nodes.clone().all(|node| of_leader(node).nonce != 0);
    let bridges_ready = !spans_nodes || nodes.clone().all(|node| of_leader(node).bridge != 0);

    // 2. Members map it, leaders get their communicator; everyone has come to the same verdict so far.
    if !leaders_ready || !bridges_ready {
        if is_leader && spans_nodes && offer.bridge != 0 {
            job.bridges.fetch_sub(1, Ordering::Relaxed);
        }
        let reason = if leaders_ready { Reason::TooManyBridges } else { Reason::NoSharedMemory };
        return Err(decline(me, reason));
    }
    let (segment, file) = match own {
        Some((segment, file)) => (Some(segment), Some(file)),
        None => (map(of_leader(node), geometry.length(), me), None),
    };
    let bridge = (is_leader && spans_nodes).then(|| {
        let leaders: Vec<c_int> = nodes.map(|node| world_ranks[layout.members(node)[0].index()]).collect();
        BridgeComm::create(job, &leaders, of_leader(crate::types::NodeIndex(0)).bridge)
    });
    let bridge = bridge.flatten();

    // 3. They vote.
    let is_ready = segment.is_some() && (bridge.is_some() || !(is_leader && spans_nodes));
    let all_ready = vote(comm, is_ready);
    drop(file);
    let Some(segment) = segment.filter(|_| all_ready) else {
        drop(bridge);
        return Err(decline(me, Reason::NoSharedMemory));
    };

    let agreed = Agreed {
        ranks: layout.size(),
        nodes: layout.nodes(),
        largest_node: layout.largest_node(),
        block_placed: layout.is_block_placed(),
        bridgeable: spans_nodes,
        cell_bytes: geometry.cell,
        slots: geometry.slots,
        oversubscribed: job.waiting.is_oversubscribed,
    };
    let paths: Vec<Vec<u32>> =
        members.iter().map(|rank| job.paths[world_ranks[rank.index()] as usize].clone()).collect();
    let levels = Levels::from_paths(&paths, node_rank);
    let context = Context::new(segment, geometry, node_rank, layout, levels);
    Ok(Box::new(Shared { context, agreed, bridge, memory: Default::default() }))
}

fn make_offer(
    job: &Job,
    geometry: Geometry,
    spans_nodes: bool,
    me: CommRank,
) -> (Option<(Segment, std::os::fd::OwnedFd)>, Offer) {
    let mut offer = Offer::default();
    if spans_nodes {
        if job.bridges.fetch_add(1, Ordering::Relaxed) < job.config.bridges {
            offer.bridge = 1 + u64::from(job.sequence.fetch_add(1, Ordering::Relaxed));
        } else {
            job.bridges.fetch_sub(1, Ordering::Relaxed);
        }
    }
    match Segment::create(geometry.length()) {
        Ok((segment, file)) => {
            offer.process = u64::from(std::process::id());
            offer.descriptor = file.as_raw_fd() as u64;
            offer.nonce = nonce(&segment);
            // SAFETY: the header is the segment's first page, and nobody else has mapped it yet.
            unsafe { segment.base().cast::<u64>().write(offer.nonce) };
            (Some((segment, file)), offer)
        }
        Err(error) => {
            log::warning(format_args!(
                "no shared memory for a communicator ({} bytes, rank {} in it): {error}",
                geometry.length(),
                me.0
            ));
            (None, offer)
        }
    }
}

/// A number that another segment is unlikely to carry, never zero.
fn nonce(segment: &Segment) -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let time = time.map_or(1, |time| time.as_nanos() as u64);
    (time ^ (segment.base().as_ptr() as u64) << 16 ^ u64::from(std::process::id()) << 40) | 1
}

fn map(offer: Offer, length: usize, me: CommRank) -> Option<Segment> {
    match Segment::open(offer.process as u32, offer.descriptor as i32, length) {
        // SAFETY: the header is the first page; its leader wrote it before it told anyone.
        Ok(segment) if unsafe { segment.base().cast::<u64>().read() } == offer.nonce => Some(segment),
        Ok(_) => {
            log::warning(format_args!(
                "rank {} of a communicator opened a segment that is not its leader's (another PID namespace?)",
                me.0
            ));
            None
        }
        Err(error) => {
            log::warning(format_args!("rank {} of a communicator can't open its leader's segment: {error}", me.0));
            None
        }
    }
}

fn exchange(comm: MPI_Comm, offer: Offer, size: usize) -> Vec<Offer> {
    let c = constants();
    let mut offers = vec![Offer::default(); size];
    let n = size_of::<Offer>() as c_int;
    // SAFETY: buffers of one and `size` offers.
    unsafe {
        native().allgather((&raw const offer).cast(), n, c.byte, offers.as_mut_ptr().cast(), n, c.byte, comm);
    }
    offers
}

fn vote(comm: MPI_Comm, yes: bool) -> bool {
    let c = constants();
    let (mine, mut all) = (c_int::from(yes), 0);
    // SAFETY: buffers of one int.
    let code = unsafe { native().allreduce((&raw const mine).cast(), (&raw mut all).cast(), 1, c.int, c.min, comm) };
    code == c.success && all == 1
}

/// One line for the communicator that everyone agreed to leave native.
fn decline(me: CommRank, reason: Reason) -> Reason {
    if me.0 == 0 {
        log::warning(format_args!("a communicator stays native: {}", reason.meaning()));
    }
    reason
}

/// The job's keyval for communicators.
///
/// # Safety
/// MPI is initialised.
pub unsafe fn create_keyval() -> Option<c_int> {
    let mut keyval = constants().keyval_invalid;
    // SAFETY: callbacks of MPI's signatures, and a valid place.
    let code =
        unsafe { native().comm_create_keyval(Some(do_not_copy), Some(delete), &mut keyval, std::ptr::null_mut()) };
    (code == constants().success).then_some(keyval)
}

/// Whether MPI may still be called to free what a communicator held.
pub(super) fn may_free() -> bool {
    job().is_some() && super::job::active().is_some()
}
