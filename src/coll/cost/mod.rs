//! What calls cost: closed forms over a [`Scene`], from the last rank's entry to the last rank's exit.
//!
//! The terms are those of Li et al. 2014, §2.1: an access costs `a + b·m` by the level that it crosses, streams that share a
//! link `a + B·t·m`. Where the paper's ranks read each other's buffers, those of huddle copy into slots first, so each
//! formula has a copy more. Trees are evaluated on the very tree that the algorithm walks ([`Outline`]), so the number of
//! children, the levels crossed and uneven groups count as they are. Pieces of a long message follow each other: the first
//! takes the whole way, each further one as long as the busiest rank works on it.

mod exchange;
mod phases;

use super::phase::{self, Tree};
use super::{Measures, Plan};
use crate::model::{Between, Nanos, Outline, Rates, Scene};
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
    /// The same, with reductions tiled in each group of the outermost level and by a tree over the groups.
    Hierarchical,
    /// As [`phase::dissemination`] on one node, as [`phase::Tree`] between nodes.
    Dissemination,
}

/// The cost of a call that goes one way in all phases.
pub fn of(way: Way, collective: Collective, plan: &Plan, scene: &Scene) -> Option<Nanos> {
    let node = Node::new(way, collective, plan, scene);
    let time =
        scene.machine.software.call + if scene.nodes > 1 { node.composed(collective) } else { node.alone(collective) };
    Some(Nanos(time))
}

/// A node at work on a call.
struct Node<'a> {
    way: Way,
    plan: &'a Plan,
    scene: &'a Scene,
    rates: Rates,
    /// The whole call fits one slot of each rank, and is flat: see [`phase::short`].
    is_short: bool,
    up: Arc<Outline>,
    down: Arc<Outline>,
}

impl<'a> Node<'a> {
    fn new(way: Way, collective: Collective, plan: &'a Plan, scene: &'a Scene) -> Self {
        let (up, down) = match way {
            Way::Flat | Way::Tiled | Way::Hierarchical => {
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
        let slots = if collective == Collective::Scatter { n * ranks } else { n };
        let rates = scene.rates(sent + received + slots.min((scene.cell.0 * scene.slots) as f64));
        let is_short = way == Way::Flat && scene.nodes == 1 && slots <= scene.cell.0 as f64;
        Self { way, plan, scene, rates, is_short, up: scene.outline(up), down: scene.outline(down) }
    }

    /// What huddle's own instructions take for a piece in a phase.
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

    /// On one node.
    fn alone(&self, collective: Collective) -> f64 {
        let n = self.bytes();
        match (collective, self.way) {
            (Collective::Allreduce, Way::Flat) => self.combine_all(n),
            (Collective::Allreduce, Way::Tiled | Way::Hierarchical) => self.combine_parts(n),
            (Collective::Allreduce, Way::Dissemination) => self.disseminate(n),
            (Collective::Allreduce, Way::Tree) => {
                let (pieces, piece) = cut(n, self.cell());
                pieces * (self.reduce(piece) + self.bcast(piece))
            }
            (Collective::Bcast, _) => self.bcast(n),
            (Collective::Reduce, _) => self.reduce(n),
            (Collective::Allgather, Way::Flat | Way::Tiled | Way::Hierarchical) => self.gather_all(n),
            (Collective::Allgather, Way::Dissemination) => self.disseminate_blocks(n),
            (Collective::Allgather, Way::Tree) => self.gather(n) + self.bcast(n * self.ranks()),
            (Collective::Barrier, Way::Dissemination) => self.disseminate_signals(),
            (Collective::Barrier, Way::Flat) => self.read_all(0.0, 0.0),
            (Collective::Barrier, _) => self.arrive() + self.depart(),
            (Collective::Scatter, _) => self.scatter(n),
        }
    }

    /// Phases on each node around a step between nodes, piece by piece.
    fn composed(&self, collective: Collective) -> f64 {
        let Scene { ranks, nodes, .. } = *self.scene;
        let measures = Measures { ranks, nodes, cell: self.scene.cell };
        let scratch = phase::bridge_piece(self.plan, collective, &measures);
        let block = phase::bridge_block(self.plan, ranks);
        let between = |step| self.scene.machine.between(step, nodes);
        let all = ranks as f64;
        match collective {
            Collective::Barrier => self.arrive() + between(Between::Barrier) + self.depart(),
            Collective::Allreduce => {
                let (pieces, n) = cut(self.bytes(), scratch);
                pieces * (self.reduce(n) + between(Between::Reduce(n)) + self.rates.copy(n) + self.bcast(n))
            }
            Collective::Reduce => {
                let (pieces, n) = cut(self.bytes(), scratch);
                pieces * (self.reduce(n) + between(Between::Reduce(n)) + self.rates.copy(n))
            }
            Collective::Bcast => {
                let (pieces, n) = cut(self.bytes(), scratch);
                pieces * (self.rates.copy(n) + between(Between::Bcast(n)) + self.bcast(n))
            }
            Collective::Allgather => {
                let (pieces, n) = cut(self.bytes(), block);
                let copies = all * self.rates.copy(n);
                pieces * (self.gather(n) + between(Between::Allgather(n * all)) + self.bcast(n * all) + copies)
            }
            Collective::Scatter => {
                let (pieces, n) = cut(self.bytes(), block);
                pieces * (all * self.rates.copy(n) + between(Between::Scatter(n * all)) + self.scatter(n))
            }
        }
    }

    fn cell(&self) -> Bytes {
        self.scene.cell
    }

    /// The piece of a tiled phase.
    fn tile(&self) -> Bytes {
        Bytes(self.plan.knobs.tile().0.max(self.plan.granule.0)).min(self.cell())
    }

    /// The piece of a phase that moves whole messages.
    fn piece(&self) -> Bytes {
        let segment = self.plan.knobs.segment();
        match self.way {
            Way::Tiled | Way::Hierarchical => self.tile(),
            Way::Flat => self.cell(),
            Way::Tree | Way::Dissemination if segment == Bytes::ZERO => self.cell(),
            Way::Tree | Way::Dissemination => segment.min(self.cell()),
        }
    }
}

/// How many pieces of at most `most` bytes `total` bytes are, and how long one is on average; at least one.
fn cut(total: f64, most: Bytes) -> (f64, f64) {
    let most = most.0.max(1);
    let pieces = (total as usize).div_ceil(most).max(1) as f64;
    (pieces, total / pieces)
}

/// The time of `pieces` pieces that follow each other.
fn pipelined(pieces: f64, Phase { whole, busiest }: Phase) -> f64 {
    whole + (pieces - 1.0) * busiest
}

/// What one piece takes.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// From its start to its end.
    whole: f64,
    /// The rank that works longest on it.
    busiest: f64,
}

#[cfg(test)]
mod tests;
