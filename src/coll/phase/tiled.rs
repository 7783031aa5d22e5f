//! The tiled form: long messages move in tiles that stay in the cache between writer and reader. In reductions every
//! rank combines its own part of all operands (tiled-reduce of Li et al. 2014, §2.4).

use super::crew::{Crew, Piece, Sharing, collect_in_stages, collect_parts, combine_part, publish_operand};
use super::flat::{bcast_in_pieces, copy_unless_same, gather_in_pieces};
use super::{Blocks, Dealing, Flat, Form, Local, composed, ranks};
use crate::coll::{Knob, Plan, piece_between, pieces_between};
use crate::fabric::{Fabric, Line, Place, Room, Span};
use crate::sync::Passed;
use crate::types::{Bytes, NodeRank, PAGE};

/// Moves tiles of the length that [`Plan::tile`] returns.
#[derive(Clone, Copy, Debug)]
pub struct Tiled {
    sharing: Sharing,
}

impl Tiled {
    /// The form; `sharing` affects reductions only.
    pub const fn new(sharing: Sharing) -> Self {
        Self { sharing }
    }

    /// Bytes that one ticket of a tiled reduction moves: a tile for each worker of a group, at most a cell.
    fn reduction_piece<F: Fabric>(&self, local: &Local<'_, F>, crew: &Crew<'_>) -> Bytes {
        (local.tile() * crew.parts()).min(local.fabric.cell_bytes())
    }
}

impl Form for Tiled {
    async fn reduce_to<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, to: Span, from: Span, n: Bytes) {
        let fabric = local.fabric;
        if fabric.size() == 1 {
            return copy_unless_same(fabric, to, from, n).await;
        }
        let crew = Crew::of(local, self.sharing);
        // Each rank publishes one piece ahead of the piece that it combines.
        let mut ahead = None;
        let most = self.reduction_piece(local, &crew);
        for (offset, length) in pieces_between(fabric.size(), n, most, local.plan.granule) {
            let piece = Piece { ticket: local.tickets.draw(), offset, length };
            // The cell is not passed: the root writes its part there after this flag, and nobody waits for the flag of
            // that part.
            publish_operand(local, &crew, piece, from, Room::Cell).await;
            if let Some(piece) = ahead.replace(piece) {
                combine_to(local, &crew, piece, root, to, from).await;
            }
        }
        if let Some(piece) = ahead {
            combine_to(local, &crew, piece, root, to, from).await;
        }
    }

    async fn bcast_from<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, from: Span, to: Span, n: Bytes) {
        let (fabric, tile) = (local.fabric, local.tile());
        match train_of(local.plan, n, fabric.size(), fabric.slots(), fabric.cell_bytes()) {
            Some(in_cell) => {
                let tiles = Tiles { n, tile, in_cell };
                bcast_in_trains(local, root, from, Some(to), tiles).await;
            }
            None => bcast_in_pieces(local, root, from, to, n, tile).await,
        }
    }

    async fn gather_to<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank, to: Span, from: Span, n: Bytes) {
        let piece = local.tile();
        gather_in_pieces(local, root, to, from, n, piece).await;
    }

    async fn arrive<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank) {
        Flat.arrive(local, root).await;
    }

    async fn depart<F: Fabric>(&self, local: &mut Local<'_, F>, root: NodeRank) {
        Flat.depart(local, root).await;
    }
}

impl Dealing for Tiled {
    /// One ticket per tile and receiver, so that the root writes the next tile while a receiver reads this one. All
    /// ranks draw and release every ticket.
    async fn scatter_from<F: Fabric>(
        &self,
        local: &mut Local<'_, F>,
        root: NodeRank,
        from: Blocks,
        to: Option<Span>,
        n: Bytes,
    ) {
        let fabric = local.fabric;
        let me = fabric.rank();
        for (offset, length) in pieces_between(fabric.size(), n, local.tile(), Bytes(1)) {
            for rank in ranks(fabric).filter(|rank| *rank != root) {
                let ticket = local.tickets.draw();
                if me == root {
                    local.publish_copy(Line::Down, ticket, from.of(rank, offset), length).await;
                } else if me == rank {
                    fabric.wait(root, Line::Down, ticket).await;
                    if let Some(to) = to {
                        let stage = Place::stage(root, Line::Down, ticket, length).start();
                        fabric.copy(to.plus(offset), stage, length).await;
                    }
                }
                fabric.release(ticket).await;
            }
            if let (true, Some(to)) = (me == root, to) {
                fabric.copy(to.plus(offset), from.of(me, offset), length).await;
            }
        }
    }
}

/// The length of a train: bytes of a broadcast's message of `n` bytes that lie one behind the other in a cell. `None`
/// where a cell holds one tile only. There are trains on a node of two ranks, unless the plan sets how many cells the
/// root has. With more ranks cells are not passed, and tiles with a cell each go round in less memory.
pub(in crate::coll) fn train_of(plan: &Plan, n: Bytes, ranks: usize, slots: usize, cell: Bytes) -> Option<Bytes> {
    let tile = plan.tile(cell);
    // The reader releases no ticket of a train before the last one, so a train has at most `slots` tickets. One of its
    // tiles may be shorter than the others.
    let train = (tile * (slots - 1)).min(cell);
    let may_share = Passed::is_for(ranks) && plan.knobs.set(Knob::Buffers).is_none();
    (may_share && train > tile && n > tile && Room::of(n).has_cell()).then(|| piece_between(ranks, n, train, Bytes(1)))
}

/// A broadcast's message in tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiles {
    /// Length of the message.
    n: Bytes,
    /// Bytes of a tile.
    tile: Bytes,
    /// Bytes of the message that lie one behind the other in a cell: a train, or a tile.
    in_cell: Bytes,
}

/// One tile of the message.
#[derive(Clone, Copy, Debug)]
struct Tile {
    /// Where it lies in the message.
    offset: Bytes,
    /// Where it lies in its cell; 0 for the first tile of a cell.
    at: Bytes,
    length: Bytes,
    is_last_of_cell: bool,
}

impl Tiles {
    /// The tiles of a message of `n` bytes, in trains where tiles may share cells. `None` where tiles fit lines.
    pub fn of<F: Fabric>(local: &Local<'_, F>, n: Bytes) -> Option<Self> {
        let (fabric, tile) = (local.fabric, local.tile());
        let train = train_of(local.plan, n, fabric.size(), fabric.slots(), fabric.cell_bytes());
        let lone = Room::of(n.min(tile)).has_cell().then(|| piece_between(fabric.size(), n, tile, Bytes(1)));
        train.or(lone).map(|in_cell| Self { n, tile, in_cell })
    }

    /// All tiles in order. The first one is half as long as the others, since the reader has nothing else to do
    /// meanwhile. If it is longer than a page it is whole pages.
    fn each(self) -> impl Iterator<Item = Tile> + Send {
        let half = match Bytes(self.tile.0.div_ceil(2)) {
            long if long.0 > PAGE => Bytes(long.0.next_multiple_of(PAGE)),
            short => short,
        };
        let (mut offset, mut at) = (Bytes::ZERO, Bytes::ZERO);
        std::iter::from_fn(move || {
            let room = (self.in_cell - at).min(self.n - offset);
            let length = if offset == Bytes::ZERO { half } else { self.tile }.min(room);
            let tile = Tile { offset, at, length, is_last_of_cell: length == room };
            offset += length;
            at = if tile.is_last_of_cell { Bytes::ZERO } else { at + length };
            (length > Bytes::ZERO).then_some(tile)
        })
    }

    /// The number of tiles.
    pub fn count(self) -> u64 {
        self.each().count() as u64
    }
}

/// Broadcasts in tiles, with one ticket per tile. The ticket of the first tile of a cell claims the cell; the others
/// claim only their lines, and their flags tell of more data in that cell. A cell for each tile costs more than a flag
/// does, and the reader is faster where pages follow each other.
pub(super) async fn bcast_in_trains<F: Fabric>(
    local: &mut Local<'_, F>,
    root: NodeRank,
    from: Span,
    to: Option<Span>,
    tiles: Tiles,
) {
    let fabric = local.fabric;
    let mut first_of_cell = local.tickets.peek();
    for Tile { offset, at, length, is_last_of_cell } in tiles.each() {
        let ticket = local.tickets.draw();
        if at == Bytes::ZERO {
            first_of_cell = ticket;
        }
        let cell = Place::Cell { rank: root, line: Line::Down, ticket: first_of_cell };
        if fabric.rank() == root {
            fabric.claim(ticket, if ticket == first_of_cell { Room::Passed } else { Room::Lines }).await;
            fabric.copy(cell.at(at), from.plus(offset), length).await;
            fabric.publish(Line::Down, ticket).await;
        } else {
            fabric.wait(root, Line::Down, ticket).await;
            if offset + length < tiles.n {
                fabric.expect_flag(root, Line::Down, local.tickets.peek());
            }
            if let Some(to) = to {
                fabric.copy(to.plus(offset), cell.at(at), length).await;
            }
        }
        if is_last_of_cell {
            fabric.release(ticket).await;
        }
    }
}

/// The steps after this rank has published its operand: it combines its part, and the root then collects all parts.
async fn combine_to<F: Fabric>(
    local: &Local<'_, F>,
    crew: &Crew<'_>,
    piece: Piece,
    root: NodeRank,
    to: Span,
    from: Span,
) {
    let is_root = local.fabric.rank() == root;
    combine_part(local, crew, piece, from, is_root.then_some(to)).await;
    if is_root {
        collect_parts(local, crew, piece, to).await;
    }
    local.fabric.release(piece.ticket).await;
}

/// Allreduce in which every rank collects the parts itself. On several nodes: the form's phases around the leaders'
/// step.
pub async fn allreduce<F: Fabric>(fabric: &F, plan: &Plan, form: Tiled) {
    if fabric.layout().nodes() > 1 || fabric.size() == 1 {
        return composed::allreduce(fabric, plan, form).await;
    }
    let mut local = Local::new(fabric, plan);
    let crew = Crew::of(&local, form.sharing);
    let (from, to) = (Place::SendBuf.start(), Place::RecvBuf.start());
    let most = form.reduction_piece(&local, &crew);
    let pieces = pieces_between(fabric.size(), plan.bytes, most, plan.granule);
    if crew.groups() > 1 && plan.knobs.get(Knob::Stages) > 1 {
        for (offset, length) in pieces {
            let piece = Piece { ticket: local.tickets.draw(), offset, length };
            publish_operand(&local, &crew, piece, from, Room::Passed).await;
            combine_part(&local, &crew, piece, from, Some(to)).await;
            collect_in_stages(&mut local, &crew, piece, to).await;
        }
        return;
    }
    // A rank publishes one piece ahead of the piece that it combines. If the ring has slots for three pieces it
    // collects one piece behind that one, so that peers have time to combine theirs.
    let has_room = fabric.slots() > 2;
    let (mut published, mut combined) = (None, None);
    for next in pieces.map(Some).chain([None; 2]) {
        let next = next.map(|(offset, length)| Piece { ticket: local.tickets.draw(), offset, length });
        if let Some(piece) = next {
            publish_operand(&local, &crew, piece, from, Room::Passed).await;
        }
        let piece = std::mem::replace(&mut published, next);
        if let Some(piece) = piece {
            combine_part(&local, &crew, piece, from, Some(to)).await;
        }
        let behind = std::mem::replace(&mut combined, piece);
        if let Some(piece) = if has_room { behind } else { piece } {
            collect_parts(&local, &crew, piece, to).await;
            fabric.release(piece.ticket).await;
        }
    }
}
