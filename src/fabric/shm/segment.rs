//! Shared mappings without a name: a `memfd` that the leader creates and its peers open through `/proc`.
//!
//! Nothing is left behind when processes are killed, `/dev/shm` and its limits do not matter, and the kernel frees the
//! memory with the last mapping. Space is reserved before anyone is told of it, so a first touch can't fail.

use crate::topo::free_memory;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// A mapping of shared memory, zeroed at creation.
#[derive(Debug)]
pub struct Segment {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping may be used and unmapped by any thread; what is done through `base` is its users' contract.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Creates and maps `length` bytes; the descriptor must stay open until all peers have opened it.
    ///
    /// # Errors
    /// Whatever the system says when memory or descriptors are short; and where more than half of the memory would go that is
    /// left: the kernel does not refuse the last of it, but ends a process for it.
    pub fn create(length: usize) -> io::Result<(Self, OwnedFd)> {
        if !leaves_enough(length, free_memory()) {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "little memory is left"));
        }
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
        reserve(&file, length)?;
        Ok((Self::map(&file, length)?, file))
    }

    /// Maps `length` bytes of the segment that process `pid` of this node holds open as `descriptor`.
    ///
    /// # Errors
    /// Whatever the system says, in particular where the process lives in another PID namespace or belongs to another
    /// user.
    pub fn open(pid: u32, descriptor: i32, length: usize) -> io::Result<Self> {
        let path = format!("/proc/{pid}/fd/{descriptor}");
        // Of another PID namespace it might be any file.
        if !std::fs::read_link(&path)?.to_string_lossy().starts_with("/memfd:huddle") {
            return Err(io::Error::new(io::ErrorKind::NotFound, "that is not a segment (another PID namespace?)"));
        }
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        if (file.metadata()?.len() as usize) < length {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the segment is shorter than announced"));
        }
        Self::map(&file.into(), length)
    }

    fn map(file: &OwnedFd, length: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the system's choice.
        let base = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { base, length })
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

fn leaves_enough(length: usize, free: Option<u64>) -> bool {
    free.is_none_or(|free| length as u64 <= free / 2)
}

/// The limit that `ulimit -f` sets.
pub(crate) fn longest_file() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a valid place for the result.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}

/// Extends `file` to `length` bytes of memory that is really there.
fn reserve(file: &OwnedFd, length: usize) -> io::Result<()> {
    /// Short enough to be had between two signals of a profiler.
    const STEP: usize = 1 << 20;
    let mut start = 0;
    while start < length {
        let step = STEP.min(length - start);
        // SAFETY: plain system call on an own descriptor; it also sets the length.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), start as libc::off_t, step as libc::off_t) } {
            0 => start += step,
            libc::EINTR => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
    Ok(())
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours alone; contexts own their segment, so nobody uses it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_peer_sees_what_the_creator_wrote() {
        let (mine, file) = Segment::create(8192).expect("memfd");
        let theirs = Segment::open(std::process::id(), file.as_raw_fd(), 8192).expect("open through /proc");
        // SAFETY: both mappings are 8192 bytes long and used by this thread only.
        unsafe {
            mine.base().as_ptr().add(5000).write(7);
            assert_eq!(theirs.base().as_ptr().add(5000).read(), 7);
        }
    }

    #[test]
    fn a_segment_that_is_too_short_or_gone_is_an_error() {
        let (_mine, file) = Segment::create(4096).expect("memfd");
        assert!(Segment::open(std::process::id(), file.as_raw_fd(), 1 << 20).is_err());
        assert!(Segment::open(u32::MAX, 3, 4096).is_err());
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
            let created = Segment::create(64 << 20).map(drop);
            is_over.store(true, Ordering::Relaxed);
            created
        });
        created.expect("64 MiB");
    }
}
