//! Whose turn it is: the rank that can go on earliest. Waiting ranks are kept under what they wait for, so that the
//! cost of finding the next one does not depend on their number.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// What keeps a rank from its next operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Obstacle {
    /// The flag of this owner, line and position.
    Flag(usize, usize, usize),
    /// A post by one rank to another.
    Post(usize, usize),
    /// A release by this rank.
    Release(usize),
    /// Leaders that have not come to a step between nodes.
    Leader,
}

/// Ranks that have submitted an operation: each is in one place, ready or waiting.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Ranks that can go on, by the bits of their time. Times are not negative, so their bits are in the same order.
    ready: BinaryHeap<Reverse<(u64, usize)>>,
    waiting: HashMap<Obstacle, Vec<usize>>,
}

impl Turns {
    /// Adds `rank`, whose time is `now`: as ready, or as waiting for the `obstacle`.
    pub fn submit(&mut self, rank: usize, now: f64, obstacle: Option<Obstacle>) {
        match obstacle {
            None => self.ready.push(Reverse((now.to_bits(), rank))),
            Some(obstacle) => self.waiting.entry(obstacle).or_default().push(rank),
        }
    }

    /// Removes and returns the ranks that wait for `obstacle`, for the caller to submit anew.
    pub fn wake(&mut self, obstacle: Obstacle) -> Vec<usize> {
        self.waiting.remove(&obstacle).unwrap_or_default()
    }

    /// Removes and returns the earliest ready rank; of several the lowest.
    pub fn next(&mut self) -> Option<usize> {
        self.ready.pop().map(|Reverse((_, rank))| rank)
    }
}
