//! Atomics, fences, cells and futexes: the standard library's and the kernel's, or loom's under `--cfg loom`; and the
//! orderings, by the label of the pair that they belong to.

/// Where what one rank does before a release becomes visible to those who find it by an acquire. The label stands on both
/// sides. Under loom one side of one pair can be weakened, to show that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    /// Release: a flag is published. Acquire: it is found to have reached a ticket.
    Flag,
    /// Release: a call is entered. Acquire: a peer looks which one, or whether the call before has been left.
    Call,
    /// Release: the words of a call begin to change. Acquire: a peer has read them.
    Busy,
    /// Release: another failed call is counted. Acquire: a peer looks whether there are any.
    Failed,
    /// Release: an entry of failed calls is used again. Acquire: a peer looks for a call in it.
    Forgotten,
    /// Release, by the fence of `Event`: a rank has failed a call, and memory that it exposed is the program's to write again. Acquire: a
    /// peer has fetched from there, and looks whether it had.
    Exposed,
    /// Release: an announcer has changed what sleepers wait for, and looks for them. Acquire: a sleeper has made itself
    /// known, and looks for a change. One of them sees the other.
    Event,
}

/// A side of a [`Pair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Of who tells.
    Release,
    /// Of who is told.
    Acquire,
}

#[cfg(not(loom))]
mod real {
    use super::{Pair, Side};
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use std::time::Duration;

    /// The ordering of the release in `pair`.
    #[inline(always)]
    pub(crate) const fn release(_: Pair) -> Ordering {
        Ordering::Release
    }

    /// The ordering of the acquire in `pair`.
    #[inline(always)]
    pub(crate) const fn acquire(_: Pair) -> Ordering {
        Ordering::Acquire
    }

    /// The release or acquire of `pair`, apart from an access.
    #[inline(always)]
    pub(crate) fn fence(_: Pair, side: Side) {
        std::sync::atomic::fence(match side {
            Side::Release => Ordering::Release,
            Side::Acquire => Ordering::Acquire,
        });
    }

    /// As `fence`; and of two ranks that pass theirs, one sees what the other did before.
    #[inline(always)]
    pub(crate) fn total_fence(_: Pair, _: Side) {
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// `std::cell::UnsafeCell` with the interface of loom's.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        #[inline]
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        #[inline]
        pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }

    /// A word on which processes sleep and wake each other.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub(crate) struct Futex(AtomicU32);

    impl Futex {
        /// The word.
        #[inline]
        pub(crate) fn word(&self) -> &AtomicU32 {
            &self.0
        }

        /// Sleeps until woken, at most about `most`; not at all if the word is not `seen` any more.
        pub(crate) fn wait(&self, seen: u32, most: Duration) {
            let timeout = libc::timespec { tv_sec: most.as_secs() as _, tv_nsec: most.subsec_nanos() as _ };
            // SAFETY: the address of a live word and of a timeout. The word may be in memory shared between processes, so
            // the futex is not private to this one.
            unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), libc::FUTEX_WAIT, seen, &raw const timeout) };
        }

        /// Wakes all who sleep.
        pub(crate) fn wake(&self) {
            // SAFETY: the address is that of a live word; waking touches no memory.
            unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
        }
    }
}

#[cfg(not(loom))]
pub(crate) use real::{AtomicU32, AtomicU64, Futex, Ordering, UnsafeCell, acquire, fence, release, total_fence};

#[cfg(loom)]
mod model {
    use super::{Pair, Side};
    pub(crate) use loom::cell::UnsafeCell;
    use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use loom::thread::{Thread, current, park};
    use std::cell::Cell;
    use std::time::Duration;

    /// As the kernel has it: the word is compared, and sleepers join and leave the queue, under one lock. No sleep times
    /// out, so loom reports a wake-up that got lost as a deadlock.
    #[derive(Debug, Default)]
    pub(crate) struct Futex {
        word: AtomicU32,
        queue: Mutex<Vec<Thread>>,
    }

    impl Futex {
        pub(crate) fn word(&self) -> &AtomicU32 {
            &self.word
        }

        pub(crate) fn wait(&self, seen: u32, _: Duration) {
            let mut queue = self.queue.lock().unwrap();
            let is_unchanged = self.word.load(Ordering::Relaxed) == seen;
            if is_unchanged {
                queue.push(current());
            }
            // Before this thread parks: loom cannot unwind from a deadlock through a guard.
            drop(queue);
            if is_unchanged {
                park();
            }
        }

        pub(crate) fn wake(&self) {
            let sleepers = std::mem::take(&mut *self.queue.lock().unwrap());
            sleepers.iter().for_each(Thread::unpark);
        }
    }

    thread_local! {
        // Not loom's: the threads of a model are one thread of the system.
        static WEAK: Cell<Option<(Pair, Side)>> = const { Cell::new(None) };
    }

    fn unless_weak(pair: Pair, side: Side, ordering: Ordering) -> Ordering {
        if WEAK.get() == Some((pair, side)) { Ordering::Relaxed } else { ordering }
    }

    pub(crate) fn release(pair: Pair) -> Ordering {
        unless_weak(pair, Side::Release, Ordering::Release)
    }

    pub(crate) fn acquire(pair: Pair) -> Ordering {
        unless_weak(pair, Side::Acquire, Ordering::Acquire)
    }

    pub(crate) fn fence(pair: Pair, side: Side) {
        let ordering = match side {
            Side::Release => release(pair),
            Side::Acquire => acquire(pair),
        };
        if ordering != Ordering::Relaxed {
            loom::sync::atomic::fence(ordering);
        }
    }

    pub(crate) fn total_fence(pair: Pair, side: Side) {
        let ordering = unless_weak(pair, side, Ordering::SeqCst);
        if ordering != Ordering::Relaxed {
            loom::sync::atomic::fence(ordering);
        }
    }

    /// Calls `run` with no ordering on one side of one pair, to show that it is missed.
    pub fn weakened<R>(pair: Pair, side: Side, run: impl FnOnce() -> R) -> R {
        WEAK.set(Some((pair, side)));
        let result = run();
        WEAK.set(None);
        result
    }
}

#[cfg(loom)]
pub use model::weakened;
#[cfg(loom)]
pub(crate) use model::{AtomicU32, AtomicU64, Futex, Ordering, UnsafeCell, acquire, fence, release, total_fence};
