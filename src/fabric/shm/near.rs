//! Near pages of memory for the flags of a segment.
//!
//! A flag moves from cache to cache by way of the memory that it belongs to. On hosts with several memory nodes the
//! distance of this memory shows (docs/PERFORMANCE.md, "Tried"), and a virtual machine does not know where its pages
//! are. So before others map the segment, the leader times the pages of its flags, and replaces those that are further
//! away than the others.

use super::segment::{Segment, allocate, page};
use crate::kernel::distance::ticks_to_page;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes of flags that are timed: each page takes 4 us and more, while the other ranks wait.
const LONGEST: usize = 64 << 10;
/// How many pages are tried in place of one far page.
const ATTEMPTS: usize = 4;
/// How often a page that seems to be far is timed again; the shortest time counts, since other users of the machine can
/// lengthen a look.
const LOOKS: usize = 2;

/// How many pages a process has set aside and looked at. Relaxed throughout: counts.
struct Counts {
    kept: AtomicUsize,
    seen: AtomicUsize,
}

impl Counts {
    /// Most pages that are set aside, so that the process does not get them again: 64 KiB.
    const MOST_KEPT: usize = 16;
    /// Most pages that are timed, those of a dozen communicators of two ranks: programs first make the communicators
    /// that last.
    const MOST_SEEN: usize = 64;

    const fn new() -> Self {
        Self { kept: AtomicUsize::new(0), seen: AtomicUsize::new(0) }
    }

    fn may_look(&self) -> bool {
        self.may_keep() && self.seen.load(Ordering::Relaxed) < Self::MOST_SEEN
    }

    fn may_keep(&self) -> bool {
        self.kept.load(Ordering::Relaxed) < Self::MOST_KEPT
    }
}

/// Whether a page that takes `ticks` is further away than usual pages are. Far pages were found to take 1.15 times as
/// long, or twice.
fn is_far(ticks: u64, usual: u64) -> bool {
    ticks > usual + usual / 12
}

/// Gives the bytes in `flags` of a segment near pages. These bytes are all zero, reserved so far, and mapped by nobody
/// else; `file` is the segment's descriptor.
///
/// # Errors
/// If memory is short: then a page of `flags` may be missing.
pub fn take_near_pages(segment: &Segment, file: &OwnedFd, flags: Range<usize>) -> io::Result<()> {
    static COUNTS: Counts = Counts::new();
    assert!(flags.start <= flags.end && flags.end <= segment.length(), "{flags:?} of {}", segment.length());
    if flags.len() > LONGEST || !COUNTS.may_look() {
        return Ok(());
    }
    // SAFETY: pages within the mapping, by the assertion; this thread alone uses them so far.
    replace_far_pages(file, flags, &COUNTS, |start| unsafe {
        ticks_to_page(segment.base().as_ptr().add(start), page())
    })
}

/// As `take_near_pages`; `ticks_to` times the page that starts at an offset.
fn replace_far_pages(
    file: &OwnedFd,
    flags: Range<usize>,
    counts: &Counts,
    mut ticks_to: impl FnMut(usize) -> Option<u64>,
) -> io::Result<()> {
    let starts = (flags.start / page() * page()..flags.end).step_by(page());
    let Some(pages) = starts.map(|start| Some((start, ticks_to(start)?))).collect::<Option<Vec<_>>>() else {
        return Ok(());
    };
    counts.seen.fetch_add(pages.len(), Ordering::Relaxed);
    // The median of this segment alone: the whole machine may be slower now than it was for other segments.
    let mut ticks: Vec<u64> = pages.iter().map(|(_, ticks)| *ticks).collect();
    ticks.sort_unstable();
    let Some(&usual) = ticks.get(ticks.len().saturating_sub(1) / 2) else { return Ok(()) };
    for (start, _) in pages.into_iter().filter(|(_, ticks)| is_far(*ticks, usual)) {
        let mut is_near = || (0..LOOKS).filter_map(|_| ticks_to(start)).min().is_none_or(|ticks| !is_far(ticks, usual));
        for _ in 0..ATTEMPTS {
            if is_near() || !counts.may_keep() || !give_back(file, start) {
                break;
            }
            // The page that was given back is the next one that the system hands out. So it is held while the segment
            // gets another one. If there is no other page, the segment gets it back.
            let held = Held::one();
            if allocate(file, start..start + page()).is_err() {
                drop(held);
                return allocate(file, start..start + page());
            }
            if let Some(held) = held {
                held.keep(&counts.kept);
            }
        }
    }
    Ok(())
}

/// Gives a page of `file` back to the system. Returns whether the system took it.
fn give_back(file: &OwnedFd, start: usize) -> bool {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: plain system call on an own descriptor; nobody relies on the content of the page.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, start as libc::off_t, page() as libc::off_t) == 0 }
}

/// A page that this process holds, so that it does not get it again meanwhile.
struct Held(*mut libc::c_void);

impl Held {
    fn one() -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a new mapping at an address of the system's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), page(), libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        (at != libc::MAP_FAILED).then_some(Self(at))
    }

    /// Keeps the page for as long as the process lasts, since its next segment would get it again. Counts it in
    /// `kept`.
    fn keep(self, kept: &AtomicUsize) {
        kept.fetch_add(1, Ordering::Relaxed);
        std::mem::forget(self);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours alone.
        unsafe { libc::munmap(self.0, page()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replaces far pages among the second to fourth page of a segment. The third page seems to be far in its first
    /// `far` looks. Returns the segment, its file, and how often the third page was looked at.
    fn replaced(far: usize, counts: &Counts) -> (Segment, OwnedFd, usize) {
        let (segment, file) = Segment::create(5 * page(), 4 * page()).expect("memfd");
        let mut looks = 0;
        replace_far_pages(&file, page()..4 * page() - 100, counts, |start| {
            assert!([1, 2, 3].map(|index| index * page()).contains(&start));
            looks += usize::from(start == 2 * page());
            Some(if start == 2 * page() && looks <= far { 1150 } else { 1000 })
        })
        .expect("memory");
        (segment, file, looks)
    }

    fn kept(counts: &Counts) -> usize {
        counts.kept.load(Ordering::Relaxed)
    }

    /// Checks that the pages of a segment are zero, and that a second mapping sees what is written there.
    fn check_pages(segment: &Segment, file: &OwnedFd) {
        let theirs = Segment::open(std::process::id(), file.as_raw_fd(), segment.length()).expect("open through /proc");
        for at in [0, page(), 2 * page(), 3 * page() - 1, 4 * page() - 1] {
            // SAFETY: both mappings are that long and used by this thread only.
            unsafe {
                assert_eq!(theirs.base().as_ptr().add(at).read(), 0);
                segment.base().as_ptr().add(at).write(7);
                assert_eq!(theirs.base().as_ptr().add(at).read(), 7);
            }
        }
    }

    #[test]
    fn far_pages_are_replaced_until_one_is_near() {
        let found = [0, 1, 2, 3, 4, 5, 100].map(|far| {
            let counts = Counts::new();
            (replaced(far, &counts).2, kept(&counts))
        });
        assert_eq!(found, [(1, 0), (3, 0), (3, 0), (5, 1), (5, 1), (7, 2), (1 + LOOKS * ATTEMPTS, ATTEMPTS)]);
    }

    #[test]
    fn pages_that_were_replaced_are_there_and_zero() {
        let (segment, file, _) = replaced(100, &Counts::new());
        check_pages(&segment, &file);
    }

    #[test]
    fn pages_that_are_as_far_as_most_stay() {
        let (_segment, file) = Segment::create(5 * page(), 5 * page()).expect("memfd");
        for far in 0..=5 {
            let counts = Counts::new();
            let ticks = |start: usize| Some(if start / page() < far { 2000 } else { 1000 });
            replace_far_pages(&file, 0..5 * page(), &counts, ticks).expect("memory");
            assert_eq!(kept(&counts), if far < 3 { far * ATTEMPTS } else { 0 }, "{far} of 5");
        }
    }

    #[test]
    fn a_process_sets_aside_and_looks_at_so_many_pages() {
        let counts = Counts::new();
        while counts.may_look() {
            replaced(100, &counts);
            assert!(kept(&counts) <= Counts::MOST_KEPT);
        }
        assert_eq!(kept(&counts), Counts::MOST_KEPT);
        let counts = Counts::new();
        let mut segments = 0;
        while counts.may_look() {
            replaced(0, &counts);
            segments += 1;
        }
        assert_eq!((segments, kept(&counts)), (Counts::MOST_SEEN.div_ceil(3), 0));
    }

    #[test]
    fn what_is_slower_by_little_is_not_far() {
        assert!(!is_far(1080, 1000) && is_far(1150, 1000) && is_far(2100, 1000));
    }

    #[test]
    fn real_pages_are_there_and_zero_afterwards() {
        for flags in [0..0, page()..3 * page() - 100, 0..4 * page(), 0..LONGEST + 1] {
            let length = flags.end.max(4 * page());
            let (segment, file) = Segment::create(length, length).expect("memfd");
            take_near_pages(&segment, &file, flags).expect("memory");
            check_pages(&segment, &file);
        }
    }
}
