//! Shared mappings without a name: a `memfd` that the leader creates and its peers open through `/proc`.
//!
//! Nothing is left behind when processes are killed, `/dev/shm` and its limits do not matter, and the kernel frees the
//! memory with the last mapping. Space is reserved before anyone uses it, so a first touch can't fail. The front of a
//! segment is reserved when the segment is made; the rest then too, or later, by the ranks that are going to write it.

use crate::kept::longest_file;
use crate::topo::free_memory;
use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// A mapping of shared memory, zeroed at creation. It lasts as long as some clone of it.
#[derive(Clone, Debug)]
pub struct Segment {
    base: NonNull<u8>,
    length: usize,
    reserved: Reserved,
    /// Keeps the memory mapped. `base` and `length` are copied from here, so that no use has to follow this pointer.
    _mapping: Arc<Mapping>,
}

/// How much of a segment was reserved when this process mapped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserved {
    /// Not all, maybe nothing: the rest has to be reserved before it is used.
    Part,
    Whole,
}

/// Unmaps the memory when it is dropped.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping may be used by any thread; what is done through `base` is its users' contract.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}
// SAFETY: any thread may unmap it.
unsafe impl Send for Mapping {}
// SAFETY: nothing is done with it but to drop it.
unsafe impl Sync for Mapping {}

impl Segment {
    /// Creates and maps a segment of `length` bytes. Reserves the first `front` of them, or all where the kernel can't
    /// reserve memory that is mapped (before Linux 5.14). The descriptor must stay open until all peers have opened it.
    ///
    /// # Errors
    /// Whatever the system says when memory or descriptors are short. Also where the segment would take more than half
    /// of the memory that is left: the kernel does not refuse the last of it, but kills a process for it.
    pub fn create(length: usize, front: usize) -> io::Result<(Self, OwnedFd)> {
        let is_whole = front >= length || !Self::grows();
        check_memory(if is_whole { length } else { front })?;
        // SAFETY: the name is a C string; the call has no other preconditions.
        let descriptor = unsafe { libc::memfd_create(c"huddle".as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
        if length as u64 > longest_file() {
            // Growing beyond the limit would not fail but kill the process (SIGXFSZ).
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        if is_whole {
            allocate(&file, 0..length)?;
            return Ok((Self::map(&file, length, Reserved::Whole)?, file));
        }
        // SAFETY: plain system call on an own descriptor.
        if unsafe { libc::ftruncate(file.as_raw_fd(), length as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let segment = Self::map(&file, length, Reserved::Part)?;
        // Unlike `allocate`, this zeroes the pages too, so that a peer's first look maps the pages around it.
        segment.reserve(0..front)?;
        Ok((segment, file))
    }

    /// Whether the kernel can reserve memory that is mapped, so that segments need not be whole from the start.
    pub fn grows() -> bool {
        static CAN: OnceLock<bool> = OnceLock::new();
        // SAFETY: the length is zero; the call only shows whether the kernel knows it.
        *CAN.get_or_init(|| unsafe { populate(std::ptr::null_mut(), 0) } == 0)
    }

    /// Maps `length` bytes of the segment that process `pid` of this node holds open as `descriptor`.
    ///
    /// # Errors
    /// Whatever the system says, in particular where the process lives in another PID namespace or belongs to another
    /// user.
    pub fn open(pid: u32, descriptor: i32, length: usize) -> io::Result<Self> {
        let path = format!("/proc/{pid}/fd/{descriptor}");
        // If `pid` is of another PID namespace, this might be any file.
        if !std::fs::read_link(&path)?.to_string_lossy().starts_with("/memfd:huddle ") {
            return Err(io::Error::new(io::ErrorKind::NotFound, "that is not a segment (another PID namespace?)"));
        }
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let metadata = file.metadata()?;
        if (metadata.len() as usize) < length {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the segment is shorter than announced"));
        }
        /// The unit of `st_blocks`, whatever the file system.
        const BLOCK: u64 = 512;
        let is_whole = metadata.blocks() * BLOCK >= length as u64;
        Self::map(&file.into(), length, if is_whole { Reserved::Whole } else { Reserved::Part })
    }

    /// Whether all of the segment was reserved before this process mapped it.
    pub(super) fn is_whole(&self) -> bool {
        self.reserved == Reserved::Whole
    }

    /// Makes sure that the bytes in `range` are allocated. Pages that nobody has touched are placed on the memory node
    /// of this thread. Several ranks may do so at a time.
    ///
    /// # Errors
    /// Whatever the system says when memory is short.
    pub(super) fn reserve(&self, range: Range<usize>) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= self.length, "{range:?} of {}", self.length);
        let start = range.start / page() * page();
        // SAFETY: from the start of a page of this mapping to its last page at most; the call does not change their
        // contents.
        match unsafe { populate(self.base.as_ptr().add(start).cast(), range.end - start) } {
            0 => Ok(()),
            _ => Err(match io::Error::last_os_error() {
                // A write to such a page would have been a bus error.
                error if error.raw_os_error() == Some(libc::EFAULT) => io::Error::from_raw_os_error(libc::ENOSPC),
                error => error,
            }),
        }
    }

    fn map(file: &OwnedFd, length: usize, reserved: Reserved) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the system's choice.
        let base = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { base, length, reserved, _mapping: Arc::new(Mapping { base, length }) })
    }

    /// The first byte, page-aligned.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its length in bytes.
    #[inline]
    pub fn length(&self) -> usize {
        self.length
    }
}

/// Bytes of a page of the system.
pub(super) fn page() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    // SAFETY: no preconditions.
    *PAGE.get_or_init(|| unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize)
}

/// Checks that enough memory is left before the ranks of a node together take `length` bytes.
///
/// # Errors
/// If they would take more than half of the memory that is left. This check takes longer than to reserve what short
/// messages need, so there is one for several small requests.
pub(super) fn check_memory(length: usize) -> io::Result<()> {
    const UNSEEN: usize = 1 << 20;
    static TAKEN: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: a count that may be off by what another thread takes.
    let taken = TAKEN.fetch_add(length, Ordering::Relaxed) + length;
    if taken < UNSEEN {
        return Ok(());
    }
    TAKEN.store(0, Ordering::Relaxed);
    match leaves_enough(taken, free_memory()) {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::OutOfMemory, "little memory is left")),
    }
}

/// Allocates pages, as a write would. Returns zero if that succeeded. If a signal interrupts the system call, it is
/// repeated: what it did by then stays.
///
/// # Safety
/// `at` is the start of a page of the mapping that the `length` bytes lie in.
unsafe fn populate(at: *mut libc::c_void, length: usize) -> libc::c_int {
    loop {
        // SAFETY: the caller's promise.
        let code = unsafe { libc::madvise(at, length, libc::MADV_POPULATE_WRITE) };
        if code == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return code;
        }
    }
}

fn leaves_enough(length: usize, free: Option<u64>) -> bool {
    free.is_none_or(|free| length as u64 <= free / 2)
}

/// Allocates the memory of `range` in `file`, which is at least that long afterwards.
pub(super) fn allocate(file: &OwnedFd, range: Range<usize>) -> io::Result<()> {
    /// Short enough to be allocated between two signals of a profiler.
    const STEP: usize = 1 << 20;
    let mut start = range.start;
    while start < range.end {
        let step = STEP.min(range.end - start);
        // SAFETY: plain system call on an own descriptor; it also sets the length.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), start as libc::off_t, step as libc::off_t) } {
            0 => start += step,
            libc::EINTR => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
    Ok(())
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping; each user holds a segment that keeps it, so there is no user any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_peer_sees_what_the_creator_wrote() {
        let (mine, file) = Segment::create(8192, 8192).expect("memfd");
        let theirs = Segment::open(std::process::id(), file.as_raw_fd(), 8192).expect("open through /proc");
        // SAFETY: both mappings are 8192 bytes long and used by this thread only.
        unsafe {
            mine.base().as_ptr().add(5000).write(7);
            assert_eq!(theirs.base().as_ptr().add(5000).read(), 7);
        }
    }

    #[test]
    fn a_segment_that_is_too_short_or_gone_is_an_error() {
        let (_mine, file) = Segment::create(4096, 4096).expect("memfd");
        assert!(Segment::open(std::process::id(), file.as_raw_fd(), 1 << 20).is_err());
        assert!(Segment::open(u32::MAX, 3, 4096).is_err());
    }

    /// How many bytes of `file` are allocated.
    fn reserved(file: &OwnedFd) -> u64 {
        let file = std::fs::File::from(file.try_clone().expect("a descriptor"));
        file.metadata().expect("a file").blocks() * 512
    }

    #[test]
    fn the_front_is_reserved_at_once_and_the_rest_when_it_is_asked_for() {
        let (page, length) = (page(), 10 * page());
        let (mine, file) = Segment::create(length, 3 * page - 100).expect("memfd");
        let theirs = Segment::open(std::process::id(), file.as_raw_fd(), length).expect("open through /proc");
        let is_old = !Segment::grows();
        assert_eq!([mine.is_whole(), theirs.is_whole()], [is_old; 2]);
        if is_old {
            assert_eq!(reserved(&file), length as u64);
            return;
        }
        let pages = |n: usize| (n * page) as u64;
        assert_eq!(reserved(&file), pages(3));
        theirs.reserve(4 * page + 1..5 * page + 1).expect("memory");
        assert_eq!(reserved(&file), pages(5));
        // Pages that are there keep what is in them.
        // SAFETY: this thread alone uses the mapping.
        unsafe { mine.base().as_ptr().add(5 * page).write(7) };
        for segment in [&mine, &theirs] {
            segment.reserve(0..length).expect("memory");
            assert_eq!(reserved(&file), length as u64);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { theirs.base().as_ptr().add(5 * page).read() }, 7);
        let late = Segment::open(std::process::id(), file.as_raw_fd(), length).expect("open through /proc");
        assert!(late.is_whole());
    }

    #[test]
    fn a_segment_that_was_reserved_whole_is_whole_for_all() {
        let (mine, file) = Segment::create(5000, 5000).expect("memfd");
        let theirs = Segment::open(std::process::id(), file.as_raw_fd(), 5000).expect("open through /proc");
        assert!(mine.is_whole() && theirs.is_whole());
    }

    #[test]
    fn at_most_half_of_the_memory_that_is_left_is_taken() {
        assert!(leaves_enough(500, Some(1000)) && leaves_enough(usize::MAX, None));
        assert!(!leaves_enough(501, Some(1000)) && !leaves_enough(1, Some(0)));
        assert!(free_memory().is_some_and(|free| free > 0), "this machine says what it has");
    }

    /// Profilers interrupt all the time; older kernels give up a whole request for space when a signal comes.
    #[test]
    fn signals_do_not_matter() {
        extern "C" fn ignore(_: libc::c_int) {}
        // SAFETY: a handler that does nothing; the thread lives until the other one has ended.
        let me = unsafe {
            libc::signal(libc::SIGUSR1, ignore as *const () as libc::sighandler_t);
            libc::pthread_self()
        };
        let is_over = AtomicBool::new(false);
        let created = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // SAFETY: as above.
                    unsafe { libc::pthread_kill(me, libc::SIGUSR1) };
                    std::thread::sleep(std::time::Duration::from_micros(500));
                }
            });
            let created =
                Segment::create(64 << 20, 32 << 20).and_then(|(segment, _)| segment.reserve(32 << 20..64 << 20));
            is_over.store(true, Ordering::Relaxed);
            created
        });
        created.expect("64 MiB");
    }
}
