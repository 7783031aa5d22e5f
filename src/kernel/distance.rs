//! How far memory is: what a line takes that is in no cache.

/// Ticks of the processor's clock until a line of a page of `length` bytes comes from memory, by the median of some of its lines: they lie in
/// different banks, and others on the machine add to a few. `None` where that can't be told. Takes 2 to 3 us.
///
/// # Safety
/// The page at `at` is readable, and nobody writes to it.
#[cfg(target_arch = "x86_64")]
pub unsafe fn ticks_to_page(at: *const u8, length: usize) -> Option<u64> {
    use std::arch::x86_64::{_mm_clflush, _mm_lfence, _mm_mfence, _rdtsc};
    const LINES: usize = 8;
    let mut ticks: [u64; LINES] = std::array::from_fn(|index| {
        let line = at.wrapping_add(index * length / LINES);
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
    });
    ticks.sort_unstable();
    Some(ticks[LINES / 2])
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
