//! Rank spaces, units and the names of the collectives: the words that every layer shares.
//!
//! Ranks of different spaces and quantities of different units are different types, so mixing them does not compile.

use std::ops::{Add, AddAssign, Mul, Sub};

/// Bytes that caches move at once. Where a processor has longer lines, the only harm is that ranks may take lines from
/// each other that neither needs.
pub const LINE: usize = 64;

/// The shortest page of memory. Processors fetch ahead within a page.
pub const PAGE: usize = 4 << 10;

/// A rank in a user's communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommRank(pub u32);

/// A rank among the members of one communicator on one node, in the order of their [`CommRank`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeRank(pub u32);

/// A node of one communicator: nodes are numbered by their lowest [`CommRank`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub u32);

impl NodeRank {
    /// The leader of a node: its member with the lowest rank in the communicator.
    pub const LEADER: Self = Self(0);

    /// As an index into per-rank tables.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The other one of a pair.
    #[inline]
    pub const fn other(self) -> Self {
        debug_assert!(self.0 < 2);
        Self(1 - self.0)
    }
}

impl CommRank {
    /// As an index into per-rank tables.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeIndex {
    /// As an index into per-node tables.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A number of bytes of *packed* data, or of memory that holds such data. The length of packed data is the sum of the
/// sizes of their basic elements, without holes or padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub usize);

impl Bytes {
    /// No data.
    pub const ZERO: Self = Self(0);

    /// The smaller of two.
    #[inline]
    pub fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    /// The largest multiple of `granule` that is at most `self`; `self` where `granule` is zero.
    #[inline]
    pub fn round_down_to(self, granule: Self) -> Self {
        if granule.0 <= 1 { self } else { Self(self.0 - self.0 % granule.0) }
    }
}

impl Add for Bytes {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Bytes {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul<usize> for Bytes {
    type Output = Self;
    #[inline]
    fn mul(self, times: usize) -> Self {
        Self(self.0 * times)
    }
}

/// The collectives that huddle accelerates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Collective {
    /// `MPI_Allreduce`
    Allreduce,
    /// `MPI_Bcast`
    Bcast,
    /// `MPI_Reduce`
    Reduce,
    /// `MPI_Allgather`
    Allgather,
    /// `MPI_Barrier`
    Barrier,
    /// `MPI_Scatter`
    Scatter,
}

impl Collective {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 6] =
        [Self::Allreduce, Self::Bcast, Self::Reduce, Self::Allgather, Self::Barrier, Self::Scatter];

    /// The name without `MPI_`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allreduce => "Allreduce",
            Self::Bcast => "Bcast",
            Self::Reduce => "Reduce",
            Self::Allgather => "Allgather",
            Self::Barrier => "Barrier",
            Self::Scatter => "Scatter",
        }
    }

    /// Whether one rank, the root, has the data that all others get, or gets the result of the data of all.
    #[inline]
    pub const fn has_root(self) -> bool {
        match self {
            Self::Bcast | Self::Reduce | Self::Scatter => true,
            Self::Allreduce | Self::Allgather | Self::Barrier => false,
        }
    }

    /// Whether an operation combines the data of all ranks.
    #[inline]
    pub const fn is_reduction(self) -> bool {
        match self {
            Self::Allreduce | Self::Reduce => true,
            Self::Bcast | Self::Allgather | Self::Barrier | Self::Scatter => false,
        }
    }

    /// Whether some rank has a block of data for each rank: the bytes of a call are then those of one block.
    #[inline]
    pub const fn has_blocks(self) -> bool {
        match self {
            Self::Allgather | Self::Scatter => true,
            Self::Allreduce | Self::Bcast | Self::Reduce | Self::Barrier => false,
        }
    }

    /// The collective with this discriminant.
    pub fn from_index(index: usize) -> Option<Self> {
        Self::ALL.get(index).copied()
    }
}

/// The order in which operands of a reduction may be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperandOrder {
    /// The operation is commutative.
    Any,
    /// Only neighbours in rank order may be combined, the lower rank on the left.
    Rank,
}

/// The number of a collective call on one communicator: 1 for the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// How ranks write their slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotStores {
    /// Each rank goes the way that it finds to be faster while it runs.
    #[default]
    Auto,
    /// Through the caches.
    Cached,
    /// Around the caches, but for short pieces.
    Streaming,
}

/// How ranks read their peers' slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotReads {
    /// As `Taking` where few ranks read the same lines on processors of AMD's fourth generation of Zen and that proves
    /// fast, else as `Sharing`.
    #[default]
    Auto,
    /// A reader leaves the lines in the caches that have them, too.
    Sharing,
    /// A reader makes the lines of longer pieces its own.
    Taking,
}

/// When a rank of a pair takes its first look for a flag that the peer publishes while this rank publishes its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstLook {
    /// As each rank finds to be faster while it runs. It also finds out when to look for a flag that the peer publishes
    /// once it has got this rank's own.
    #[default]
    Auto,
    /// At once.
    Early,
    /// When its own flag is in its cache.
    Late,
}

/// One use of the ring of slots: a step of a call. Tickets only grow; all ranks of a node count them alike.
///
/// The upper 40 bits hold the [`Epoch`], the lower 24 the step within the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

impl Ticket {
    /// Steps that one call can take.
    pub const STEPS: u64 = 1 << 24;

    /// Step `step` of call `epoch`.
    ///
    /// # Panics
    /// In debug builds, if `step` is not below [`Ticket::STEPS`].
    #[inline]
    pub fn new(epoch: Epoch, step: u64) -> Self {
        debug_assert!(step < Self::STEPS);
        Self(epoch.0 * Self::STEPS + step)
    }

    /// The last ticket of a call: releasing it means to have left the call.
    #[inline]
    pub fn last_of(epoch: Epoch) -> Self {
        Self(epoch.0 * Self::STEPS + Self::STEPS - 1)
    }

    /// The call that this ticket belongs to.
    #[inline]
    pub fn epoch(self) -> Epoch {
        Epoch(self.0 / Self::STEPS)
    }

    /// The step within its call.
    #[inline]
    pub fn step(self) -> u64 {
        self.0 % Self::STEPS
    }

    /// The position of this ticket in a ring of `lines` lines, a power of two. It follows from the ticket alone: a rank
    /// that never learned the size of a call (its arguments were rejected) still agrees with its peers on every later
    /// position. Successive calls start at successive positions.
    #[inline]
    pub fn position(self, lines: usize) -> usize {
        debug_assert!(lines.is_power_of_two());
        (self.epoch().0 + self.step()) as usize & (lines - 1)
    }
}
