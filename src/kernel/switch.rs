//! The time in which two threads hand one processor to each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::yield_now;
use std::time::{Duration, Instant};

/// How often each side waits for the other.
const ROUNDS: u64 = 1000;
/// A thread that waits longer for the other gives up.
const PATIENCE: Duration = Duration::from_millis(200);

/// One of two threads that take turns.
pub struct Side {
    /// The latest round of the asking and of the answering side. Each is written by its own side.
    rounds: Arc<[AtomicU64; 2]>,
    asks: bool,
}

/// Makes two sides, one for each of two threads on one processor.
pub fn sides() -> (Side, Side) {
    let rounds = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    (Side { rounds: Arc::clone(&rounds), asks: true }, Side { rounds, asks: false })
}

impl Side {
    /// Takes turns with the other side. Returns the nanoseconds of one switch; `None` where the other side does not
    /// come.
    pub fn run(self) -> Option<f64> {
        let (mine, other) = (&self.rounds[usize::from(!self.asks)], &self.rounds[usize::from(self.asks)]);
        let started = Instant::now();
        for round in 1..=ROUNDS {
            // Relaxed throughout: nothing but the number passes between them.
            if self.asks {
                mine.store(round, Ordering::Relaxed);
            }
            let asked = Instant::now();
            while other.load(Ordering::Relaxed) < round {
                if asked.elapsed() > PATIENCE {
                    return None;
                }
                yield_now();
            }
            if !self.asks {
                mine.store(round, Ordering::Relaxed);
            }
        }
        Some(started.elapsed().as_nanos() as f64 / (2 * ROUNDS) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_take_turns() {
        let (asking, answering) = sides();
        let (asked, answered) = std::thread::scope(|scope| {
            let answered = scope.spawn(|| answering.run());
            (asking.run(), answered.join().unwrap())
        });
        if let (Some(asked), Some(answered)) = (asked, answered) {
            assert!(asked > 0.0 && answered > 0.0);
        }
    }

    #[test]
    fn a_side_without_the_other_gives_up() {
        assert_eq!(sides().0.run(), None);
    }
}
