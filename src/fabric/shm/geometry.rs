//! What lies where in a segment.

use super::rotation::{self, ROTATED};
use crate::fabric::Line;
use crate::sync::{Control, Flag, FlagLine, LastClaim, Notice, Passed, Presence, Teller};
use crate::types::{Bytes, NodeRank};

/// The dimensions of a segment, the same on all ranks of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Ranks of the communicator on this node.
    pub ranks: usize,
    /// Cells in each rank's ring, a power of two.
    pub slots: usize,
    /// Lines of each kind in each rank's ring, a power of two, at least `slots`.
    pub lines: usize,
    /// Length of a cell, a multiple of 64.
    pub cell: Bytes,
    /// How many bytes of each cell, from its start, suffice for much shorter pieces to go round in; at most `cell`.
    pub round: Bytes,
}

pub(super) use crate::types::PAGE;

/// Bytes of two flag lines.
const PAIR: usize = 2 * size_of::<FlagLine>();

/// Where the flag lines begin in a rank's control lines: at an odd multiple of their length, while the control lines of
/// each rank begin at an even one. Otherwise calls of 8 bytes with a hot root take up to a half longer on a Zen 5, for
/// reasons that its maker keeps (docs/PERFORMANCE.md, "Tried").
pub(super) const FLAGS_START: usize = (size_of::<Control>() / PAIR * 2 + 1) * size_of::<FlagLine>();

const _: () = assert!(FLAGS_START >= size_of::<Control>() && PAGE.is_multiple_of(PAIR));
const _: () = assert!(Geometry::NOTICE + size_of::<Notice>() <= PAGE, "within the header");

impl Geometry {
    /// Where in its page the first cell starts; if the length of cells is a multiple of a page, all cells start there.
    /// Programs' long buffers start at a page or a few bytes behind. Where the addresses of a copy's loads and stores
    /// are nearly alike in their low 12 bits, its loads seem to depend on its stores just before (docs/PERFORMANCE.md,
    /// "Tried"). Pieces of a few pages start at a page all the same ([`rotation`]).
    pub(super) const CELLS_IN_PAGE: usize = PAGE / 2;

    /// Length of one rank's control lines: its [`Control`], its flags, and what its peers post to it.
    pub(super) const fn control(&self) -> usize {
        (self.posts_start() + self.ranks * size_of::<Flag>()).next_multiple_of(PAIR)
    }

    pub(super) const fn posts_start(&self) -> usize {
        FLAGS_START + Line::COUNT * self.lines * size_of::<FlagLine>()
    }

    pub(super) const fn last_claims_start(&self) -> usize {
        PAGE + self.ranks * self.control()
    }

    /// Where presences begin: behind all that is cleared when another communicator takes the segment over, since ranks
    /// may write theirs meanwhile in calls of other communicators.
    pub(super) const fn presences_start(&self) -> usize {
        self.last_claims_start() + self.ranks * self.last_claims()
    }

    pub(super) const fn cells_start(&self) -> usize {
        (self.front() - Self::CELLS_IN_PAGE).next_multiple_of(PAGE) + Self::CELLS_IN_PAGE
    }

    /// Where a cell of `rank` starts.
    pub(super) const fn cell_start(&self, rank: usize, slot: usize) -> usize {
        self.cells_start() + rank * self.ring() + slot * self.cell.0
    }

    /// How many cells each rank has to pass at first.
    pub(super) const fn passed(&self) -> usize {
        Passed::at_first(self.ranks, self.cell)
    }

    /// Where the first passed cell begins, in its page where all cells do.
    pub(super) const fn passed_start(&self) -> usize {
        self.cell_start(self.ranks, 0)
    }

    /// From the first cell of one rank to that of the next, in bytes.
    pub(super) const fn ring(&self) -> usize {
        self.slots * self.cell.0 + 2 * self.slack()
    }

    /// Memory behind a rank's last cell: pieces may start at a page, half a page after the start of their cell.
    pub(super) const fn slack(&self) -> usize {
        if self.cell.0.is_multiple_of(PAGE) { PAGE - Self::CELLS_IN_PAGE } else { 0 }
    }

    /// How much of each cell pieces go round in at most.
    pub(super) const fn good_depth(&self) -> Bytes {
        /// Bytes of a ring, whatever the user's slots are: no second-level cache is longer than half of it.
        const ROUND: usize = 4 << 20;
        let depth = ROUND >> self.slots.trailing_zeros();
        if self.cell.0 < depth { self.cell } else { Bytes(depth) }
    }

    /// Whether pieces that reach `reach` bytes into cells may start at a page instead, and so end `slack` bytes later,
    /// if `reserved` bytes of each cell are reserved.
    pub(super) fn may_shift(&self, reach: Bytes, reserved: Bytes) -> bool {
        self.slack() > 0 && (reserved == self.cell || reach + Bytes(self.slack()) <= reserved)
    }

    /// How much of each cell to reserve for calls that need `needed` bytes. It is a power of two, so that cells grow
    /// seldom. It covers at least the places of short pieces, or the rest of the page in which a cell starts.
    pub fn depth_for(&self, needed: Bytes) -> Bytes {
        let of_short = match rotation::short_places(self) {
            1 => PAGE - Self::CELLS_IN_PAGE,
            places => places * ROTATED.0,
        };
        Bytes(needed.0.next_power_of_two().max(of_short)).min(self.cell)
    }

    /// The range of the ranks' control lines, in which ranks tell each other what they do.
    pub const fn flags(&self) -> std::ops::Range<usize> {
        PAGE..self.last_claims_start()
    }

    /// Length of what is reserved with the segment: all before the cells.
    pub const fn front(&self) -> usize {
        self.presences_start() + self.ranks * size_of::<Presence>()
    }

    /// Length of one rank's last claims, with cache lines of its own.
    pub(super) const fn last_claims(&self) -> usize {
        (self.lines * size_of::<LastClaim>()).next_multiple_of(128)
    }

    /// Where the teller lies: behind the number by which the leader marks a segment.
    pub(super) const TELLER: usize = size_of::<Teller>();

    /// Where the notice lies: behind the teller. Nothing clears it.
    pub(super) const NOTICE: usize = (Self::TELLER + size_of::<Teller>()).next_multiple_of(size_of::<Notice>());

    /// Length of the segment: a page for the header, the control lines of all ranks, their books of the calls in which
    /// they wrote their lines, their presences, their cells, and the cells that they pass to each other.
    pub const fn length(&self) -> usize {
        match self.ranks * self.passed() {
            // The last ring needs one slack only: the second one would align the cells of a next rank.
            0 => self.passed_start() - self.slack(),
            cells => self.passed_start() + cells * self.cell.0,
        }
    }
}

/// Where things lie in a segment, from its start, and how far those of one rank are from those of the next. All of it
/// follows from a [`Geometry`]; it is worked out once, since a short call asks ten times.
pub(super) struct Places {
    pub(super) control: usize,
    pub(super) cells: usize,
    pub(super) ring: usize,
    /// Start and end of the cells that the two ranks pass.
    pub(super) passed: [usize; 2],
    pub(super) last_claims: [usize; 2],
    /// Where this rank's own control lines begin, and where its last claims do.
    pub(super) mine: [usize; 2],
}

impl Places {
    pub(super) const fn new(geometry: &Geometry, me: NodeRank) -> Self {
        Self {
            control: geometry.control(),
            cells: geometry.cells_start(),
            ring: geometry.ring(),
            passed: [
                geometry.passed_start(),
                geometry.passed_start() + geometry.ranks * geometry.passed() * geometry.cell.0,
            ],
            last_claims: [geometry.last_claims_start(), geometry.last_claims()],
            mine: [
                PAGE + me.index() * geometry.control(),
                geometry.last_claims_start() + me.index() * geometry.last_claims(),
            ],
        }
    }
}
