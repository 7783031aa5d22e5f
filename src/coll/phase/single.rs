//! Single copy: who needs data takes them out of the memory of the rank that has them, with no slot between.

use super::tiled::deal_in_tiles;
use super::{Blocks, Dealing, Local, Tiled, others};
use crate::coll::Plan;
use crate::fabric::{Exposed, Fabric, Line, Room, Span};
use crate::types::{Bytes, NodeRank};

/// Ranks fetch from the root. For those that can't, which only shows when they try, it writes tiles.
#[derive(Clone, Copy, Debug)]
pub struct Single {
    otherwise: Tiled,
}

impl Single {
    /// As the knobs of the plan say.
    pub fn of(plan: &Plan) -> Self {
        Self { otherwise: Tiled::of(plan, super::Sharing::Naive) }
    }
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
        let (me, others) = (fabric.rank(), fabric.size() as u64 - 1);
        if others == 0 {
            if let Some(to) = to {
                fabric.copy(to, from.of(me, Bytes::ZERO), n).await;
            }
            return;
        }
        // 1. Blocks are fetched. The root learns of each other rank whether it could, these of themselves.
        let without = if me == root { expose(local, from, to, n).await } else { fetch(local, root, from, to, n).await };
        // 2. Tiles for who is without. A pair of a root and a receiver knows whether it needs them; the tickets are there in any case.
        let piece = self.otherwise.piece(local);
        if without.is_empty() {
            let last = local.tickets.skip(n.0.div_ceil(piece.0) as u64 * others);
            return fabric.release(last).await;
        }
        deal_in_tiles(local, root, from, to, (n, piece), |rank| without.contains(&rank)).await;
    }
}

/// The root tells where the blocks are, takes its own, and waits until all others have tried. -> who is without
async fn expose<F: Fabric>(local: &mut Local<'_, F>, from: Blocks, to: Option<Span>, n: Bytes) -> Vec<NodeRank> {
    let (fabric, ticket) = (local.fabric, local.tickets.draw());
    fabric.claim(ticket, Room::Lines).await;
    fabric.expose(Line::Down, ticket, from.start).await;
    fabric.publish(Line::Down, ticket).await;
    if let Some(to) = to {
        fabric.copy(to, from.of(fabric.rank(), Bytes::ZERO), n).await;
    }
    // A vector of nobody takes no memory.
    let mut without = Vec::new();
    for rank in others(fabric) {
        fabric.wait(rank, Line::Up, ticket).await;
        if !fabric.answered(rank, Line::Up, ticket).await {
            without.push(rank);
        }
    }
    without
}

/// Another rank takes its block, and tells the root whether it could. -> itself where it is without
async fn fetch<F: Fabric>(
    local: &mut Local<'_, F>,
    root: NodeRank,
    from: Blocks,
    to: Option<Span>,
    n: Bytes,
) -> Vec<NodeRank> {
    let (fabric, ticket) = (local.fabric, local.tickets.draw());
    let me = fabric.rank();
    fabric.wait(root, Line::Down, ticket).await;
    let has_it = match to {
        Some(to) => {
            let exposed = Exposed { rank: root, line: Line::Down, ticket, offset: from.stride * me.index() };
            fabric.fetch(to, exposed, n).await
        }
        None => true,
    };
    fabric.claim(ticket, Room::Lines).await;
    fabric.answer(Line::Up, ticket, has_it).await;
    fabric.publish(Line::Up, ticket).await;
    if has_it { Vec::new() } else { vec![me] }
}
