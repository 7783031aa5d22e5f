//! Single copies: out of the memory of another process, by a system call.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a single copy takes beyond a copy of one's own memory, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SingleCopy {
    /// The system call.
    pub call: f64,
    /// Per byte: the system has to find its pages, and the system's copy is not the fastest.
    pub per_byte: f64,
}

impl SingleCopy {
    /// What is assumed where nothing was measured: servers of the 2020s.
    pub const ASSUMED: Self = Self { call: 300.0, per_byte: 0.05 };

    /// Measures both in some 50 µs, on memory of this process. The system finds this memory as it finds that of other
    /// processes, but does not check for permission. An ordinary copy takes `copy` nanoseconds per byte. `None` where
    /// the system does not permit even this.
    pub fn measure(copy: f64) -> Option<Self> {
        const TIMES: usize = 5;
        const SHORT: usize = 1 << 10;
        const LONG: usize = 64 << 10;
        let (from, mut to) = (vec![1_u8; LONG], vec![0_u8; LONG]);
        let mut time = |n: usize| {
            let attempts = (0..TIMES).map(|_| {
                let started = Instant::now();
                // SAFETY: both areas have `n` bytes, and nobody else has `to`.
                let fetched = unsafe { fetch(std::process::id(), from.as_ptr() as u64, to.as_mut_ptr(), n) };
                fetched.ok().map(|()| started.elapsed())
            });
            attempts.collect::<Option<Vec<Duration>>>()?.into_iter().min().map(|time| time.as_nanos() as f64)
        };
        let (short, long) = (time(SHORT)?, time(LONG)?);
        let per_byte = ((long - short) / (LONG - SHORT) as f64).max(0.0);
        let call = (short - per_byte * SHORT as f64).max(0.0);
        Some(Self { call: call.round(), per_byte: ((per_byte - copy).max(0.0) * 1e4).round() / 1e4 })
    }
}

static IS_WITHHELD: AtomicBool = AtomicBool::new(false);

/// From now on this process makes no single copies: [`fetch`] fails, without asking the system.
pub fn withhold_single_copies() {
    IS_WITHHELD.store(true, Ordering::Relaxed);
}

/// Copies `n` bytes from an address in the memory of `process` to `to`.
///
/// # Errors
/// The system's error, where it does not permit the copy or not all of these bytes are mapped. The contents of `to` are
/// undefined then.
///
/// # Safety
/// `to` is valid for writes of `n` bytes.
pub unsafe fn fetch(process: u32, address: u64, to: *mut u8, n: usize) -> io::Result<()> {
    if IS_WITHHELD.load(Ordering::Relaxed) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let process = libc::pid_t::try_from(process).map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
    let mut done = 0;
    while done < n {
        let [mine, theirs] = [to.wrapping_add(done).cast(), address.wrapping_add(done as u64) as *mut libc::c_void]
            .map(|base| libc::iovec { iov_base: base, iov_len: n - done });
        // SAFETY: the caller's promise; the other address is the system's to check.
        let copied = unsafe { libc::process_vm_readv(process, &raw const mine, 1, &raw const theirs, 1, 0) };
        // The system copies less where a page is missing, or at 2 GiB. The next call then copies as much as it can.
        match usize::try_from(copied) {
            Ok(copied) if copied > 0 => done += copied,
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_copied_and_what_is_not_is_refused() {
        let from: Vec<u8> = (0..100_000).map(|at| (at * 31 % 251) as u8).collect();
        let mut to = vec![0_u8; from.len()];
        let me = std::process::id();
        // SAFETY: `to` is as long as `from`.
        unsafe {
            if fetch(me, from.as_ptr() as u64, to.as_mut_ptr(), from.len()).is_err() {
                return println!("skipped: the system does not permit it");
            }
            assert_eq!(to, from);
            assert!(fetch(me, 0, to.as_mut_ptr(), 8).is_err());
            assert!(fetch(u32::MAX, from.as_ptr() as u64, to.as_mut_ptr(), 8).is_err());
        }
    }

    #[test]
    fn it_takes_a_call_and_so_much_per_byte() {
        match SingleCopy::measure(0.03) {
            Some(SingleCopy { call, per_byte }) => {
                assert!((1.0..1e6).contains(&call) && (0.0..100.0).contains(&per_byte))
            }
            None => println!("skipped: the system does not permit it"),
        }
    }
}
