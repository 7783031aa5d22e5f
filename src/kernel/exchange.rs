//! The time to move data between two processors, measured by a thread on each: the line of a flag, and a message into
//! and out of slots that rotate as those of a segment do.

use super::{Destination, copy, copy_to};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes of the message.
const MESSAGE: usize = 32 << 10;
/// Number of slots: together they take more than a usual second-level cache.
const SLOTS: usize = 64;
/// Rounds with flags alone that are timed together, since reading the clock takes as long as moving a line.
const BATCH: u64 = 20;
/// Batches of rounds with flags alone.
const BATCHES: u64 = 40;
/// Rounds with flags alone.
const SHORT: u64 = BATCH * BATCHES;
/// Rounds with messages.
const LONG: u64 = 200;
/// Stored in place of a round: the side that sees it leaves.
const END: u64 = u64::MAX;

/// What was measured: medians over the rounds, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// From one side's store to the other's load.
    pub line: f64,
    /// Per byte, to copy a message into a slot whose lines the other side has read.
    pub write: f64,
    /// Per byte, to copy a message out of a slot that the other side has just written.
    pub read: f64,
}

/// A flag, alone in its cache line and in the neighbouring one.
#[repr(align(128))]
#[derive(Default)]
struct Flag(AtomicU64);

struct Table {
    ask: Flag,
    answer: Flag,
    /// The answering side writes a slot before it publishes the round in `answer`. The asking side reads the slot after
    /// that, and hands it back with `ask`.
    slots: UnsafeCell<Vec<u8>>,
}

// SAFETY: the two sides, of which there is one each, take turns at the slots, ordered by the flags.
unsafe impl Sync for Table {}

impl Table {
    /// The slot of a round.
    fn slot(&self, round: u64) -> *mut u8 {
        let base = self.slots.get();
        // SAFETY: nobody changes the vector itself; the offset is within it.
        unsafe { (*base).as_mut_ptr().add(round as usize % SLOTS * MESSAGE) }
    }
}

/// The side that asks for messages, and times lines and reads.
pub struct Asking(Arc<Table>);

/// The side that writes messages.
pub struct Answering(Arc<Table>);

/// Makes the two sides of a table, one for each thread.
pub fn sides() -> (Asking, Answering) {
    let slots = UnsafeCell::new(vec![0; SLOTS * MESSAGE]);
    let table = Arc::new(Table { ask: Flag::default(), answer: Flag::default(), slots });
    (Asking(Arc::clone(&table)), Answering(table))
}

/// Waits until `flag` has reached `value`. False if the other side has left, or was silent too long.
fn reach(flag: &Flag, value: u64) -> bool {
    let mut started = None;
    loop {
        // The clock is read now and then only: reading it takes as long as moving a line.
        for _ in 0..10_000 {
            // pairs: the other side's store of its round
            let found = flag.0.load(Ordering::Acquire);
            if found >= value {
                return found != END;
            }
            std::hint::spin_loop();
        }
        if started.get_or_insert_with(Instant::now).elapsed().as_millis() > 200 {
            return false;
        }
    }
}

/// The median of measured times, which it sorts.
pub(crate) fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

impl Answering {
    /// Answers until the other side has measured. Returns the nanoseconds to write a message; `None` if the other side
    /// left early.
    pub fn run(self) -> Option<f64> {
        let table = &self.0;
        let message = vec![1_u8; MESSAGE];
        let mut times = Vec::with_capacity(LONG as usize);
        for round in 1..=SHORT + LONG {
            if !reach(&table.ask, round) {
                return None;
            }
            if round > SHORT {
                let started = Instant::now();
                // SAFETY: the slot has room for a message; the asking side reads no slot until `answer` says so.
                unsafe { copy_to(Destination::Slot, table.slot(round), message.as_ptr(), MESSAGE) };
                times.push(started.elapsed().as_nanos() as f64);
            }
            // pairs: `reach` of the asking side
            table.answer.0.store(round, Ordering::Release);
        }
        Some(median(&mut times))
    }
}

impl Asking {
    /// Asks round by round. Returns half a round trip and the time to read a message, in nanoseconds; `None` if the
    /// other side does not answer.
    pub fn run(self) -> Option<(f64, f64)> {
        let table = &self.0;
        let mut message = vec![0_u8; MESSAGE];
        let (mut lines, mut reads) = (Vec::with_capacity(BATCHES as usize), Vec::with_capacity(LONG as usize));
        let mut started = Instant::now();
        for round in 1..=SHORT + LONG {
            // pairs: `reach` of the answering side
            table.ask.0.store(round, Ordering::Release);
            if !reach(&table.answer, round) {
                return None;
            }
            if round <= SHORT {
                if round.is_multiple_of(BATCH) {
                    lines.push(started.elapsed().as_nanos() as f64 / (2 * BATCH) as f64);
                    started = Instant::now();
                }
                continue;
            }
            started = Instant::now();
            // SAFETY: the slot holds a message, which the answering side does not touch until it is asked again.
            unsafe { copy(message.as_mut_ptr(), table.slot(round), MESSAGE) };
            // Nobody reads the copy, but the compiler must not drop it.
            black_box(message.as_mut_ptr());
            reads.push(started.elapsed().as_nanos() as f64);
        }
        Some((median(&mut lines), median(&mut reads)))
    }
}

impl Drop for Asking {
    /// Makes the answering side leave if it still waits for this one.
    fn drop(&mut self) {
        self.0.ask.0.store(END, Ordering::Release);
    }
}

/// What both sides measured; `None` where one of them left, or its clock stood still.
pub fn times(asked: Option<(f64, f64)>, answered: Option<f64>) -> Option<Times> {
    let ((line, read), write) = (asked?, answered?);
    let per_byte = |time: f64| time / MESSAGE as f64;
    let times = Times { line, write: per_byte(write), read: per_byte(read) };
    (line > 0.0 && read > 0.0 && write > 0.0).then_some(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_measure() {
        let (asking, answering) = sides();
        let (asked, answered) = std::thread::scope(|scope| {
            let answered = scope.spawn(|| answering.run());
            (asking.run(), answered.join().unwrap())
        });
        // On one core, or a busy machine, they may give up; what they measure is positive.
        if let Some(Times { line, write, read }) = times(asked, answered) {
            assert!(line > 0.0 && write > 0.0 && read > 0.0);
        }
    }

    #[test]
    fn a_side_that_leaves_is_not_waited_for() {
        let (asking, answering) = sides();
        drop(asking);
        assert_eq!(answering.run(), None);
        assert_eq!(times(None, Some(1.0)), None);
    }
}
