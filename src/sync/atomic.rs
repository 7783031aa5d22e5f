//! Atomics, fences, cells and futexes: the standard library's and the kernel's, or loom's under `--cfg loom`.

#[cfg(not(loom))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    use std::time::Duration;

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
pub(crate) use real::{AtomicU32, AtomicU64, Futex, Ordering, UnsafeCell, fence};

#[cfg(loom)]
mod model {
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

    loom::thread_local! {
        static HAS_FENCES: Cell<bool> = Cell::new(true);
    }

    /// A fence, unless this thread does without.
    pub(crate) fn fence(ordering: Ordering) {
        if HAS_FENCES.with(Cell::get) {
            loom::sync::atomic::fence(ordering);
        }
    }

    /// Calls `run` with no effect of the fences that this thread meets in it, to show that they are missed.
    pub fn without_fences<R>(run: impl FnOnce() -> R) -> R {
        HAS_FENCES.with(|has| has.set(false));
        let result = run();
        HAS_FENCES.with(|has| has.set(true));
        result
    }
}

#[cfg(loom)]
pub use model::without_fences;
#[cfg(loom)]
pub(crate) use model::{AtomicU32, AtomicU64, Futex, Ordering, UnsafeCell, fence};
