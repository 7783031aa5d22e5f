//! Single copy: a rank that needs data copies them out of the memory of the rank that has them, with no slot between.
//!
//! A rank that has data either lends the memory in which they lie or lays them out in slots. Its first flag tells
//! which. So it alone decides, and may decide differently in two calls. All ranks know before they take another step.
//! What follows in the call draws the same tickets either way. If data take k tickets in slots, the tickets are:
//!
//! ```text
//! in slots        pieces 0 … k-1, then one unused
//! lent            0 tells where, then k unused
//! lent, missed    0 tells where, then pieces 1 … k
//! ```
//!
//! An Allgather draws 2k tickets. In slots: pieces 0 … k-1, then k unused. Lent: 0 tells where, then 2k-1 unused. Lent
//! and missed: pieces k … 2k-1. Nothing follows a short Scatter or Bcast in its call: through slots it draws one
//! ticket, as `flat` does.

use super::composed::{self, Rooted, block_of};
use super::flat::{copy_unless_same, deal_in_pieces, piece_of_block};
use super::short::CellMoves;
use super::tiled::{Tiles, bcast_in_trains};
use super::{Blocks, Dealing, Flat, Local, Sharing, Tiled, exchange, later, others, short};
use crate::coll::bcast_single::BcastSingle;
use crate::coll::{Algorithm, Knob, Measures, Plan, Short, TRY_SLOTS, piece_between, pieces};
use crate::fabric::{Exposed, Fabric, Lending, Line, Place, Room, Source, Span};
use crate::types::{Bytes, CommRank, NodeRank, Ticket};
use std::future::Future;

/// Ranks fetch what the root lends. Whether a rank can fetch shows only when it tries; for ranks that cannot the root
/// fills slots.
#[derive(Clone, Copy, Debug)]
struct Single;

/// Whether ranks lend their memory always, or try both sources, and which of them first.
fn lending(plan: &Plan) -> Lending {
    match plan.knobs.set(Knob::Try) {
        None => Lending::Always,
        Some(TRY_SLOTS) => Lending::Tried(Source::Slots),
        Some(_) => Lending::Tried(Source::Memory),
    }
}

/// Whether a Scatter is short, and if so where its data lie. It may be if the root tries both sources. The root's first
/// flag then tells whether it lends its memory.
pub fn short_scatter(plan: &Plan, measures: &Measures) -> Option<Short> {
    with_trials(plan, Short::of_scatter(plan, measures)?)
}

/// Whether a Bcast is short, and if so how it moves: whole or in halves. It may be if the root tries both sources and
/// the message has at most two tiles. A message that fits a line moves as in `tiled`.
pub fn short_bcast(plan: &Plan, measures: &Measures) -> Option<Short> {
    // Only the reach of the row is reserved in each cell: a tile on a node of more than two ranks.
    let is_reserved = BcastSingle::REACH.depth(plan, measures) == plan.bytes;
    let is_long = plan.bytes > plan.tile(measures.cell) * 2;
    if is_long || !is_reserved || !Room::of(plan.bytes).has_cell() {
        return None;
    }
    with_trials(plan, Short::new(plan, measures, plan.bytes)?)
}

/// The short call with the source with which its trials begin; `None` where nothing is tried.
fn with_trials(plan: &Plan, short: Short) -> Option<Short> {
    let Lending::Tried(first) = lending(plan) else { return None };
    Some(match short.in_cells() {
        Some(moves) => Short::InCells(CellMoves { tried: Some(first), ..moves }),
        None => short,
    })
}

/// The data that a root has for the other ranks of its node.
#[derive(Clone, Copy)]
struct Given {
    root: NodeRank,
    /// Where the data begin.
    from: Span,
    /// Where this rank's part begins, counted from `from`.
    offset: Bytes,
    /// Where this rank's part goes, if anywhere.
    to: Option<Span>,
    /// The length of this rank's part.
    n: Bytes,
}

/// How a root gives the same data through slots.
trait ThroughSlots: Sync {
    /// Moves the data through slots, with the next tickets.
    fn give<F: Fabric>(&self, local: &mut Local<'_, F>, given: Given) -> impl Future<Output = ()> + Send;
    /// The number of tickets that this takes if each rank gets `n` bytes.
    fn tickets(&self, n: Bytes) -> u64;
}

/// Moves the data out of the root's memory or out of its slots, as the root decides.
async fn hand_over<F: Fabric>(local: &mut Local<'_, F>, given: Given, slots: impl ThroughSlots + Send) {
    if !has_lent(local, given, Line::Down, &slots).await {
        slots.give(local, given).await;
        let unused = local.tickets.draw();
        local.fabric.release(unused).await;
    }
}

/// Whether the root lends its memory. The root decides, and the others learn it from its first flag. All count the
/// call.
async fn is_lent<F: Fabric>(local: &Local<'_, F>, given: Given, first_line: Line) -> bool {
    let Given { root, from, n, .. } = given;
    let (fabric, ticket) = (local.fabric, local.tickets.peek());
    let lends = fabric.decide_to_lend((fabric.rank() == root).then_some(from), n, lending(local.plan));
    short::is_lent!(later, fabric, root, lends, first_line, ticket)
}

/// Moves the data out of the root's memory if the root lends it, as its first flag on `line` tells. Ranks that cannot
/// fetch get theirs through `slots`. -> whether the root lends its memory
async fn has_lent<F: Fabric>(
    local: &mut Local<'_, F>,
    given: Given,
    line: Line,
    slots: &(impl ThroughSlots + Send),
) -> bool {
    let lends = is_lent(local, given, line).await;
    if lends {
        hand_over_memory(local, given, line, slots).await;
    }
    lends
}

/// Moves the data out of memory that the root lends; through slots for ranks that cannot fetch.
async fn hand_over_memory<F: Fabric>(
    local: &mut Local<'_, F>,
    given: Given,
    first_line: Line,
    slots: &(impl ThroughSlots + Send),
) {
    let (fabric, ticket) = (local.fabric, local.tickets.draw());
    let is_root = fabric.rank() == given.root;
    // 1. Ranks fetch from memory.
    let lent = Exposed { rank: given.root, line: first_line, ticket, offset: given.offset };
    let is_complete = if is_root { lend(fabric, lent, given).await } else { fetch(fabric, lent, given).await };
    if is_complete {
        let unused = local.tickets.skip(slots.tickets(given.n));
        return fabric.release(unused).await;
    }
    // 2. Ranks that missed their part get it through slots. The root has its own. Ranks that fetched theirs have
    //    returned above, and read none of these slots.
    fabric.release(ticket).await;
    let to = if is_root { None } else { given.to };
    slots.give(local, Given { to, ..given }).await;
}

/// The root tells where the data are, copies its own part, and waits until all others have tried to fetch theirs. ->
/// whether no rank missed its part
async fn lend<F: Fabric>(fabric: &F, lent: Exposed, given: Given) -> bool {
    let Exposed { line, ticket, offset, .. } = lent;
    fabric.claim(ticket, Room::Lines).await;
    fabric.expose(line, ticket, given.from).await;
    fabric.publish(line, ticket).await;
    if let Some(to) = given.to {
        fabric.copy(to, given.from.plus(offset), given.n).await;
    }
    await_answers(fabric, Line::Up, ticket).await
}

/// -> whether all others answer on `line` that they have what this rank lent
async fn await_answers<F: Fabric>(fabric: &F, line: Line, ticket: Ticket) -> bool {
    let mut is_complete = true;
    for rank in others(fabric) {
        fabric.wait(rank, line, ticket).await;
        is_complete &= fabric.answered(rank, line, ticket).await;
    }
    is_complete
}

/// A rank other than the root fetches its part and answers whether it could. -> whether it has its part
async fn fetch<F: Fabric>(fabric: &F, lent: Exposed, given: Given) -> bool {
    let has_it = match given.to {
        Some(to) => fabric.fetch(to, lent, given.n).await,
        // This rank is the root of the call, in place, and another rank deals the blocks of its node.
        None => true,
    };
    fabric.claim(lent.ticket, Room::Lines).await;
    fabric.answer(Line::Up, lent.ticket, has_it).await;
    fabric.publish(Line::Up, lent.ticket).await;
    has_it
}

/// Whether `n` bytes fit the payload of a line. Data that do are not lent.
pub fn fits_line(n: Bytes) -> bool {
    !Room::of(n).has_cell()
}

/// The number of tickets that `n` bytes take in pieces of at most `most` bytes.
fn count_pieces(n: Bytes, most: Bytes) -> u64 {
    pieces(n, most, Bytes(1)).count() as u64
}

/// Blocks that the root deals through slots as in the flat form, in pieces of at most `most` bytes.
struct Dealt {
    from: Blocks,
    most: Bytes,
}

impl ThroughSlots for Dealt {
    async fn give<F: Fabric>(&self, local: &mut Local<'_, F>, Given { root, to, n, .. }: Given) {
        deal_in_pieces(local, root, self.from, to, n, self.most).await;
    }

    fn tickets(&self, n: Bytes) -> u64 {
        count_pieces(n, self.most)
    }
}

/// Blocks of which every rank of the node gets its own.
fn given_block<F: Fabric>(fabric: &F, root: NodeRank, from: Blocks, to: Option<Span>, n: Bytes) -> Given {
    Given { root, from: from.start, offset: from.stride * fabric.rank().index(), to, n }
}

impl Dealing for Single {
    async fn scatter_from<F: Fabric>(
        &self,
        local: &mut Local<'_, F>,
        root: NodeRank,
        from: Blocks,
        to: Option<Span>,
        n: Bytes,
    ) {
        let fabric = local.fabric;
        let most = piece_of_block(fabric);
        if fits_line(n.min(most) * (fabric.size() - 1)) {
            return Flat.scatter_from(local, root, from, to, n).await;
        }
        let given = given_block(fabric, root, from, to, n);
        hand_over(local, given, Dealt { from, most }).await;
    }
}

/// Scatter.
pub async fn scatter<F: Fabric>(fabric: &F, plan: &Plan) {
    let short = match short_scatter(plan, &Measures::of(fabric)) {
        None => return composed::scatter(fabric, plan, Single).await,
        Some(short) => short.in_cells(),
    };
    let Some(short) = short else { return short::scatter(fabric, plan).await };
    let (mut local, root) = (Local::new(fabric, plan), Rooted::of(fabric, plan));
    let (from, n) = (Blocks { start: Place::SendBuf.start(), stride: plan.bytes }, plan.bytes);
    let given = given_block(fabric, root.rank, from, root.own_block(fabric), n);
    let slots = Dealt { from, most: piece_of_block(fabric) };
    if !has_lent(&mut local, given, short.first_line(Line::Down), &slots).await {
        short::scatter(fabric, plan).await;
    }
}

impl ThroughSlots for Tiles {
    async fn give<F: Fabric>(&self, local: &mut Local<'_, F>, given: Given) {
        bcast_in_trains(local, given.root, given.from, given.to, *self).await;
    }

    fn tickets(&self, _: Bytes) -> u64 {
        self.count()
    }
}

/// Bcast. It runs as `tiled` where tiles fit lines, on several nodes, and on one rank.
pub async fn bcast<F: Fabric>(fabric: &F, plan: &Plan) {
    let mut local = Local::new(fabric, plan);
    let has_peers = fabric.layout().nodes() == 1 && fabric.size() > 1;
    let Some(tiles) = Tiles::of(&local, plan.bytes).filter(|_| has_peers) else {
        return composed::bcast(fabric, plan, Tiled::new(Sharing::Naive)).await;
    };
    let (root, buffer) = (Rooted::of(fabric, plan), Place::RecvBuf.start());
    let to = (!root.is_me).then_some(buffer);
    let given = Given { root: root.rank, from: buffer, offset: Bytes::ZERO, to, n: plan.bytes };
    let short = match short_bcast(plan, &Measures::of(fabric)) {
        None => return hand_over(&mut local, given, tiles).await,
        Some(short) => short.in_cells(),
    };
    let Some(short) = short else { return short::bcast(fabric, plan).await };
    if !has_lent(&mut local, given, short.first_line(Line::Down), &tiles).await {
        short::bcast(fabric, plan).await;
    }
}

/// Allgather in which each rank either lends its block or publishes it in pieces, one piece ahead of collecting. A rank
/// that cannot fetch a lent block answers so to all. All lenders then publish their blocks. It runs as `flat` where
/// pieces fit lines, on several nodes, and on one rank.
pub async fn allgather<F: Fabric>(fabric: &F, plan: &Plan) {
    if fabric.layout().nodes() > 1 {
        return composed::allgather(fabric, plan, Flat).await;
    }
    let piece = piece_between(fabric.size(), plan.bytes, plan.tile(fabric.cell_bytes()), Bytes(1));
    if fabric.size() == 1 || fits_line(plan.bytes.min(piece)) {
        return exchange::allgather(fabric, plan, piece).await;
    }
    let local = Local::new(fabric, plan);
    let lends = fabric.decide_to_lend(Some(Place::SendBuf.start()), plan.bytes, lending(plan));
    let first = local.tickets.peek();
    let mut gathering = Gathering { local, first, lends, lenders: Vec::new(), has_missed: false, is_missed: false };
    let mut ahead = None;
    for (offset, n) in pieces(plan.bytes, piece, Bytes(1)) {
        let ticket = gathering.local.tickets.draw();
        gathering.publish(ticket, offset, n).await;
        if let Some((ticket, offset, n)) = ahead.replace((ticket, offset, n)) {
            gathering.collect(ticket, offset, n).await;
        }
    }
    if let Some((ticket, offset, n)) = ahead {
        gathering.collect(ticket, offset, n).await;
    }
    gathering.make_up(piece).await;
}

/// An Allgather, as seen by one rank.
struct Gathering<'a, F> {
    local: Local<'a, F>,
    /// The ticket whose flags tell which ranks lend their blocks.
    first: Ticket,
    /// Whether this rank lends its block.
    lends: bool,
    /// The other ranks that lend theirs.
    lenders: Vec<NodeRank>,
    /// Whether this rank could not fetch a block that another one lent.
    has_missed: bool,
    /// Whether another rank could not fetch a lent block. This rank, if it lends, then publishes its own.
    is_missed: bool,
}

impl<F: Fabric> Gathering<'_, F> {
    fn block(&self, rank: NodeRank) -> Span {
        block_of(self.local.plan, CommRank(rank.0))
    }

    /// Publishes a piece of this rank's block. A lender instead tells with its first flag where the whole block is.
    async fn publish(&self, ticket: Ticket, offset: Bytes, n: Bytes) {
        let (fabric, own) = (self.local.fabric, Place::SendBuf.at(offset));
        if !self.lends {
            self.local.publish_copy(Line::Up, ticket, own, n).await;
        } else if ticket == self.first {
            fabric.claim(ticket, Room::Lines).await;
            fabric.expose(Line::Up, ticket, own).await;
            fabric.publish(Line::Up, ticket).await;
        }
    }

    /// Copies a piece of every block that is in slots. With the first piece it fetches all blocks that are lent.
    async fn collect(&mut self, ticket: Ticket, offset: Bytes, n: Bytes) {
        let fabric = self.local.fabric;
        // A lender copies its whole block with the first piece, since peers fetch all of it; other blocks move piece by
        // piece.
        match (self.lends, ticket == self.first) {
            (true, true) => self.take_own(Bytes::ZERO, self.local.plan.bytes).await,
            (true, false) => {}
            (false, _) => self.take_own(offset, n).await,
        }
        if ticket == self.first {
            self.fetch_lent().await;
        }
        for rank in others(fabric).filter(|rank| !self.lenders.contains(rank)) {
            self.local.receive(rank, Line::Up, ticket, self.block(rank).plus(offset), n).await;
        }
        if ticket == self.first && self.lends {
            self.is_missed = !await_answers(fabric, Line::Down, ticket).await;
        }
        fabric.release(ticket).await;
    }

    async fn take_own(&self, offset: Bytes, n: Bytes) {
        let to = self.block(self.local.fabric.rank()).plus(offset);
        copy_unless_same(self.local.fabric, to, Place::SendBuf.at(offset), n).await;
    }

    /// Fetches all blocks that are lent and answers whether it could, beside the flag of the first ticket, which this
    /// rank has claimed.
    async fn fetch_lent(&mut self) {
        let (fabric, ticket, n) = (self.local.fabric, self.first, self.local.plan.bytes);
        for rank in others(fabric) {
            fabric.wait(rank, Line::Up, ticket).await;
            if fabric.is_exposed(rank, Line::Up, ticket).await {
                let from = Exposed { rank, line: Line::Up, ticket, offset: Bytes::ZERO };
                self.has_missed |= !fabric.fetch(self.block(rank), from, n).await;
                self.lenders.push(rank);
            }
        }
        if !self.lenders.is_empty() {
            fabric.answer(Line::Down, ticket, !self.has_missed).await;
            fabric.publish(Line::Down, ticket).await;
        }
    }

    /// Moves the lent blocks that some rank missed through slots.
    async fn make_up(&mut self, piece: Bytes) {
        let fabric = self.local.fabric;
        if !self.has_missed && !self.is_missed {
            let unused = self.local.tickets.skip(count_pieces(self.local.plan.bytes, piece));
            return fabric.release(unused).await;
        }
        for (offset, n) in pieces(self.local.plan.bytes, piece, Bytes(1)) {
            let ticket = self.local.tickets.draw();
            if self.is_missed {
                self.local.publish_copy(Line::Up, ticket, Place::SendBuf.at(offset), n).await;
            }
            if self.has_missed {
                for rank in &self.lenders {
                    self.local.receive(*rank, Line::Up, ticket, self.block(*rank).plus(offset), n).await;
                }
            }
            fabric.release(ticket).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coll::Knobs;
    use crate::fabric::INLINE;
    use crate::types::{Epoch, OperandOrder};

    /// Whether a Bcast of `n` bytes in tiles of `tile` bytes is short, and if so whether it moves in halves. Slots, of
    /// 4 KiB, and memory are tried.
    fn short([ranks, slots, nodes]: [usize; 3], tile: usize, n: usize) -> Option<bool> {
        let plan = Plan {
            epoch: Epoch(1),
            bytes: Bytes(n),
            granule: Bytes(1),
            root: CommRank(0),
            order: OperandOrder::Any,
            knobs: Knobs::UNSET.with(Knob::Tile, tile as u32).with(Knob::Try, TRY_SLOTS),
            scratch: Bytes::ZERO,
            reach: Bytes::ZERO,
        };
        let measures = Measures { ranks, nodes, cell: Bytes(4096), slots };
        let untried = Plan { knobs: Knobs::UNSET.with(Knob::Tile, tile as u32), ..plan };
        assert!(short_bcast(&untried, &measures).is_none(), "nothing is tried");
        let short = short_bcast(&plan, &measures)?;
        let Short::InCells(CellMoves { in_halves, tried: Some(Source::Slots) }) = short else { panic!("{short:?}") };
        Some(in_halves)
    }

    #[test]
    fn bcasts_of_up_to_two_tiles_in_one_cell_are_short() {
        let (pair, three) = ([2, 8, 1], [3, 8, 1]);
        for (of, tile, n, expected) in [
            (pair, 1024, 1024, Some(false)),
            (pair, 1024, 1025, Some(true)),
            (pair, 1024, 2048, Some(true)),
            (pair, 1024, 2049, None),
            (pair, 4096, 4096, Some(false)),
            (pair, 4096, 4097, None),
            (pair, 64, INLINE.0, None),
            (pair, 64, INLINE.0 + 1, Some(true)),
            // Only a tile is reserved.
            (three, 1024, 1024, Some(false)),
            (three, 1024, 1025, None),
            ([2, 2, 1], 1024, 2048, None),
            ([2, 8, 2], 1024, 1024, None),
        ] {
            assert_eq!(short(of, tile, n), expected, "{n} bytes in tiles of {tile}, {of:?}");
        }
    }
}
