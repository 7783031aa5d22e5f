//! Segments of communicators, which leaders make and members map.
//!
//! Making a segment takes about as long as all else of a communicator together, and members wait meanwhile; then the
//! leader waits while they map it. So a leader that makes a second segment of the same dimensions makes one more in
//! that time, for the communicator after. It takes little longer for that than the members for the mapping, and they
//! wait for it before the first call.

use crate::fabric::shm::{Geometry, Segment, take_near_pages};
use crate::log::{self, Once};
use crate::mpi::descriptor::{identity, out_of_the_way};
use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A leader's new segment.
pub(super) struct Own {
    pub segment: Segment,
    /// The file through which members open it.
    pub file: File,
    /// The number in its header.
    pub nonce: u64,
}

/// The properties of a segment that is to be made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Blueprint {
    pub geometry: Geometry,
    /// Whether all of it is reserved from the start.
    pub is_whole: bool,
    /// Whether to look for pages near by for its flags.
    pub has_near_flags: bool,
}

/// What a process made last, and the segment that it has ahead.
struct Stock {
    last: Option<Blueprint>,
    ahead: Option<Ahead>,
}

/// A segment for the next communicator with the same blueprint.
struct Ahead {
    blueprint: Blueprint,
    own: Own,
    /// Identity of the file: a program may have closed a descriptor that it does not know, and opened another file
    /// under that number.
    identity: [u64; 2],
}

static STOCK: Mutex<Stock> = Mutex::new(Stock { last: None, ahead: None });

fn stock() -> MutexGuard<'static, Stock> {
    STOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Blueprint {
    /// A segment like this: the one that was made ahead, or a new one.
    ///
    /// # Errors
    /// As for [`Segment::create`].
    pub fn make(&self) -> io::Result<Own> {
        let ahead = stock().ahead.take_if(|ahead| ahead.blueprint == *self);
        match ahead.and_then(Ahead::into_own) {
            Some(own) => Ok(own),
            None => self.make_new(),
        }
    }

    /// Called after a segment was made: makes another ahead, if the one before it was alike too. Nobody needs it, so it
    /// may fail.
    pub fn make_ahead(&self) {
        {
            let mut stock = stock();
            let is_second = stock.last.replace(*self) == Some(*self);
            if !is_second || !self.is_small() || stock.ahead.as_ref().is_some_and(|ahead| ahead.blueprint == *self) {
                return;
            }
        }
        // The lock is not held meanwhile, so that other threads need not wait. If two threads come here the later one's
        // segment stays.
        let ahead = self.make_new().ok().and_then(|own| Ahead::new(*self, own));
        let before = std::mem::replace(&mut stock().ahead, ahead);
        drop(before.and_then(Ahead::into_own));
    }

    /// Whether so little memory is reserved with a segment that an unused one does no harm: all of it may be many MiB.
    fn is_small(&self) -> bool {
        const MOST: usize = 256 << 10;
        !self.is_whole && Segment::grows() && self.geometry.front() <= MOST
    }

    fn make_new(&self) -> io::Result<Own> {
        let length = self.geometry.length();
        let front = if self.is_whole { length } else { self.geometry.front() };
        let (segment, file) = Segment::create(length, front)?;
        if self.has_near_flags {
            take_near_pages(&segment, &file, self.geometry.flags())?;
        }
        let nonce = nonce(&segment);
        // SAFETY: the header is the segment's first page, and nobody else has mapped it yet.
        unsafe { segment.base().cast::<u64>().write(nonce) };
        Ok(Own { segment, file: file.into(), nonce })
    }
}

impl Ahead {
    fn new(blueprint: Blueprint, own: Own) -> Option<Self> {
        let identity = identity(&own.file.metadata().ok()?);
        Some(Self { blueprint, own: Own { file: out_of_the_way(own.file), ..own }, identity })
    }

    /// The segment, if others can still open it and find its number in it.
    fn into_own(self) -> Option<Own> {
        let Own { segment, file, nonce } = self.own;
        if !file.metadata().is_ok_and(|metadata| identity(&metadata) == self.identity) {
            // The descriptor is the program's now.
            std::mem::forget(file);
            return None;
        }
        // A program may have written to it, through a descriptor that it takes for its own.
        let is_untouched = number(&segment) == nonce;
        is_untouched.then_some(Own { segment, file, nonce })
    }
}

/// The number in the header.
fn number(segment: &Segment) -> u64 {
    // SAFETY: the header is the first page; its leader wrote it before it told anyone of the segment.
    unsafe { segment.base().cast::<u64>().read() }
}

/// Maps the segment of `length` bytes that its leader, `process`, holds open as `descriptor`, if the number in its
/// header is `nonce`. Otherwise logs why not.
pub(super) fn open(process: u32, descriptor: i32, length: usize, nonce: u64) -> Option<Segment> {
    match Segment::open(process, descriptor, length) {
        Ok(segment) if number(&segment) == nonce => Some(segment),
        Ok(_) => {
            let text = "a segment is not its leader's (another PID namespace?); the communicator stays native";
            log::once(Once::CannotMap, format_args!("{text}"));
            None
        }
        Err(error) => {
            let text = "can't open the segment of a communicator's leader";
            log::once(Once::CannotMap, format_args!("{text}: {error}; it stays native"));
            None
        }
    }
}

/// A number that another segment is unlikely to carry, never zero.
fn nonce(segment: &Segment) -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let time = time.map_or(1, |time| time.as_nanos() as u64);
    (time ^ (segment.base().as_ptr() as u64) << 16 ^ u64::from(std::process::id()) << 40) | 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Bytes;
    use std::os::fd::{AsRawFd, FromRawFd};

    fn blueprint(slots: usize) -> Blueprint {
        let geometry = Geometry { ranks: 2, slots, lines: slots, cell: Bytes(4096), round: Bytes(4096) };
        Blueprint { geometry, is_whole: false, has_near_flags: false }
    }

    /// Makes a segment as a leader does. Returns its number.
    fn make(blueprint: Blueprint) -> u64 {
        let own = blueprint.make().expect("memory");
        let length = blueprint.geometry.length();
        assert!(open(std::process::id(), own.file.as_raw_fd(), length, own.nonce).is_some());
        blueprint.make_ahead();
        own.nonce
    }

    /// The number and descriptor of the segment that was made ahead.
    fn ahead() -> Option<(u64, i32)> {
        stock().ahead.as_ref().map(|ahead| (ahead.own.nonce, ahead.own.file.as_raw_fd()))
    }

    /// In one test, since there is one stock.
    #[test]
    fn from_the_second_alike_on_one_is_there_before_it_is_asked_for() {
        let (few, many) = (blueprint(2), blueprint(4));
        make(few);
        assert_eq!(ahead(), None, "most programs have one communicator");
        make(few);
        let (expected, _) = ahead().expect("one for the third");
        make(many);
        assert_eq!(ahead().map(|(nonce, _)| nonce), Some(expected), "of other dimensions");
        assert_eq!(make(few), expected);
        assert_eq!(ahead(), None, "the one before was another");
        make(few);
        let whole = Blueprint { is_whole: true, ..few };
        make(whole);
        make(whole);
        assert!(stock().ahead.as_ref().is_some_and(|ahead| !ahead.blueprint.is_whole), "a whole one may be many MiB");

        // A program writes to what it does not know.
        let written = stock().ahead.as_ref().map(|ahead| ahead.own.segment.clone()).expect("one");
        let stale = number(&written);
        // SAFETY: the header, which nobody uses meanwhile.
        unsafe { written.base().cast::<u64>().write(7) };
        assert!(![7, stale].contains(&make(few)));
        make(few);

        // A program closes what it does not know, and opens another file, which gets the same number. It does so in one
        // step here, since other tests open files too.
        let (stale, descriptor) = ahead().expect("one");
        assert!(descriptor >= 56, "out of the way of what programs open and close by number");
        // SAFETY: a descriptor of this test's own process, which nothing else uses: the test is a program that does so.
        let theirs = unsafe {
            let other = File::open("/proc/self/status").expect("a file");
            assert_eq!(libc::dup2(other.as_raw_fd(), descriptor), descriptor);
            File::from_raw_fd(descriptor)
        };
        assert_ne!(make(few), stale);
        assert!(theirs.metadata().is_ok(), "it is the program's, and stays open");
    }
}
