//! Stores of this core, and when they leave it.

/// Returns when what this core has stored has left for its cache, and issues no load that follows before. Without this loads overtake
/// stores that wait for their lines, and even after an operation that is atomic they are tried before, which already asks peers for the lines.
/// For speed alone; what others may see when is a matter of acquire and release.
#[inline(always)]
pub fn settle() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: part of the baseline. Not `fence`, which compilers make an atomic operation.
    unsafe {
        std::arch::x86_64::_mm_mfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
