//! The constants of this MPI, and what is known about its predefined datatypes and operations.
//!
//! `shim.c`, compiled with the mpicc of the build, holds the values; this file mirrors its layouts. The running library
//! reports the sizes of datatypes, once per process ([`fill`]): the size of a Fortran `INTEGER` depends on compiler
//! options.

use crate::kernel::{Element, Kernel, Op, kernel};
use crate::mpi::native::Native;
use mpi_sys::{
    MPI_Comm, MPI_Count, MPI_Datatype, MPI_Errhandler, MPI_Group, MPI_Info, MPI_Op, MPI_Request, MPI_Status,
};
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// Values that `mpi.h` defines as macros. Each has the name of the macro without `MPI_`, in lower case.
#[repr(C)]
#[allow(missing_docs)]
pub struct Constants {
    bytes: c_int,
    pub comm_world: MPI_Comm,
    pub comm_self: MPI_Comm,
    pub comm_null: MPI_Comm,
    pub datatype_null: MPI_Datatype,
    pub byte: MPI_Datatype,
    pub int: MPI_Datatype,
    pub uint64: MPI_Datatype,
    pub double: MPI_Datatype,
    pub op_null: MPI_Op,
    pub sum: MPI_Op,
    pub min: MPI_Op,
    pub band: MPI_Op,
    pub bor: MPI_Op,
    pub errors_return: MPI_Errhandler,
    pub group_null: MPI_Group,
    pub request_null: MPI_Request,
    pub info_null: MPI_Info,
    pub in_place: *mut c_void,
    pub bottom: *mut c_void,
    pub status_ignore: *mut MPI_Status,
    pub any_source: c_int,
    pub keyval_invalid: c_int,
    pub comm_type_shared: c_int,
    pub thread_multiple: c_int,
    pub max_error_string: c_int,
    pub order_c: c_int,
    pub order_fortran: c_int,
    pub success: c_int,
    pub err_truncate: c_int,
    pub err_other: c_int,
    pub combiner_named: c_int,
    pub combiner_dup: c_int,
    pub combiner_contiguous: c_int,
    pub combiner_vector: c_int,
    pub combiner_hvector: c_int,
    pub combiner_indexed: c_int,
    pub combiner_hindexed: c_int,
    pub combiner_indexed_block: c_int,
    pub combiner_hindexed_block: c_int,
    pub combiner_struct: c_int,
    pub combiner_subarray: c_int,
    pub combiner_f90_real: c_int,
    pub combiner_f90_complex: c_int,
    pub combiner_f90_integer: c_int,
    pub combiner_resized: c_int,
}

// SAFETY: the pointers are addresses of global objects and sentinels, never written through by huddle.
unsafe impl Sync for Constants {}

/// A row of the table in `shim.c`.
#[repr(C)]
struct Row {
    handle: MPI_Datatype,
    class: c_int,
    second_at: c_int,
    second_size: c_int,
    first_class: c_int,
}

unsafe extern "C" {
    static huddle_constants: Constants;
    static huddle_predefined: [Row; 0];
    static huddle_predefined_count: c_int;
    static huddle_ops: [MPI_Op; 0];
    static huddle_op_count: c_int;
}

/// The constants of this MPI.
#[inline(always)]
pub fn constants() -> &'static Constants {
    // SAFETY: constant data of shim.c with the layout of `Constants` (`bytes` is compared by `fill`).
    unsafe { &huddle_constants }
}

/// The kind of a predefined datatype's elements (MPI-4.1 §6.9.2 speaks of groups).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// C integer, signed.
    Signed,
    /// C integer, unsigned.
    Unsigned,
    /// Fortran integer.
    FortranInteger,
    /// `MPI_AINT`, `MPI_OFFSET`, `MPI_COUNT`: multi-language types.
    Address,
    /// Floating point of any language.
    Float,
    /// Complex of any language.
    Complex,
    /// Logical of C and C++: one byte, 0 or 1.
    Bool,
    /// Logical of Fortran, whose values depend on the compiler.
    Logical,
    /// `MPI_BYTE`
    Byte,
    /// Characters: no reductions.
    Character,
    /// Value and index, for `MPI_MINLOC` and `MPI_MAXLOC`.
    Pair,
    /// `MPI_PACKED`
    Packed,
}

impl Class {
    const ALL: [Self; 12] = [
        Self::Signed,
        Self::Unsigned,
        Self::FortranInteger,
        Self::Address,
        Self::Float,
        Self::Complex,
        Self::Bool,
        Self::Logical,
        Self::Byte,
        Self::Character,
        Self::Pair,
        Self::Packed,
    ];

    /// The element of the kernels for data of this class and of `size` bytes, if they have one.
    fn element(self, size: usize) -> Option<Element> {
        match (self, size) {
            (Self::Signed | Self::FortranInteger | Self::Address, 1) => Some(Element::I8),
            (Self::Signed | Self::FortranInteger | Self::Address, 2) => Some(Element::I16),
            (Self::Signed | Self::FortranInteger | Self::Address, 4) => Some(Element::I32),
            (Self::Signed | Self::FortranInteger | Self::Address, 8) => Some(Element::I64),
            (Self::Unsigned | Self::Bool | Self::Byte, 1) => Some(Element::U8),
            (Self::Unsigned, 2) => Some(Element::U16),
            (Self::Unsigned, 4) => Some(Element::U32),
            (Self::Unsigned, 8) => Some(Element::U64),
            (Self::Float, 4) => Some(Element::F32),
            (Self::Float, 8) => Some(Element::F64),
            (Self::Complex, 8) => Some(Element::C32),
            (Self::Complex, 16) => Some(Element::C64),
            _ => None,
        }
    }

    /// Whether a single number of this class and of `size` bytes has more digits than the kernels' numbers; pairs of
    /// such numbers don't count. All ranks of a call find the same answer, whatever name each has for the datatype.
    pub fn is_extended(self, size: usize) -> bool {
        matches!((self, size), (Self::Float, 9..) | (Self::Complex, 17..))
    }

    /// The element of the kernels for pairs of a value of this class and an index of class `second`, together `size`
    /// bytes, if they have one.
    fn pair_with(self, second: Self, size: usize) -> Option<Element> {
        let is_integer = |class| matches!(class, Self::Signed | Self::FortranInteger);
        match size.checked_sub(size_of::<c_int>()) {
            _ if !is_integer(second) => None,
            Some(2) if is_integer(self) => Some(Element::PairI16),
            Some(4) if is_integer(self) => Some(Element::PairI32),
            Some(8) if is_integer(self) => Some(Element::PairI64),
            Some(4) if self == Self::Float => Some(Element::PairF32),
            Some(8) if self == Self::Float => Some(Element::PairF64),
            _ => None,
        }
    }
}

/// A predefined operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum PredefinedOp {
    Max,
    Min,
    Sum,
    Prod,
    Land,
    Band,
    Lor,
    Bor,
    Lxor,
    Bxor,
    Minloc,
    Maxloc,
    Replace,
    NoOp,
}

impl PredefinedOp {
    /// All of them, in the order of their discriminants and of the table in `shim.c`.
    pub const ALL: [Self; 14] = [
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
        Self::Replace,
        Self::NoOp,
    ];

    /// The operation of the kernels, if they have it.
    #[inline]
    pub fn kernel_op(self) -> Option<Op> {
        Op::ALL.get(self as usize).copied()
    }

    /// Whether operands may be combined in any order: all but `MPI_REPLACE` and `MPI_NO_OP`.
    #[inline]
    pub fn is_commutative(self) -> bool {
        !matches!(self, Self::Replace | Self::NoOp)
    }

    /// Whether MPI defines this operation on elements of this class (MPI-4.1 §6.9.2, §6.9.4).
    pub fn is_defined_on(self, class: Class) -> bool {
        use Class::*;
        match self {
            Self::Max | Self::Min => matches!(class, Signed | Unsigned | FortranInteger | Float | Address),
            Self::Sum | Self::Prod => {
                matches!(class, Signed | Unsigned | FortranInteger | Float | Complex | Address)
            }
            Self::Land | Self::Lor | Self::Lxor => matches!(class, Signed | Unsigned | Bool | Logical),
            Self::Band | Self::Bor | Self::Bxor => {
                matches!(class, Signed | Unsigned | FortranInteger | Byte | Address)
            }
            Self::Minloc | Self::Maxloc => class == Pair,
            Self::Replace | Self::NoOp => false,
        }
    }
}

/// Whether it is known without asking that the library accepts an operation on a datatype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legality {
    /// MPI defines it, and every library has it.
    Legal,
    /// The library has to be asked.
    Unknown,
}

/// A predefined datatype.
#[derive(Debug)]
pub struct Predefined {
    /// Its handle.
    pub handle: MPI_Datatype,
    /// Its position among the predefined datatypes of this process, below [`PREDEFINED_MOST`].
    pub index: usize,
    /// The kind of its elements.
    pub class: Class,
    /// Packed bytes of an element.
    pub size: usize,
    /// Distance between elements in memory; larger than `size` for some pairs.
    pub extent: usize,
    /// The element of the kernels, if they have it.
    pub element: Option<Element>,
    /// The operations that MPI defines on it: one bit for each, indexed by discriminant.
    defined: u16,
    /// For a pair with a hole: where its second member lies in memory, and that member's size.
    pub second: Option<(usize, usize)>,
}

// SAFETY: the handle is a number or the address of a global object of the MPI library; the table is never written
// again.
unsafe impl Sync for Predefined {}
// SAFETY: as above.
unsafe impl Send for Predefined {}

impl Predefined {
    /// Whether elements lie in memory as they are packed.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.size == self.extent
    }

    /// The kernel of `op` on this datatype, where MPI defines it.
    #[inline]
    pub fn kernel(&self, op: PredefinedOp) -> Option<Kernel> {
        let (kernel_op, element) = (op.kernel_op()?, self.element?);
        if self.defined & (1 << op as u16) == 0 {
            return None;
        }
        kernel(kernel_op, element)
    }

    /// Whether `op` on this datatype is known to be legal. Where the standard defines the operation but the size is
    /// unusual (`REAL*2`, `REAL*16`, `INTEGER*16`), libraries differ.
    pub fn legality(&self, op: PredefinedOp) -> Legality {
        let is_everywhere = self.element.is_some() || matches!(self.class, Class::Logical | Class::Pair);
        if op.is_defined_on(self.class) && is_everywhere { Legality::Legal } else { Legality::Unknown }
    }
}

/// No library has more predefined datatypes in the table than this.
pub const PREDEFINED_MOST: usize = 96;

const SLOTS: usize = 512;

/// Predefined datatypes and operations by handle: open addressing, filled once, mostly empty.
struct Tables {
    datatypes: [Option<&'static Predefined>; SLOTS],
    ops: [Option<(MPI_Op, PredefinedOp)>; 64],
}

// SAFETY: handles are numbers or addresses of global objects; the tables are never written after `fill`.
unsafe impl Sync for Tables {}
// SAFETY: as above.
unsafe impl Send for Tables {}

static TABLES: OnceLock<Box<Tables>> = OnceLock::new();

/// A handle as a number.
#[inline(always)]
pub(super) fn bits<T: Copy>(handle: T) -> u64 {
    const { assert!(size_of::<T>() == 4 || size_of::<T>() == 8) };
    if size_of::<T>() == 4 {
        // SAFETY: a handle of four bytes is an `int` in a transparent wrapper.
        u64::from(unsafe { std::mem::transmute_copy::<T, u32>(&handle) })
    } else {
        // SAFETY: a handle of eight bytes is a pointer in a transparent wrapper.
        unsafe { std::mem::transmute_copy::<T, u64>(&handle) }
    }
}

/// Where the search for a handle starts in a table of `slots`, a power of two.
#[inline(always)]
fn start<T: Copy>(handle: T, slots: usize) -> usize {
    (bits(handle).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (slots - 1)
}

/// Learns sizes and extents of the predefined datatypes from the library, once. Called between `MPI_Init` and the first
/// lookup.
///
/// # Errors
/// If the engine was built against another layout of its shim.
///
/// # Safety
/// MPI is initialised and not finalised.
pub unsafe fn fill(native: &Native) -> Result<(), String> {
    // SAFETY: constant data of shim.c.
    let (rows, ops) = unsafe {
        (
            std::slice::from_raw_parts((&raw const huddle_predefined).cast::<Row>(), huddle_predefined_count as usize),
            std::slice::from_raw_parts((&raw const huddle_ops).cast::<MPI_Op>(), huddle_op_count as usize),
        )
    };
    if constants().bytes as usize != size_of::<Constants>() || ops.len() != PredefinedOp::ALL.len() {
        return Err("the engine's constants do not have the layout that it was compiled for".into());
    }
    if TABLES.get().is_some() {
        return Ok(());
    }
    let mut tables = Box::new(Tables { datatypes: [None; SLOTS], ops: [None; 64] });
    let mut known = 0;
    for row in rows {
        // SAFETY: MPI is initialised as the caller vouches, and the handle is one of its constants.
        if let Some(predefined) = unsafe { learn(native, row, known) } {
            let slot = probe(row.handle, SLOTS, |slot| tables.datatypes[slot].map(|known| known.handle));
            if tables.datatypes[slot].is_none() {
                known += 1;
                tables.datatypes[slot] = Some(Box::leak(Box::new(predefined)));
            }
        }
    }
    assert!(known <= PREDEFINED_MOST);
    for (&handle, op) in ops.iter().zip(PredefinedOp::ALL) {
        let slot = probe(handle, tables.ops.len(), |slot| tables.ops[slot].map(|(handle, _)| handle));
        tables.ops[slot] = Some((handle, op));
    }
    let _ = TABLES.set(tables);
    Ok(())
}

/// The slot that holds `handle`, or the free one where it belongs.
#[inline(always)]
fn probe<T: Copy + PartialEq>(handle: T, slots: usize, at: impl Fn(usize) -> Option<T>) -> usize {
    let mut slot = start(handle, slots);
    while at(slot).is_some_and(|other| other != handle) {
        slot = (slot + 1) & (slots - 1);
    }
    slot
}

/// The datatype of a row of the table, as the library reports it; `None` if it lacks the type.
///
/// # Safety
/// As for [`fill`].
unsafe fn learn(native: &Native, row: &Row, index: usize) -> Option<Predefined> {
    if row.handle == constants().datatype_null {
        return None;
    }
    let (mut size, mut lb, mut extent): (MPI_Count, MPI_Count, MPI_Count) = (0, 0, 0);
    // SAFETY: a predefined datatype other than the null handle, and valid places for the results.
    let codes = unsafe {
        [native.type_size_x(row.handle, &mut size), native.type_get_extent_x(row.handle, &mut lb, &mut extent)]
    };
    // A type that exists in mpi.h but not in this build of the library has size 0 or -1 (`MPI_UNDEFINED`).
    if codes != [constants().success; 2] || size <= 0 || lb != 0 || extent < size {
        return None;
    }
    let (size, extent) = (size as usize, extent as usize);
    let (class, first) = (*Class::ALL.get(row.class as usize)?, *Class::ALL.get(row.first_class as usize)?);
    let second = (row.second_at as usize, row.second_size as usize);
    let defined =
        PredefinedOp::ALL.into_iter().filter(|op| op.is_defined_on(class)).fold(0, |bits, op| bits | (1 << op as u16));
    Some(Predefined {
        handle: row.handle,
        index,
        class,
        size,
        extent,
        element: match class {
            Class::Pair if second.1 > 0 => first.pair_with(Class::Signed, size),
            Class::Pair => first.pair_with(first, size),
            class => class.element(size),
        },
        defined,
        second: (size != extent && second.1 > 0 && second.0 + second.1 <= extent).then_some(second),
    })
}

/// The entry of `datatype`; `None` if it is not predefined.
#[inline]
pub fn predefined(datatype: MPI_Datatype) -> Option<&'static Predefined> {
    let tables = TABLES.get()?;
    let mut slot = start(datatype, SLOTS);
    loop {
        match tables.datatypes[slot] {
            Some(known) if known.handle == datatype => return Some(known),
            Some(_) => slot = (slot + 1) & (SLOTS - 1),
            None => return None,
        }
    }
}

/// All predefined datatypes that this library has.
pub fn all_predefined() -> impl Iterator<Item = &'static Predefined> {
    TABLES.get().into_iter().flat_map(|tables| tables.datatypes.iter().copied().flatten())
}

/// The predefined operation whose handle is `op`, if any.
#[inline]
pub fn predefined_op(op: MPI_Op) -> Option<PredefinedOp> {
    let tables = TABLES.get()?;
    let slot = probe(op, tables.ops.len(), |slot| tables.ops[slot].map(|(handle, _)| handle));
    tables.ops[slot].map(|(_, op)| op)
}

/// All predefined operations with their handles.
pub fn all_ops() -> impl Iterator<Item = (MPI_Op, PredefinedOp)> {
    TABLES.get().into_iter().flat_map(|tables| tables.ops.iter().copied().flatten())
}
