//! How far memory is: what a line takes that is in no cache.

/// Ticks of the processor's clock until some lines of a page of `length` bytes come from memory, in sum: they lie in different banks. Of each the
/// fastest of some attempts counts, since others on the machine only add to them. `None` where that can't be told. Takes about 4 us.
///
/// # Safety
/// The page at `at` is readable, and nobody writes to it.
#[cfg(target_arch = "x86_64")]
pub unsafe fn ticks_to_page(at: *const u8, length: usize) -> Option<u64> {
    use std::arch::x86_64::{_mm_clflush, _mm_lfence, _mm_mfence, _rdtsc};
    const LINES: usize = 4;
    const ATTEMPTS: usize = 3;
    let ticks_to = |line: *const u8| {
        // SAFETY: the caller's promise; every such processor has these instructions (rdtscp virtual machines may lack).
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

/// As above: not tried on other processors.
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
