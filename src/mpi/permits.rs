//! Declined calls, found again by their arguments: a call like one of them goes to the library before anything else is
//! looked at.
//!
//! Before the native function such a call costs only one table look-up and three additions (`bench/limits.c declined`).
//! Each rank may find its call here or not: without a permit it reaches the same verdict.

use super::communicator::Communicator;
use super::datatype::freed;
use super::decline::Seat;
use super::job;
use super::lane::Key;
use super::recent::generation;
use super::serve::{Served, end_served};
use crate::callers;
use crate::ends::{Part, when_thread_ends};
use crate::mpi::handles::{bits, constants};
use crate::report::{Count, Counter, counters};
use crate::types::{Bytes, Collective};
use mpi_sys::MPI_Comm;
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_int;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which of the calls with its key a permit is good for.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    /// All of them, and with any operation. The communicator's calls of the collective are native whatever their
    /// arguments; these only decide how the call is counted.
    All,
    /// Those whose other arguments MPI would not reject, as seen from this seat.
    Sound(Seat),
    /// As `Sound`, for empty calls. They end once they are counted, while some libraries would exchange messages.
    SoundAndEmpty(Seat),
}

/// A call that was declined. Calls with the same key are declined as well. Of the operation only matters who defined
/// it: no handle of a user-defined one ever becomes a predefined one.
#[derive(Clone, Copy)]
pub(super) struct Permit {
    pub comm: MPI_Comm,
    pub key: Key,
    /// For a datatype of the user's, what [`freed`] returned then. Later its handle may be that of another datatype,
    /// which MPI might reject.
    pub freed: Option<u64>,
    pub scope: Scope,
    pub bytes: Bytes,
}

impl Permit {
    /// Whether it is a permit for calls with this key.
    #[inline(always)]
    fn is_for(&self, comm: MPI_Comm, key: &Key) -> bool {
        self.comm == comm
            && self.key.count == key.count
            && self.key.datatype == key.datatype
            && (self.key.op == key.op || matches!(self.scope, Scope::All))
    }

    /// Whether the datatype's handle still means the same datatype.
    #[inline(always)]
    fn is_lasting(&self) -> bool {
        self.freed.is_none_or(|then| then == freed())
    }
}

/// A permit as it is remembered.
#[derive(Clone, Copy)]
#[repr(align(128))]
struct Kept {
    permit: Permit,
    /// The counter of its calls, which is never freed.
    count: *const Count,
    /// The communicator's state, which exists as long as [`generation`] returns the number below.
    communicator: *const Communicator,
    generation: u64,
}

// A power of two, so that a shift finds the address of a pair.
const _: () = assert!(size_of::<Kept>() == 128);

impl Kept {
    /// Good for no call: no generation has this number.
    const NONE: Self = {
        // SAFETY: handles are numbers or addresses, and these are never passed to MPI.
        let (comm, datatype, op) = unsafe { (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed()) };
        let key = Key { count: 0, datatype, op };
        let permit = Permit { comm, key, freed: None, scope: Scope::All, bytes: Bytes::ZERO };
        Self { permit, count: null(), communicator: null(), generation: 0 }
    };
}

/// Two permits whose keys have the same place. While the first is valid it stays, and a new one replaces the second.
type Pair = UnsafeCell<[Kept; 2]>;

/// Pairs for each collective: programs call in turn with a few counts on a few communicators.
const PAIRS: usize = 32;

/// The pairs of all collectives.
type Pairs = [Pair; PAIRS * Collective::ALL.len()];

/// The permits that one thread remembers.
#[repr(transparent)]
pub(crate) struct Permits(Pairs);
// SAFETY: whoever reads or writes permits vouches that no other thread uses them at the time.
unsafe impl Sync for Permits {}

/// The permits of the thread that owns the process.
pub(crate) static OF_PROCESS: Permits =
    Permits([const { UnsafeCell::new([Kept::NONE; 2]) }; PAIRS * Collective::ALL.len()]);

thread_local! {
    /// The permits of any other thread; null if it has none.
    static OF_THREAD: Cell<*const Permits> = const { Cell::new(null()) };
}

/// Frees the permits of a thread that ends.
fn forget() {
    let permits = OF_THREAD.replace(null());
    if !permits.is_null() {
        // SAFETY: `remembering` made the pointer from such a box, and no other pointer to it is left.
        drop(unsafe { Box::from_raw(permits.cast_mut()) });
    }
}

/// The permits of this thread, which does not own the process. They live until the thread ends.
fn remembering<'a>() -> &'a Permits {
    let mut permits = OF_THREAD.get();
    if permits.is_null() {
        permits = Box::into_raw(empty()).cast();
        OF_THREAD.set(permits);
        when_thread_ends(Part::Permits, forget);
    }
    // SAFETY: points to a box that only `forget` frees.
    unsafe { &*permits }
}

/// For each collective, whether any call was ever kept.
static ARE_KEPT: [AtomicBool; Collective::ALL.len()] = [const { AtomicBool::new(false) }; Collective::ALL.len()];

/// Whether this thread may find calls of this collective. Relaxed: a thread that has kept one has stored this itself.
#[inline(always)]
pub(crate) fn are_kept(collective: Collective) -> bool {
    ARE_KEPT[collective as usize].load(Ordering::Relaxed)
}

/// Calls `find` with the permits of this thread, which does not own the process; `None` if it has none.
#[inline(always)]
pub(crate) fn of_thread(find: impl FnOnce(&Permits) -> Option<Served>) -> Option<Served> {
    // SAFETY: null, or a box that is not freed before the thread ends.
    find(unsafe { OF_THREAD.get().as_ref() }?)
}

/// The pair where a call with this key is remembered.
#[inline(always)]
fn pair(permits: &Permits, collective: Collective, comm: MPI_Comm, key: &Key) -> *mut [Kept; 2] {
    // Multiplied by odd numbers without a pattern, so that neighbours and powers of two are spread.
    let (comm, datatype) = (bits(comm), bits(key.datatype).rotate_left(32));
    let spread =
        comm.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (key.count as u64 ^ datatype).wrapping_mul(0xD1B5_4A32_D192_ED03);
    let place = (spread >> (64 - PAIRS.ilog2())) as usize;
    permits.0[collective as usize * PAIRS + place].get()
}

/// The permit for a call with these arguments, if it repeats one of the last that were declined.
///
/// # Safety
/// The arguments are those of the call that is under way, and no other thread uses `permits`.
#[inline(always)]
pub(super) unsafe fn find(permits: &Permits, collective: Collective, comm: MPI_Comm, key: &Key) -> Option<Found> {
    // SAFETY: the caller's promise.
    unsafe { find_in(generation, permits, collective, comm, key) }
}

/// As `find`; `current` returns the generation. It is called last: earlier its result would occupy a register.
///
/// # Safety
/// As for `find`.
#[inline(always)]
unsafe fn find_in(
    current: impl FnOnce() -> u64,
    permits: &Permits,
    collective: Collective,
    comm: MPI_Comm,
    key: &Key,
) -> Option<Found> {
    // SAFETY: the caller vouches that no other thread uses the permits, and this thread does not write them meanwhile.
    let [first, second] = unsafe { &*pair(permits, collective, comm, key) };
    // By branches: the loads would have to wait for an address that is computed, 4 ns.
    let kept = if first.permit.is_for(comm, key) {
        first
    } else if second.permit.is_for(comm, key) {
        second
    } else {
        return None;
    };
    let is_again = kept.generation == current() && kept.permit.is_lasting();
    is_again.then_some(Found(kept))
}

/// A permit that the call under way has found. It is a pointer, since callbacks of the library may change what is
/// remembered; nothing is read through it after callbacks may have run.
#[derive(Clone, Copy)]
pub(super) struct Found(*const Kept);

impl Found {
    /// The seat from which the arguments outside the key have to be checked; `None` if they need no check.
    #[inline(always)]
    pub fn seat(self) -> Option<Seat> {
        // SAFETY: the permit has just been found.
        match unsafe { (*self.0).permit.scope } {
            Scope::All => None,
            Scope::Sound(seat) | Scope::SoundAndEmpty(seat) => Some(seat),
        }
    }

    /// Counts the call and returns its outcome; `None` if the communicator has no epochs left.
    #[inline(always)]
    pub fn admit(self) -> Option<Served> {
        // SAFETY: the permit has just been found, so the generation has not changed, and the communicator of a call
        // under way is not freed.
        let (scope, communicator) = unsafe { ((*self.0).permit.scope, &*(*self.0).communicator) };
        match scope {
            Scope::All => {}
            _ if !communicator.has_epochs() => return None,
            Scope::Sound(_) => {}
            Scope::SoundAndEmpty(_) => return Some(Served::Done(self.end_empty())),
        }
        self.count();
        Some(Served::Native)
    }

    #[inline(always)]
    fn count(self) {
        // SAFETY: as above; the counter is never freed.
        let (communicator, count, bytes) =
            unsafe { (&*(*self.0).communicator, &*(*self.0).count, (*self.0).permit.bytes) };
        communicator.next_epoch();
        count.add(bytes);
    }

    /// Ends an empty call and returns its code. Not inlined, and it returns what the entry returns, which so needs no
    /// frame.
    #[inline(never)]
    fn end_empty(self) -> c_int {
        self.count();
        // Where a permit was found there is an active job.
        job::active().map_or(constants().success, end_served)
    }
}

/// Remembers a declined call. The call is under way, so its communicator's state exists and the generation may be read
/// now.
pub(super) fn keep(collective: Collective, communicator: &Communicator, counter: Counter, permit: Permit) {
    let kept = Kept { permit, count: counters().count(counter), communicator, generation: generation() };
    if callers::is_owner() {
        put(&OF_PROCESS, collective, kept);
    } else {
        put(remembering(), collective, kept);
    }
    ARE_KEPT[collective as usize].store(true, Ordering::Relaxed);
}

fn put(permits: &Permits, collective: Collective, kept: Kept) {
    let Permit { comm, key, .. } = kept.permit;
    // SAFETY: these are this thread's permits, its own or those of the process that it owns, and no permit found in
    // them is still in use.
    let pair = unsafe { &mut *pair(permits, collective, comm, &key) };
    let first = &pair[0];
    let is_taken = first.generation == kept.generation && first.permit.is_lasting() && !first.permit.is_for(comm, &key);
    pair[usize::from(is_taken)] = kept;
}

/// Empty pairs, built on the heap: a thread may have little stack.
fn empty() -> Box<Pairs> {
    let pairs: Vec<Pair> = (0..PAIRS * Collective::ALL.len()).map(|_| UnsafeCell::new([Kept::NONE; 2])).collect();
    pairs.into_boxed_slice().try_into().unwrap_or_else(|_| unreachable!("as many as there are"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::CommRank;
    use mpi_sys::MPI_Count;

    const ALLREDUCE: Collective = Collective::Allreduce;

    /// Distinct handles; the tests do not link the library.
    fn handle<T>(number: u32) -> T {
        let bytes = u64::from(number);
        // SAFETY: a number or an address, at most as large.
        unsafe { std::mem::transmute_copy(&bytes) }
    }

    fn key(count: MPI_Count) -> Key {
        Key { count, datatype: handle(1), op: handle(2) }
    }

    fn kept(comm: u32, count: MPI_Count, generation: u64) -> Kept {
        let scope = Scope::Sound(Seat { me: CommRank(0), ranks: 2 });
        let bytes = Bytes(count as usize);
        let permit = Permit { comm: handle(comm), key: key(count), scope, bytes, ..Kept::NONE.permit };
        Kept { permit, generation, ..Kept::NONE }
    }

    fn found(permits: &Permits, generation: u64, comm: u32, key: &Key) -> Option<usize> {
        // SAFETY: the permits are this thread's own, and what is found is read at once.
        unsafe { find_in(|| generation, permits, ALLREDUCE, handle(comm), key).map(|found| (*found.0).permit.bytes.0) }
    }

    #[test]
    fn a_call_is_found_by_all_its_arguments_until_something_is_deleted() {
        let permits = Permits(*empty());
        assert_eq!(found(&permits, 1, 0, &Key { count: 0, datatype: handle(0), op: handle(0) }), None);
        put(&permits, ALLREDUCE, kept(7, 100, 1));
        assert_eq!(found(&permits, 1, 7, &key(100)), Some(100));
        assert_eq!(found(&permits, 2, 7, &key(100)), None);
        assert_eq!(found(&permits, 1, 8, &key(100)), None);
        assert_eq!(found(&permits, 1, 7, &key(101)), None);
        assert_eq!(found(&permits, 1, 7, &Key { datatype: handle(3), ..key(100) }), None);
        assert_eq!(found(&permits, 1, 7, &Key { op: handle(3), ..key(100) }), None);
        // SAFETY: as above.
        assert!(unsafe { find_in(|| 1, &permits, Collective::Reduce, handle(7), &key(100)) }.is_none());
        // A call with another operation is remembered beside it.
        let other = Key { op: handle(3), ..key(100) };
        put(&permits, ALLREDUCE, Kept { permit: Permit { key: other, ..kept(7, 100, 1).permit }, ..kept(7, 100, 1) });
        assert_eq!((found(&permits, 1, 7, &key(100)), found(&permits, 1, 7, &other)), (Some(100), Some(100)));
        // A permit for all calls is found with any operation.
        let permits = Permits(*empty());
        let permit = Permit { scope: Scope::All, ..kept(7, 100, 1).permit };
        put(&permits, ALLREDUCE, Kept { permit, ..kept(7, 100, 1) });
        assert_eq!((found(&permits, 1, 7, &key(100)), found(&permits, 1, 7, &other)), (Some(100), Some(100)));
    }

    #[test]
    fn a_few_communicators_and_counts_in_turn_are_found_together() {
        // Distances between handles of MPICH, and between addresses of Open MPI.
        for stride in [1, 16, 0x240, 0x1000] {
            let permits = Permits(*empty());
            let calls = || (0..4).flat_map(|comm| [1, 2].map(|count| (0x8400_0000 + comm * stride, count)));
            calls().for_each(|(comm, count)| put(&permits, ALLREDUCE, kept(comm, count, 1)));
            let lost = calls().filter(|(comm, count)| found(&permits, 1, *comm, &key(*count)).is_none()).count();
            assert!(lost <= 1, "{lost} with handles {stride} apart");
        }
    }

    #[test]
    fn of_calls_that_belong_together_the_first_one_stays_until_it_is_out_of_date() {
        let permits = Permits(*empty());
        let place = |count| pair(&permits, ALLREDUCE, handle(7), &key(count));
        let mut same = (1..).filter(|count| place(*count) == place(1));
        let [first, second, third] = [1; 3].map(|_| same.next().expect("there are many"));
        [first, second, third].into_iter().for_each(|count| put(&permits, ALLREDUCE, kept(7, count, 1)));
        let of = |generation| [first, second, third].map(|count| found(&permits, generation, 7, &key(count)).is_some());
        assert_eq!(of(1), [true, false, true]);
        [third, second].into_iter().for_each(|count| put(&permits, ALLREDUCE, kept(7, count, 2)));
        assert_eq!(of(2), [false, true, true]);
    }

    #[test]
    fn a_permit_for_a_datatype_of_the_users_ends_when_one_is_freed() {
        let permits = Permits(*empty());
        let with = |freed| Kept { permit: Permit { freed, ..kept(7, 0, 1).permit }, ..kept(7, 0, 1) };
        put(&permits, ALLREDUCE, with(Some(freed())));
        let is_found = found(&permits, 1, 7, &key(0)).is_some();
        put(&permits, ALLREDUCE, with(Some(freed() + 1)));
        assert_eq!((is_found, found(&permits, 1, 7, &key(0))), (true, None));
    }
}
