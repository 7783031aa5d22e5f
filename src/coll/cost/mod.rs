//! The cost of calls: closed forms over a [`Scene`], from the last rank's entry to the last rank's exit.
//!
//! The terms are those of Li et al. 2014, §2.1: an access costs `a + b·m` by the level that it crosses; streams that
//! share a link cost `a + B·t·m`. The paper's ranks read each other's buffers. Those of huddle copy into slots first,
//! so each formula has one copy more. Formulas of trees walk the same tree as the algorithm ([`Outline`]), so they
//! count the real number of children, levels crossed and uneven groups. The pieces of a long message form a pipeline:
//! the first takes the whole way, each further one as long as the busiest rank works on it.
//!
//! Where ranks share cores a phase takes the work of all ranks divided by their cores, and the part of its longest path
//! that does not overlap with that work (Graham's bound). No more ranks read at a time than there are cores. A rank
//! that waits gives its core away and gets it back after all other ranks of that core. So each wait that follows from
//! another costs as many switches as ranks share a core (`Time`), and more where all ranks wait for all. Ranks run
//! ahead until their slots are full.

mod exchange;
mod phases;
mod relay;

use super::phase::{self, Tree};
use super::{Knob, Measures, Plan};
use crate::model::{Between, Nanos, Outline, Rates, Scene, Work};
use crate::sync::{FlagLine, Passed};
use crate::topo::TreeClass;
use crate::types::{Bytes, Collective};
use std::sync::Arc;

/// How the ranks of a node work together in all phases of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As [`phase::Flat`].
    Flat,
    /// As [`phase::Tree`].
    Tree,
    /// As [`phase::Tiled`].
    Tiled,
    /// As `Tiled`, but reductions are tiled in each group of the outermost level and then use a tree over the groups.
    Hierarchical,
    /// As [`phase::single`]; as `Tiled` in phases that it does not have.
    Single,
    /// As [`phase::dissemination`] on one node; on several nodes as [`phase::Tree`] in the phases of each node.
    Dissemination,
}

/// The cost of a call that uses the same form in all phases.
pub fn of(way: Way, collective: Collective, plan: &Plan, scene: &Scene) -> Option<Nanos> {
    let node = Node::new(way, collective, plan, scene);
    let time = if scene.nodes > 1 { node.composed(collective) } else { node.alone(collective) };
    Some(Nanos(scene.machine.software.call + time))
}

/// The cost of an Allreduce or a Reduce by relays ([`phase::relay`]), on one node whose ranks share cores. Elsewhere
/// relays were not measured. They touch as much memory as tiled reductions.
pub fn of_relay(collective: Collective, plan: &Plan, scene: &Scene) -> Option<Nanos> {
    if scene.nodes > 1 || !scene.shares_cores() || scene.local_ranks == 1 {
        return None;
    }
    let node = Node::new(Way::Tiled, collective, plan, scene);
    Some(Nanos(scene.machine.software.call + node.relay(collective)))
}

/// A node at work on a call.
struct Node<'a> {
    way: Way,
    plan: &'a Plan,
    scene: &'a Scene,
    rates: Rates,
    /// Whether `rates` are those of memory.
    is_from_memory: bool,
    /// Whether the call is one of those of [`phase::short`].
    is_short: bool,
    up: Arc<Outline>,
    down: Arc<Outline>,
}

impl<'a> Node<'a> {
    fn new(way: Way, collective: Collective, plan: &'a Plan, scene: &'a Scene) -> Self {
        let (up, down) = match way {
            Way::Flat | Way::Tiled | Way::Hierarchical | Way::Single => {
                (TreeClass::Stages { stages: 1 }, TreeClass::Stages { stages: 1 })
            }
            Way::Tree | Way::Dissemination => {
                let tree = Tree::of(plan);
                (tree.up, tree.down)
            }
        };
        let (n, ranks) = (plan.bytes.0 as f64, scene.ranks as f64);
        let (sent, received) = match collective {
            Collective::Allreduce | Collective::Reduce => (n, n),
            Collective::Bcast => (n, 0.0),
            Collective::Allgather => (n, n * ranks),
            Collective::Scatter => (n * ranks, n),
            Collective::Barrier => (0.0, 0.0),
        };
        let slots = match way {
            Way::Single => 0.0,
            Way::Flat if collective == Collective::Scatter => n * (ranks - 1.0),
            _ if collective == Collective::Scatter => n * ranks,
            _ => n,
        };
        let ring = plan.knobs.set(Knob::Buffers).map_or(scene.slots, |buffers| scene.slots.min(buffers as usize));
        let in_slots = slots.min((scene.cell.0 * ring) as f64);
        // A core's caches hold what all of its ranks touch. The data that a root deals out or has in its slots count
        // once.
        let touched = match collective {
            Collective::Bcast => (sent + received) * scene.ranks_per_core + in_slots,
            Collective::Scatter => sent + in_slots + received * scene.ranks_per_core,
            _ => (sent + received + in_slots) * scene.ranks_per_core,
        };
        let is_from_memory = is_from_memory(collective, sent + received, scene);
        let rates = match is_from_memory {
            true => scene.rates_of_memory(),
            false => scene.rates(touched),
        };
        let fits_a_slot = scene.nodes == 1 && slots <= scene.cell.0 as f64;
        let is_short = way == Way::Flat && fits_a_slot && plan.knobs.set(Knob::Buffers).is_none();
        Self { way, plan, scene, rates, is_from_memory, is_short, up: scene.outline(up), down: scene.outline(down) }
    }

    /// The time of huddle's own instructions for a piece in a phase.
    fn step(&self) -> f64 {
        if self.is_short { 0.0 } else { self.scene.machine.software.step }
    }

    fn ranks(&self) -> f64 {
        self.scene.local_ranks as f64
    }

    /// Bytes of the call's buffer or, where blocks are gathered or scattered, of one block.
    fn bytes(&self) -> f64 {
        self.plan.bytes.0 as f64
    }

    /// The cost on one node.
    fn alone(&self, collective: Collective) -> f64 {
        let n = self.bytes();
        match (collective, self.way) {
            (Collective::Allreduce, Way::Flat) => self.combine_all(n),
            (Collective::Allreduce, Way::Tiled | Way::Hierarchical | Way::Single) => self.combine_parts(n),
            (Collective::Allreduce, Way::Dissemination) => self.disseminate(n),
            (Collective::Allreduce, Way::Tree) => {
                let (pieces, piece) = cut(n, self.cell());
                (self.reduce(piece) + self.bcast(piece)) * pieces
            }
            (Collective::Bcast, _) => self.bcast(n),
            (Collective::Reduce, _) => self.reduce(n) + self.held_up(n),
            (Collective::Allgather, Way::Flat | Way::Tiled | Way::Hierarchical | Way::Single) => self.gather_all(n),
            (Collective::Allgather, Way::Dissemination) => self.disseminate_blocks(n),
            (Collective::Allgather, Way::Tree) => self.gather(n) + self.bcast(n * self.ranks()),
            (Collective::Barrier, Way::Dissemination) => self.disseminate_signals(),
            (Collective::Barrier, Way::Flat) => self.signal_all(),
            (Collective::Barrier, _) => self.arrive() + self.depart(),
            (Collective::Scatter, _) => self.scatter(n),
        }
    }

    /// How long a phase takes on the cores that the ranks have. Where ranks share cores, the lower bound is the phase's
    /// path or an even share of its work, whichever is longer. The upper bound is the time of a scheduler that leaves
    /// no core idle while a rank has work (Graham's bound). The more ranks share a core, the closer the result is to
    /// the upper bound. In each wait all ranks of a core have a turn.
    fn elapsed(&self, Time { path, work, waits }: Time) -> f64 {
        let (ranks_per_core, cores) = (self.scene.ranks_per_core, self.scene.cores());
        if !self.scene.shares_cores() {
            return path;
        }
        let (least, most) = (path.max(work / cores), work / cores + path * (1.0 - 1.0 / cores));
        least + (most - least) * (ranks_per_core - 1.0).min(1.0) + self.waited(waits)
    }

    /// The time of `pieces` pieces of a phase that follow each other. The first rank continues until its slots are
    /// full. The others find all of these pieces when they get the core.
    fn repeated(&self, phase: Phase, pieces: f64) -> Time {
        let others = pieces - 1.0;
        let (path, work) = (phase.whole + others * phase.busiest, phase.work * pieces);
        Time { path, work, waits: phase.depth + others / self.scene.slots as f64 }
    }

    /// Adds to `time`, that of a phase with a root, the time until the writer gets lines back. The phase moves `pieces`
    /// pieces of `n` bytes. On a node of two ranks, each of which is the root now and then, the writer has passed cells
    /// for the first pieces. For the others it writes its slots, whose lines it has to get back.
    fn with_lines_back(&self, time: Time, n: f64, pieces: f64) -> Time {
        let lines = self.lines_back(n, (pieces - self.passed()).max(0.0));
        Time { path: time.path + lines, work: time.work + lines, ..time }
    }

    /// The time until the lines of `pieces` pieces of `n` bytes come back from a peer that has read them. The models
    /// charge it only on nodes of two ranks, whose cells may be passed.
    fn lines_back(&self, n: f64, pieces: f64) -> f64 {
        let is_charged = self.passed() > 0.0 && n > FlagLine::PAYLOAD as f64;
        if is_charged { pieces * self.scene.take(0, n, 1, Work::Copy(0.0)) } else { 0.0 }
    }

    /// The number of cells that each rank has to pass at first.
    fn passed(&self) -> f64 {
        Passed::at_first(self.scene.local_ranks, self.cell()) as f64
    }

    /// The time of `waits` waits that follow from each other.
    fn waited(&self, waits: f64) -> f64 {
        let Scene { ranks_per_core, ref machine, .. } = *self.scene;
        if self.scene.shares_cores() { waits * ranks_per_core * machine.switch } else { 0.0 }
    }

    /// The cost of phases on each node around a step between nodes, chunk by chunk.
    fn composed(&self, collective: Collective) -> f64 {
        let Scene { ranks, nodes, .. } = *self.scene;
        let measures = Measures { ranks, nodes, cell: self.scene.cell, slots: self.scene.slots };
        let scratch = phase::bridge_scratch(self.plan, collective, &measures);
        let block = phase::bridge_block(self.plan, ranks);
        let all = ranks as f64;
        let copy = |n| self.rates.copy(n);
        let (chunks, n) = cut(self.bytes(), if collective.has_blocks() { block } else { scratch });
        let (step, phases) = match collective {
            Collective::Barrier => (Between::Barrier, self.arrive() + self.depart()),
            Collective::Allreduce => (Between::Reduce(n), self.reduce(n) + copy(n) + self.bcast(n)),
            Collective::Reduce => (Between::Reduce(n), self.reduce(n) + copy(n)),
            Collective::Bcast => (Between::Bcast(n), copy(n) + self.bcast(n)),
            Collective::Allgather => {
                let copies = self.all(all * copy(n), 0.0);
                (Between::Allgather(n * all), self.gather(n) + self.bcast(n * all) + copies)
            }
            Collective::Scatter => (Between::Scatter(n * all), all * copy(n) + self.scatter(n)),
        };
        self.chained(chunks, phases, self.scene.machine.between(step, nodes))
    }

    /// The time of `chunks` chunks. Their phases on the nodes take `phases` each, their step between nodes takes
    /// `step`. With several leaders the phases of other chunks overlap with a leader's step.
    fn chained(&self, chunks: f64, phases: f64, step: f64) -> f64 {
        let leaders = f64::from(self.plan.knobs.get(Knob::Leaders).max(1));
        let each = phases.max((phases + step) / leaders);
        phases + step + (chunks - 1.0) * each
    }

    /// A copy of `n` bytes that this rank fetches.
    fn copying(&self, n: f64) -> Work {
        Work::Copy(self.rates.copy(n))
    }

    /// A reduction of `n` bytes that this rank fetches.
    fn combining(&self, n: f64) -> Work {
        Work::Combine(self.rates.combine(n))
    }

    fn cell(&self) -> Bytes {
        self.scene.cell
    }

    /// Bytes of the piece of a tiled phase.
    fn tile(&self) -> Bytes {
        self.plan.tile(self.cell())
    }

    /// The number and the length of the pieces, of at most `most` bytes, in which `total` bytes move between a root and
    /// the others.
    fn rooted(&self, total: f64, most: Bytes) -> (f64, f64) {
        if self.is_short && phase::short::is_halved(self.plan) { (2.0, total / 2.0) } else { cut(total, most) }
    }

    /// Bytes of the piece of a phase that moves whole messages.
    fn piece(&self) -> Bytes {
        match self.way {
            Way::Tiled | Way::Hierarchical | Way::Single => self.tile(),
            Way::Flat => self.cell(),
            Way::Tree | Way::Dissemination => self.plan.segment(self.cell()),
        }
    }
}

/// Whether a call whose root has buffers of `bytes` moves data from memory to memory. That is so for a Scatter where
/// ranks share cores, if the buffers of all ranks, each the root in turn, do not fit the last-level cache. Data in
/// slots then also move at the rate of memory, since every rank has had the core in between (measured:
/// docs/PERFORMANCE.md, "Tried"). Other collectives were not measured for this.
fn is_from_memory(collective: Collective, bytes: f64, scene: &Scene) -> bool {
    let all = bytes * scene.local_ranks as f64;
    collective == Collective::Scatter && scene.shares_cores() && all > scene.machine.memory.beyond
}

/// The number of pieces of at most `most` bytes, at least one, into which `total` bytes are cut, and their mean length.
fn cut(total: f64, most: Bytes) -> (f64, f64) {
    let most = most.0.max(1);
    let pieces = (total as usize).div_ceil(most).max(1) as f64;
    (pieces, total / pieces)
}

/// The time that a phase of a node takes.
#[derive(Clone, Copy, Debug)]
struct Time {
    /// From its start to its end, if no rank ever waits for a core.
    path: f64,
    /// The time that all ranks together work.
    work: f64,
    /// The number of successive waits of ranks for other ranks.
    waits: f64,
}

/// The time that one piece takes along a tree.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// From its start to its end.
    whole: f64,
    /// The time of the rank that works longest on it.
    busiest: f64,
    /// The time that all ranks together work on it.
    work: f64,
    /// The number of ranks that wait for each other in succession.
    depth: f64,
}

#[cfg(test)]
mod tests;
