//! The relayed form of a reduction: the ranks of a node add their operands one after the other to the same memory, which stays in the caches
//! on its way, while a second relay comes from the other end of the row.
//!
//! Where ranks share cores this spares them most of what the other forms do: an operand is read once, where it is added, in place of being copied to a
//! slot first; and what all of a core's ranks add to is in that core's cache. Two relays in opposite directions keep both halves of the row at work.

use super::crew::Piece;
use super::flat::copy_unless_same;
use super::{Form, Local, Sharing, Tiled, composed};
use crate::coll::{Plan, pieces};
use crate::fabric::{Fabric, Line, Place, Room, Span};
use crate::types::{Bytes, NodeRank, OperandOrder, Ticket};

/// Tickets that a rank takes in one go, where the ring has slots for twice as many: the more, the fewer changes of ranks, and the more memory that has to
/// stay in a cache.
const STINT: usize = 2;

/// So many of them where the ring has `slots` slots.
pub(in crate::coll) fn tickets_in_stint(slots: usize) -> usize {
    STINT.min(slots / 2)
}

/// Reductions by two relays; all else as [`Tiled`].
#[derive(Clone, Copy, Debug)]
pub struct Relay;

impl Relay {
    const REST: Tiled = Tiled::new(Sharing::Naive);
}

impl Form for Relay {
    async fn reduce_to<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, to: Span, from: Span, n: Bytes) {
        let is_root = local.fabric.rank() == root;
        relay(local, is_root.then_some(to), from, n).await;
    }

    async fn bcast_from<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, from: Span, to: Span, n: Bytes) {
        Self::REST.bcast_from(local, root, from, to, n).await;
    }

    async fn gather_to<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, to: Span, from: Span, n: Bytes) {
        Self::REST.gather_to(local, root, to, from, n).await;
    }

    async fn arrive<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank) {
        Self::REST.arrive(local, root).await;
    }

    async fn depart<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank) {
        Self::REST.depart(local, root).await;
    }
}

/// Allreduce in which every rank copies what has come to the end of either relay; several nodes: the form's phases around the leaders' step.
pub async fn allreduce<F: Fabric>(fabric: &F, plan: &Plan) {
    if fabric.layout().nodes() > 1 {
        return composed::allreduce(fabric, plan, Relay).await;
    }
    relay(&mut Local::new(fabric, plan), Some(Place::RecvBuf.start()), Place::SendBuf.start(), plan.bytes).await;
}

/// The way of a relay along the row of ranks, as one of them sees it.
#[derive(Clone, Copy, Debug)]
struct Course {
    /// Whose operand is the first, and in whose cells it grows.
    first: NodeRank,
    /// Who adds the last one.
    last: NodeRank,
    /// From whom this rank takes over, unless it is the first.
    before: Option<NodeRank>,
    /// Up, where operands that are added stand on the right.
    line: Line,
}

impl Course {
    /// Both: the first of them begins in the half of the row in which this rank is, and has come farther when the other one comes.
    fn both<F: Fabric>(local: &Local<'_, F>) -> [Self; 2] {
        let (fabric, last) = (local.fabric, local.fabric.size() as u32 - 1);
        let levels = fabric.levels();
        let (me, rank_at): (_, &dyn Fn(u32) -> NodeRank) = match local.plan.order {
            OperandOrder::Any => (levels.position_of(fabric.rank()), &|position| levels.rank_at(position)),
            OperandOrder::Rank => (fabric.rank().0, &NodeRank),
        };
        let [start, end] = [0, last].map(rank_at);
        let up = Self { first: start, last: end, before: me.checked_sub(1).map(rank_at), line: Line::Up };
        let down = Self { first: end, last: start, before: (me < last).then(|| rank_at(me + 1)), line: Line::Down };
        if 2 * me <= last { [up, down] } else { [down, up] }
    }

    /// Where the operands of that ticket are added up.
    fn sum(&self, ticket: Ticket) -> Span {
        Place::Cell { rank: self.first, line: self.line, ticket }.start()
    }

    /// Adds this rank's operand, of those that begin at `from`, and hands the piece on.
    async fn add<F: Fabric>(&self, fabric: &F, Piece { ticket, offset, length }: Piece, from: Span) {
        let (sum, own) = (self.sum(ticket), from.plus(offset));
        match self.before {
            None => fabric.copy(sum, own, length).await,
            Some(before) => {
                fabric.wait(before, self.line, ticket).await;
                let [left, right] = if self.line == Line::Up { [sum, own] } else { [own, sum] };
                fabric.reduce_alone(sum, left, right, length).await;
            }
        }
        fabric.publish(self.line, ticket).await;
    }

    /// Copies the piece to `to` and on, once all operands are added.
    async fn collect<F: Fabric>(&self, fabric: &F, Piece { ticket, offset, length }: Piece, to: Span) {
        if fabric.rank() != self.last {
            fabric.wait(self.last, self.line, ticket).await;
        }
        fabric.copy(to.plus(offset), self.sum(ticket), length).await;
    }
}

/// What takes one ticket: a piece that goes up the row, and one that goes down, unless the first was the last of the message.
#[derive(Clone, Copy)]
struct Pair {
    up: Piece,
    down: Option<Piece>,
}

impl Pair {
    fn of(&self, course: &Course) -> Option<Piece> {
        if course.line == Line::Up { Some(self.up) } else { self.down }
    }

    /// What a rank has to claim for it: who is the first of a relay has the memory.
    fn room(&self, courses: &[Course; 2]) -> Room {
        let begins = |course: &Course| course.before.is_none() && self.of(course).is_some();
        if courses.iter().any(begins) { Room::Relayed } else { Room::Lines }
    }
}

/// Pairs that a rank takes in one go.
type Stint = [Option<Pair>; STINT];

/// The next pairs of a message, so many at most.
fn next_stint<F: Fabric>(
    local: &mut Local<'_, F>,
    cut: &mut impl Iterator<Item = (Bytes, Bytes)>,
    most: usize,
) -> Option<Stint> {
    let mut pair = || {
        let (offset, length) = cut.next()?;
        let ticket = local.tickets.draw();
        let down = cut.next().map(|(offset, length)| Piece { ticket, offset, length });
        Some(Pair { up: Piece { ticket, offset, length }, down })
    };
    let stint: Stint = std::array::from_fn(|place| if place < most { pair() } else { None });
    stint[0].is_some().then_some(stint)
}

/// Combines `n` bytes at `from` of every rank, in the order of ranks where the plan demands it; who gives a place `to` gets the result there.
async fn relay<F: Fabric>(local: &mut Local<'_, F>, to: Option<Span>, from: Span, n: Bytes) {
    let fabric = local.fabric;
    if fabric.size() == 1 {
        if let Some(to) = to {
            copy_unless_same(fabric, to, from, n).await;
        }
        return;
    }
    let courses = Course::both(local);
    let mut cut = pieces(n, local.tile(), local.plan.granule);
    let most = tickets_in_stint(fabric.slots());
    // What was added in one stint is collected after the next one: by then others have added theirs.
    let mut added: Option<Stint> = None;
    loop {
        let next = next_stint(local, &mut cut, most);
        if let Some(stint) = &next {
            for pair in stint.iter().flatten() {
                fabric.claim(pair.up.ticket, pair.room(&courses)).await;
            }
            for course in &courses {
                for piece in stint.iter().flatten().filter_map(|pair| pair.of(course)) {
                    course.add(fabric, piece, from).await;
                }
            }
        }
        let is_last = next.is_none();
        if let Some(stint) = std::mem::replace(&mut added, next) {
            collect(fabric, &courses, &stint, to).await;
        }
        if is_last {
            return;
        }
    }
}

/// Collects a stint, and releases it.
async fn collect<F: Fabric>(fabric: &F, courses: &[Course; 2], stint: &Stint, to: Option<Span>) {
    if let Some(to) = to {
        // The relay that ends in this rank's half of the row is the nearer one.
        for course in courses.iter().rev() {
            for piece in stint.iter().flatten().filter_map(|pair| pair.of(course)) {
                course.collect(fabric, piece, to).await;
            }
        }
    }
    if let Some(pair) = stint.iter().flatten().last() {
        fabric.release(pair.up.ticket).await;
    }
}
