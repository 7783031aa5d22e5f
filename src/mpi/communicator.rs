//! What huddle knows of a communicator: how many collectives it has seen, and the context that one of the first builds.
//!
//! The state is an attribute of the communicator, so it dies with it and a reused handle never finds its predecessor's.

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
use crate::tune::{Agreed, LAST_EPOCH, Map, Prospect, Reason};
use crate::types::{Bytes, Collective, CommRank, Epoch};
use mpi_sys::MPI_Comm;
use once_cell::sync::OnceCell;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

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
    /// Its segment on this node: what is the same for a later communicator of the same processes.
    node_state: NodeState,
    /// What of its cells is reserved.
    pub(super) cells: Cell<Cells>,
    /// What the choice of algorithm may know of it.
    pub agreed: Agreed,
    /// What the models choose.
    pub map: Arc<Map>,
    /// By [`Collective`], what its calls may expect.
    prospects: [Prospect; Collective::ALL.len()],
    /// The leaders' communicator, on leaders of communicators that span nodes.
    pub bridge: Option<BridgeComm>,
    /// This rank.
    pub me: CommRank,
    /// Memory that calls reuse: scratch, packed input, packed output.
    memory: [UnsafeCell<Vec<u64>>; 3],
    /// The last calls of each collective.
    lanes: [UnsafeCell<Lanes<Lane>>; Collective::ALL.len()],
    /// Of each collective those with datatypes that are made anew.
    layout_lanes: [UnsafeCell<LayoutLanes<Lane>>; Collective::ALL.len()],
    /// Of each collective what its lanes have in common that differ in their count.
    stems: [UnsafeCell<Stems<StemKey, Stem>>; Collective::ALL.len()],
}

// SAFETY: MPI allows one collective at a time on a communicator, so one thread at a time uses `cells`, `memory`, `lanes`,
// `layout_lanes` and `stems`; the rest is Sync.
unsafe impl Sync for Shared {}
// SAFETY: any thread may call on a communicator, so nothing of it is bound to one.
unsafe impl Send for Shared {}

/// What this process had for communicators that it has freed.
static POOL: Pool<Shared> = Pool::new();

/// Those that may serve a communicator of these members.
pub(super) fn offer(
    members: &[c_int],
    geometry: &Geometry,
    is_wanted: impl Fn(&Context) -> bool,
) -> Offered<'static, Shared> {
    POOL.offer(members, geometry, is_wanted)
}

/// How much of each cell of a communicator is memory that is really there, as all its ranks agreed.
#[derive(Clone, Copy)]
pub(super) struct Cells {
    pub reserved: Bytes,
    /// A rank could not reserve that much: nobody asks for as much again.
    pub refused: Option<Bytes>,
    /// This rank has what is good beyond that, or could not have it.
    pub are_wide: bool,
}

impl Cells {
    /// Of a communicator that is built.
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

/// Communicators that have shared memory: up with each [`Shared::begin`], down with [`delete`].
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// How many this process has.
pub(super) fn count() -> usize {
    // Relaxed: a rank's own affair, and a hint.
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

    /// The same of what a freed communicator left, whose context is renewed already.
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

    /// The communicator is freed: nothing is left but what may serve a later one, which has it from the pool.
    fn end(mut self: Box<Self>, last: Epoch) {
        self.bridge = None;
        self.memory = Default::default();
        self.lanes.iter_mut().for_each(|lanes| lanes.get_mut().clear());
        (self.layout_lanes, self.stems) = Default::default();
        POOL.keep(self, last);
    }

    /// What calls of `collective` may expect.
    #[inline(always)]
    pub fn prospect(&self, collective: Collective) -> Prospect {
        self.prospects[collective as usize]
    }

    /// Its shared memory.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.node_state.context
    }

    /// The same, before it serves its communicator.
    pub(super) fn context_mut(&mut self) -> &mut Context {
        &mut self.node_state.context
    }

    /// The lanes of `collective`, for the call that is under way.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(super) fn lanes(&self, collective: Collective) -> &mut Lanes<Lane> {
        // SAFETY: one call at a time (MPI's rule), which asks again only after it is done with what it got.
        unsafe { &mut *self.lanes[collective as usize].get() }
    }

    /// Those of `collective` with datatypes that are made anew, for the call that is under way.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(super) fn layout_lanes(&self, collective: Collective) -> &mut LayoutLanes<Lane> {
        // SAFETY: one call at a time (MPI's rule), which asks again only after it is done with what it got.
        unsafe { &mut *self.layout_lanes[collective as usize].get() }
    }

    /// What those of `collective` have in common that differ in their count, for the call that is under way.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(super) fn stems(&self, collective: Collective) -> &mut Stems<StemKey, Stem> {
        // SAFETY: one call at a time (MPI's rule), which asks again only after it is done with what it got.
        unsafe { &mut *self.stems[collective as usize].get() }
    }

    /// Gives long copies back after a call: a communicator keeps at most a mebibyte for each purpose.
    pub fn trim(&self) {
        const KEPT: usize = (1 << 20) / 8;
        for memory in &self.memory {
            // SAFETY: as in `memory`; the call that used it has ended.
            let memory = unsafe { &mut *memory.get() };
            if memory.len() > KEPT {
                *memory = Vec::new();
            }
        }
    }

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

impl AsRef<NodeState> for Shared {
    fn as_ref(&self) -> &NodeState {
        &self.node_state
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

    /// Whether it is known what becomes of its calls.
    pub fn is_settled(&self) -> bool {
        self.standing.get().is_some()
    }

    /// Whether the next call may be served.
    #[inline]
    pub fn has_epochs(&self) -> bool {
        Epoch(self.calls.load(Ordering::Relaxed) + 1) < LAST_EPOCH
    }

    /// What becomes of call `epoch`. The call whose ordinal is the configured one builds the context, by native collectives
    /// on the communicator itself, which all its ranks are in at that moment.
    #[inline(always)]
    pub fn standing(&self, job: &Job, comm: MPI_Comm, epoch: Epoch) -> Result<&Shared, Reason> {
        match self.standing.get() {
            Some(Standing::Shared(shared)) => Ok(shared),
            Some(Standing::Native(reason)) => Err(*reason),
            None => self.early(job, comm, epoch),
        }
    }

    /// What becomes of a call before all others have a standing, or of the one that gives it to them.
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

/// The state of `comm`, created at its first collective; `None` where this thread frees
/// it just now, or `comm` is no communicator: the native call will say.
#[inline(always)]
pub fn find(job: &Job, comm: MPI_Comm) -> Option<&'static Communicator> {
    let state = recent(move |recent| recent.find(comm, recent::generation()));
    // SAFETY: null, or `look_up` remembered it, and it was not deleted since.
    match unsafe { state.as_ref() } {
        Some(state) => Some(state),
        None => look_up(job, comm),
    }
}

/// The communicator that this thread used last, if it has shared memory and is still there: for lines about faults.
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
        expect("MPI_Comm_set_attr", "for a communicator's first call", code);
    }
    recent(|recent| recent.insert(comm, state, generation));
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

/// The delete callback of the attribute. All ranks run it at times of their own, so it is local; but leaders of communicators that span nodes free
/// their bridge with it, which is collective over them.
pub unsafe extern "C" fn delete(_: MPI_Comm, _: c_int, value: *mut c_void, _: *mut c_void) -> c_int {
    recent::forget_all();
    // SAFETY: `look_up` or `keep_native` stored the box; MPI deletes an attribute once.
    let communicator = unsafe { Box::from_raw(value.cast::<Communicator>()) };
    let last = Epoch(communicator.calls.into_inner());
    if let Some(Standing::Shared(shared)) = communicator.standing.into_inner() {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        if may_free() {
            shared.end(last);
        }
    }
    constants().success
}

/// Communicators that are being freed, each by one thread. The handle of one may be that of another thread's new communicator
/// before the call that frees it returns.
static FREEING: Mutex<Vec<Freed>> = Mutex::new(Vec::new());

/// How many there are: seldom any, and then nobody needs the lock.
static BEING_FREED: AtomicUsize = AtomicUsize::new(0);

/// A handle, and the thread that frees it.
#[derive(PartialEq)]
struct Freed(MPI_Comm, ThreadId);

// SAFETY: a handle that any thread may pass to MPI.
unsafe impl Send for Freed {}

fn freeing() -> MutexGuard<'static, Vec<Freed>> {
    FREEING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this thread is in a callback of the call that frees `comm`.
fn is_being_freed(comm: MPI_Comm) -> bool {
    // Relaxed: what matters is what this thread stored.
    BEING_FREED.load(Ordering::Relaxed) > 0 && freeing().contains(&Freed(comm, thread::current().id()))
}

/// Runs `free`, the native function that frees `comm`, collectively. The program's attribute callbacks may run collectives on
/// it meanwhile, before or after huddle's own attribute is gone, which may differ between ranks: they are all native.
pub fn while_freeing<R>(comm: MPI_Comm, free: impl FnOnce() -> R) -> R {
    let own = Freed(comm, thread::current().id());
    BEING_FREED.fetch_add(1, Ordering::Relaxed);
    freeing().push(Freed(comm, own.1));
    // The state may be remembered outside its attribute.
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

    /// Any handle will do: nothing is freed, and the library is not linked to these tests.
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
