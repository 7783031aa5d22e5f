//! One line for a fault that several ranks of a node notice.

use super::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Selects which of the ranks that notice the end of a job tells the user: the first one.
///
/// Zeroed memory is valid: nobody has noticed anything. Writers and readers: all ranks that map it. It orders nothing
/// else.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Teller(AtomicU32);

impl Teller {
    /// A rank is about to tell.
    const TELLS: u32 = 1;
    /// That rank has told.
    const TOLD: u32 = 2;
    /// How long other ranks wait for that rank, which may have been killed meanwhile.
    const PATIENCE: Duration = Duration::from_secs(1);

    /// Ensures that some rank has told. This rank calls `tell`, unless another rank was first and has told in time.
    pub fn tell_once(&self, tell: impl FnOnce()) {
        self.tell_once_within(Self::PATIENCE, tell);
    }

    fn tell_once_within(&self, patience: Duration, tell: impl FnOnce()) {
        let is_first = self.0.compare_exchange(0, Self::TELLS, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_first || !self.is_told_within(patience) {
            tell();
            self.0.store(Self::TOLD, Ordering::Relaxed);
        }
    }

    /// Waits until another rank has told. Returns whether it has told within `patience`.
    fn is_told_within(&self, patience: Duration) -> bool {
        let since = Instant::now();
        while self.0.load(Ordering::Relaxed) != Self::TOLD {
            if since.elapsed() > patience {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn one_of_many_tells_before_any_goes_on() {
        for _ in 0..100 {
            let (teller, told) = (Teller::default(), AtomicUsize::new(0));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        teller.tell_once_within(Duration::from_secs(60), || {
                            std::thread::yield_now();
                            told.fetch_add(1, Ordering::Relaxed);
                        });
                        assert_eq!(told.load(Ordering::Relaxed), 1);
                    });
                }
            });
        }
    }

    #[test]
    fn who_waits_in_vain_tells() {
        let (teller, mut told) = (Teller(AtomicU32::new(Teller::TELLS)), 0);
        teller.tell_once_within(Duration::from_millis(1), || told += 1);
        teller.tell_once_within(Duration::from_millis(1), || told += 1);
        assert_eq!(told, 1);
    }
}
