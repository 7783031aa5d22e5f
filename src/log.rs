//! Lines for people on standard error: `huddle[rank] level: text`, each by one `write(2)`.
//!
//! A line is put together in a buffer on the stack, so that logging works where memory is short and while the process
//! aborts, and takes no lock, so that it works in signal handlers. A line of at most `PIPE_BUF` bytes (4096 on Linux)
//! is written to a pipe as one piece: lines of different ranks do not mix.

mod panics;

pub use panics::report_panics;

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The longest line, with its end: `PIPE_BUF`.
const LINE_BYTES: usize = 4096;

/// What ends a line that was cut.
const CUT: &[u8] = b"...\n";

/// Stands for "not known yet" in [`RANK`].
const UNKNOWN: u32 = u32::MAX;

/// The rank of this process in `MPI_COMM_WORLD`, as lines show it.
static RANK: AtomicU32 = AtomicU32::new(UNKNOWN);

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The program ends, or a result that was asked for is missing.
    Error,
    /// The program runs on, but not as asked.
    Warning,
    /// Asked for by the user.
    Info,
}

impl Level {
    /// As written in lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// Lines show this rank from now on.
pub fn set_rank(rank: u32) {
    RANK.store(rank, Ordering::Relaxed);
}

/// Writes an error, as in `log::error(format_args!("…"))`.
pub fn error(text: fmt::Arguments<'_>) {
    line(Level::Error, text);
}

/// Writes a warning.
pub fn warning(text: fmt::Arguments<'_>) {
    line(Level::Warning, text);
}

/// Warnings that a process gives once, however often their cause comes back.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum Once {
    /// Shared memory could not be allocated.
    NoMemory,
    /// A peer's shared memory could not be mapped.
    CannotMap,
    /// A communicator stays native.
    Declined,
    /// A peer's memory could not be read, though it could in MPI_Init.
    CannotFetch,
    /// The leaders of a communicator could not get a communicator of their own.
    NoBridge,
}

impl Once {
    const COUNT: usize = Self::NoBridge as usize + 1;
}

/// Writes a warning, unless this process has given it before.
pub fn once(which: Once, text: fmt::Arguments<'_>) {
    static GIVEN: [AtomicBool; Once::COUNT] = [const { AtomicBool::new(false) }; Once::COUNT];
    if !GIVEN[which as usize].swap(true, Ordering::Relaxed) {
        warning(text);
    }
}

/// Writes what the user asked to see.
pub fn info(text: fmt::Arguments<'_>) {
    line(Level::Info, text);
}

/// Writes one line of any level.
pub fn line(level: Level, text: fmt::Arguments<'_>) {
    let rank = Some(RANK.load(Ordering::Relaxed)).filter(|rank| *rank != UNKNOWN);
    write_out(Line::new(level, rank, text).finish());
}

/// Writes `rest` to standard error. Failures are dropped, since nobody is left to tell.
fn write_out(mut rest: &[u8]) {
    while !rest.is_empty() {
        // SAFETY: `rest` is a live slice, of which the call reads exactly its length; it keeps no reference to it.
        let written = unsafe { libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(0) => return,
            Ok(written) => rest = &rest[written.min(rest.len())..],
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// A line that grows in place and is cut where it gets too long.
struct Line {
    bytes: [u8; LINE_BYTES],
    length: usize,
    is_cut: bool,
}

impl Line {
    fn new(level: Level, rank: Option<u32>, text: fmt::Arguments<'_>) -> Self {
        let mut line = Self { bytes: [0; LINE_BYTES], length: 0, is_cut: false };
        // The only errors are those of `Display` implementations; what they wrote so far is still worth a line.
        let _ = match rank {
            Some(rank) => write!(line, "huddle[{rank}] {}: {text}", level.name()),
            None => write!(line, "huddle {}: {text}", level.name()),
        };
        line
    }

    /// The line with its end.
    fn finish(&mut self) -> &[u8] {
        let end = if self.is_cut { CUT } else { &CUT[CUT.len() - 1..] };
        self.bytes[self.length..self.length + end.len()].copy_from_slice(end);
        &self.bytes[..self.length + end.len()]
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LINE_BYTES - CUT.len() - self.length;
        let mut taken = text.len().min(room);
        while !text.is_char_boundary(taken) {
            taken -= 1;
        }
        if self.is_cut {
            return Ok(());
        }
        self.is_cut = taken < text.len();
        for (to, from) in self.bytes[self.length..].iter_mut().zip(&text.as_bytes()[..taken]) {
            // A value from the environment may hold line ends; a message is one line all the same.
            *to = if from.is_ascii_control() { b' ' } else { *from };
        }
        self.length += taken;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(level: Level, rank: Option<u32>, text: fmt::Arguments<'_>) -> String {
        String::from_utf8(Line::new(level, rank, text).finish().to_vec()).unwrap()
    }

    #[test]
    fn lines_name_rank_and_level() {
        assert_eq!(text_of(Level::Error, Some(3), format_args!("no {}", "room")), "huddle[3] error: no room\n");
        assert_eq!(text_of(Level::Warning, None, format_args!("early")), "huddle warning: early\n");
    }

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(text_of(Level::Info, Some(0), format_args!("a\nb\tc")), "huddle[0] info: a b c\n");
    }

    #[test]
    fn long_lines_are_cut_between_characters() {
        let text = text_of(Level::Info, Some(0), format_args!("{}{}", "é".repeat(3000), "tail"));
        assert!(text.len() <= LINE_BYTES);
        assert!(text.ends_with("é...\n"));
    }
}
