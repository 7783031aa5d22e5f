//! What huddle knows of a communicator: how many collectives it has seen, and the context that one of the first calls
//! builds.
//!
//! The state is an attribute of the communicator: it is deleted with it, so a reused handle never finds its
//! predecessor's state.

use super::bridge::BridgeComm;
use super::failure::expect;
use super::job::{Job, job};
use super::lane::Lane;
use super::lanes::Lanes;
use super::layout_lanes::LayoutLanes;
use super::pool::{NodeState, Offered, Pool};
use super::recent::{self, recent};
use super::stem::{Stem, StemKey, Stems};
use crate::fabric::shm::{Context, Geometry};
use crate::mpi::handles::constants;
use crate::mpi::native::native;
use crate::sync::Private;
use crate::tune::{Agreed, LAST_EPOCH, Map, Prospect, Reason};
use crate::types::{Bytes, Collective, CommRank, Epoch};
use mpi_sys::MPI_Comm;
use once_cell::sync::OnceCell;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// The state of one communicator in this process.
pub struct Communicator {
    /// Blocking collectives that began on the communicator, accelerated or not.
    calls: Private<u64>,
    standing: OnceCell<Standing>,
}

/// Whether a communicator's collectives are served.
pub enum Standing {
    /// All of them stay native, on all ranks.
    Native(Reason),
    /// They run on shared memory where the choice says so.
    Shared(Box<Shared>),
}

/// A communicator with shared memory.
pub struct Shared {
    /// The context on this node, which a later communicator of the same processes may take over.
    node_state: NodeState,
    /// How much of its cells is reserved.
    pub(super) cells: Cell<Cells>,
    /// The facts about the communicator that the choice of algorithm may use.
    pub agreed: Agreed,
    /// The algorithms that the models choose.
    pub map: Arc<Map>,
    /// By [`Collective`], the prospect of its calls.
    prospects: [Prospect; Collective::ALL.len()],
    /// The leaders' communicator, on leaders of communicators that span nodes.
    pub bridge: Option<BridgeComm>,
    /// This rank.
    pub me: CommRank,
    /// Memory that calls reuse: scratch, packed input, packed output.
    memory: [UnsafeCell<Vec<u64>>; 3],
    /// The lanes of each collective.
    lanes: [UnsafeCell<Lanes<Lane>>; Collective::ALL.len()],
    /// The lanes of each collective for datatypes that are made anew each time.
    layout_lanes: [UnsafeCell<LayoutLanes<Lane>>; Collective::ALL.len()],
    /// The stems of each collective: what lanes have in common that differ in their count alone.
    stems: [UnsafeCell<Stems<StemKey, Stem>>; Collective::ALL.len()],
}

// SAFETY: MPI allows one collective at a time on a communicator, so only one thread at a time uses `cells`, `memory`,
// `lanes`, `layout_lanes` and `stems`; the rest is Sync.
unsafe impl Sync for Shared {}
// SAFETY: any thread may call on a communicator, and nothing in its state is bound to a thread.
unsafe impl Send for Shared {}

/// The states of communicators that this process has freed.
static POOL: Pool<Shared> = Pool::new();

/// The kept states that may serve a communicator of these members.
pub(super) fn offer(
    members: &[c_int],
    geometry: &Geometry,
    is_wanted: impl Fn(&Context) -> bool,
) -> Offered<'static, Shared> {
    POOL.offer(members, geometry, is_wanted)
}

/// How many bytes of each cell of a communicator are reserved memory, as all its ranks agreed.
#[derive(Clone, Copy)]
pub(super) struct Cells {
    pub reserved: Bytes,
    /// The least depth that a rank could not reserve: no rank tries as much again.
    pub refused: Option<Bytes>,
    /// This rank has reserved, or could not reserve, the memory beyond `reserved` that its pieces gain from.
    pub are_wide: bool,
}

impl Cells {
    /// The cells of a communicator that has just been built: wholly reserved, or not at all.
    fn at_first(agreed: &Agreed) -> Cell<Self> {
        let are_there = super::build::has_cells_from_the_start(agreed.nodes);
        let reserved = if are_there { agreed.cell_bytes } else { Bytes::ZERO };
        Cell::new(Self { reserved, refused: None, are_wide: are_there })
    }
}

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

/// Number of communicators with shared memory: [`Shared::begin`] increments it, [`delete`] decrements it.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// How many communicators of this process have shared memory.
pub(super) fn count() -> usize {
    // Relaxed: only this rank uses the number, as a hint.
    COUNT.load(Ordering::Relaxed)
}

impl Shared {
    /// A communicator whose ranks have all mapped its segment.
    pub(super) fn new(node_state: NodeState, agreed: Agreed, job: &Job, bridge: Option<BridgeComm>) -> Box<Self> {
        let (map, prospects) = (job.map(&agreed), Prospect::of_all(&job.config, &agreed));
        let (memory, lanes, layout_lanes, stems) = Default::default();
        let (cells, me) = (Cells::at_first(&agreed), node_state.context.own_comm_rank());
        let new = Box::new(Self {
            node_state,
            cells,
            agreed,
            map,
            prospects,
            bridge,
            me,
            memory,
            lanes,
            layout_lanes,
            stems,
        });
        new.begin(job);
        new
    }

    /// A communicator that takes over what a freed one left; the context has been renewed already.
    pub(super) fn again(mut self: Box<Self>, agreed: Agreed, job: &Job, bridge: Option<BridgeComm>) -> Box<Self> {
        if self.agreed != agreed {
            (self.map, self.prospects) = (job.map(&agreed), Prospect::of_all(&job.config, &agreed));
        }
        (self.cells, self.agreed, self.bridge) = (Cells::at_first(&agreed), agreed, bridge);
        self.me = self.context().own_comm_rank();
        self.begin(job);
        self
    }

    fn begin(&self, job: &Job) {
        let context = self.context();
        context.set_stores(job.config.slot_stores);
        context.set_reads(job.config.slot_reads);
        context.set_first_looks(job.config.first_look, &job.waiting);
        COUNT.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a communicator that is freed. Only what may serve a later one is kept, in the pool.
    fn end(mut self: Box<Self>, last: Epoch) {
        self.bridge = None;
        self.memory = Default::default();
        self.lanes.iter_mut().for_each(|lanes| lanes.get_mut().clear());
        (self.layout_lanes, self.stems) = Default::default();
        POOL.keep(self, last);
    }

    /// The prospect of calls of `collective`.
    #[inline(always)]
    pub fn prospect(&self, collective: Collective) -> Prospect {
        self.prospects[collective as usize]
    }

    /// Its shared memory.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.node_state.context
    }

    /// The context, before it serves its communicator.
    pub(super) fn context_mut(&mut self) -> &mut Context {
        &mut self.node_state.context
    }

    /// The lanes of `collective`, for the call that is under way.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(super) fn lanes(&self, collective: Collective) -> &mut Lanes<Lane> {
        // SAFETY: MPI allows one call at a time, and a call asks again only after its last use of the earlier
        // reference.
        unsafe { &mut *self.lanes[collective as usize].get() }
    }

    /// The lanes of `collective` for datatypes that are made anew, for the call that is under way.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(super) fn layout_lanes(&self, collective: Collective) -> &mut LayoutLanes<Lane> {
        // SAFETY: as in `lanes`.
        unsafe { &mut *self.layout_lanes[collective as usize].get() }
    }

    /// The stems of `collective`, for the call that is under way.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(super) fn stems(&self, collective: Collective) -> &mut Stems<StemKey, Stem> {
        // SAFETY: as in `lanes`.
        unsafe { &mut *self.stems[collective as usize].get() }
    }

    /// Frees long buffers after a call: a communicator keeps at most a mebibyte for each purpose.
    pub fn trim(&self) {
        const KEPT: usize = (1 << 20) / 8;
        for memory in &self.memory {
            // SAFETY: as in `memory`; the call that used the buffer has ended.
            let memory = unsafe { &mut *memory.get() };
            if memory.len() > KEPT {
                *memory = Vec::new();
            }
        }
    }

    /// At least `n` bytes, aligned for any element. They stay valid until the next call for the same purpose.
    pub fn memory(&self, purpose: Purpose, n: usize) -> *mut u8 {
        // SAFETY: MPI allows one call at a time, and a call asks once for each purpose; the borrow ends here.
        let memory = unsafe { &mut *self.memory[purpose as usize].get() };
        let words = n.div_ceil(8);
        if memory.len() < words {
            *memory = vec![0; words];
        }
        memory.as_mut_ptr().cast()
    }
}

impl AsRef<NodeState> for Shared {
    fn as_ref(&self) -> &NodeState {
        &self.node_state
    }
}

impl Communicator {
    /// Counts a call; its ordinal is its epoch.
    #[inline]
    pub fn next_epoch(&self) -> Epoch {
        // MPI allows one collective at a time on a communicator.
        let epoch = self.calls.get() + 1;
        self.calls.set(epoch);
        Epoch(epoch)
    }

    /// Whether the communicator has a standing already.
    pub fn is_settled(&self) -> bool {
        self.standing.get().is_some()
    }

    /// Whether the next call may be served.
    #[inline]
    pub fn has_epochs(&self) -> bool {
        Epoch(self.calls.get() + 1) < LAST_EPOCH
    }

    /// The shared memory that serves call `epoch`, or why the call is native. The call whose ordinal is `HUDDLE_WARMUP`
    /// builds the context by native collectives on the communicator itself, since all its ranks are in that call.
    #[inline(always)]
    pub fn standing(&self, job: &Job, comm: MPI_Comm, epoch: Epoch) -> Result<&Shared, Reason> {
        match self.standing.get() {
            Some(Standing::Shared(shared)) => Ok(shared),
            Some(Standing::Native(reason)) => Err(*reason),
            None => self.early(job, comm, epoch),
        }
    }

    /// As `standing`, for a communicator without one. During the warm-up its calls are native; the call that ends the
    /// warm-up builds the context.
    #[cold]
    fn early(&self, job: &Job, comm: MPI_Comm, epoch: Epoch) -> Result<&Shared, Reason> {
        if epoch.0 < u64::from(job.config.warmup) {
            return Err(Reason::WarmUp);
        }
        match self.standing.get_or_init(|| super::build::build(job, comm)) {
            Standing::Shared(shared) => Ok(shared),
            Standing::Native(reason) => Err(*reason),
        }
    }
}

/// The state of `comm`, created at its first collective; `None` where this thread frees it just now, or `comm` is no
/// communicator: the native call will say.
#[inline(always)]
pub fn find(job: &Job, comm: MPI_Comm) -> Option<&'static Communicator> {
    let state = recent(move |recent| recent.find(comm, recent::generation()));
    // SAFETY: null, or a state that `look_up` remembered and that was not deleted since.
    match unsafe { state.as_ref() } {
        Some(state) => Some(state),
        None => look_up(job, comm),
    }
}

/// The communicator that this thread used last, if it has shared memory and still exists: for messages about faults.
pub fn latest() -> Option<&'static Shared> {
    // SAFETY: as in `find`.
    match unsafe { &*recent(|recent| recent.latest(recent::generation()))? }.standing.get() {
        Some(Standing::Shared(shared)) => Some(shared),
        _ => None,
    }
}

#[cold]
fn look_up(job: &Job, comm: MPI_Comm) -> Option<&'static Communicator> {
    if comm == constants().comm_null || is_being_freed(comm) {
        return None;
    }
    let generation = recent::generation();
    let mut state: *mut Communicator = std::ptr::null_mut();
    let mut found = 0;
    // SAFETY: MPI is active; the attribute's value is a pointer that `look_up` or `keep_native` stored.
    let code = unsafe { native().comm_get_attr(comm, job.keyval, (&raw mut state).cast(), &mut found) };
    if code != constants().success {
        return None;
    }
    if found == 0 {
        let new = Communicator { calls: Private::new(0), standing: OnceCell::new() };
        state = Box::into_raw(Box::new(new));
        // SAFETY: as above; `delete` frees the box.
        let code = unsafe { native().comm_set_attr(comm, job.keyval, state.cast()) };
        expect("MPI_Comm_set_attr", "for a communicator's first call", code);
    }
    recent(|recent| recent.insert(comm, state, generation));
    // SAFETY: valid until the attribute is deleted, which MPI forbids while a collective on the communicator is under
    // way.
    Some(unsafe { &*state })
}

/// Marks `comm` as a communicator whose collectives all stay native.
pub fn keep_native(job_keyval: c_int, comm: MPI_Comm, reason: Reason) {
    let state = Communicator { calls: Private::new(0), standing: OnceCell::with_value(Standing::Native(reason)) };
    let state = Box::into_raw(Box::new(state));
    // SAFETY: a valid communicator without the attribute; `delete` frees the box.
    unsafe { native().comm_set_attr(comm, job_keyval, state.cast()) };
}

/// The copy callback of huddle's attributes: a duplicate starts without them. Open MPI accepts no null pointer for it.
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

/// The delete callback of the attribute. Ranks run it at different times, so it is local, but for leaders of
/// communicators that span nodes: they free their bridge here, which is collective over them.
pub unsafe extern "C" fn delete(_: MPI_Comm, _: c_int, value: *mut c_void, _: *mut c_void) -> c_int {
    recent::forget_all();
    // SAFETY: `look_up` or `keep_native` stored the box; MPI deletes an attribute once.
    let communicator = unsafe { Box::from_raw(value.cast::<Communicator>()) };
    let last = Epoch(communicator.calls.get());
    if let Some(Standing::Shared(shared)) = communicator.standing.into_inner() {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        if may_free() {
            shared.end(last);
        }
    }
    constants().success
}

/// Communicators that are being freed, each with the thread that frees it: before that thread's call returns, a new
/// communicator of another thread may have the same handle.
static FREEING: Mutex<Vec<Freed>> = Mutex::new(Vec::new());

/// How many communicators are being freed. Mostly none, and then no thread takes the lock.
static BEING_FREED: AtomicUsize = AtomicUsize::new(0);

/// A handle, and the thread that frees it.
#[derive(PartialEq)]
struct Freed(MPI_Comm, ThreadId);

// SAFETY: any thread may pass the handle to MPI.
unsafe impl Send for Freed {}

fn freeing() -> MutexGuard<'static, Vec<Freed>> {
    FREEING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this thread is in a callback of the call that frees `comm`.
fn is_being_freed(comm: MPI_Comm) -> bool {
    // Relaxed: only what this thread itself stored matters.
    BEING_FREED.load(Ordering::Relaxed) > 0 && freeing().contains(&Freed(comm, thread::current().id()))
}

/// Runs `free`, the native collective function that frees `comm`. Meanwhile the program's attribute callbacks may run
/// collectives on `comm`, before huddle's own attribute is deleted on some ranks and after that on others. So all of
/// these are native.
pub fn while_freeing<R>(comm: MPI_Comm, free: impl FnOnce() -> R) -> R {
    let own = Freed(comm, thread::current().id());
    BEING_FREED.fetch_add(1, Ordering::Relaxed);
    freeing().push(Freed(comm, own.1));
    // Threads may remember the state outside its attribute.
    recent::forget_all();
    let result = free();
    freeing().retain(|freed| *freed != own);
    BEING_FREED.fetch_sub(1, Ordering::Relaxed);
    result
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Any handle will do: nothing is freed, and the tests do not link the library.
    fn handle() -> MPI_Comm {
        // SAFETY: a number or an address.
        unsafe { std::mem::zeroed() }
    }

    #[test]
    fn a_handle_is_freed_by_one_thread_and_may_be_new_for_others() {
        let comm = handle();
        while_freeing(comm, || {
            assert!(is_being_freed(comm));
            thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let comm = handle();
                    assert!(!is_being_freed(comm));
                    while_freeing(comm, || assert!(is_being_freed(comm)));
                });
                assert!(other.join().is_ok());
            });
            assert!(is_being_freed(comm));
        });
        assert!(!is_being_freed(comm));
    }
}
