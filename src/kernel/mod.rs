//! Kernels: combining and moving packed data. No MPI, no shared state.
//!
//! *Packed* data is a sequence of basic elements without holes, the wire format of huddle. [`reduce`] combines packed
//! operands, [`copy`](mod@copy) copies bytes, [`segments`] moves data between packed memory and the layout of a user's
//! datatype. [`fetch`](mod@fetch) copies out of other processes. [`probe`] measures which of several kernels serve on
//! this machine, and [`cache`] keeps the result. [`exchange`] measures data movement between processors.

mod arithmetic;
pub mod cache;
pub mod copy;
mod copy_loops;
pub mod distance;
pub mod exchange;
pub mod fetch;
pub mod host;
pub mod level;
mod pairs;
pub mod probe;
pub mod reduce;
pub mod segments;
pub mod streams;
pub mod switch;

pub use copy::{
    CopyKernel, Destination, SizeClass, copy, copy_around_in_streams, copy_fetching, copy_in_streams, copy_in_vectors,
    copy_of, copy_streaming, copy_taking, copy_to,
};
pub use fetch::{SingleCopy, fetch, withhold_single_copies};
pub use level::Level;
pub use probe::Probed;
pub use reduce::{Kernel, Streams, kernel};
pub use segments::{PackedBuffer, Segments};

/// A predefined reduction operation that has kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// The greater operand.
    Max,
    /// The smaller operand.
    Min,
    /// The sum; integers wrap.
    Sum,
    /// The product; integers wrap.
    Prod,
    /// Logical and: 1 or 0.
    Land,
    /// Bitwise and.
    Band,
    /// Logical or: 1 or 0.
    Lor,
    /// Bitwise or.
    Bor,
    /// Logical exclusive or: 1 or 0.
    Lxor,
    /// Bitwise exclusive or.
    Bxor,
    /// The smaller value, with its index.
    Minloc,
    /// The greater value, with its index.
    Maxloc,
}

impl Op {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 12] = [
        Self::Max,
        Self::Min,
        Self::Sum,
        Self::Prod,
        Self::Land,
        Self::Band,
        Self::Lor,
        Self::Bor,
        Self::Lxor,
        Self::Bxor,
        Self::Minloc,
        Self::Maxloc,
    ];
}

/// A basic element that has kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Element {
    /// `int8_t`
    I8,
    /// `int16_t`
    I16,
    /// `int32_t`
    I32,
    /// `int64_t`
    I64,
    /// `uint8_t`, and C's `bool`
    U8,
    /// `uint16_t`
    U16,
    /// `uint32_t`
    U32,
    /// `uint64_t`
    U64,
    /// `float`
    F32,
    /// `double`
    F64,
    /// A complex number of two `float`s, 8 bytes
    C32,
    /// A complex number of two `double`s, 16 bytes
    C64,
    /// A pair of `int16_t` and `int32_t`, packed
    PairI16,
    /// A pair of two `int32_t`
    PairI32,
    /// A pair of `int64_t` and `int32_t`, packed
    PairI64,
    /// A pair of `float` and `int32_t`
    PairF32,
    /// A pair of `double` and `int32_t`, packed
    PairF64,
}

impl Element {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 17] = [
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F32,
        Self::F64,
        Self::C32,
        Self::C64,
        Self::PairI16,
        Self::PairI32,
        Self::PairI64,
        Self::PairF32,
        Self::PairF64,
    ];

    /// Its size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::PairI16 => 6,
            Self::I64 | Self::U64 | Self::F64 | Self::C32 | Self::PairI32 | Self::PairF32 => 8,
            Self::PairI64 | Self::PairF64 => 12,
            Self::C64 => 16,
        }
    }
}

/// Something that combines packed operands: a kernel, or the MPI library with the user's operation.
pub trait Combine: Sync {
    /// `to = left op right`, element by element, over `bytes` bytes of packed data.
    ///
    /// # Safety
    /// `left` and `right` are readable and `to` is writable for `bytes` bytes, a multiple of the element. `to` may
    /// equal `left` or `right`; otherwise it overlaps neither. No pointer needs an alignment. Nobody changes the
    /// operands' bytes (as for [`copy()`]) or touches `to` meanwhile.
    unsafe fn combine(&self, to: *mut u8, left: *const u8, right: *const u8, bytes: usize);

    /// The kernel that computes the same; `None` if there is none.
    fn kernel(&self) -> Option<Kernel> {
        None
    }
}
