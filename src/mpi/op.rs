//! The user's operation on packed operands.
//!
//! A predefined operation on elements that have a kernel runs in the kernel. Everything else runs in the library, by
//! `MPI_Reduce_local` with the program's own operation and datatype: on the packed bytes themselves where those look
//! like elements in memory, else on elements unpacked into memory of this rank. `MPI_Reduce_local` computes `inout = in
//! op inout`, so the left operand is always `in`, whichever operand the result replaces. Commutative operations too
//! must see their operands in one order, or ranks would differ in the last bits.
//!
//! Observed: MPICH 4.0.2 and Open MPI 4.1.4 check an operation against a datatype before they look at the count. So a
//! reduction of no elements on a communicator of one process tells whether they accept both. Both reject `MPI_REPLACE`
//! and `MPI_NO_OP`. They reject every predefined operation on any derived datatype, also on duplicates of predefined
//! ones, but not on those of `MPI_Type_create_f90_*`. Both take `MPI_CHAR` as an integer, Open MPI also `MPI_BYTE`.
//! MPICH lets `MPI_LAND` of floating point pass and aborts when it has to compute.

use super::asking::is_accepted;
use super::constructor::class_of_f90;
use super::datatype::{Rejected, TypeLayout, TypeMap};
use super::failure::Code;
use super::whole::{pack_elements, unpack_elements};
use crate::kernel::{Combine, Kernel};
use crate::mpi::handles::{Legality, PREDEFINED_MOST, Predefined, PredefinedOp, constants, predefined, predefined_op};
use crate::mpi::native::native;
use crate::tune::OperatorClass;
use mpi_sys::{MPI_Comm, MPI_Datatype, MPI_Op};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An operation on a datatype, for one call. Later calls may share its combiner.
pub struct Operator {
    combiner: Combiner,
    op: Option<PredefinedOp>,
    class: OperatorClass,
    is_commutative: bool,
    granule: usize,
}

/// The kernel or the operation of the library that combines operands.
#[derive(Clone)]
pub(super) enum Combiner {
    Kernel(Kernel),
    Library(Arc<Library>),
}

impl Combiner {
    /// The combiner as fabrics call it.
    #[inline(always)]
    pub fn as_combine(&self) -> &dyn Combine {
        match self {
            Self::Kernel(kernel) => kernel,
            Self::Library(library) => &**library,
        }
    }
}

impl Operator {
    /// The operation `op` on `datatype`.
    ///
    /// # Errors
    /// If the library rejects the pair.
    ///
    /// # Safety
    /// MPI is initialised. Whenever operands are combined, `op` and `datatype` are valid or null and the datatype means
    /// the same. `self_comm` is a private communicator of this process alone whose errors return.
    #[inline]
    pub unsafe fn resolve(op: MPI_Op, datatype: MPI_Datatype, self_comm: MPI_Comm) -> Result<Self, Rejected> {
        if let (Some(op), Some(known)) = (predefined_op(op), predefined(datatype))
            && let Some(kernel) = known.kernel(op)
        {
            let (combiner, class) = (Combiner::Kernel(kernel), OperatorClass::Predefined);
            return Ok(Self { combiner, op: Some(op), class, is_commutative: true, granule: known.size });
        }
        // SAFETY: the caller's promise.
        unsafe { Self::by_library(op, datatype, self_comm) }
    }

    /// The operation, run by the library.
    ///
    /// # Safety
    /// As for `resolve`.
    #[cold]
    unsafe fn by_library(op: MPI_Op, datatype: MPI_Datatype, self_comm: MPI_Comm) -> Result<Self, Rejected> {
        if op == constants().op_null || datatype == constants().datatype_null {
            return Err(Rejected::Null);
        }
        let (known_op, known) = (predefined_op(op), predefined(datatype));
        // SAFETY: the caller's promise.
        unsafe {
            let layout = match known {
                Some(known) if known.is_contiguous() => None,
                _ => Some(TypeLayout::of(datatype, self_comm)?),
            };
            if let Some(known_op) = known_op {
                let is_defined = match known {
                    Some(known) => is_defined(known_op, op, known, self_comm),
                    None => accepts(op, datatype, self_comm),
                };
                if !is_defined {
                    return Err(Rejected::NotDefined);
                }
            }
            let mut commutes = 0;
            let is_commutative = match known_op {
                Some(op) => op.is_commutative(),
                None => native().op_commutative(op, &mut commutes) == constants().success && commutes != 0,
            };
            let granule = layout.as_ref().map_or_else(|| known.map_or(0, |known| known.size), |layout| layout.size);
            let scratch = Mutex::new([Vec::new(), Vec::new()]);
            let library = Library { op, datatype, self_comm, granule: granule.max(1), layout, scratch };
            let numbers = || known.map_or_else(|| class_of_f90(datatype), |known| Some(known.class));
            let class = match known_op {
                None => OperatorClass::User,
                Some(_) if numbers().is_some_and(|numbers| numbers.is_extended(granule)) => OperatorClass::Library,
                Some(_) => OperatorClass::Predefined,
            };
            let combiner = Combiner::Library(Arc::new(library));
            Ok(Self { combiner, op: known_op, class, is_commutative, granule: granule.max(1) })
        }
    }

    /// Whether operands may be combined in any order.
    #[inline]
    pub fn is_commutative(&self) -> bool {
        self.is_commutative
    }

    /// Packed bytes of an element; 1 where elements are empty.
    #[inline]
    pub fn granule(&self) -> usize {
        self.granule
    }

    /// Who defined the operation, and who computes it: the same on all ranks.
    #[inline]
    pub fn class(&self) -> OperatorClass {
        self.class
    }

    /// The combiner of its operands.
    #[inline]
    pub fn as_combine(&self) -> &dyn Combine {
        self.combiner.as_combine()
    }

    /// The combiner, for later calls too; `None` if it might hold more memory than a communicator is to keep.
    pub(super) fn share_combiner(&self) -> Option<Combiner> {
        match &self.combiner {
            Combiner::Library(library) if !library.is_small() => None,
            combiner => Some(combiner.clone()),
        }
    }

    /// The predefined operation, if it is one.
    #[inline]
    pub fn predefined(&self) -> Option<PredefinedOp> {
        self.op
    }
}

/// Whether the library defines `op` on `known`. Its answer is remembered, since neither can ever be freed.
///
/// # Safety
/// As for [`Operator::resolve`].
pub(super) unsafe fn is_defined(known_op: PredefinedOp, op: MPI_Op, known: &Predefined, self_comm: MPI_Comm) -> bool {
    const UNKNOWN: u8 = 0;
    const YES: u8 = 1;
    const NO: u8 = 2;
    static ANSWERS: [[AtomicU8; PREDEFINED_MOST]; PredefinedOp::ALL.len()] =
        [const { [const { AtomicU8::new(UNKNOWN) }; PREDEFINED_MOST] }; PredefinedOp::ALL.len()];
    if known.legality(known_op) == Legality::Legal {
        return true;
    }
    let answer = &ANSWERS[known_op as usize][known.index];
    if answer.load(Ordering::Relaxed) == UNKNOWN {
        // SAFETY: the caller's promise.
        let accepted = unsafe { accepts(op, known.handle, self_comm) };
        answer.store(if accepted { YES } else { NO }, Ordering::Relaxed);
    }
    answer.load(Ordering::Relaxed) == YES
}

/// Whether the library accepts `op` on `datatype`; asks it by a reduction of no elements.
///
/// # Safety
/// As for [`Operator::resolve`].
unsafe fn accepts(op: MPI_Op, datatype: MPI_Datatype, self_comm: MPI_Comm) -> bool {
    let (from, mut to) = ([0u64; 8], [0u64; 8]);
    let (from, to) = (from.as_ptr().cast(), to.as_mut_ptr().cast());
    // SAFETY: no element is read or written.
    is_accepted(self_comm, |comm| unsafe { native().allreduce(from, to, 0, datatype, op, comm) })
}

/// Memory for unpacked elements, aligned for any type.
type Scratch = Vec<u128>;

/// An operation that the library runs.
pub(super) struct Library {
    op: MPI_Op,
    datatype: MPI_Datatype,
    self_comm: MPI_Comm,
    /// Packed bytes of an element, at least 1.
    granule: usize,
    /// `None` where elements of a predefined datatype lie in memory as they are packed.
    layout: Option<Arc<TypeLayout>>,
    /// Scratch memory for each operand; grows to the size of a piece.
    scratch: Mutex<[Scratch; 2]>,
}

// SAFETY: handles are numbers or addresses of the library's objects, which it locks where it has to.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// The range of an element's bytes, relative to its address, that the program's function may access. The function may
/// copy a whole struct of which the datatype names only a part. A datatype with a longer extent than a struct's is
/// taken for a column or the like.
fn bounds(layout: &TypeLayout) -> [isize; 2] {
    const STRUCT: usize = 1 << 20;
    let data = [layout.true_lb, layout.true_lb.saturating_add_unsigned(layout.true_extent)];
    if layout.extent.unsigned_abs() > STRUCT {
        return data;
    }
    let ends = [layout.lb, layout.lb.saturating_add(layout.extent)];
    [data[0].min(ends[0]).min(ends[1]), data[1].max(ends[0]).max(ends[1])]
}

/// Bytes that one step keeps in each scratch memory, unless an element is larger: few enough for the caches.
const PIECE: usize = 16 << 10;

impl Combine for Library {
    unsafe fn combine(&self, to: *mut u8, left: *const u8, right: *const u8, bytes: usize) {
        // The lock is not held meanwhile: a function of the program's may leave by longjmp, and other threads wait for
        // the lock.
        let mut scratch = std::mem::take(&mut *self.scratch());
        let span = self.layout.as_ref().map_or(self.granule, |layout| layout.extent.unsigned_abs().max(layout.size));
        let step = (PIECE / span.max(1)).max(1) * self.granule;
        // Elements that need no copy take larger steps; their count still fits an `int`.
        let most = ((1 << 30) / self.granule).max(1) * self.granule;
        let mut done = 0;
        while done < bytes {
            let (to, left, right) = (to.wrapping_add(done), left.wrapping_add(done), right.wrapping_add(done));
            // `MPI_Reduce_local` puts the result in place of its right operand, so `to` must look like elements and not
            // be the left operand.
            let elements = self.as_elements(left).zip(self.as_elements(to)).filter(|_| to.cast_const() != left);
            let is_right = to.cast_const() == right;
            let n = (bytes - done).min(if elements.is_some() && is_right { most } else { step });
            // SAFETY: the caller's promise, for this piece.
            unsafe {
                match elements {
                    Some((input, inout)) => {
                        if !is_right {
                            to.copy_from_nonoverlapping(right, n);
                        }
                        self.reduce_local(input, inout.cast_mut(), n);
                    }
                    None => self.combine_elsewhere(&mut scratch, to, left, right, n),
                }
            }
            done += n;
        }
        *self.scratch() = scratch;
    }
}

impl Library {
    fn scratch(&self) -> MutexGuard<'_, [Scratch; 2]> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an element takes at most a piece of scratch memory.
    fn is_small(&self) -> bool {
        let is_small = |layout: &Arc<TypeLayout>| {
            let [start, end] = bounds(layout);
            layout.extent.unsigned_abs().max(end.abs_diff(start)) <= PIECE
        };
        self.layout.as_ref().is_none_or(is_small) && self.granule <= PIECE
    }

    /// The address that the library has to get for `packed` bytes, if they look like elements in memory and are aligned
    /// like these. It precedes the data by the datatype's true lower bound.
    fn as_elements(&self, packed: *const u8) -> Option<*const u8> {
        let shift = match self.layout.as_ref().map(|layout| &layout.type_map) {
            None => 0,
            Some(TypeMap::Contiguous { at }) => *at,
            Some(_) => return None,
        };
        // Packed bytes may start anywhere; user functions are compiled for aligned elements.
        let alignment = 1 << self.granule.trailing_zeros().min(4);
        packed.addr().is_multiple_of(alignment).then(|| packed.wrapping_offset(-shift))
    }

    /// Combines `n` bytes in memory of this rank. The right operand is unpacked there, the left one unless it looks
    /// like elements.
    ///
    /// # Safety
    /// As for [`Combine::combine`].
    unsafe fn combine_elsewhere(
        &self,
        [left_memory, right_memory]: &mut [Scratch; 2],
        to: *mut u8,
        left: *const u8,
        right: *const u8,
        n: usize,
    ) {
        let count = n / self.granule;
        let inout = self.memory(right_memory, count);
        // SAFETY: both scratch memories have room for `count` elements.
        unsafe {
            let input = self.as_elements(left).unwrap_or_else(|| {
                let memory = self.memory(left_memory, count);
                self.unpack(left, memory, count);
                memory
            });
            self.unpack(right, inout, count);
            self.reduce_local(input, inout, n);
            self.pack(inout, to, count);
        }
    }

    /// The address of a buffer for `count` elements in `scratch`, which grows as needed. The address is a multiple of
    /// 16, so elements with aligned offsets are aligned.
    fn memory(&self, scratch: &mut Scratch, count: usize) -> *mut u8 {
        const WORD: isize = size_of::<u128>() as isize;
        let (low, bytes) = match &self.layout {
            None => (0, self.granule * count),
            Some(layout) => {
                let last = layout.extent.saturating_mul(count as isize - 1);
                let [start, end] = bounds(layout);
                (start.saturating_add(last.min(0)), end.abs_diff(start).saturating_add(last.unsigned_abs()))
            }
        };
        let start = low.div_euclid(WORD).saturating_mul(WORD);
        let words = bytes.saturating_add((low - start).unsigned_abs()).div_ceil(size_of::<u128>());
        if scratch.len() < words {
            scratch.resize(words, 0);
        }
        scratch.as_mut_ptr().cast::<u8>().wrapping_offset(start.wrapping_neg())
    }

    /// # Safety
    /// `from` has `count` packed elements, `base` room for as many.
    unsafe fn unpack(&self, from: *const u8, base: *mut u8, count: usize) {
        let n = count * self.granule;
        // SAFETY: the caller's promise.
        unsafe {
            match self.layout.as_deref() {
                None => base.copy_from_nonoverlapping(from, n),
                Some(layout) => match &layout.type_map {
                    TypeMap::Contiguous { at } => base.wrapping_offset(*at).copy_from_nonoverlapping(from, n),
                    TypeMap::Segments { segments, .. } => segments.scatter(base, 0, from, n),
                    TypeMap::Opaque => unpack_elements(layout, self.datatype, from, base, count, self.self_comm),
                },
            }
        }
    }

    /// # Safety
    /// `base` has `count` elements, `to` room for as many packed ones.
    unsafe fn pack(&self, base: *const u8, to: *mut u8, count: usize) {
        let n = count * self.granule;
        // SAFETY: the caller's promise.
        unsafe {
            match self.layout.as_deref() {
                None => to.copy_from_nonoverlapping(base, n),
                Some(layout) => match &layout.type_map {
                    TypeMap::Contiguous { at } => to.copy_from_nonoverlapping(base.wrapping_offset(*at), n),
                    TypeMap::Segments { segments, .. } => segments.gather(base, 0, to, n),
                    TypeMap::Opaque => pack_elements(layout, self.datatype, base, to, count, self.self_comm),
                },
            }
        }
    }

    /// Computes `inout = input op inout` for elements in memory with `n` packed bytes.
    ///
    /// # Panics
    /// If the library fails, since the caller is in the middle of a collective.
    ///
    /// # Safety
    /// Both buffers have `n / granule` elements.
    unsafe fn reduce_local(&self, input: *const u8, inout: *mut u8, n: usize) {
        let count = (n / self.granule) as c_int;
        // SAFETY: the caller's promise.
        let code = unsafe { reduce_or_end(input.cast(), inout.cast(), count, self.datatype, self.op) };
        assert!(code == constants().success, "MPI_Reduce_local failed ({})", Code(code));
    }
}

/// `MPI_Reduce_local`. If the program's operation throws, the process ends here, as in any `extern "C"` function: the
/// peers wait for the combined data, so the call can't be left in the middle.
///
/// # Safety
/// As for the native function.
unsafe extern "C" fn reduce_or_end(
    input: *const c_void,
    inout: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    op: MPI_Op,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { native().reduce_local(input, inout, count, datatype, op) }
}
