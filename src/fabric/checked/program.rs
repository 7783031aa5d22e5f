//! Random programs: sequences of collective calls on a random machine.

use super::random::Random;
use super::{Mutation, Rank, Running};
use crate::coll::{Knob, Knobs, Means, Measures, Plan, REGISTRY, Row, Takes};
use crate::fabric::INLINE;
use crate::topo::Layout;
use crate::types::{Bytes, Collective, CommRank, Epoch, OperandOrder};

/// A program that all ranks run, and the machine that it runs on.
#[derive(Clone, Debug)]
pub struct Program {
    /// By rank: a label of its node.
    pub labels: Vec<u32>,
    /// By rank: its path through the hierarchy of its node; see [`Levels`](crate::topo::Levels).
    pub paths: Vec<Vec<u32>>,
    /// Leaders of each node; no more than the smallest node has ranks.
    pub leaders: usize,
    /// Length of the rings of cells.
    pub slots: usize,
    /// How many times as long the rings of lines are.
    pub lines_per_cell: usize,
    /// Length of the cells.
    pub cell: Bytes,
    /// What the ranks do, one call after another.
    pub calls: Vec<Call>,
    /// One fetch in this many from a peer's memory is not possible; for 0 all are possible.
    pub misses: u64,
    /// A mistake to be made.
    pub mutation: Option<Mutation>,
    /// How the ranks take turns.
    pub pace: Pace,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The index of its algorithm in the [`REGISTRY`]. If `start` was replaced, the index of any algorithm for the same
    /// collective.
    pub row: usize,
    /// The algorithm.
    pub start: for<'a> fn(&'a Rank, &'a Plan) -> Running<'a>,
    /// What all ranks agree on.
    pub plan: Plan,
    /// By rank: whether it passes `MPI_IN_PLACE`, where its role permits it.
    pub in_place: Vec<bool>,
}

impl Call {
    /// What it computes.
    pub fn collective(&self) -> Collective {
        REGISTRY[self.row].collective
    }
}

/// How the ranks take turns.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// After an operation another rank may get the turn, with a chance of one in this.
    pub switch: usize,
    /// A rank that seldom gets a turn.
    pub laggard: Option<usize>,
}

/// How long the messages of a program are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Messages {
    /// As long as some cells at most.
    Usual,
    /// So long that they take several steps between nodes.
    Long,
}

/// A program has long messages with a chance of one in this.
const LONG: usize = 200;

/// A program of two ranks has cells of some pages with a chance of one in this.
const LARGE: usize = 16;

impl Program {
    /// The program of `seed`, which calls any algorithm of the registry.
    pub fn random(seed: u64) -> Self {
        Self::random_of(seed, &(0..REGISTRY.len()).collect::<Vec<_>>())
    }

    /// The program of `seed` that calls only some algorithms, by their index in the registry.
    pub fn random_of(seed: u64, rows: &[usize]) -> Self {
        let random = &mut Random::new(seed);
        let messages = if random.one_in(LONG) { Messages::Long } else { Messages::Usual };
        let is_long = messages == Messages::Long;
        let ranks = match random.below(20) {
            _ if is_long => random.between(2, 5),
            0 => 1,
            1..13 => random.between(2, 9),
            13..19 => random.between(10, 24),
            _ => random.between(25, 64),
        };
        let labels = if is_long { (0..ranks as u32).map(|rank| rank % 2).collect() } else { labels(random, ranks) };
        let layout = Layout::new(&labels, CommRank(0));
        let least = layout.largest_node().max(16);
        let cell = match random.below(4) {
            _ if is_long => 64 << 10,
            // Some pages long: in shorter cells two ranks cut messages no other way than more ranks do
            // (`piece_between`).
            _ if ranks == 2 && random.one_in(LARGE) => 20 << 10,
            0 => random.between(least, 300),
            _ => random.pick(&[64, 128, 256, 512, 768]),
        };
        let mut program = Self {
            paths: paths(random, ranks),
            labels,
            leaders: random.pick(&[1, 1, 2, 3]),
            slots: random.pick(&[2, 2, 4, 8]),
            // Here claims determine cells; in the real fabric tickets determine the cells of short pieces. With as many
            // lines as cells, a claim waits there for as much as here.
            lines_per_cell: random.pick(&[1, 1, 2, 4]),
            cell: Bytes(cell),
            calls: Vec::new(),
            misses: random.pick(&[0, 0, 1, 2, 3]),
            mutation: None,
            pace: Pace { switch: random.pick(&[1, 1, 4, 64]), laggard: random.one_in(3).then(|| random.below(ranks)) },
        };
        let mut epoch = Epoch(random.between(1, 9) as u64);
        for _ in 0..random.between(1, if is_long || ranks > 24 { 3 } else { 8 }) {
            let row = random.pick(rows);
            let call = program.call(random, row, epoch, &layout, messages);
            program.calls.push(call);
            // A call that the fabric never saw, because its arguments were wrong, takes an epoch too.
            epoch.0 += if random.one_in(8) { 2 } else { 1 };
        }
        program
    }

    /// A random call of an algorithm.
    fn call(&self, random: &mut Random, row: usize, epoch: Epoch, layout: &Layout, messages: Messages) -> Call {
        let ranks = self.labels.len();
        let algorithm: &Row = &REGISTRY[row];
        let is_reduction = algorithm.collective.is_reduction();
        let means = Means { order: OperandOrder::Rank, has_single_copy: true };
        let needs_any_order = algorithm.lacks(means).is_some();
        let order = if is_reduction && !needs_any_order && layout.is_block_placed() && random.one_in(2) {
            OperandOrder::Rank
        } else {
            OperandOrder::Any
        };
        let granule = match order {
            _ if !is_reduction => 1,
            OperandOrder::Rank => random.pick(&[8, 16]),
            OperandOrder::Any => random.pick(&[1, 4, 8, 12, 56]),
        };
        let granule = if granule > self.cell.0 { 8 } else { granule };
        let bytes = match algorithm.collective {
            Collective::Barrier => 0,
            _ if messages == Messages::Long => (256 << 10) / granule * granule + granule * random.between(0, 4000),
            Collective::Allgather | Collective::Scatter => {
                let most = if ranks <= 8 || random.one_in(8) { 4 * self.cell.0 } else { 12 * self.cell.0 / ranks };
                length(random, 1, self.cell.0, ranks).min(most.max(1))
            }
            _ => length(random, granule, self.cell.0, ranks),
        };
        let mut plan = Plan {
            epoch,
            bytes: Bytes(bytes),
            granule: Bytes(granule),
            root: CommRank(random.below(ranks) as u32),
            order,
            knobs: random_knobs(random, granule, self.cell.0),
            scratch: Bytes::ZERO,
            reach: Bytes::ZERO,
        };
        if !algorithm.collective.has_root() {
            plan.root = CommRank(0);
        }
        let plan =
            plan.measured(algorithm, &Measures { ranks, nodes: layout.nodes(), cell: self.cell, slots: self.slots });
        let in_place = match random.below(3) {
            0 => vec![false; ranks],
            1 => vec![true; ranks],
            _ => (0..ranks).map(|_| random.one_in(2)).collect(),
        };
        Call { row, start: algorithm.scheduled, plan, in_place }
    }
}

/// A message length near one of the borders at which algorithms change their ways, a multiple of `granule`.
fn length(random: &mut Random, granule: usize, cell: usize, ranks: usize) -> usize {
    let cells = random.between(1, 5) * cell;
    let border = random.pick(&[1, INLINE.0, INLINE.0 / ranks, 64, 64 * ranks, cell / ranks, cell, cells]);
    let near = match random.below(4) {
        0 => border.saturating_sub(granule),
        1 => border,
        2 => border + granule,
        _ => random.between(1, 3 * cell),
    };
    // Tiled reductions cut a message into as many parts as there are ranks.
    (near.min(5 * cell) / granule).max(1) * granule
}

/// A value for every knob, or none where an algorithm runs without one. Tiles and segments hold whole elements and are
/// no longer than a cell, as `choose` ensures.
pub fn random_knobs(random: &mut Random, granule: usize, cell: usize) -> Knobs {
    Knob::ALL.into_iter().fold(Knobs::UNSET, |knobs, knob| {
        let value = match knob.takes() {
            Takes::Size(_) if knob == Knob::Chunk && random.one_in(2) => 0,
            Takes::Size(_) => {
                let size = random.pick(&[granule, 16, INLINE.0, INLINE.0 + 1, 64, cell / 2, cell]).clamp(granule, cell);
                size - size % granule
            }
            Takes::Number(most) if knob == Knob::Radix => random.between(1, 5.min(most as usize)),
            Takes::Number(most) => random.between(0, 3.min(most as usize)),
            Takes::Word(words) => random.between(0, words.len()),
        };
        knobs.with(knob, value as u32)
    })
}

/// By rank: the label of its node.
fn labels(random: &mut Random, ranks: usize) -> Vec<u32> {
    let nodes = if random.one_in(2) { 1 } else { random.between(1, 5.min(ranks)) } as u32;
    let ranks = ranks as u32;
    match random.below(4) {
        0 => (0..ranks).map(|rank| rank * nodes / ranks).collect(),
        1 => (0..ranks).map(|rank| rank % nodes).collect(),
        2 => {
            let mut labels: Vec<u32> = (0..ranks).map(|_| random.below(nodes as usize) as u32).collect();
            labels.sort_unstable();
            labels
        }
        _ => (0..ranks).map(|_| random.below(nodes as usize) as u32).collect(),
    }
}

/// By rank: its path through up to three levels, in blocks, round-robin or anywhere.
fn paths(random: &mut Random, ranks: usize) -> Vec<Vec<u32>> {
    let widths: Vec<usize> = (0..random.below(4)).map(|_| random.between(2, 4)).collect();
    let inner_first: Vec<usize> = widths.iter().rev().copied().collect();
    let containers: usize = widths.iter().product();
    let style = random.below(3);
    (0..ranks)
        .map(|rank| match style {
            0 => digits(rank * containers / ranks, &inner_first).into_iter().rev().collect(),
            1 => digits(rank, &widths),
            _ => digits(random.below(containers), &widths),
        })
        .collect()
}

/// The digits of `number` for the bases `widths`, least significant first.
fn digits(mut number: usize, widths: &[usize]) -> Vec<u32> {
    let digit = |width: &usize| {
        let digit = number % width;
        number /= width;
        digit as u32
    };
    widths.iter().map(digit).collect()
}
