//! Calls that were declined, by their arguments: such as come again go to the library before anything else is looked at.
//!
//! All that stands between them and the native function is one look into a table and two counters (`bench/limits.c declined`). Whether a rank
//! finds its call here is its own affair: without, it comes to the same verdict.

use super::communicator::Communicator;
use super::datatype::freed;
use super::decline::Place;
use super::job;
use super::lane::Key;
use super::recent::generation;
use super::serve::{Served, finish};
use crate::mpi::handles::{bits, constants};
use crate::report::{Count, Counter, counters};
use crate::types::{Bytes, Collective};
use mpi_sys::{MPI_Comm, MPI_Count};
use std::cell::{OnceCell, UnsafeCell};
use std::ffi::c_int;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which calls with the arguments of a permit it is good for.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    /// All of them: the communicator's calls of the collective are native whatever their arguments.
    All,
    /// Those whose other arguments, seen from this place, MPI would not reject.
    Sound(Place),
    /// Those too. They are empty, and done when they are counted: some libraries exchange messages all the same.
    SoundAndEmpty(Place),
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

/// One that is remembered. As long as a power of two: it is found without a product.
#[derive(Clone, Copy)]
#[repr(align(128))]
pub(super) struct Kept {
    permit: Permit,
    /// Where it is counted, which is never freed.
    count: *const Count,
    /// The communicator's state, which is there as long as [`generation`] is still this.
    communicator: *const Communicator,
    generation: u64,
}

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

/// Where two calls are remembered: of such that belong here the first one stays as long as it can, the other one makes room.
type Pair = [Kept; 2];

/// Pairs of each collective: programs call in turn with a few counts on a few communicators.
const PAIRS: usize = 32;

/// What is remembered.
pub(crate) struct Permits(UnsafeCell<[[Pair; PAIRS]; Collective::ALL.len()]>);
// SAFETY: one thread's, or used below MPI_THREAD_MULTIPLE only, where MPI calls of different threads are ordered by the program.
unsafe impl Sync for Permits {}

impl Permits {
    const fn none() -> Self {
        Self(UnsafeCell::new([[[Kept::NONE; 2]; PAIRS]; Collective::ALL.len()]))
    }

    /// Where a call is remembered.
    #[inline(always)]
    fn pair(&self, collective: Collective, comm: MPI_Comm, count: MPI_Count) -> *mut Pair {
        // Odd numbers without a pattern: neighbours and powers of two of both lie apart.
        let spread =
            bits(comm).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (count as u64).wrapping_mul(0xD1B5_4A32_D192_ED03);
        let pair = (spread >> (64 - PAIRS.ilog2())) as usize;
        // SAFETY: an element of the array: no other is borrowed.
        unsafe { &raw mut (*self.0.get())[collective as usize][pair] }
    }
}

/// What a process remembers where one thread at a time calls MPI.
pub(crate) static OF_PROCESS: Permits = Permits::none();

thread_local! {
    /// What this thread remembers where several may call MPI at once.
    static OF_THREAD: OnceCell<Box<Permits>> = const { OnceCell::new() };
}

/// See [`has_threads`].
static HAS_THREADS: AtomicBool = AtomicBool::new(false);

/// By collective, whether any call was ever kept.
static ARE_KEPT: [AtomicBool; Collective::ALL.len()] = [const { AtomicBool::new(false) }; Collective::ALL.len()];

/// Whether calls of this collective may be found: what a thread has kept it has noted itself.
#[inline(always)]
pub(crate) fn are_kept(collective: Collective) -> bool {
    ARE_KEPT[collective as usize].load(Ordering::Relaxed)
}

/// Whether each thread remembers calls of its own.
#[inline(always)]
pub(crate) fn has_threads() -> bool {
    HAS_THREADS.load(Ordering::Relaxed)
}

/// Before the job is known in which several threads may call MPI at once.
pub(super) fn assume_several_threads() {
    HAS_THREADS.store(true, Ordering::Relaxed);
}

/// What becomes of a call by what this thread remembers, if it does: `find` looks at it.
#[inline(always)]
pub(crate) fn of_thread(find: impl FnOnce(&Permits) -> Option<Served>) -> Option<Served> {
    OF_THREAD.try_with(|permits| permits.get().and_then(|permits| find(permits))).ok()?
}

impl Permits {
    /// The permit for a call with these arguments, if it is one of the last again that were declined.
    #[inline(always)]
    pub(super) fn find(&self, collective: Collective, comm: MPI_Comm, key: &Key) -> Option<&Kept> {
        self.find_in(generation(), collective, comm, key)
    }

    /// The same, of that generation.
    #[inline(always)]
    fn find_in(&self, generation: u64, collective: Collective, comm: MPI_Comm, key: &Key) -> Option<&Kept> {
        // SAFETY: one thread at a time writes here, and none before the call has been admitted or not.
        let pair = unsafe { &*self.pair(collective, comm, key.count) };
        // Without a branch.
        let kept = &pair[usize::from((pair[0].permit.comm != comm) | (pair[0].permit.key.count != key.count))];
        let permit = &kept.permit;
        let is_again = permit.comm == comm
            && permit.key == *key
            && kept.generation == generation
            && permit.freed.is_none_or(|then| then == freed());
        is_again.then_some(kept)
    }

    fn keep(&self, collective: Collective, kept: Kept) {
        let of = |kept: &Kept| (kept.permit.comm, kept.permit.key.count);
        let (comm, count) = of(&kept);
        // SAFETY: one thread at a time, and none reads it now.
        let pair = unsafe { &mut *self.pair(collective, comm, count) };
        let is_taken = pair[0].generation == kept.generation && of(&pair[0]) != of(&kept);
        pair[usize::from(is_taken)] = kept;
    }
}

impl Kept {
    /// From where the arguments that are not in the key must be in order; `None` where they need not.
    #[inline(always)]
    pub fn place(&self) -> Option<Place> {
        match self.permit.scope {
            Scope::All => None,
            Scope::Sound(place) | Scope::SoundAndEmpty(place) => Some(place),
        }
    }

    /// What becomes of a call with this permit, which is counted.
    #[inline(always)]
    pub fn admit(&self) -> Option<Served> {
        // SAFETY: as in `count`.
        let communicator = unsafe { &*self.communicator };
        match self.permit.scope {
            Scope::All => {}
            _ if !communicator.has_epochs() => return None,
            Scope::Sound(_) => {}
            Scope::SoundAndEmpty(_) => return Some(Served::Done(end_empty(self))),
        }
        self.count();
        Some(Served::Native)
    }

    /// Counts a call with this permit, of this generation.
    #[inline(always)]
    fn count(&self) {
        // SAFETY: the first lives as long as the generation lasts, the other one for good.
        let (communicator, count) = unsafe { (&*self.communicator, &*self.count) };
        communicator.next_epoch();
        count.add(self.permit.bytes);
    }
}

/// The call with this permit is done. Apart, and returning what the entry does, which so needs no frame.
#[inline(never)]
fn end_empty(kept: *const Kept) -> c_int {
    // SAFETY: the permit that was found, of which the library may change the place only after this.
    unsafe { &*kept }.count();
    match job::active().map(finish) {
        Some(Served::Done(code)) => code,
        // Nobody finds permits in such a job.
        _ => constants().success,
    }
}

/// Remembers a call that is declined, while it is under way: so its communicator's state is there.
pub(super) fn keep(collective: Collective, communicator: &Communicator, counter: Counter, permit: Permit) {
    let kept = Kept { permit, count: counters().count(counter), communicator, generation: generation() };
    if has_threads() {
        // Threads that end remember nothing.
        let _ = OF_THREAD.try_with(|permits| permits.get_or_init(|| Box::new(Permits::none())).keep(collective, kept));
    } else {
        OF_PROCESS.keep(collective, kept);
    }
    ARE_KEPT[collective as usize].store(true, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let permit = Permit { comm: handle(comm), key: key(count), bytes: Bytes(count as usize), ..Kept::NONE.permit };
        Kept { permit, generation, ..Kept::NONE }
    }

    fn found(permits: &Permits, generation: u64, comm: u32, key: &Key) -> Option<usize> {
        permits.find_in(generation, ALLREDUCE, handle(comm), key).map(|kept| kept.permit.bytes.0)
    }

    #[test]
    fn a_call_is_found_by_all_its_arguments_until_something_is_deleted() {
        let permits = Permits::none();
        assert_eq!(found(&permits, 1, 0, &Key { count: 0, datatype: handle(0), op: handle(0) }), None);
        permits.keep(ALLREDUCE, kept(7, 100, 1));
        assert_eq!(found(&permits, 1, 7, &key(100)), Some(100));
        assert_eq!(found(&permits, 2, 7, &key(100)), None);
        assert_eq!(found(&permits, 1, 8, &key(100)), None);
        assert_eq!(found(&permits, 1, 7, &key(101)), None);
        assert_eq!(found(&permits, 1, 7, &Key { datatype: handle(3), ..key(100) }), None);
        assert_eq!(found(&permits, 1, 7, &Key { op: handle(3), ..key(100) }), None);
        assert!(permits.find_in(1, Collective::Reduce, handle(7), &key(100)).is_none());
        // Of another datatype in its place.
        let permit = Permit { key: Key { datatype: handle(3), ..key(100) }, ..kept(7, 100, 1).permit };
        permits.keep(ALLREDUCE, Kept { permit, ..kept(7, 100, 1) });
        assert_eq!(found(&permits, 1, 7, &key(100)), None);
        assert_eq!(found(&permits, 1, 7, &Key { datatype: handle(3), ..key(100) }), Some(100));
    }

    #[test]
    fn a_few_communicators_and_counts_in_turn_are_found_together() {
        // Handles as MPICH gives them, and addresses as Open MPI does.
        for stride in [1, 16, 0x240, 0x1000] {
            let permits = Permits::none();
            let calls = || (0..4).flat_map(|comm| [1, 2].map(|count| (0x8400_0000 + comm * stride, count)));
            calls().for_each(|(comm, count)| permits.keep(ALLREDUCE, kept(comm, count, 1)));
            let lost = calls().filter(|(comm, count)| found(&permits, 1, *comm, &key(*count)).is_none()).count();
            assert!(lost <= 1, "{lost} with handles {stride} apart");
        }
    }

    #[test]
    fn of_calls_that_belong_together_the_first_one_stays_until_it_is_out_of_date() {
        let permits = Permits::none();
        let pair = |count| permits.pair(ALLREDUCE, handle(7), count);
        let mut same = (1..).filter(|count| pair(*count) == pair(1));
        let [first, second, third] = [1; 3].map(|_| same.next().expect("there are many"));
        [first, second, third].into_iter().for_each(|count| permits.keep(ALLREDUCE, kept(7, count, 1)));
        let of = |generation| [first, second, third].map(|count| found(&permits, generation, 7, &key(count)).is_some());
        assert_eq!(of(1), [true, false, true]);
        [third, second].into_iter().for_each(|count| permits.keep(ALLREDUCE, kept(7, count, 2)));
        assert_eq!(of(2), [false, true, true]);
    }

    #[test]
    fn a_permit_for_a_datatype_of_the_users_ends_when_one_is_freed() {
        let permits = Permits::none();
        let with = |freed| Kept { permit: Permit { freed, ..kept(7, 0, 1).permit }, ..kept(7, 0, 1) };
        permits.keep(ALLREDUCE, with(Some(freed())));
        let is_found = found(&permits, 1, 7, &key(0)).is_some();
        permits.keep(ALLREDUCE, with(Some(freed() + 1)));
        assert_eq!((is_found, found(&permits, 1, 7, &key(0))), (true, None));
    }
}
