//! How far memory is: the time to load a line that is in no cache.

/// Ticks of the processor's clock until some lines of a page of `length` bytes arrive from memory, added up. The lines
/// lie in different banks. For each the fastest of some attempts counts, since other work on the machine only adds
/// time. `None` where this can't be measured. Takes about 4 us.
///
/// # Safety
/// The page at `at` is readable, and nobody writes to it.
#[cfg(target_arch = "x86_64")]
pub unsafe fn ticks_to_page(at: *const u8, length: usize) -> Option<u64> {
    use std::arch::x86_64::{_mm_clflush, _mm_lfence, _mm_mfence, _rdtsc};
    const LINES: usize = 4;
    const ATTEMPTS: usize = 3;
    let ticks_to = |line: *const u8| {
        // SAFETY: the caller's promise; every such processor has these instructions (virtual machines may lack
        // `rdtscp`).
        unsafe {
            _mm_clflush(line);
            _mm_mfence();
            _mm_lfence();
            let before = _rdtsc();
            _mm_lfence();
            line.read_volatile();
            _mm_lfence();
            _rdtsc().saturating_sub(before)
        }
    };
    let lines = (0..LINES).map(|index| at.wrapping_add(index * length / LINES));
    Some(lines.map(|line| (0..ATTEMPTS).map(|_| ticks_to(line)).min().unwrap_or_default()).sum())
}

/// Not tried on other processors: always `None`.
///
/// # Safety
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn ticks_to_page(_at: *const u8, _length: usize) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_some_time() {
        let page = vec![7_u8; 4096];
        // SAFETY: a page of this thread's own.
        let ticks = unsafe { ticks_to_page(page.as_ptr(), page.len()) };
        assert!(ticks.is_none_or(|ticks| ticks > 0));
        assert_eq!(ticks.is_some(), cfg!(target_arch = "x86_64"));
    }
}
