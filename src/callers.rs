//! Which threads of this process call MPI. What one call remembers for the next lies in plain memory of the process,
//! where it is found at no cost. That memory belongs to one thread alone: the *owner*, which called `MPI_Init`. Each
//! other thread has memory of its own.
//!
//! The thread level that MPI_Init granted does not tell whether there are other threads that call. Below
//! `MPI_THREAD_MULTIPLE` threads may take turns. Where an MPI library grants a session more than MPI_Init (Open MPI 5,
//! Intel MPI), they may call at the same time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The owner, by its [`this_thread`], which is never 0; 0 before there is one.
static OWNER: AtomicUsize = AtomicUsize::new(0);

/// Whether threads may call MPI at the same time: the thread level permits it, or a thread other than the owner has
/// called.
static MAY_OVERLAP: AtomicBool = AtomicBool::new(true);

/// Whether this thread is the owner of what the process remembers. A later thread at the same address counts as the
/// owner: the one before has ended.
#[inline(always)]
pub fn is_owner() -> bool {
    OWNER.load(Ordering::Relaxed) == this_thread()
}

/// Makes this thread, which is in `MPI_Init`, the owner. `may_overlap` tells whether the thread level lets threads
/// overlap.
pub fn begin(may_overlap: bool) {
    MAY_OVERLAP.store(may_overlap, Ordering::Relaxed);
    OWNER.store(this_thread(), Ordering::Relaxed);
}

/// Notes that a thread other than the owner calls.
#[inline]
pub fn note_other() {
    if !may_overlap() {
        MAY_OVERLAP.store(true, Ordering::Relaxed);
    }
}

/// Whether another thread may be in a call, as far as is known: the first call of one may be under way unnoticed.
pub fn may_overlap() -> bool {
    MAY_OVERLAP.load(Ordering::Relaxed)
}

/// A number that no other living thread has: the address of the thread's control block. By the ABI the first word of
/// that block points to itself.
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

/// A number that no other living thread has: the address of a thread-local of this one.
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
