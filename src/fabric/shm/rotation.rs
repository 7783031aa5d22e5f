//! Where in their cells the pieces of a call lie.

use crate::types::{Bytes, RingLengths, Ticket};

/// Shorter pieces are read from the caches faster than written: they stay at the start of their cells.
pub const ROTATED: Bytes = Bytes(4096);

/// The places in cells that a call's pieces take in turn.
///
/// Pieces that are shorter than cells would use the same memory again after a few calls, while the peers that read it have its
/// lines in their caches still: each write then has to take the lines from these, which takes three times as long as to copy, or
/// more (docs/PERFORMANCE.md, "Tried"). So they go round in as much of the cells as all ranks have reserved. Who reads a piece
/// finds it by the same rule, from what all agree on; the claim of a slot covers all of its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rotation {
    rings: RingLengths,
    /// Bytes from one place to the next, as a power of two.
    stride: u32,
    /// How many there are, as a power of two.
    places: u32,
    /// Steps of a call that have cells of their own, as a power of two.
    steps: u32,
    /// How often a call goes round the ring, as a power of two.
    rounds: u32,
}

impl Rotation {
    /// Pieces are at the start of their cells.
    #[inline]
    pub fn none(rings: RingLengths) -> Self {
        Self { rings, stride: 0, places: 0, steps: 0, rounds: 0 }
    }

    /// For pieces of at most `reach` bytes of messages of `bytes`, in cells of each of which all ranks have `reserved` bytes.
    #[inline]
    pub fn new(rings: RingLengths, bytes: Bytes, reach: Bytes, reserved: Bytes) -> Self {
        if reach < ROTATED {
            return Self::none(rings);
        }
        let stride = reach.0.next_power_of_two().trailing_zeros();
        let Some(places) = (reserved.0 >> stride).checked_ilog2() else { return Self::none(rings) };
        let pieces = (bytes.0 >> stride).max(1).next_power_of_two().trailing_zeros();
        let steps = pieces.min(rings.cells.trailing_zeros());
        Self { rings, stride, places, steps, rounds: pieces - steps }
    }

    /// How far from the start of its cell a ticket's piece lies. Within a lap a slot is used for the last step of a call, for an
    /// earlier one of a later call, and so on to the first: it counts its uses so, and these have its places in turn.
    #[inline]
    pub fn offset(&self, ticket: Ticket) -> usize {
        let ring = self.rings.cells.trailing_zeros();
        let round = ticket.step() as usize >> ring;
        let step = (self.rings.spread(ticket.step()) as usize >> (ring - self.steps)) & ((1 << self.steps) - 1);
        let call = ((self.rings.lap(ticket) - round + 1) << self.steps) - 1 - step;
        let turn = (call << self.rounds) + round;
        (turn & ((1 << self.places) - 1)) << self.stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Epoch;
    use std::collections::HashMap;

    const RINGS: RingLengths = RingLengths { lines: 32, cells: 16 };
    const CELL: Bytes = Bytes(128 << 10);

    /// Pieces that the root writes between two uses of the same memory, where every `turn`-th call is its own: at least, but for a tenth.
    fn way_round(piece: usize, steps: u64, turn: usize) -> usize {
        let rotation = Rotation::new(RINGS, Bytes(piece * steps as usize), Bytes(piece), CELL);
        let (mut used, mut ways, mut written) = (HashMap::new(), Vec::new(), 0);
        for epoch in (1..4000).step_by(turn) {
            for step in 0..steps {
                let ticket = Ticket::new(Epoch(epoch), step);
                let offset = rotation.offset(ticket);
                assert!(offset + piece <= CELL.0);
                ways.extend(used.insert((RINGS.cell(ticket), offset), written).map(|before| written - before));
                written += 1;
            }
        }
        ways.sort_unstable();
        ways[ways.len() / 10]
    }

    #[test]
    fn pieces_go_round_in_the_whole_ring() {
        // At best 16 slots of 128 KiB; where roots take turns each has only some of the slots until some later calls.
        for (piece, steps, turn, least) in [
            (128 << 10, 1, 1, 14),
            (128 << 10, 2, 1, 13),
            (128 << 10, 2, 2, 9),
            (128 << 10, 8, 1, 12),
            (64 << 10, 4, 1, 27),
            (64 << 10, 4, 2, 17),
            (32 << 10, 1, 1, 57),
            (32 << 10, 1, 2, 29),
            (32 << 10, 1, 4, 29),
            (32 << 10, 8, 1, 55),
            (32 << 10, 8, 2, 33),
            (32 << 10, 32, 1, 39),
            (4 << 10, 1, 1, 460),
            (4 << 10, 1, 2, 230),
        ] {
            let way = way_round(piece, steps, turn);
            assert!(way >= least, "{steps} pieces of {piece} bytes, every {turn}. call: {way} pieces");
        }
    }

    #[test]
    fn nothing_moves_where_nothing_more_is_reserved() {
        let ticket = |epoch| Ticket::new(Epoch(epoch), 3);
        for (reach, reserved) in [(4096, 0), (4096, 4096), (5000, 8192), (0, 32), (1 << 20, 1 << 20)] {
            let rotation = Rotation::new(RINGS, Bytes(reach), Bytes(reach), Bytes(reserved));
            assert!((0..99).all(|epoch| rotation.offset(ticket(epoch)) == 0), "{reach} of {reserved}");
        }
    }
}
