//! A communicator on a machine: what the time of a call depends on besides its plan, and the terms of which costs are
//! made.

use super::{Crossing, Machine, Outline, Work};
use crate::sync::FlagLine;
use crate::topo::{Levels, TreeClass};
use crate::types::{Bytes, LINE, NodeRank};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A level of a node's hierarchy, as far as costs depend on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Groups of this level in one of the level above; of the innermost level: ranks in a group.
    pub fan: usize,
    /// An access between ranks that part here.
    pub crossing: Crossing,
}

/// A communicator on a machine, the same on all its ranks.
///
/// On a node its ranks fill the groups of each level in order; the groups that come last may hold fewer.
#[derive(Debug)]
pub struct Scene {
    /// Ranks of the communicator.
    pub ranks: usize,
    /// Its nodes.
    pub nodes: usize,
    /// Ranks on its largest node, at least 1.
    pub local_ranks: usize,
    /// The hierarchy of a node, outermost first; the last one parts single ranks.
    pub levels: Vec<Level>,
    /// Length of a cell.
    pub cell: Bytes,
    /// Slots in each rank's ring.
    pub slots: usize,
    /// Ranks that share a core, at least 1.
    pub ranks_per_core: f64,
    /// Rates that do not depend on distance, and the network. The crossings that count are those of `levels`.
    pub machine: Machine,
    positions: OnceLock<Levels>,
    outlines: Mutex<Vec<(TreeClass, Arc<Outline>)>>,
}

/// For [`Scene::take`]: the length of `n` bytes that lie in a cell. However few they are, no flag brings them along, so
/// at least one line has to be fetched.
pub fn in_cell(n: f64) -> f64 {
    n.max(FlagLine::PAYLOAD as f64 + 1.0)
}

/// The part of `bytes` beyond the first `limit` of them.
pub fn part_beyond(limit: f64, bytes: f64) -> f64 {
    if bytes <= limit { 0.0 } else { 1.0 - limit / bytes }
}

/// Rates of a rank's own work on data, in nanoseconds per byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    local: f64,
    copy: f64,
    reduce: f64,
    write: f64,
}

impl Rates {
    /// The time to copy `n` bytes that lie in this rank's cache, or have just been fetched.
    pub fn copy(&self, n: f64) -> f64 {
        2.0 * self.local + self.copy * n
    }

    /// The time to copy `n` bytes into a slot. What fits a flag's line costs no more than any copy.
    pub fn write(&self, n: f64) -> f64 {
        if n <= FlagLine::PAYLOAD as f64 { self.copy(n) } else { 2.0 * self.local + self.write * n }
    }

    /// How much longer it takes to write `n` bytes into a slot than to copy them.
    pub fn returns(&self, n: f64) -> f64 {
        self.write(n) - self.copy(n)
    }

    /// The time to combine `n` bytes: one operand from this rank's cache, the other one from there too, or just
    /// fetched.
    pub fn combine(&self, n: f64) -> f64 {
        3.0 * self.local + self.reduce * n
    }
}

impl Scene {
    /// A scene of `ranks` ranks on `nodes` nodes, `local_ranks` on the largest.
    pub fn new(
        (ranks, nodes, local_ranks): (usize, usize, usize),
        levels: Vec<Level>,
        (cell, slots): (Bytes, usize),
        machine: Machine,
    ) -> Self {
        let local_ranks = local_ranks.max(1);
        let (ranks_per_core, positions, outlines) = (1.0, OnceLock::new(), Mutex::default());
        Self { ranks, nodes, local_ranks, levels, cell, slots, ranks_per_core, machine, positions, outlines }
    }

    /// The same scene with `ranks_per_core` ranks on each core.
    pub fn with_ranks_per_core(self, ranks_per_core: f64) -> Self {
        Self { ranks_per_core, ..self }
    }

    /// The number of ranks in one group of `level`.
    pub fn width(&self, level: usize) -> usize {
        self.levels[level + 1..].iter().map(|inner| inner.fan).product()
    }

    /// The number of ranks that part at `level` from a rank of the first group.
    pub fn peers(&self, level: usize) -> usize {
        let width = self.width(level);
        let within = (self.levels[level].fan * width).min(self.local_ranks);
        within - width.min(within)
    }

    /// All levels, outermost first.
    pub fn each_level(&self) -> std::ops::Range<usize> {
        0..self.levels.len()
    }

    /// The level at which the ranks at two positions part; the innermost level for equal positions.
    pub fn parting(&self, left: u32, right: u32) -> usize {
        let group = |rank: u32, level| rank as usize / self.width(level).max(1);
        let last = self.levels.len().saturating_sub(1);
        self.each_level().find(|&level| group(left, level) != group(right, level)).unwrap_or(last)
    }

    /// The time to fetch a flag with what its line carries, while `readers` ranks fetch flags out of the same group.
    pub fn line(&self, level: usize, readers: usize) -> f64 {
        let Crossing { latency, stream, shared } = self.levels[level].crossing;
        let line = LINE as f64;
        latency + (stream * line).max(shared * line * self.at_once(readers))
    }

    /// Whether ranks share cores.
    pub fn shares_cores(&self) -> bool {
        self.ranks_per_core > 1.0
    }

    /// Cores that the ranks of a node have, at least 1.
    pub fn cores(&self) -> f64 {
        (self.local_ranks as f64 / self.ranks_per_core).max(1.0)
    }

    /// How many of `readers` ranks read at the same time: no more than there are cores.
    fn at_once(&self, readers: usize) -> f64 {
        (readers as f64).min(self.cores())
    }

    /// The time to read `n` bytes that a peer published, once their flag has come, and to do `work` on them, while
    /// `readers` ranks read as many out of the same group.
    pub fn take(&self, level: usize, n: f64, readers: usize, work: Work) -> f64 {
        let Machine { ahead, overlap, .. } = self.machine;
        if n <= FlagLine::PAYLOAD as f64 {
            return work.fetching(0.0, overlap);
        }
        let Crossing { latency, stream, shared } = self.levels[level].crossing;
        let transfer = (stream * n).max(shared * n * self.at_once(readers));
        latency * ahead + work.fetching(transfer, overlap)
    }

    /// The rates of a call that touches `bytes` of memory in all: those of a core's own caches for the part that fits
    /// them, those beyond for the rest.
    pub fn rates(&self, bytes: f64) -> Rates {
        let Machine { local, copy, reduce, write, far, .. } = self.machine;
        let beyond = part_beyond(far.beyond, bytes);
        let graded = |near: f64, far: f64| near + beyond * (far - near);
        Rates {
            local,
            copy: graded(copy, far.copy),
            reduce: graded(reduce, far.reduce),
            write: graded(write, write.max(far.copy)),
        }
    }

    /// The rates where all data come from memory and go there.
    pub fn rates_of_memory(&self) -> Rates {
        let Machine { local, write, memory, .. } = self.machine;
        Rates { local, copy: memory.copy, reduce: memory.reduce, write: write.max(memory.copy) }
    }

    /// The tree of that class over the ranks of a node, rooted at the first.
    pub fn outline(&self, class: TreeClass) -> Arc<Outline> {
        let mut outlines = self.outlines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, outline)) = outlines.iter().find(|(known, _)| *known == class) {
            return Arc::clone(outline);
        }
        let outline = Arc::new(Outline::of(self, class));
        outlines.push((class, Arc::clone(&outline)));
        outline
    }

    /// The ranks of a node as trees see them.
    pub fn positions(&self) -> &Levels {
        self.positions.get_or_init(|| {
            let path = |rank: usize| -> Vec<u32> {
                self.each_level().map(|level| (rank / self.width(level).max(1)) as u32).collect()
            };
            let paths: Vec<Vec<u32>> = (0..self.local_ranks).map(path).collect();
            Levels::from_paths(&paths, NodeRank(0))
        })
    }
}
