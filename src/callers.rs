//! Which threads of this process call MPI. What a call remembers for the next one is found at no cost in plain memory of the process, which is for one
//! thread alone: the one that called `MPI_Init`. Each other one has memory of its own.
//!
//! The level of threads that MPI_Init gave does not tell whether there are others: below `MPI_THREAD_MULTIPLE` such as take turns, and, in
//! MPIs that grant a session more than MPI_Init did (Open MPI 5, Intel MPI), such as call at the same time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// By its [`this_thread`]; none is 0.
static OWNER: AtomicUsize = AtomicUsize::new(0);

/// Whether threads may call MPI at the same time, by its level, or as another one than the owner has called.
static MAY_OVERLAP: AtomicBool = AtomicBool::new(true);

/// Whether this thread is the one to which what the process remembers belongs. Of a thread that comes later at the same address, the one
/// before has ended.
#[inline(always)]
pub fn is_owner() -> bool {
    OWNER.load(Ordering::Relaxed) == this_thread()
}

/// The process belongs to this thread, which is in `MPI_Init`.
pub fn begin(may_overlap: bool) {
    MAY_OVERLAP.store(may_overlap, Ordering::Relaxed);
    OWNER.store(this_thread(), Ordering::Relaxed);
}

/// Another thread than the owner calls.
#[inline]
pub fn note_other() {
    if !may_overlap() {
        MAY_OVERLAP.store(true, Ordering::Relaxed);
    }
}

/// Whether another thread may be in a call, as far as is known: the first call of one may be under way.
pub fn may_overlap() -> bool {
    MAY_OVERLAP.load(Ordering::Relaxed)
}

/// What no other thread has that is there: the address of the thread's control block, to which the ABI has the first word of that point.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[inline(always)]
fn this_thread() -> usize {
    let address;
    // SAFETY: reads one word, which each thread has.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) address, options(nostack, preserves_flags, pure, readonly));
    }
    address
}

/// What no other thread has that is there: the address of something of its own.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
#[inline(always)]
fn this_thread() -> usize {
    thread_local! {
        static OWN: u8 = const { 0 };
    }
    OWN.try_with(|own| std::ptr::from_ref(own).addr()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_belongs_to_one_thread() {
        assert!(!is_owner(), "nobody has called MPI_Init");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin(false);
                assert!(is_owner() && !may_overlap());
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        assert!(!is_owner());
                        note_other();
                    });
                });
                assert!(is_owner() && may_overlap());
                OWNER.store(0, Ordering::Relaxed);
            });
        });
        assert!(!is_owner());
    }
}
