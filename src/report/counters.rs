//! Counters: calls and bytes by collective, outcome and size.
//!
//! A thread counts into its [`Counters`]; [`Tally`] is a copy of their values, which can be summed over threads and
//! ranks. Values lie flat: for every [`Outcome`], for every [`SizeClass`], calls and bytes.

use super::Reason;
use crate::coll::REGISTRY;
use crate::types::{Bytes, Collective};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The algorithm of this index in [`REGISTRY`] served it.
    Accelerated(usize),
    /// It was left to the native library, or was empty.
    Declined(Collective, Reason),
}

impl Outcome {
    /// How many outcomes there are.
    pub const COUNT: usize = REGISTRY.len() + Collective::ALL.len() * Reason::COUNT;

    #[inline]
    const fn index(self) -> usize {
        match self {
            Self::Accelerated(row) => row,
            Self::Declined(collective, reason) => {
                REGISTRY.len() + collective as usize * Reason::COUNT + reason as usize
            }
        }
    }

    fn from_index(index: usize) -> Self {
        match index.checked_sub(REGISTRY.len()) {
            None => Self::Accelerated(index),
            Some(rest) => Self::Declined(Collective::ALL[rest / Reason::COUNT], Reason::ALL[rest % Reason::COUNT]),
        }
    }

    /// The collective that was called.
    pub fn collective(self) -> Collective {
        match self {
            Self::Accelerated(row) => REGISTRY[row].collective,
            Self::Declined(collective, _) => collective,
        }
    }
}

/// The outcome as in the names of counters: `Allreduce.flat`, `Allreduce.declined.warm-up`.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accelerated(row) => {
                write!(f, "{}.{}", self.collective().name(), REGISTRY[*row].name)
            }
            Self::Declined(collective, reason) => {
                write!(f, "{}.declined.{}", collective.name(), reason.name())
            }
        }
    }
}

/// A range of sizes, or that a size is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeClass(usize);

impl SizeClass {
    /// The largest size of each class; the last two classes have none.
    const LARGEST: [usize; 7] = [0, 64, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20];
    const NAMES: [&'static str; Self::COUNT] =
        ["0", "<=64", "<=1K", "<=8K", "<=64K", "<=512K", "<=4M", ">4M", "unread"];

    /// How many classes there are.
    pub const COUNT: usize = Self::LARGEST.len() + 2;

    /// The size was not read: the call was left to the native library before its arguments were looked at. Asking for
    /// the size of a datatype that MPI might reject could end the program.
    pub const UNREAD: Self = Self(Self::COUNT - 1);

    /// The class of a size.
    #[inline]
    pub fn of(bytes: Bytes) -> Self {
        // Without branches: sizes of successive calls are hard to predict.
        Self(Self::LARGEST.iter().map(|largest| usize::from(bytes.0 > *largest)).sum())
    }

    /// The name of the class, for people and in the names of counters.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self.0]
    }
}

/// What is counted of each outcome and size.
const QUANTITIES: [&str; 2] = ["calls", "bytes"];

/// How many values there are.
const LENGTH: usize = CELLS * QUANTITIES.len();

/// Number of cells, each with the values of one outcome and size.
const CELLS: usize = Outcome::COUNT * SizeClass::COUNT;

/// The position where calls of one outcome and size are counted; their bytes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter(usize);

impl Counter {
    /// The position of calls of `bytes`, as in [`Plan::bytes`](crate::coll::Plan).
    #[inline]
    pub fn of(outcome: Outcome, bytes: Bytes) -> Self {
        Self::of_class(outcome, SizeClass::of(bytes))
    }

    /// The position of calls whose size is not known.
    pub const fn of_unread(outcome: Outcome) -> Self {
        Self::of_class(outcome, SizeClass::UNREAD)
    }

    #[inline]
    const fn of_class(outcome: Outcome, class: SizeClass) -> Self {
        Self(outcome.index() * SizeClass::COUNT + class.0)
    }
}

/// What one thread counted, or several threads one after the other. Aligned so that calls and bytes of a cell share a
/// cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Counters {
    cells: [Count; CELLS],
}

/// Calls of one outcome and size, and their bytes: counted by one thread at a time, and read by any.
#[derive(Debug)]
pub struct Count([AtomicU64; QUANTITIES.len()]);

impl Count {
    const fn none() -> Self {
        Self([const { AtomicU64::new(0) }; QUANTITIES.len()])
    }

    /// Counts a call of `bytes`: by loads and stores, without locked additions.
    #[inline(always)]
    pub fn add(&self, bytes: Bytes) {
        let add = |value: &AtomicU64, amount| {
            value.store(value.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        };
        let [calls, sum] = &self.0;
        add(calls, 1);
        add(sum, bytes.0 as u64);
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

impl Counters {
    /// How many values a [`Tally`] has.
    pub const LENGTH: usize = LENGTH;

    /// All zero.
    pub const fn new() -> Self {
        Self { cells: [const { Count::none() }; CELLS] }
    }

    /// Counts one call. `bytes` as in [`Plan::bytes`](crate::coll::Plan).
    #[inline]
    pub fn record(&self, outcome: Outcome, bytes: Bytes) {
        self.record_at(Counter::of(outcome, bytes), bytes);
    }

    /// Counts one call of `bytes` at its position.
    #[inline(always)]
    pub fn record_at(&self, at: Counter, bytes: Bytes) {
        self.count(at).add(bytes);
    }

    /// The calls that are counted at this position.
    #[inline(always)]
    pub fn count(&self, at: Counter) -> &Count {
        &self.cells[at.0]
    }

    /// Counts one call whose size is not known.
    pub fn record_unread(&self, outcome: Outcome) {
        self.record_at(Counter::of_unread(outcome), Bytes::ZERO);
    }

    /// One value.
    ///
    /// # Panics
    /// If `index` is not below [`Counters::LENGTH`].
    pub fn value(&self, index: usize) -> u64 {
        self.cells[index / QUANTITIES.len()].0[index % QUANTITIES.len()].load(Ordering::Relaxed)
    }

    /// A copy of all values.
    pub fn tally(&self) -> Tally {
        Tally::of(|index| self.value(index))
    }

    /// The name of a value, such as `Allreduce.flat.<=64.calls`; `None` past the end.
    pub fn name(index: usize) -> Option<impl fmt::Display> {
        (index < LENGTH).then(|| {
            let (cell, quantity) = (index / QUANTITIES.len(), index % QUANTITIES.len());
            CounterName {
                outcome: Outcome::from_index(cell / SizeClass::COUNT),
                class: SizeClass(cell % SizeClass::COUNT),
                quantity: QUANTITIES[quantity],
            }
        })
    }
}

struct CounterName {
    outcome: Outcome,
    class: SizeClass,
    quantity: &'static str,
}

impl fmt::Display for CounterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.outcome, self.class.name(), self.quantity)
    }
}

/// Calls of one outcome and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What became of them.
    pub outcome: Outcome,
    /// How long their messages were.
    pub class: SizeClass,
    /// How many there were.
    pub calls: u64,
    /// Their bytes together.
    pub bytes: u64,
}

/// Values of counters: of one rank, or summed over ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    values: Vec<u64>,
}

impl Tally {
    /// The tally of the values that `value` returns by their index.
    pub fn of(value: impl FnMut(usize) -> u64) -> Self {
        Self { values: (0..LENGTH).map(value).collect() }
    }

    /// From values in the order of [`Tally::as_slice`]; `None` if their number is wrong.
    pub fn from_values(values: Vec<u64>) -> Option<Self> {
        (values.len() == LENGTH).then_some(Self { values })
    }

    /// All values, [`Counters::LENGTH`] of them. To sum over ranks, sum each value.
    pub fn as_slice(&self) -> &[u64] {
        &self.values
    }

    /// All cells with at least one call.
    pub fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        self.values.chunks_exact(QUANTITIES.len()).enumerate().filter(|(_, values)| values[0] > 0).map(
            |(index, values)| Cell {
                outcome: Outcome::from_index(index / SizeClass::COUNT),
                class: SizeClass(index % SizeClass::COUNT),
                calls: values[0],
                bytes: values[1],
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn classes_hold_up_to_their_bounds() {
        let name = |bytes| SizeClass::of(Bytes(bytes)).name();
        assert_eq!([name(0), name(1), name(64), name(65), name(1024)], ["0", "<=64", "<=64", "<=1K", "<=1K"]);
        assert_eq!([name(4 << 20), name((4 << 20) + 1), name(usize::MAX)], ["<=4M", ">4M", ">4M"]);
        assert_eq!(SizeClass::UNREAD.name(), "unread");
        for (bytes, name) in SizeClass::LARGEST.iter().zip(SizeClass::NAMES).skip(1) {
            let unit = |bytes: usize| match bytes {
                ..1024 => format!("<={bytes}"),
                1024..1048576 => format!("<={}K", bytes >> 10),
                _ => format!("<={}M", bytes >> 20),
            };
            assert_eq!(name, unit(*bytes));
        }
    }

    #[test]
    fn every_outcome_has_its_own_cell() {
        for index in 0..Outcome::COUNT {
            assert_eq!(Outcome::from_index(index).index(), index);
        }
        let names: HashSet<String> = (0..LENGTH).map(|index| Counters::name(index).unwrap().to_string()).collect();
        assert_eq!(names.len(), LENGTH);
        assert!(names.contains("Allreduce.flat.<=64.calls"));
        assert!(names.contains("Allreduce.declined.warm-up.<=64.bytes"));
        assert!(Counters::name(LENGTH).is_none());
    }

    #[test]
    fn records_add_up() {
        let counters = Counters::new();
        let outcome = Outcome::Declined(Collective::Scatter, Reason::WarmUp);
        counters.record(outcome, Bytes(100));
        counters.record(outcome, Bytes(200));
        counters.record(Outcome::Accelerated(0), Bytes(8));
        counters.record_unread(outcome);
        let cells: Vec<Cell> = counters.tally().cells().collect();
        assert_eq!(cells.len(), 3);
        assert_eq!((cells[2].outcome, cells[2].class, cells[2].calls), (outcome, SizeClass::UNREAD, 1));
        assert_eq!((cells[0].outcome, cells[0].calls, cells[0].bytes), (Outcome::Accelerated(0), 1, 8));
        assert_eq!((cells[1].outcome, cells[1].calls, cells[1].bytes), (outcome, 2, 300));
    }

    #[test]
    fn tallies_come_back_from_their_values() {
        let counters = Counters::new();
        counters.record(Outcome::Accelerated(2), Bytes(9));
        let tally = counters.tally();
        assert_eq!(Tally::from_values(tally.as_slice().to_vec()), Some(tally));
        assert_eq!(Tally::from_values(vec![0; 3]), None);
    }
}
