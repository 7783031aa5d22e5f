//! The relayed form of a reduction: the ranks of a node combine their operands one after the other in the same memory.
//! That memory stays in the caches on its way. A second relay runs in the opposite direction.
//!
//! Where ranks share cores this saves most of the work of the other forms. Each operand is read once, where it is
//! combined, in place of being copied to a slot first. The memory in which all ranks of a core combine is in that
//! core's cache. Two relays in opposite directions keep the ranks at both ends at work.

use super::crew::Piece;
use super::flat::copy_unless_same;
use super::{Form, Local, Sharing, Tiled, composed};
use crate::coll::{Plan, pieces};
use crate::fabric::{Fabric, Line, Place, Room, Span};
use crate::types::{Bytes, NodeRank, OperandOrder, Ticket};

/// Tickets of a stint, if the ring has slots for twice as many. More tickets mean fewer changes of ranks. They also
/// mean more memory that has to stay in a cache: for both relays, the pieces of the stint that is combined and of the
/// one before.
const STINT: usize = 2;

/// Tickets of a stint where the ring has `slots` slots.
pub(in crate::coll) fn tickets_in_stint(slots: usize) -> usize {
    STINT.min(slots / 2)
}

/// Reductions by two relays; all other phases as in [`Tiled`].
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

/// Allreduce in which every rank copies the complete result. On several nodes: the form's phases around the leaders'
/// step.
pub async fn allreduce<F: Fabric>(fabric: &F, plan: &Plan) {
    if fabric.layout().nodes() > 1 {
        return composed::allreduce(fabric, plan, Relay).await;
    }
    relay(&mut Local::new(fabric, plan), Some(Place::RecvBuf.start()), Place::SendBuf.start(), plan.bytes).await;
}

/// The order in which a relay visits the ranks, as seen by one of them.
#[derive(Clone, Copy, Debug)]
struct Chain {
    /// The rank whose operand is the first. All operands are combined in its cells.
    first: NodeRank,
    /// The rank whose operand is the last.
    last: NodeRank,
    /// The rank from which this rank takes over; `None` for the first.
    before: Option<NodeRank>,
    /// Up if the relay ascends, so that this rank's operand is the right one; Down if it descends.
    line: Line,
}

impl Chain {
    /// Both relays of `size` ranks, as seen by the rank at `position`. The first of the two begins in this rank's half.
    fn both(size: usize, position: u32, rank_at: impl Fn(u32) -> NodeRank) -> [Self; 2] {
        let end = size as u32 - 1;
        let [bottom, top] = [0, end].map(&rank_at);
        let up = Self { first: bottom, last: top, before: position.checked_sub(1).map(&rank_at), line: Line::Up };
        let above = (position < end).then(|| rank_at(position + 1));
        let down = Self { first: top, last: bottom, before: above, line: Line::Down };
        if 2 * position <= end { [up, down] } else { [down, up] }
    }

    /// Both relays of a call: by position, or by rank where operands keep their order.
    fn of<F: Fabric>(local: &Local<'_, F>) -> [Self; 2] {
        let (fabric, levels) = (local.fabric, local.fabric.levels());
        match local.plan.order {
            OperandOrder::Any => {
                Self::both(fabric.size(), levels.position_of(fabric.rank()), |position| levels.rank_at(position))
            }
            OperandOrder::Rank => Self::both(fabric.size(), fabric.rank().0, NodeRank),
        }
    }

    /// Where the relay combines the operands of that ticket.
    fn partial(&self, ticket: Ticket) -> Span {
        Place::Cell { rank: self.first, line: self.line, ticket }.start()
    }

    /// Combines this rank's operand of the piece, where its operands begin at `from`, and publishes the result for the
    /// next rank.
    async fn combine<F: Fabric>(&self, fabric: &F, Piece { ticket, offset, length }: Piece, from: Span) {
        let (partial, own) = (self.partial(ticket), from.plus(offset));
        match self.before {
            None => fabric.copy(partial, own, length).await,
            Some(before) => {
                fabric.wait(before, self.line, ticket).await;
                let [left, right] = if self.line == Line::Up { [partial, own] } else { [own, partial] };
                fabric.reduce(partial, left, right, length).await;
            }
        }
        fabric.publish(self.line, ticket).await;
    }

    /// Waits until all operands of the piece are combined, and copies it to its offset from `to` on.
    async fn collect<F: Fabric>(&self, fabric: &F, Piece { ticket, offset, length }: Piece, to: Span) {
        if fabric.rank() != self.last {
            fabric.wait(self.last, self.line, ticket).await;
        }
        fabric.copy(to.plus(offset), self.partial(ticket), length).await;
    }
}

/// The pieces of one ticket: one that ascends and one that descends. None descends if the ascending one is the last of
/// the message.
#[derive(Clone, Copy)]
struct Pair {
    up: Piece,
    down: Option<Piece>,
}

impl Pair {
    fn piece_of(&self, chain: &Chain) -> Option<Piece> {
        if chain.line == Line::Up { Some(self.up) } else { self.down }
    }

    /// What this rank claims for the pair: memory if it is the first of a relay that has a piece, else lines alone.
    fn room(&self, chains: &[Chain; 2]) -> Room {
        let begins = |chain: &Chain| chain.before.is_none() && self.piece_of(chain).is_some();
        if chains.iter().any(begins) { Room::Relayed } else { Room::Lines }
    }
}

/// Pairs that a rank combines without a pause, before it collects those of the stint before.
type Stint = [Option<Pair>; STINT];

/// The next pairs of a message, at most `most`; `None` at the end of the message.
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

fn pieces_of(stint: &Stint, chain: &Chain) -> impl Iterator<Item = Piece> + Send {
    stint.iter().flatten().filter_map(|pair| pair.piece_of(chain))
}

/// Combines `n` bytes at `from` of every rank, in rank order where the plan demands it. The result is copied to `to` on
/// each rank that passes one.
async fn relay<F: Fabric>(local: &mut Local<'_, F>, to: Option<Span>, from: Span, n: Bytes) {
    let fabric = local.fabric;
    if fabric.size() == 1 {
        if let Some(to) = to {
            copy_unless_same(fabric, to, from, n).await;
        }
        return;
    }
    let chains = Chain::of(local);
    let mut cut = pieces(n, local.tile(), local.plan.granule);
    let most = tickets_in_stint(fabric.slots());
    // A rank collects the pieces of a stint after it has combined the next one: by then others have combined theirs.
    let mut combined: Option<Stint> = None;
    while let Some(stint) = next_stint(local, &mut cut, most) {
        for pair in stint.iter().flatten() {
            fabric.claim(pair.up.ticket, pair.room(&chains)).await;
        }
        for chain in &chains {
            for piece in pieces_of(&stint, chain) {
                chain.combine(fabric, piece, from).await;
            }
        }
        if let Some(before) = combined.replace(stint) {
            collect(fabric, &chains, &before, to).await;
        }
    }
    if let Some(last) = combined {
        collect(fabric, &chains, &last, to).await;
    }
}

/// Copies the results of a stint to `to`, if there is one, and releases the stint.
async fn collect<F: Fabric>(fabric: &F, chains: &[Chain; 2], stint: &Stint, to: Option<Span>) {
    if let Some(to) = to {
        // The relay that ends in this rank's half comes first: it is the nearer one.
        for chain in chains.iter().rev() {
            for piece in pieces_of(stint, chain) {
                chain.collect(fabric, piece, to).await;
            }
        }
    }
    if let Some(pair) = stint.iter().flatten().last() {
        fabric.release(pair.up.ticket).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_chains_come_to_every_rank_once() {
        for size in 2..9_usize {
            // Positions in an order that differs from that of ranks.
            let rank_at = |position: u32| NodeRank((position * 5 + 3) % 9);
            let chains = |position| {
                let chains = Chain::both(size, position, rank_at);
                assert_eq!(chains[0].line == Line::Up, 2 * (position as usize) < size, "{position} of {size}");
                chains
            };
            for line in [Line::Up, Line::Down] {
                let of = |position| chains(position).into_iter().find(|chain| chain.line == line).expect("a chain");
                let ends = [0, size as u32 - 1].map(rank_at);
                let mut order: Vec<u32> = (0..size as u32).collect();
                if line == Line::Down {
                    order.reverse();
                }
                for (index, position) in order.iter().enumerate() {
                    let before = index.checked_sub(1).map(|before| rank_at(order[before]));
                    assert_eq!(of(*position).before, before, "{position} of {size}");
                    let [first, last] = [of(*position).first, of(*position).last];
                    assert_eq!([first, last], if line == Line::Up { ends } else { [ends[1], ends[0]] });
                }
            }
        }
    }

    #[test]
    fn what_is_under_way_fits_any_ring() {
        assert_eq!([2, 4, 8, 64].map(tickets_in_stint), [1, 2, 2, 2]);
        assert!([2, 4, 8].into_iter().all(|slots| 2 * tickets_in_stint(slots) <= slots));
    }
}
