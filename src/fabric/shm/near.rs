//! The pages of a segment in which flags lie: near ones.
//!
//! A flag goes from cache to cache by way of the memory that it belongs to. On hosts with several memory nodes that shows (docs/PERFORMANCE.md, "Tried"),
//! and a virtual machine does not know where its pages are. So the leader, before others map them, times all of these, and takes others in place of those
//! that are further away.

use super::segment::{Segment, allocate, page};
use crate::kernel::distance::ticks_to_page;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// More flags are those of ranks that share cores: to give a core away takes so much longer than a line that it does not matter.
const MOST: usize = 64 << 10;
/// How many pages are tried in place of one.
const ATTEMPTS: usize = 4;
/// How often a page is looked at that seems to be far: others on the machine add to a look.
const LOOKS: usize = 3;

/// Pages that a process keeps in order not to find them again, at most about so many; then it looks no more. Programs that last on communicators
/// make these first.
const MOST_KEPT: usize = 16;
/// Relaxed throughout: a count.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Whether a page that takes so many ticks is further away than usual ones are: 1.15 times as long was found, or twice.
fn is_far(ticks: u64, usual: u64) -> bool {
    ticks > usual + usual / 10
}

/// Takes near pages for the bytes in `flags` of a segment that is all zero, reserved so far and mapped by nobody else.
///
/// # Errors
/// Where memory is short: then a page of it may be missing.
pub fn take_near_pages(segment: &Segment, file: &OwnedFd, flags: Range<usize>) -> io::Result<()> {
    /// What pages have taken for the flags that were nearest so far.
    static USUAL: AtomicU64 = AtomicU64::new(u64::MAX);
    if flags.len() > MOST || KEPT.load(Ordering::Relaxed) >= MOST_KEPT {
        return Ok(());
    }
    // SAFETY: pages of the mapping, which this thread alone uses so far.
    replace_far_pages(file, flags, &USUAL, |start| unsafe { ticks_to_page(segment.base().as_ptr().add(start), page()) })
}

/// `ticks_to` tells how far the page is that starts there, `usual` what most have taken.
fn replace_far_pages(
    file: &OwnedFd,
    flags: Range<usize>,
    usual: &AtomicU64,
    mut ticks_to: impl FnMut(usize) -> Option<u64>,
) -> io::Result<()> {
    let starts = (flags.start / page() * page()..flags.end).step_by(page());
    let Some(found) = starts.map(|start| Some((start, ticks_to(start)?))).collect::<Option<Vec<_>>>() else {
        return Ok(());
    };
    let mut ticks: Vec<u64> = found.iter().map(|(_, ticks)| *ticks).collect();
    ticks.sort_unstable();
    let Some(median) = ticks.get(ticks.len() / 2) else { return Ok(()) };
    // Relaxed: a number that stands for itself.
    let usual = usual.fetch_min(*median, Ordering::Relaxed).min(*median);
    for (start, _) in found.into_iter().filter(|(_, ticks)| is_far(*ticks, usual)) {
        let mut is_near = || (0..LOOKS).filter_map(|_| ticks_to(start)).min().is_none_or(|ticks| !is_far(ticks, usual));
        for _ in 0..ATTEMPTS {
            if is_near() || !give_back(file, start) {
                break;
            }
            // What is given back is the next to be had.
            let held = Held::one();
            allocate(file, start..start + page())?;
            held.into_iter().for_each(Held::keep);
        }
    }
    Ok(())
}

/// Gives a page of `file` back to the system, if it takes it.
fn give_back(file: &OwnedFd, start: usize) -> bool {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: plain system call on an own descriptor; nobody relies on what is in the page.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, start as libc::off_t, page() as libc::off_t) == 0 }
}

/// A page that this process does not get again meanwhile.
struct Held(*mut libc::c_void);

impl Held {
    fn one() -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a new mapping at an address of the system's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), page(), libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        (at != libc::MAP_FAILED).then_some(Self(at))
    }

    /// As long as the process lasts: its next segment would find it again.
    fn keep(self) {
        KEPT.fetch_add(1, Ordering::Relaxed);
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

    /// A segment of four pages; the second of the last three seems to be far for so many looks. -> how many there were
    fn looks_until_near(far: usize) -> (Segment, OwnedFd, usize) {
        let (segment, file) = Segment::create(5 * page(), 4 * page()).expect("memfd");
        let mut looks = 0;
        replace_far_pages(&file, page()..4 * page() - 100, &AtomicU64::new(u64::MAX), |start| {
            assert!([1, 2, 3].map(|index| index * page()).contains(&start));
            looks += usize::from(start == 2 * page());
            Some(if start == 2 * page() && looks <= far { 1150 } else { 1000 })
        })
        .expect("memory");
        (segment, file, looks)
    }

    #[test]
    fn far_pages_are_replaced_until_one_is_near() {
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 100].map(|far| looks_until_near(far).2),
            [1, 4, 4, 4, 7, 7, 1 + LOOKS * ATTEMPTS]
        );
    }

    #[test]
    fn pages_that_were_replaced_are_there_and_zero() {
        let (segment, file, _) = looks_until_near(100);
        let theirs = Segment::open(std::process::id(), file.as_raw_fd(), 5 * page()).expect("open through /proc");
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
    fn what_all_pages_take_is_usual() {
        let (_segment, file) = Segment::create(4 * page(), 4 * page()).expect("memfd");
        let mut looks = 0;
        let usual = AtomicU64::new(1900);
        let mut find = |ticks: u64| {
            looks = 0;
            replace_far_pages(&file, 0..4 * page(), &usual, |_| {
                looks += 1;
                Some(ticks)
            })
            .expect("memory");
            looks
        };
        assert_eq!([2000, 1000, 1000].map(&mut find), [4; 3]);
        assert_eq!(find(2000), 4 + 4 * LOOKS * ATTEMPTS, "of a later segment, all are far");
    }

    #[test]
    fn what_is_slower_by_little_stays() {
        assert!(!is_far(1090, 1000) && is_far(1150, 1000) && is_far(2100, 1000));
        let (segment, file) = Segment::create(1 << 20, 1 << 20).expect("memfd");
        for flags in [0..0, page()..3 * page() - 100, 0..1 << 20] {
            take_near_pages(&segment, &file, flags).expect("memory");
        }
    }
}
