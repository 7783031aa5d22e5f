//! What the ranks of one node do together within a call: the phases of which collectives are composed, in four forms
//! ([`Form`]), and single copies for collectives that only move data.
//!
//! On one node a collective is one phase or two. On several nodes it is phases around a step of the leaders
//! ([`composed`]), the chaining of Tanase et al. §4: local reduce, leader reduce, leader broadcast, local broadcast.

use super::{Knob, Measures, Plan, Tickets};
use crate::fabric::{Fabric, Line, Place, Room, Span};
use crate::types::{Bytes, Collective, NodeRank, OperandOrder, Ticket};
use std::future::Future;

mod between;
pub mod composed;
mod crew;
pub mod dissemination;
pub mod exchange;
mod flat;
pub mod relay;
pub mod short;
pub mod single;
pub mod tiled;
mod tree;

use flat::copy_unless_same;

pub use between::Between;
pub use crew::Sharing;
pub use flat::Flat;
pub use relay::Relay;
pub use tiled::Tiled;
pub use tree::Tree;

/// Combines the operands of all ranks of the node at `$to`, in rank order. `$operand` maps a rank to the place of its
/// operand, which the rank publishes on `$line` for `$ticket`; the operand of `$me` is there already. The first step
/// overwrites `$to`. `$turns` is the order in which the macro visits the operands.
///
/// `$step` takes a step of the fabric: see [`short`].
macro_rules! combine_in_rank_order {
    ($step:ident, $fabric:ident, $me:ident, $line:expr, $ticket:ident, $to:ident, $operand:ident, $n:ident, $turns:ident) => {
        let first = $turns.at(0);
        // The flag of an operand in a cell tells where it is, so wait before asking for the place.
        if $me != first {
            $step!($fabric.wait(first, $line, $ticket));
        }
        let mut combined = $operand(first);
        for rank in (1..$fabric.size()).map(|turn| $turns.at(turn)) {
            if rank != $me {
                $step!($fabric.wait(rank, $line, $ticket));
            }
            let [left, right] = $turns.sorted(combined, $operand(rank));
            $step!($fabric.reduce($to, left, right, $n));
            combined = $to;
        }
    };
}
pub(super) use combine_in_rank_order;
pub(super) use short::later;

/// The order in which several operands are visited. Each one is a neighbour of those visited before.
#[derive(Clone, Copy)]
pub(super) struct Sequence {
    last: usize,
    is_from_last: bool,
}

impl Sequence {
    /// The order for `operands` operands. A user's function replaces its right operand by the result. If the result
    /// were the left operand, it would have to be copied back and forth, so the visit begins with the last operand.
    /// Kernels begin with the first one: in some trees it is there first, and it is the operand of the usual root.
    #[inline(always)]
    pub fn of(plan: &Plan, operands: usize) -> Self {
        Self { last: operands - 1, is_from_last: plan.order == OperandOrder::Rank }
    }

    /// The index of the operand that is visited in turn `turn`.
    #[inline(always)]
    pub fn place_at(self, turn: usize) -> usize {
        if self.is_from_last { self.last - turn } else { turn }
    }

    /// The rank whose operand is visited in turn `turn`, where the operands are those of all ranks of a node.
    #[inline(always)]
    pub fn at(self, turn: usize) -> NodeRank {
        NodeRank(self.place_at(turn) as u32)
    }

    /// Whether the operand at `place` is still unused when the first step, which takes two operands, has overwritten
    /// the result.
    #[inline(always)]
    pub fn is_after_first_step(self, place: usize) -> bool {
        // Each order is its own inverse.
        self.place_at(place) >= 2
    }

    /// The left and the right operand of a step that combines what is `combined` so far with the `next` operand.
    #[inline(always)]
    pub fn sorted<T>(self, combined: T, next: T) -> [T; 2] {
        if self.is_from_last { [next, combined] } else { [combined, next] }
    }
}

/// Default length of the longest chunk of a message that takes one step between nodes. It bounds the scratch memory of
/// a call.
const LONGEST_CHUNK: Bytes = Bytes(256 << 10);
/// Shortest chunk into which a message is cut for several leaders.
const SHORTEST_CHUNK: usize = 16 << 10;

/// Longest chunk of a message of `whole` bytes, those of all ranks together. Several leaders get two chunks each.
pub fn longest_chunk(plan: &Plan, whole: Bytes) -> Bytes {
    let leaders = plan.knobs.get(Knob::Leaders) as usize;
    match plan.knobs.set(Knob::Chunk) {
        Some(chunk) => Bytes(chunk as usize),
        None if leaders > 1 => Bytes((whole.0 / (2 * leaders)).clamp(SHORTEST_CHUNK, LONGEST_CHUNK.0)),
        None => LONGEST_CHUNK,
    }
}

/// Bytes of each rank's block that one step between nodes moves (Allgather, Scatter).
pub fn bridge_block(plan: &Plan, ranks: usize) -> Bytes {
    plan.bytes.min(Bytes((longest_chunk(plan, plan.bytes * ranks).0 / ranks).max(1)))
}

/// Scratch memory that a whole call needs for its steps between nodes; zero on one node.
pub fn bridge_scratch(plan: &Plan, collective: Collective, measures: &Measures) -> Bytes {
    if measures.nodes == 1 {
        return Bytes::ZERO;
    }
    match collective {
        Collective::Barrier => Bytes::ZERO,
        Collective::Allreduce | Collective::Bcast | Collective::Reduce => Between::Native.scratch(plan, measures.nodes),
        Collective::Allgather | Collective::Scatter => {
            let areas = if composed::has_second_area(plan) { 2 } else { 1 };
            bridge_block(plan, measures.ranks) * measures.ranks * areas
        }
    }
}

/// The ranks of a node at work on one call.
pub struct Local<'a, F> {
    /// The operations that this rank may use.
    pub fabric: &'a F,
    /// What all ranks agreed on.
    pub plan: &'a Plan,
    /// The tickets that the call has not drawn yet.
    pub tickets: Tickets,
}

impl<'a, F: Fabric> Local<'a, F> {
    /// The state at the start of a call.
    pub fn new(fabric: &'a F, plan: &'a Plan) -> Self {
        Self { fabric, plan, tickets: Tickets::of(plan) }
    }

    /// Bytes of a tile in this rank's cells.
    pub fn tile(&self) -> Bytes {
        self.plan.tile(self.fabric.cell_bytes())
    }

    /// Claims the slot of `ticket`, copies `n` bytes to where the readers of `line` look for them, and publishes.
    pub async fn publish_copy(&self, line: Line, ticket: Ticket, from: Span, n: Bytes) {
        self.publish_copy_in(Room::passing(n), line, ticket, from, n).await;
    }

    /// The same as `publish_copy`, in a slot that this rank claims as `room`.
    pub async fn publish_copy_in(&self, room: Room, line: Line, ticket: Ticket, from: Span, n: Bytes) {
        let fabric = self.fabric;
        fabric.claim(ticket, room).await;
        fabric.copy(Place::stage(fabric.rank(), line, ticket, n).start(), from, n).await;
        fabric.publish(line, ticket).await;
    }

    /// Waits for the `n` bytes that `rank` publishes and copies them to `to`.
    pub async fn receive(&self, rank: NodeRank, line: Line, ticket: Ticket, to: Span, n: Bytes) {
        self.fabric.wait(rank, line, ticket).await;
        self.fabric.copy(to, Place::stage(rank, line, ticket, n).start(), n).await;
    }

    /// Moves `n` bytes from rank `source` of the node to rank `target`. All ranks of the node call it.
    pub async fn send(&mut self, source: NodeRank, from: Span, target: NodeRank, to: Span, n: Bytes) {
        let me = self.fabric.rank();
        for (offset, length) in super::pieces(n, self.fabric.cell_bytes(), Bytes(1)) {
            let ticket = self.tickets.draw();
            if me == source {
                self.publish_copy(Line::Down, ticket, from.plus(offset), length).await;
            } else if me == target {
                self.receive(source, Line::Down, ticket, to.plus(offset), length).await;
            }
            self.fabric.release(ticket).await;
        }
    }
}

/// One way for the ranks of a node to work together. All ranks of the node call each phase, with the same lengths.
pub trait Form: Sync {
    /// Combines `n` bytes at `from` of every rank into `to` on rank `root`, in rank order where the plan demands it.
    /// `to` may be the same memory as `from`.
    fn reduce_to<F: Fabric>(
        &self,
        local: &mut Local<'_, F>,
        root: NodeRank,
        to: Span,
        from: Span,
        n: Bytes,
    ) -> impl Future<Output = ()> + Send;

    /// Copies `n` bytes at `from` on rank `root` to `to` on all others.
    fn bcast_from<F: Fabric>(
        &self,
        local: &mut Local<'_, F>,
        root: NodeRank,
        from: Span,
        to: Span,
        n: Bytes,
    ) -> impl Future<Output = ()> + Send;

    /// Copies `n` bytes at `from` of rank `r` to `to + r * n` on rank `root`.
    fn gather_to<F: Fabric>(
        &self,
        local: &mut Local<'_, F>,
        root: NodeRank,
        to: Span,
        from: Span,
        n: Bytes,
    ) -> impl Future<Output = ()> + Send;

    /// Ready on `root` when all ranks have called it; on the other ranks ready without waiting for `root`.
    fn arrive<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank) -> impl Future<Output = ()> + Send;

    /// Ready when `root` has called it.
    fn depart<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank) -> impl Future<Output = ()> + Send;
}

/// One way to give each rank of a node its block.
pub trait Dealing: Sync {
    /// Copies `n` bytes from the block of rank `r` in `from` on rank `root` to `to` on rank `r`; nowhere where `to` is
    /// `None`.
    fn scatter_from<F: Fabric>(
        &self,
        local: &mut Local<'_, F>,
        root: NodeRank,
        from: Blocks,
        to: Option<Span>,
        n: Bytes,
    ) -> impl Future<Output = ()> + Send;
}

/// Blocks at equal distances, one per rank of the node.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    /// The first block.
    pub start: Span,
    /// The distance from one block to the next.
    pub stride: Bytes,
}

impl Blocks {
    /// The block of `rank`, from `offset` on.
    #[inline]
    pub fn of(&self, rank: NodeRank, offset: Bytes) -> Span {
        self.start.plus(self.stride * rank.index() + offset)
    }
}

/// The index of the block of `rank` in the slot of `root`. The slot holds the blocks of all other ranks of `size`,
/// beginning with that of the root's successor.
#[inline]
pub fn block_in_slot(root: NodeRank, rank: NodeRank, size: usize) -> usize {
    let ahead = if rank.0 > root.0 { 0 } else { size };
    ahead + rank.index() - root.index() - 1
}

/// All ranks of the node, ascending.
#[inline]
pub fn ranks<F: Fabric>(fabric: &F) -> impl Iterator<Item = NodeRank> + Send + use<F> {
    (0..fabric.size() as u32).map(NodeRank)
}

/// All other ranks of the node, beginning with this rank's successor, so that readers spread over the writers.
#[inline]
pub fn others<F: Fabric>(fabric: &F) -> impl Iterator<Item = NodeRank> + Send + use<F> {
    others_than(fabric.rank(), fabric.size())
}

/// All ranks of `size` other than `me`, beginning with its successor.
#[inline]
pub fn others_than(me: NodeRank, size: usize) -> impl Iterator<Item = NodeRank> + Send {
    let (me, size) = (me.0, size as u32);
    (me + 1..size).chain(0..me).map(NodeRank)
}
