//! Atomics, fences, cells and futexes, of the standard library and the kernel, or of loom under `--cfg loom`. An
//! ordering is named by the label of the pair that it belongs to.

/// A release and the acquire that pairs with it: a rank that acquires sees everything that another rank did before the
/// release. Both sides name the same label. Under loom one side of one pair can be weakened, to show that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    /// Release: a rank publishes a flag. Acquire: a peer finds that the flag has reached a ticket.
    Flag,
    /// Release: a rank enters a call. Acquire: a peer reads which call that is, or whether the rank has left an earlier
    /// one.
    Call,
    /// Release: a rank begins to change the words of its call. Acquire: a peer has read these words.
    Busy,
    /// Release: a rank counts another run of failed calls. Acquire: a peer checks whether there are any.
    Failed,
    /// Release: a rank extends an entry of failed calls, or uses it again. Acquire: a peer looks for a call in that
    /// entry.
    Forgotten,
    /// Release, by the fence of `Event`: a rank has failed a call, so the program may write again the memory that the
    /// rank exposed. Acquire: a peer has fetched from that memory, and then checks whether the rank has failed the
    /// call.
    Exposed,
    /// Release: an announcer has changed what sleepers wait for, and then looks for sleepers. Acquire: a sleeper has
    /// registered itself, and then looks for the change. At least one of them sees the other.
    Event,
}

/// A side of a [`Pair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that tells.
    Release,
    /// The side that is told.
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

    /// A fence with the ordering of one side of `pair`, apart from any access.
    #[inline(always)]
    pub(crate) fn fence(_: Pair, side: Side) {
        std::sync::atomic::fence(match side {
            Side::Release => Ordering::Release,
            Side::Acquire => Ordering::Acquire,
        });
    }

    /// A fence as `fence`, but sequentially consistent: of two ranks that each execute one, at least one sees what the
    /// other did before its own.
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

        /// Sleeps until woken, for about `most` at most. Returns at once if the word no longer holds `seen`.
        pub(crate) fn wait(&self, seen: u32, most: Duration) {
            let timeout = libc::timespec { tv_sec: most.as_secs() as _, tv_nsec: most.subsec_nanos() as _ };
            // SAFETY: the address of a live word and of a timeout. The word may be in memory shared between processes,
            // so the futex is not private to this one.
            unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), libc::FUTEX_WAIT, seen, &raw const timeout) };
        }

        /// Wakes all sleepers.
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

    /// A futex as the kernel implements it: the word is compared, and sleepers join and leave the queue, under one
    /// lock. No sleep times out, so loom reports a lost wake-up as a deadlock.
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
            // Released before this thread parks: loom cannot unwind from a deadlock through a guard.
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
        // The standard library's, not loom's: all threads of a model are one thread of the system.
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

    /// Calls `run` with relaxed ordering on one side of one pair, to show that the ordering is needed.
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
