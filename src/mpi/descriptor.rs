//! Descriptors that stay open, under numbers that programs hardly use.

use std::ffi::c_int;
use std::fs::{File, Metadata};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;

/// File descriptors from here on are seldom a program's. If a program closes all descriptors and opens another file
/// under the number of one of huddle's, huddle would take that file for its own. Linux begins with room for 64 in each
/// process. For more it makes a longer table, and where the process has threads waits until no processor uses the old
/// one, for 10 to 20 ms (docs/PERFORMANCE.md, "Tried"). Among the marks that stay (`MOST` in `device::watch`) only the
/// last ones need that.
pub(super) const OUT_OF_THE_WAY: c_int = 56;

/// The same file under a number that programs hardly use, or unchanged if the limit allows none.
pub(super) fn out_of_the_way(file: File) -> File {
    // SAFETY: an open descriptor; the call has no other preconditions.
    let descriptor = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, OUT_OF_THE_WAY) };
    if descriptor < 0 {
        return file;
    }
    // SAFETY: the descriptor is new and nobody else's.
    unsafe { File::from_raw_fd(descriptor) }
}

/// Device and inode, which tell a file from all others that are open.
pub(super) fn identity(of: &Metadata) -> [u64; 2] {
    [of.dev(), of.ino()]
}
