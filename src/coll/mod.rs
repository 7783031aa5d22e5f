//! The algorithms, one file each, and their registry.
//!
//! An algorithm is one `async fn` over a [`Fabric`]. It sees a [`Plan`], which holds only what all ranks agree on, and
//! the plain properties of the fabric. Who does what may depend on the rank; how many tickets a call takes on a node
//! may not.

#![forbid(unsafe_code)]

use self::phase::tiled::train_of;
use crate::fabric::{Fabric, Room};
use crate::model::{Nanos, Scene};
use crate::types::{Bytes, Collective, CommRank, Epoch, LINE, NodeRank, OperandOrder, PAGE};
use std::future::Future;
use std::ops::Range;

pub mod cost;
mod knobs;
pub mod phase;
mod registry;
mod tickets;

mod allgather_dissemination;
mod allgather_flat;
mod allgather_single;
mod allgather_tiled;
mod allgather_tree;
mod allreduce_cyclic;
mod allreduce_dissemination;
mod allreduce_flat;
mod allreduce_hierarchical;
mod allreduce_relay;
mod allreduce_tiled;
mod allreduce_tree;
mod barrier_dissemination;
mod barrier_flat;
mod barrier_tree;
mod bcast_flat;
mod bcast_single;
mod bcast_tiled;
mod bcast_tree;
mod reduce_cyclic;
mod reduce_flat;
mod reduce_hierarchical;
mod reduce_relay;
mod reduce_tiled;
mod reduce_tree;
mod scatter_flat;
mod scatter_single;
mod scatter_tiled;
mod scatter_tree;

pub use knobs::{CLASSES, KNOMIAL, Knob, Knobs, PUSH, SIGNALS, SOURCES, TRY_MEMORY, TRY_SLOTS, Takes};
pub use phase::short::Short;
pub use registry::{REGISTRY, Row, Running, find, rows_of};
pub use tickets::{Tickets, may_exceed_tickets, most_tickets};

/// What an algorithm requires of a call. Without it the algorithm never runs, not even where the user forces the
/// algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Operands may be combined in any order.
    Commutative,
    /// Ranks of a node can read each other's memory.
    SingleCopy,
}

/// The properties of a call on which [`Need`]s depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// How operands may be combined.
    pub order: OperandOrder,
    /// Ranks of a node can read each other's memory. The ranks test this in MPI_Init.
    pub has_single_copy: bool,
}

impl Need {
    /// The text for users that follows "needs …".
    pub const fn name(self) -> &'static str {
        match self {
            Self::Commutative => "a commutative predefined operation",
            Self::SingleCopy => {
                "ranks that may read each other's memory (by process_vm_readv, which the system or HUDDLE_SINGLE_COPY=0 may forbid)"
            }
        }
    }

    /// Whether a call with these means meets the need.
    #[inline]
    pub const fn is_met(self, means: Means) -> bool {
        match self {
            Self::Commutative => matches!(means.order, OperandOrder::Any),
            Self::SingleCopy => means.has_single_copy,
        }
    }
}

/// One call, as agreed by all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The ordinal of the call on its communicator.
    pub epoch: Epoch,
    /// Packed bytes: of the whole buffer (Allreduce, Bcast, Reduce), of one rank's block (Allgather, Scatter), 0
    /// (Barrier).
    pub bytes: Bytes,
    /// Packed bytes of one element of a reduction, else 1: pieces are cut at its multiples.
    pub granule: Bytes,
    /// Root of the rooted collectives, else rank 0.
    pub root: CommRank,
    /// How operands may be combined.
    pub order: OperandOrder,
    /// The knobs that the user or huddle set. The knobs that the algorithm cannot do without are always set.
    pub knobs: Knobs,
    /// Length of this call's [`Place::Scratch`](crate::fabric::Place) on every rank; see [`Algorithm::scratch`].
    pub scratch: Bytes,
    /// How far this call's pieces reach into cells on every rank; see [`Algorithm::REACH`].
    pub reach: Bytes,
}

impl Plan {
    /// This plan with `scratch` and `reach` filled in, as they follow from the algorithm `row` and from `measures`.
    #[must_use]
    pub fn measured(self, row: &Row, measures: &Measures) -> Self {
        Self { scratch: (row.scratch)(&self, measures), reach: row.reach.depth(&self, measures), ..self }
    }

    /// Bytes of a tile: at least one element, and at most a cell of `cell` bytes.
    #[inline]
    pub fn tile(&self, cell: Bytes) -> Bytes {
        self.knobs.tile().max(self.granule).min(cell)
    }

    /// Bytes of a segment, at most a cell of `cell` bytes. Without the knob a segment is a whole cell.
    #[inline]
    pub fn segment(&self, cell: Bytes) -> Bytes {
        match self.knobs.segment() {
            Bytes::ZERO => cell,
            segment => segment.min(cell),
        }
    }
}

/// The properties of the communicator that, with the plan, determine the scratch memory of a call, its depth in cells
/// ([`Reach::depth`]), whether it is short ([`Algorithm::short`]), and how many tickets it may draw ([`most_tickets`]).
#[derive(Clone, Copy, Debug)]
pub struct Measures {
    /// Ranks of the communicator.
    pub ranks: usize,
    /// Nodes of the communicator.
    pub nodes: usize,
    /// Length of a cell.
    pub cell: Bytes,
    /// Cells in each rank's ring.
    pub slots: usize,
}

impl Measures {
    /// The measures of a call on `fabric`.
    #[inline]
    pub fn of<F: Fabric>(fabric: &F) -> Self {
        let layout = fabric.layout();
        Self { ranks: layout.size(), nodes: layout.nodes(), cell: fabric.cell_bytes(), slots: fabric.slots() }
    }
}

/// How far the pieces of a call on one node reach into cells, counted from the start of a cell. That much memory has to
/// be reserved. Unless a variant says otherwise, the algorithm cuts a message that is longer than a cell, a tile or a
/// segment once, as [`pieces_between`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The whole length of the cells.
    Cells,
    /// The length of the message or block, where [`Place::stage`](crate::fabric::Place::stage) places its pieces: zero
    /// if they fit a line.
    Staged,
    /// The length of the blocks of all ranks together, staged: zero if they fit a line.
    StagedBlocks,
    /// The length of the blocks of all ranks but one together, staged: zero if they fit a line.
    StagedOthersBlocks,
    /// The length of staged pieces of at most a tile.
    StagedTiles,
    /// The length of a train, where the tiles of a broadcast share a cell; else the same as `StagedTiles`.
    StagedTrains,
    /// The length of staged pieces of at most a segment.
    StagedSegments,
    /// The length of staged segments, where the algorithm first cuts the message into pieces of at most a cell and then
    /// cuts each of these into segments.
    StagedSegmentsOfCells,
    /// A tile for each rank, or the message if it is shorter.
    Tiles,
    /// A tile, or the message if it is shorter: a relayed message uses cells even if it fits a line.
    RelayedTiles,
}

impl Reach {
    /// Bytes of each cell that the call may use. On several nodes that is the whole cell.
    pub fn depth(self, plan: &Plan, measures: &Measures) -> Bytes {
        if measures.nodes > 1 {
            return measures.cell;
        }
        let tile = plan.tile(measures.cell);
        let staged = |longest| if Room::of(longest) == Room::Lines { Bytes::ZERO } else { longest };
        let pieces_of = |most| longest_between(measures.ranks, plan.bytes, most, plan.granule);
        let depth = match self {
            Self::Cells => measures.cell,
            Self::Staged => staged(pieces_of(measures.cell)),
            Self::StagedBlocks => staged(plan.bytes * measures.ranks),
            Self::StagedOthersBlocks => staged(plan.bytes * (measures.ranks - 1)),
            Self::StagedTiles => staged(pieces_of(tile)),
            Self::StagedTrains => match train_of(plan, plan.bytes, measures.ranks, measures.slots, measures.cell) {
                // A train uses a cell, however short it is.
                Some(train) => plan.bytes.min(train),
                None => staged(pieces_of(tile)),
            },
            // The pieces of one part of the message may be longer than those of the whole message would be.
            Self::StagedSegmentsOfCells if plan.bytes > measures.cell => staged(plan.segment(measures.cell)),
            Self::StagedSegments | Self::StagedSegmentsOfCells => staged(pieces_of(plan.segment(measures.cell))),
            Self::Tiles => plan.bytes.min(tile * measures.ranks),
            Self::RelayedTiles => plan.bytes.min(tile),
        };
        depth.min(measures.cell)
    }
}

/// A collective algorithm.
pub trait Algorithm: 'static {
    /// The collective that it implements.
    const COLLECTIVE: Collective;
    /// Its name in the environment, unique within the collective.
    const NAME: &'static str;
    /// One sentence for people.
    const SUMMARY: &'static str;
    /// Paper and section.
    const SOURCE: &'static str;
    /// What a call costs, in words or as a formula; [`Algorithm::cost`] is the number.
    const COST: &'static str = "";
    /// Its phases as a drawing for five ranks, in lines of at most 100 characters.
    const DRAWING: &'static str = "";
    /// What a call must offer for the algorithm to run.
    const NEEDS: &'static [Need] = &[];
    /// What users may set.
    const KNOBS: &'static [Knob] = &[];
    /// The algorithms in whose place huddle tries this one, which offers data from memory or from slots as they do.
    const TRIED_FOR: &'static [&'static str] = &[];

    /// Whether the ranks of one node, or the leaders of several, exchange in rounds: on one node each takes a ticket.
    const HAS_ROUNDS: bool = false;

    /// How far a call on one node reaches into cells.
    const REACH: Reach = Reach::Cells;

    /// Bytes of scratch that a rank needs for this plan.
    fn scratch(plan: &Plan, measures: &Measures) -> Bytes {
        phase::bridge_scratch(plan, Self::COLLECTIVE, measures)
    }

    /// The time from the last rank's entry to the last rank's exit, as a closed form. `None` means that there is no
    /// formula: then the algorithm runs only where it is forced or tried ([`Algorithm::TRIED_FOR`]).
    fn cost(_plan: &Plan, _scene: &Scene) -> Option<Nanos> {
        None
    }

    /// Whether calls with such a plan are short, and if so where their data lie. Short calls run the functions of their
    /// collective in [`phase::short`]. These take the steps of [`Algorithm::run`] only where that calls them too.
    fn short(_plan: &Plan, _measures: &Measures) -> Option<Short> {
        None
    }

    /// Runs one call. Only barriers run with a plan of zero bytes.
    fn run<F: Fabric>(fabric: &F, plan: &Plan) -> impl Future<Output = ()> + Send;
}

/// Cuts `total` bytes into pieces of at most `most` bytes, each but the last a multiple of `granule`.
///
/// # Panics
/// If `most` is smaller than `granule`: the caller declines such calls.
#[inline]
pub fn pieces(total: Bytes, most: Bytes, granule: Bytes) -> impl Iterator<Item = (Bytes, Bytes)> + Send + use<> {
    let step = most.round_down_to(granule);
    assert!(step.0 > 0, "a piece holds at least one element");
    let mut offset = Bytes::ZERO;
    std::iter::from_fn(move || {
        if offset >= total {
            return None;
        }
        let length = step.min(total - offset);
        let piece = (offset, length);
        offset += length;
        Some(piece)
    })
}

/// The length of the pieces into which `total` bytes are cut where all `ranks` ranks of a node work on each piece. It
/// is at most `most` bytes, and there are no more pieces than there would be of full length.
///
/// Two ranks get pieces of about equal length. A full piece would overlap little with a short last one. The short one
/// would also leave most lines of its cell far from the rank that writes the cell next
/// ([`Passed`](crate::sync::Passed)). Pieces are whole pages, or nearly, since such copies are fastest, unless the last
/// piece would be short then. More ranks lose by equal pieces where they share cores. More ranks with a core each, and
/// two ranks that share one, were not measured (docs/PERFORMANCE.md, "Tried").
#[inline]
pub fn piece_between(ranks: usize, total: Bytes, most: Bytes, granule: Bytes) -> Bytes {
    /// The unit of lengths where whole pages are too long. Copies are as fast (docs/PERFORMANCE.md, "Tried").
    const PART_OF_PAGE: usize = 512;
    let longest = most.round_down_to(granule);
    if ranks != 2 || total <= longest || longest == Bytes::ZERO {
        return most;
    }
    let pieces = total.0.div_ceil(longest.0);
    let even = total.0.div_ceil(pieces);
    let of = |unit: usize| longest.0.min(even.next_multiple_of(unit.next_multiple_of(granule.0)));
    let in_pages = of(PAGE);
    let last = total.0.saturating_sub(in_pages * (pieces - 1));
    Bytes(if last < in_pages / 4 * 3 { of(PART_OF_PAGE) } else { in_pages })
}

/// The longest piece of `piece_between` for a message that is cut once, either anywhere or at multiples of `granule`.
#[inline]
fn longest_between(ranks: usize, total: Bytes, most: Bytes, granule: Bytes) -> Bytes {
    let longest = |granule| piece_between(ranks, total, most, granule);
    total.min(longest(granule).max(longest(Bytes(1))))
}

/// Cuts `total` bytes into pieces of the length that `piece_between` returns, as [`pieces`] does.
#[inline]
pub fn pieces_between(
    ranks: usize,
    total: Bytes,
    most: Bytes,
    granule: Bytes,
) -> impl Iterator<Item = (Bytes, Bytes)> + Send + use<> {
    pieces(total, piece_between(ranks, total, most, granule), granule)
}

/// The part of `n` bytes that rank `rank` of `size` combines in a tiled phase. Parts are nearly equal. They are cut at
/// multiples of `granule` and, if each rank still gets a part then, at multiples of a cache line.
#[inline]
pub fn part(n: Bytes, granule: Bytes, rank: NodeRank, size: usize) -> Range<usize> {
    let granule = granule.0.max(1);
    let unit = if LINE.is_multiple_of(granule) && n.0 >= LINE * size { LINE } else { granule };
    let units = n.0.div_ceil(unit);
    let cut = |rank: usize| (units * rank / size * unit).min(n.0);
    cut(rank.index())..cut(rank.index() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ranks_take_as_few_pieces_of_about_one_length() {
        for (most, granule) in
            [20 << 10, 40 << 10, 128 << 10].into_iter().flat_map(|most| [1, 8, 24, 6000].map(|granule| (most, granule)))
        {
            let unit = PAGE.next_multiple_of(granule);
            for elements in (1..=5 * most / granule).step_by(97) {
                let total = elements * granule;
                let cut = |ranks| {
                    let pieces = pieces_between(ranks, Bytes(total), Bytes(most), Bytes(granule));
                    pieces.map(|(offset, n)| (offset.0, n.0)).collect::<Vec<_>>()
                };
                let [two, more] = [2, 3].map(cut);
                assert_eq!(two.len(), more.len(), "{total} bytes of at most {most}");
                let (first, last) = (two[0].1, two[two.len() - 1].1);
                assert!(two.iter().enumerate().all(|(index, (offset, _))| *offset == index * first), "{two:?}");
                assert!(first <= most && first.is_multiple_of(granule) && last.is_multiple_of(granule), "{two:?}");
                assert_eq!((two.len() - 1) * first + last, total);
                assert!(first - last < two.len() * unit, "{two:?}");
                assert!(granule > 24 || last >= first / 3 * 2, "{two:?}: {total} bytes of at most {most}");
            }
        }
    }
}
