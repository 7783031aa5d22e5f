//! The parameters of an algorithm that users, models and the tuner may set, as in `tree:radix=4:segment=4K`.

use crate::types::Bytes;

/// A parameter of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Knob {
    /// In a tree: children per group and level. In a dissemination: the ranks that exchange in a step, this rank
    /// included.
    Radix,
    /// Bytes per tile.
    Tile,
    /// Bytes of a message that one step of a tree moves. Default: a cell.
    Segment,
    /// How a tree cuts the ranks below it: see [`CLASSES`].
    Class,
    /// Copies on the way from the root to a leaf. 1: all ranks read the root. 2: one rank per group of the outermost
    /// level reads the root, and its group reads that rank; and so on. Default: a tree with the radix.
    Stages,
    /// By how many pieces the root of a broadcast may be ahead of its slowest reader. Default: the whole ring.
    Buffers,
    /// Bytes of a message that one step between nodes moves.
    Chunk,
    /// How many ranks of each node take steps between nodes, in turn.
    Leaders,
    /// How a barrier's signals arrive at the root: see [`SIGNALS`].
    Up,
    /// How a barrier's signals depart from the root: see [`SIGNALS`].
    Down,
    /// A rank that has data for others tries both its slots and its own memory as the source of their copies, and
    /// begins with this one: see [`SOURCES`]. Default: always memory.
    Try,
}

/// Values of [`Knob::Class`], from 1 on.
pub const CLASSES: [&str; 2] = ["kary", "knomial"];
/// The value of [`Knob::Class`] for [`TreeClass::Knomial`](crate::topo::TreeClass).
pub const KNOMIAL: u32 = 2;
/// Values of [`Knob::Up`] and [`Knob::Down`], from 1 on. The sender of a pulled signal writes it to its own line; the
/// sender of a pushed signal writes it to a line of the receiver (Nishtala 2009, section 7.1).
pub const SIGNALS: [&str; 2] = ["pull", "push"];

/// The value of [`Knob::Up`] and [`Knob::Down`] for pushed signals, on the receiver's lines.
pub const PUSH: u32 = 2;

/// Values of [`Knob::Try`], from 1 on: those of [`Source`](crate::fabric::Source).
pub const SOURCES: [&str; 2] = ["slots", "memory"];
/// The value of [`Knob::Try`] to begin with slots.
pub const TRY_SLOTS: u32 = 1;
/// The value of [`Knob::Try`] to begin with memory.
pub const TRY_MEMORY: u32 = 2;

/// Which values a knob takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A number from 1 to this one.
    Number(u32),
    /// A size of at least this many bytes. Sizes below a cache line do not pay.
    Size(u32),
    /// One of these words; its value is its position, from 1 on.
    Word(&'static [&'static str]),
}

impl Knob {
    /// All knobs, in the order of their discriminants.
    pub const ALL: [Self; 11] = [
        Self::Radix,
        Self::Tile,
        Self::Segment,
        Self::Class,
        Self::Stages,
        Self::Buffers,
        Self::Chunk,
        Self::Leaders,
        Self::Up,
        Self::Down,
        Self::Try,
    ];

    /// The name of the knob in the environment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Radix => "radix",
            Self::Tile => "tile",
            Self::Segment => "segment",
            Self::Class => "class",
            Self::Stages => "stages",
            Self::Buffers => "buffers",
            Self::Chunk => "chunk",
            Self::Leaders => "leaders",
            Self::Up => "up",
            Self::Down => "down",
            Self::Try => "try",
        }
    }

    /// The values that the knob takes.
    pub const fn takes(self) -> Takes {
        match self {
            Self::Radix => Takes::Number(256),
            Self::Tile | Self::Segment | Self::Chunk => Takes::Size(64),
            Self::Class => Takes::Word(&CLASSES),
            Self::Stages => Takes::Number(8),
            Self::Buffers => Takes::Number(64),
            Self::Leaders => Takes::Number(16),
            Self::Up | Self::Down => Takes::Word(&SIGNALS),
            Self::Try => Takes::Word(&SOURCES),
        }
    }
}

/// A value for each knob; 0 where nobody has set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Knobs([u32; Knob::ALL.len()]);

impl Knobs {
    /// No knob is set.
    pub const UNSET: Self = Self([0; Knob::ALL.len()]);

    /// These knobs with `knob` set to `value`.
    #[must_use]
    pub const fn with(mut self, knob: Knob, value: u32) -> Self {
        self.0[knob as usize] = value;
        self
    }

    /// These knobs with `knob` set to `value`, unless it is set already.
    #[must_use]
    pub const fn or(self, knob: Knob, value: u32) -> Self {
        if self.0[knob as usize] == 0 { self.with(knob, value) } else { self }
    }

    /// The value; 0 where it is not set.
    #[inline]
    pub const fn get(&self, knob: Knob) -> u32 {
        self.0[knob as usize]
    }

    /// The value, where it is set.
    #[inline]
    pub const fn set(&self, knob: Knob) -> Option<u32> {
        match self.0[knob as usize] {
            0 => None,
            value => Some(value),
        }
    }

    /// [`Knob::Radix`], at least 1.
    #[inline]
    pub fn radix(&self) -> u32 {
        self.get(Knob::Radix).max(1)
    }

    /// The value of [`Knob::Tile`].
    #[inline]
    pub fn tile(&self) -> Bytes {
        Bytes(self.get(Knob::Tile) as usize)
    }

    /// The value of [`Knob::Segment`].
    #[inline]
    pub fn segment(&self) -> Bytes {
        Bytes(self.get(Knob::Segment) as usize)
    }
}
