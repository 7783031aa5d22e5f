//! Calls that were declined, by their arguments: such as come again go to the library before anything else is looked at.
//!
//! All that stands between them and the native function is one look into a table and three additions (`bench/limits.c declined`). Whether a
//! rank finds its call here is its own affair: without, it comes to the same verdict.

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

/// Which calls with the arguments of a permit it is good for.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    /// All of them, and with any operation: the communicator's calls of the collective are native whatever their arguments, which only tell how
    /// they are counted.
    All,
    /// Those whose other arguments, seen from this seat, MPI would not reject.
    Sound(Seat),
    /// As `Sound`; they are empty, and done when they are counted: some libraries exchange messages all the same.
    SoundAndEmpty(Seat),
}

/// A call that was declined. Calls with the same key are declined as well: of the operation counts who defined it, and no handle
/// of a user's ever becomes a predefined one.
#[derive(Clone, Copy)]
pub(super) struct Permit {
    pub comm: MPI_Comm,
    pub key: Key,
    /// Of a datatype of the user's: [`freed`] at that time, since its handle may be another one's later on, which MPI might reject.
    pub freed: Option<u64>,
    pub scope: Scope,
    pub bytes: Bytes,
}

impl Permit {
    /// Whether it is one for calls with this key.
    #[inline(always)]
    fn is_for(&self, comm: MPI_Comm, key: &Key) -> bool {
        self.comm == comm
            && self.key.count == key.count
            && self.key.datatype == key.datatype
            && (self.key.op == key.op || matches!(self.scope, Scope::All))
    }

    /// Whether its datatype is still that.
    #[inline(always)]
    fn is_lasting(&self) -> bool {
        self.freed.is_none_or(|then| then == freed())
    }
}

/// One that is remembered.
#[derive(Clone, Copy)]
#[repr(align(128))]
struct Kept {
    permit: Permit,
    /// Where it is counted, which is never freed.
    count: *const Count,
    /// The communicator's state, which is there as long as [`generation`] is still this.
    communicator: *const Communicator,
    generation: u64,
}

// So that a pair is addressed by a shift.
const _: () = assert!(size_of::<Kept>() == 128);

impl Kept {
    /// Good for no call: there never is that generation.
    const NONE: Self = {
        // SAFETY: numbers or addresses, with which nobody asks for anything.
        let (comm, datatype, op) = unsafe { (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed()) };
        let key = Key { count: 0, datatype, op };
        let permit = Permit { comm, key, freed: None, scope: Scope::All, bytes: Bytes::ZERO };
        Self { permit, count: null(), communicator: null(), generation: 0 }
    };
}

/// Of calls that belong here two are remembered: the first one stays as long as it can, the other one makes room.
type Pair = UnsafeCell<[Kept; 2]>;

/// Pairs of each collective: programs call in turn with a few counts on a few communicators.
const PAIRS: usize = 32;

/// Of all collectives.
type Pairs = [Pair; PAIRS * Collective::ALL.len()];

/// What is remembered.
#[repr(transparent)]
pub(crate) struct Permits(Pairs);
// SAFETY: who looks into it or puts something there vouches that no other thread does so at the time.
unsafe impl Sync for Permits {}

/// What the thread remembers to which the process belongs.
pub(crate) static OF_PROCESS: Permits =
    Permits([const { UnsafeCell::new([Kept::NONE; 2]) }; PAIRS * Collective::ALL.len()]);

thread_local! {
    /// What another thread remembers; null where it does not.
    static OF_THREAD: Cell<*const Permits> = const { Cell::new(null()) };
}

/// For a thread that ends.
fn forget() {
    let permits = OF_THREAD.replace(null());
    if !permits.is_null() {
        // SAFETY: made by `remembering` of such a box, and found by nobody any more.
        drop(unsafe { Box::from_raw(permits.cast_mut()) });
    }
}

/// What this thread remembers, which is not the one to which the process belongs, until it ends.
fn remembering<'a>() -> &'a Permits {
    let mut permits = OF_THREAD.get();
    if permits.is_null() {
        permits = Box::into_raw(empty()).cast();
        OF_THREAD.set(permits);
        when_thread_ends(Part::Permits, forget);
    }
    // SAFETY: of a box that is freed by `forget` alone.
    unsafe { &*permits }
}

/// By collective, whether any call was ever kept.
static ARE_KEPT: [AtomicBool; Collective::ALL.len()] = [const { AtomicBool::new(false) }; Collective::ALL.len()];

/// Whether calls of this collective may be found: what a thread has kept it has noted itself.
#[inline(always)]
pub(crate) fn are_kept(collective: Collective) -> bool {
    ARE_KEPT[collective as usize].load(Ordering::Relaxed)
}

/// What becomes of a call by what this thread remembers, if it does: `find` looks at it.
#[inline(always)]
pub(crate) fn of_thread(find: impl FnOnce(&Permits) -> Option<Served>) -> Option<Served> {
    // SAFETY: null, or of a box that nobody frees while the thread calls.
    find(unsafe { OF_THREAD.get().as_ref() }?)
}

/// Where a call is remembered.
#[inline(always)]
fn pair(permits: &Permits, collective: Collective, comm: MPI_Comm, key: &Key) -> *mut [Kept; 2] {
    // By odd numbers without a pattern: neighbours and powers of two lie apart.
    let (comm, datatype) = (bits(comm), bits(key.datatype).rotate_left(32));
    let spread =
        comm.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (key.count as u64 ^ datatype).wrapping_mul(0xD1B5_4A32_D192_ED03);
    let place = (spread >> (64 - PAIRS.ilog2())) as usize;
    permits.0[collective as usize * PAIRS + place].get()
}

/// The permit for a call with these arguments, if it is one of the last again that were declined.
///
/// # Safety
/// They are those of the call that is under way, and no other thread has to do with `permits`.
#[inline(always)]
pub(super) unsafe fn find(permits: &Permits, collective: Collective, comm: MPI_Comm, key: &Key) -> Option<Found> {
    // SAFETY: the caller's promise.
    unsafe { find_in(generation, permits, collective, comm, key) }
}

/// The same, where that is the generation. It is asked for last: before that it would take a register.
///
/// # Safety
/// As above.
#[inline(always)]
unsafe fn find_in(
    current: impl FnOnce() -> u64,
    permits: &Permits,
    collective: Collective,
    comm: MPI_Comm,
    key: &Key,
) -> Option<Found> {
    // SAFETY: no other thread has to do with it, as the caller vouches, and this one does nothing else here meanwhile.
    let [first, second] = unsafe { &*pair(permits, collective, comm, key) };
    // By branches: an address that is worked out would have to be waited for, 4 ns.
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

/// A permit for the call that is under way, as which it is used. By its address, since callbacks of the library may change what is
/// remembered; nothing is read there after these may run.
#[derive(Clone, Copy)]
pub(super) struct Found(*const Kept);

impl Found {
    /// From where the arguments that are not in the key must be in order; `None` where they need not.
    #[inline(always)]
    pub fn seat(self) -> Option<Seat> {
        // SAFETY: it has just been found.
        match unsafe { (*self.0).permit.scope } {
            Scope::All => None,
            Scope::Sound(seat) | Scope::SoundAndEmpty(seat) => Some(seat),
        }
    }

    /// What becomes of the call, which is counted.
    #[inline(always)]
    pub fn admit(self) -> Option<Served> {
        // SAFETY: it has just been found: the generation has not changed, and the communicator of a call that is under way is not freed.
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
        // SAFETY: as above; the counter lives for good.
        let (communicator, count, bytes) =
            unsafe { (&*(*self.0).communicator, &*(*self.0).count, (*self.0).permit.bytes) };
        communicator.next_epoch();
        count.add(bytes);
    }

    /// The call is done. Apart, and returning what the entry does, which so needs no frame.
    #[inline(never)]
    fn end_empty(self) -> c_int {
        self.count();
        // There is one where calls are found.
        job::active().map_or(constants().success, end_served)
    }
}

/// Remembers a call that is declined. It is under way, so that its communicator's state is there, and the generation may be asked for now.
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
    // SAFETY: this thread's, by itself or as the process belongs to it; nobody has found anything here that it still uses.
    let pair = unsafe { &mut *pair(permits, collective, comm, &key) };
    let first = &pair[0];
    let is_taken = first.generation == kept.generation && first.permit.is_lasting() && !first.permit.is_for(comm, &key);
    pair[usize::from(is_taken)] = kept;
}

/// In memory of its own at once: a thread may have little stack.
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

    /// Handles that differ; the library is not linked to these tests.
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
        // SAFETY: this thread's own, and what is found is read at once.
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
        // Of another operation beside it.
        let other = Key { op: handle(3), ..key(100) };
        put(&permits, ALLREDUCE, Kept { permit: Permit { key: other, ..kept(7, 100, 1).permit }, ..kept(7, 100, 1) });
        assert_eq!((found(&permits, 1, 7, &key(100)), found(&permits, 1, 7, &other)), (Some(100), Some(100)));
        // Of all of them.
        let permits = Permits(*empty());
        let permit = Permit { scope: Scope::All, ..kept(7, 100, 1).permit };
        put(&permits, ALLREDUCE, Kept { permit, ..kept(7, 100, 1) });
        assert_eq!((found(&permits, 1, 7, &key(100)), found(&permits, 1, 7, &other)), (Some(100), Some(100)));
    }

    #[test]
    fn a_few_communicators_and_counts_in_turn_are_found_together() {
        // Handles as MPICH gives them, and addresses as Open MPI does.
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
