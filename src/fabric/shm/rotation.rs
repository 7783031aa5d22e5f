//! Where in a rank's cells the pieces of a call lie.

use super::geometry::Geometry;
use crate::sync::{HOME_UNIT, Passed, Stretch};
use crate::types::{Bytes, Ticket};

/// Pieces shorter than this are read from the caches faster than they are written. They stay at fixed places, at the
/// start of cells.
pub const ROTATED: Bytes = Bytes(4096);

/// A ring has at least this many places for pieces, if its cells are long enough: ranks that have no core at the
/// moment are some pieces behind.
const PLACES: usize = 16;

/// Units that are claimed together, where cells are not shorter: half a page. So pieces that begin at a page have
/// grains of their own, though cells begin half a page earlier.
const GRAIN: u64 = (GRAIN_BYTES / HOME_UNIT) as u64;
const GRAIN_BYTES: usize = Geometry::CELLS_IN_PAGE;

/// Pieces shorter than this lie apart from the ones before and after them: the prefetcher of a reader would otherwise
/// take the next piece's lines from their writer. Longer pieces follow each other in memory. The limits were measured
/// for one reader, and for several (docs/PERFORMANCE.md, "Tried").
fn apart(geometry: &Geometry) -> Bytes {
    if Passed::is_for(geometry.ranks) { Bytes(32 << 10) } else { Bytes(16 << 10) }
}

/// The stretches of its cells that a rank's pieces take in turn.
///
/// Without rotation, pieces that are shorter than cells would use the same memory again after a few calls, while the
/// peers that read it still have its lines in their caches. Each write would have to take the lines from these caches,
/// which takes three times as long as to copy, or more (docs/PERFORMANCE.md, "Tried"). So pieces go round in as much
/// of the cells as the rank has reserved, up to what suffices ([`Geometry::round`]) or what 16 pieces take. They go
/// round in less if other communicators are used in between ([`Company`](super::company)). Each rank decides for
/// itself: it publishes with the flag of a piece where the piece lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rotation {
    /// Number of cells, as a power of two.
    slots: u32,
    /// Length of a cell, in units of [`HOME_UNIT`] and in grains.
    cell: u64,
    grains: u64,
    /// Length of a piece, in units.
    length: u64,
    /// Distance from one place of a cell to the next: units, as a power of two.
    stride: u32,
    /// Number of places in a cell, as a power of two.
    places: u32,
    /// Number of places from one piece to the next one.
    step: u64,
    /// Distance of the first place from the start of its cell: units.
    shift: u64,
}

impl Rotation {
    /// For pieces of at most `reach` bytes, where the rank has reserved `reserved` bytes of each cell, at least
    /// `reach`. The way round is halved `halvings` times, or until it has just enough places for the pieces that may
    /// be in flight.
    #[inline]
    pub fn new(geometry: &Geometry, reach: Bytes, reserved: Bytes, halvings: u32) -> Self {
        let length = reach.0.div_ceil(HOME_UNIT).max(1);
        let stride = length.next_power_of_two().trailing_zeros();
        // Pieces go round in the part that suffices. They take more if the pieces need it that may be in flight before
        // peers without a core have read them, but never more than is reserved.
        let in_flight = Bytes(((HOME_UNIT << stride) * PLACES) >> geometry.slots.trailing_zeros());
        let depth = reserved.min(geometry.good_depth()).min(geometry.round.max(in_flight));
        let places_in = |depth: Bytes| ((depth.0 / HOME_UNIT) >> stride).checked_ilog2().unwrap_or(0);
        let most = places_in(depth);
        let places = most.saturating_sub(halvings).max(places_in(in_flight).min(most));
        let is_apart = reach < apart(geometry);
        let end = Bytes(HOME_UNIT << (stride + places)).max(reach);
        Self {
            slots: geometry.slots.trailing_zeros(),
            cell: (geometry.cell.0 / HOME_UNIT) as u64,
            grains: grains_of(geometry),
            length: length as u64,
            stride,
            places,
            step: 1 + 4 * u64::from(is_apart),
            shift: if is_apart && geometry.may_shift(end, reserved) { GRAIN } else { 0 },
        }
    }

    /// The same rotation with one place in each cell, for pieces that are to stay in caches
    /// ([`Room::Relayed`](crate::sync::Room)).
    #[inline]
    pub fn shortest(self) -> Self {
        Self { places: 0, ..self }
    }

    /// The stretch of the piece that follows the one which left `cursor`. Among as many successive stretches as there
    /// are cells, no two share a grain.
    #[inline]
    pub fn next(&self, cursor: u64) -> Stretch {
        let index = ((cursor >> self.stride) + self.step) & ((1 << (self.slots + self.places)) - 1);
        let place = index & ((1 << self.places) - 1);
        let (cell, offset) = (index >> self.places, (place << self.stride) + self.shift);
        let (first, last) = (offset / GRAIN, (offset + self.length - 1) / GRAIN);
        // A shifted piece may end behind the last grain of its cell; it then also has the grain behind that one, the
        // next cell's first. Only pieces that begin before the end of the grains reach memory behind them, and these
        // have the last grain.
        let last = last.min(self.grains - u64::from(self.shift == 0));
        let grain = |at: u64| (cell * self.grains + at) as usize;
        let home = Some(cell * self.cell + offset);
        Stretch { home, grains: grain(first)..grain(last) + 1, cursor: index << self.stride }
    }
}

/// Number of places for short pieces in a cell, from its start; a power of two. By shifts, since each short call asks.
#[inline]
pub(super) fn short_places(geometry: &Geometry) -> usize {
    1 << (PLACES >> geometry.slots.trailing_zeros())
        .min(geometry.good_depth().0 / ROTATED.0)
        .checked_ilog2()
        .unwrap_or(0)
}

/// The cell of a short piece, and the piece's distance from the start of that cell: both follow from the ticket, as
/// its lines do.
#[inline]
fn place_of_short(geometry: &Geometry, ticket: Ticket) -> (usize, Bytes) {
    let position = ticket.position(geometry.slots * short_places(geometry));
    (position & (geometry.slots - 1), ROTATED * (position >> geometry.slots.trailing_zeros()))
}

/// Where a short piece lies that is in no passed cell, from the start of its owner's cells. All ranks know this place
/// before the flag comes. So a reader's processor runs ahead while the reader waits for the flag, and fetches what
/// lies there.
#[inline]
pub(super) fn home_of_short(geometry: &Geometry, ticket: Ticket) -> Bytes {
    let (cell, offset) = place_of_short(geometry, ticket);
    geometry.cell * cell + offset
}

/// The stretch of a short piece. Among as many successive tickets as there are places, no two share a grain.
#[inline]
pub(super) fn stretch_of_short(geometry: &Geometry, ticket: Ticket, reach: Bytes, cursor: u64) -> Stretch {
    let (cell, offset) = place_of_short(geometry, ticket);
    let first = cell * grains_of(geometry) as usize + offset.0 / GRAIN_BYTES;
    Stretch { home: None, grains: first..first + reach.0.div_ceil(GRAIN_BYTES).max(1), cursor }
}

/// Grains of all of a rank's cells, and one for what may lie behind the last one.
pub(super) const fn grains(geometry: &Geometry) -> usize {
    geometry.slots * grains_of(geometry) as usize + 1
}

/// Grains of one cell: of the part in which pieces go round.
const fn grains_of(geometry: &Geometry) -> u64 {
    geometry.good_depth().0.div_ceil(GRAIN_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Epoch;
    use std::collections::HashMap;

    fn geometry(slots: usize, cell: usize) -> Geometry {
        // No ring is longer than the second-level caches that its lines are to leave.
        Geometry { ranks: 2, slots, lines: 256, cell: Bytes(cell), round: Bytes(cell.min((4 << 20) / slots)) }
    }

    /// The homes of the pieces of one call, of `reach` bytes each: in bytes, from the start of the rank's cells.
    fn homes(geometry: &Geometry, reach: usize, reserved: usize) -> Vec<usize> {
        homes_in_company(geometry, reach, reserved, 0)
    }

    /// As `homes`, where the way round is halved `halvings` times.
    fn homes_in_company(geometry: &Geometry, reach: usize, reserved: usize, halvings: u32) -> Vec<usize> {
        let rotation = Rotation::new(geometry, Bytes(reach), Bytes(reserved), halvings);
        let (cell, mut cursor, mut touched) = (geometry.cell.0, 0, vec![None; grains(geometry)]);
        let mut homes = Vec::new();
        for step in 0..4000 {
            let ticket = Ticket::new(Epoch(77), step);
            let stretch = match Bytes(reach) < ROTATED {
                true => stretch_of_short(geometry, ticket, Bytes(reach), cursor),
                false => rotation.next(cursor),
            };
            let start = stretch.home.map_or(home_of_short(geometry, ticket).0, |home| home as usize * HOME_UNIT);
            if reserved < cell {
                assert!(start % cell + reach <= reserved.max(reach), "{start} of {reserved}");
            }
            assert!(start + reach <= geometry.slots * cell + geometry.slack());
            for grain in stretch.grains {
                let before: Option<u64> = touched[grain].replace(step);
                let is_far = before.is_none_or(|before| step - before >= geometry.slots as u64);
                assert!(is_far, "a call would wait for itself");
            }
            homes.push(start);
            cursor = stretch.cursor;
        }
        homes
    }

    /// How many pieces are written before one comes back to the memory of another.
    fn way_round(homes: &[usize], reach: usize) -> usize {
        let mut used = HashMap::new();
        let mut way = usize::MAX;
        for (turn, start) in homes.iter().enumerate() {
            for unit in start / HOME_UNIT..(start + reach).div_ceil(HOME_UNIT) {
                way = used.insert(unit, turn).map_or(way, |before| way.min(turn - before));
            }
        }
        way
    }

    #[test]
    fn pieces_go_round_in_the_whole_ring() {
        const KIB: usize = 1024;
        let geometry = geometry(16, 128 * KIB);
        let ways = [
            (128 * KIB, 16),
            (100_000, 16),
            (64 * KIB, 32),
            (40_000, 32),
            (32 * KIB, 64),
            (8 * KIB, 256),
            (4 * KIB, 512),
        ];
        for (reach, way) in ways {
            assert_eq!(way_round(&homes(&geometry, reach, 128 * KIB), reach), way, "pieces of {reach} bytes");
        }
        assert_eq!(way_round(&homes(&geometry, 4096, 64 * KIB), 4096), 256);
    }

    #[test]
    fn in_company_the_way_round_is_shorter_but_not_too_short() {
        let geometry = geometry(16, 128 << 10);
        for (halvings, ways) in [(1, [256, 32, 16]), (3, [64, 16, 16]), (5, [16; 3]), (60, [16; 3])] {
            for (reach, way) in [4 << 10, 32 << 10, 64 << 10].into_iter().zip(ways) {
                let homes = homes_in_company(&geometry, reach, 128 << 10, halvings);
                assert_eq!(way_round(&homes, reach), way, "pieces of {reach} bytes, halved {halvings} times");
            }
        }
    }

    #[test]
    fn long_pieces_follow_each_other_and_others_lie_apart_at_the_start_of_pages() {
        let geometry = geometry(16, 128 << 10);
        let long = homes(&geometry, 32 << 10, 128 << 10);
        assert!(long.windows(2).all(|pair| pair[1] == pair[0] + (32 << 10) || pair[1] == 0));
        let several = Geometry { ranks: 3, ..geometry };
        for (geometry, reach, are_apart) in
            [(geometry, 5000, true), (geometry, 20_000, true), (several, 5000, true), (several, 20_000, false)]
        {
            let homes = homes(&geometry, reach, 128 << 10);
            assert_eq!(homes.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 4 * reach), are_apart, "{reach}");
            assert!(!are_apart || homes.iter().all(|home| (home + Geometry::CELLS_IN_PAGE).is_multiple_of(4096)));
        }
    }

    #[test]
    fn short_pieces_stay_at_the_start_of_their_cells() {
        for reserved in [2048, 128 << 10] {
            let homes = homes(&geometry(16, 128 << 10), 512, reserved);
            assert!(homes.iter().all(|home| home.is_multiple_of(128 << 10)));
            assert_eq!(way_round(&homes, 512), 16);
        }
    }

    #[test]
    fn where_cells_are_few_pieces_go_round_in_a_part_and_short_ones_lie_side_by_side() {
        const KIB: usize = 1024;
        let geometry = Geometry { round: Bytes(64 * KIB), ..geometry(4, 256 * KIB) };
        let ways =
            [(256 * KIB, 4), (128 * KIB, 8), (64 * KIB, 16), (32 * KIB, 16), (16 * KIB, 16), (8 * KIB, 32), (512, 16)];
        for (reach, way) in ways {
            let homes = homes(&geometry, reach, 256 * KIB);
            assert_eq!(way_round(&homes, reach), way, "pieces of {reach} bytes");
            let end = homes.iter().map(|home| home % (256 * KIB) + reach).max();
            assert!(end <= Some((reach * way / 4).max(16 * KIB) + geometry.slack()), "pieces of {reach} bytes");
        }
        assert_eq!(geometry.depth_for(Bytes(100)), Bytes(16 * KIB));
    }

    #[test]
    fn pieces_that_are_relayed_take_one_place_in_each_cell() {
        let geometry = Geometry { ranks: 8, ..geometry(8, 128 << 10) };
        for reach in [4 << 10, 20_000, 64 << 10, 128 << 10] {
            let rotation = Rotation::new(&geometry, Bytes(reach), geometry.cell, 0).shortest();
            let (mut cursor, mut homes, mut grains) = (3 << 20, HashMap::new(), HashMap::new());
            for step in 0..100_u64 {
                let stretch = rotation.next(cursor);
                *homes.entry(stretch.home.expect("a home")).or_insert(0) += 1;
                for grain in stretch.grains {
                    let before: Option<u64> = grains.insert(grain, step);
                    assert!(before.is_none_or(|before| step - before >= 8), "a call would wait for itself");
                }
                cursor = stretch.cursor;
            }
            assert_eq!(homes.len(), 8, "pieces of {reach} bytes");
        }
    }

    #[test]
    fn pieces_fit_whatever_cells_are_like() {
        for cell in [64, 128, 2048, 4096, 5056, 8192, 12288, 40960, 1 << 20] {
            for slots in [2, 4, 64] {
                let reaches = [0, 1, 64, 100, 2000, 4096, 5000, 8192, 12288, 20_000, 40_960, 300_000, 1 << 20];
                for reach in reaches.into_iter().filter(|reach| *reach <= cell) {
                    for round in [cell, 8192, 65536].into_iter().filter(|round| *round <= cell) {
                        let geometry = Geometry { round: Bytes(round), ..geometry(slots, cell) };
                        let least = geometry.depth_for(Bytes(reach)).0;
                        for reserved in [least, 2 * least, cell].into_iter().filter(|reserved| *reserved <= cell) {
                            for halvings in [0, 1, 9] {
                                homes_in_company(&geometry, reach, reserved, halvings);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_grains_are_those_that_a_piece_touches() {
        let geometry = geometry(4, 8192);
        for reach in [5000, 8192] {
            let rotation = Rotation::new(&geometry, Bytes(reach), Bytes(8192), 0);
            let mut cursor = 0;
            for start in homes(&geometry, reach, 8192) {
                let stretch = rotation.next(cursor);
                assert_eq!(stretch.grains, start / 2048..(start + reach).div_ceil(2048));
                cursor = stretch.cursor;
            }
        }
    }
}
