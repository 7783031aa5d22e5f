//! Single copy: who needs data takes them out of the memory of the rank that has them, with no slot between.

use super::tiled::{deal_in_tiles, tiles_dealt};
use super::{Blocks, Dealing, Local, others};
use crate::fabric::{Exposed, Fabric, Line, Room, Span};
use crate::types::{Bytes, NodeRank};

/// Ranks fetch from the root. For those that can't, which only shows when they try, it writes tiles.
#[derive(Clone, Copy, Debug)]
pub struct Single;

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
        let me = fabric.rank();
        if fabric.size() == 1 {
            if let Some(to) = to {
                fabric.copy(to, from.of(me, Bytes::ZERO), n).await;
            }
            return;
        }
        // 1 and 2. Who is without afterwards: the root learns it of all others, these know it of themselves. None takes no memory.
        let without = match me == root {
            true => expose(local, from, to, n).await,
            false if fetch(local, root, from, to, n).await => Vec::new(),
            false => vec![me],
        };
        // 3. Tiles for these. The root and a receiver both know whether it needs them; the tickets are there in any case.
        let piece = local.tile();
        if without.is_empty() {
            let last = local.tickets.skip(tiles_dealt(n, piece, fabric.size()));
            return fabric.release(last).await;
        }
        deal_in_tiles(local, root, from, to, n, piece, |rank| without.contains(&rank)).await;
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
    let mut without = Vec::new();
    for rank in others(fabric) {
        fabric.wait(rank, Line::Up, ticket).await;
        if !fabric.answered(rank, Line::Up, ticket).await {
            without.push(rank);
        }
    }
    without
}

/// Another rank takes its block, and tells the root whether it could. -> the same
async fn fetch<F: Fabric>(local: &mut Local<'_, F>, root: NodeRank, from: Blocks, to: Option<Span>, n: Bytes) -> bool {
    let (fabric, ticket) = (local.fabric, local.tickets.draw());
    let me = fabric.rank();
    fabric.wait(root, Line::Down, ticket).await;
    let has_it = match to {
        Some(to) => {
            let exposed = Exposed { rank: root, line: Line::Down, ticket, offset: from.stride * me.index() };
            fabric.fetch(to, exposed, n).await
        }
        // The root of the call, in place, where another rank deals the blocks of its node.
        None => true,
    };
    fabric.claim(ticket, Room::Lines).await;
    fabric.answer(Line::Up, ticket, has_it).await;
    fabric.publish(Line::Up, ticket).await;
    has_it
}
