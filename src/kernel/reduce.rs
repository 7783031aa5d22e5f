//! Reduction kernels: one function per operation, element and instruction set, picked from a table by [`kernel`].
//!
//! One source serves all: `combine` works on *blocks* whose length is known at compile time. It loads a block whole,
//! combines it and stores it whole. Since the loads of a block precede its stores, a result may replace an operand, and
//! the compiler emits vector code of the level's width without asking which pointers are equal. The last block overlaps
//! the one before where the length is no multiple, so it is loaded and combined before anything is stored. Operands
//! shorter than a block are combined in halves of a block, quarters and so on. There no element is stored twice: a load
//! that spans two recent stores would have to wait for both to reach the cache.
//!
//! Levels, [`Streams`] and places in memory yield the same bits, and so do all ranks that combine the same elements:
//! nothing is reassociated, products and sums are not fused, `MPI_MAX` and `MPI_MIN` are `left > right ? left : right`
//! and its mirror image, logical operations yield 1 or 0, and integers wrap, as in the native libraries. Where a sum or
//! product has two NaNs the left one stays (`arithmetic`); each NaN in a product of complex numbers becomes the
//! language's `NAN`.

use super::arithmetic::{Arithmetic, Calculate, each};
use super::streams::{self, STREAMS, keep_loop, to_next_line};
use super::{Combine, Element, Level, Op, pairs};
use crate::types::PAGE;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Combines packed operands of one element by one operation. See [`Combine`] for the contracts.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    pub(crate) run: unsafe fn(to: *mut u8, left: *const u8, right: *const u8, bytes: usize, streams: Streams),
    /// Whether [`Streams`] make a difference.
    pub(crate) has_streams: bool,
}

/// How a kernel traverses long operands. Kernels for pairs always use one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Streams {
    /// From beginning to end.
    One,
    /// [Several](super::streams): two from 4 KiB on, more from 20 KiB on.
    Several,
}

impl Kernel {
    /// Combines as [`Combine::combine`] does, in the given streams.
    ///
    /// # Safety
    /// Its contract is that of `combine`.
    #[inline]
    pub unsafe fn combine_in(&self, streams: Streams, to: *mut u8, left: *const u8, right: *const u8, bytes: usize) {
        // SAFETY: the contract of `combine` is that of the function.
        unsafe { (self.run)(to, left, right, bytes, streams) }
    }
}

impl Combine for Kernel {
    #[inline]
    unsafe fn combine(&self, to: *mut u8, left: *const u8, right: *const u8, bytes: usize) {
        // SAFETY: the contract of both is the same.
        unsafe { self.combine_in(Streams::Several, to, left, right, bytes) }
    }

    #[inline]
    fn kernel(&self) -> Option<Kernel> {
        Some(*self)
    }
}

/// A binary operation on `T`.
trait Apply<T> {
    /// `left op= right` for arrays of packed elements.
    ///
    /// # Safety
    /// This processor has the level; `BYTES` is a multiple of the element.
    unsafe fn apply<L: Calculate, const BYTES: usize>(left: &mut [u8; BYTES], right: &[u8; BYTES]);
}

struct Max;
struct Min;
struct Sum;
struct Prod;
struct Land;
struct Band;
struct Lor;
struct Bor;
struct Lxor;
struct Bxor;

/// A complex number as it lies in memory.
#[derive(Clone, Copy)]
#[repr(C)]
struct Complex<T> {
    real: T,
    imaginary: T,
}

/// The number, or `NAN` in place of any NaN. Compilers may exchange operands of `+` and `*`, so payloads would differ.
#[inline(always)]
fn or_one_nan<T: Copy + PartialEq + From<f32>>(number: T) -> T {
    #[expect(clippy::eq_op, reason = "only a NaN differs from itself")]
    let is_number = number == number;
    if is_number { number } else { f32::NAN.into() }
}

macro_rules! apply {
    ($($op:ident for $($type:ty),+: |$left:ident, $right:ident| $value:expr;)*) => {
        $($(impl Apply<$type> for $op {
            #[inline(always)]
            unsafe fn apply<L: Calculate, const BYTES: usize>(left: &mut [u8; BYTES], right: &[u8; BYTES]) {
                // SAFETY: numbers have no invalid bits; the caller's promise.
                unsafe { each(left, right, |$left: $type, $right: $type| $value) }
            }
        })+)*
    };
    ($($op:ident for $type:ty: $arithmetic:ident;)*) => {
        $(impl Apply<$type> for $op {
            #[inline(always)]
            unsafe fn apply<L: Calculate, const BYTES: usize>(left: &mut [u8; BYTES], right: &[u8; BYTES]) {
                // SAFETY: the caller's promise.
                unsafe { L::calculate(Arithmetic::$arithmetic, left, right) }
            }
        })*
    };
}

apply! {
    Max for i8, i16, i32, i64, u8, u16, u32, u64, f32, f64: |left, right| if left > right { left } else { right };
    Min for i8, i16, i32, i64, u8, u16, u32, u64, f32, f64: |left, right| if left < right { left } else { right };
    Sum for u8, u16, u32, u64: |left, right| left.wrapping_add(right);
    Prod for u8, u16, u32, u64: |left, right| left.wrapping_mul(right);
    Prod for Complex<f32>, Complex<f64>: |left, right| Complex {
        real: or_one_nan(left.real * right.real - left.imaginary * right.imaginary),
        imaginary: or_one_nan(left.real * right.imaginary + left.imaginary * right.real),
    };
    Land for u8, u16, u32, u64: |left, right| ((left != 0) & (right != 0)).into();
    Lor for u8, u16, u32, u64: |left, right| ((left != 0) | (right != 0)).into();
    Lxor for u8, u16, u32, u64: |left, right| ((left != 0) ^ (right != 0)).into();
    Band for u8, u16, u32, u64: |left, right| left & right;
    Bor for u8, u16, u32, u64: |left, right| left | right;
    Bxor for u8, u16, u32, u64: |left, right| left ^ right;
}

apply! {
    Sum for f32: SumF32;
    Sum for f64: SumF64;
    Prod for f32: ProdF32;
    Prod for f64: ProdF64;
}

/// From this length on stores are aligned to cache lines, in as many streams as copies have, and loads of operands may
/// straddle lines. Such loads bring fewer lines at a time from another core, and cost Allreduces of 4 and 8 KiB a
/// tenth. In longer ones stores that straddle lines cost more (docs/PERFORMANCE.md, "Tried").
const LINED_UP: usize = 20 << 10;

/// `left op right` for a block of `BYTES` bytes.
///
/// # Safety
/// Both are readable for `BYTES` bytes, a multiple of the element; this processor has the level.
#[inline(always)]
unsafe fn block<T: Copy, O: Apply<T>, L: Calculate, const BYTES: usize>(
    left: *const u8,
    right: *const u8,
) -> [u8; BYTES] {
    // SAFETY: the caller's promise.
    unsafe {
        let (mut left, right) = (left.cast::<[u8; BYTES]>().read(), right.cast::<[u8; BYTES]>().read());
        O::apply::<L, BYTES>(&mut left, &right);
        left
    }
}

/// Bytes from `to` to the next cache line; 0 where they are no whole elements.
#[inline(always)]
fn head_of<T>(to: *mut u8) -> usize {
    let rest = to_next_line(to);
    if rest.is_multiple_of(size_of::<T>()) { rest } else { 0 }
}

/// Combines `bytes` bytes, at least a block.
///
/// # Safety
/// As for [`Combine`].
#[inline(always)]
unsafe fn blocks<T: Copy, O: Apply<T>, L: Calculate, const BLOCK: usize, const EACH: usize>(
    to: *mut u8,
    left: *const u8,
    right: *const u8,
    bytes: usize,
    streams: Streams,
) {
    let last = bytes - BLOCK;
    // SAFETY: all blocks and steps end within `bytes`; the caller's promise.
    unsafe {
        let tail = block::<T, O, L, BLOCK>(left.add(last), right.add(last));
        let mut at = 0;
        if bytes >= LINED_UP {
            at = head_of::<T>(to);
            short::<T, O, L, BLOCK>(to, left, right, at);
        }
        if streams == Streams::Several {
            at = match bytes {
                LINED_UP.. => in_streams::<T, O, L, STREAMS, EACH>(to, left, right, at, last),
                PAGE.. => in_streams::<T, O, L, 2, EACH>(to, left, right, at, last),
                _ => at,
            };
        }
        while at < last {
            let result = block::<T, O, L, BLOCK>(left.add(at), right.add(at));
            to.add(at).cast::<[u8; BLOCK]>().write(result);
            at += BLOCK;
            keep_loop();
        }
        to.add(last).cast::<[u8; BLOCK]>().write(tail);
    }
}

/// Combines the bytes between `at` and `end` in `COUNT` streams, `EACH` bytes of each in turn. Returns where the
/// streams end.
///
/// # Safety
/// As for [`Combine`].
#[inline(always)]
unsafe fn in_streams<T: Copy, O: Apply<T>, L: Calculate, const COUNT: usize, const EACH: usize>(
    to: *mut u8,
    left: *const u8,
    right: *const u8,
    at: usize,
    end: usize,
) -> usize {
    // SAFETY: streams are whole steps and end at `end` or before, which lies within the operands; the caller's promise.
    streams::in_turn::<COUNT, EACH>(at, end, |place| unsafe {
        let result = block::<T, O, L, EACH>(left.add(place), right.add(place));
        to.add(place).cast::<[u8; EACH]>().write(result);
    })
}

/// Combines `bytes` bytes, less than a block.
///
/// # Safety
/// As for [`Combine`].
#[inline(always)]
unsafe fn short<T: Copy, O: Apply<T>, L: Calculate, const BLOCK: usize>(
    to: *mut u8,
    left: *const u8,
    right: *const u8,
    bytes: usize,
) {
    macro_rules! pieces {
        ($at:ident: $($piece:literal)*) => {
            $(if $piece < BLOCK && $piece >= size_of::<T>() && bytes & $piece != 0 {
                let result = block::<T, O, L, $piece>(left.add($at), right.add($at));
                to.add($at).cast::<[u8; $piece]>().write(result);
                $at += $piece;
            })*
        };
    }
    let mut at = 0;
    // SAFETY: the pieces are the binary digits of `bytes`; the caller's promise.
    unsafe {
        pieces!(at: 128 64 32 16 8 4 2 1);
    }
    debug_assert_eq!(at, bytes);
}

/// Combines one element.
///
/// # Safety
/// As for [`Combine`].
#[inline(always)]
unsafe fn one<T: Copy, O: Apply<T>, L: Calculate>(to: *mut u8, left: *const u8, right: *const u8) {
    macro_rules! of_length {
        ($($length:literal)*) => {
            match size_of::<T>() {
                $($length => to.cast::<[u8; $length]>().write(block::<T, O, L, $length>(left, right)),)*
                _ => unreachable!("elements have 1, 2, 4, 8 or 16 bytes"),
            }
        };
    }
    // SAFETY: the caller's promise.
    unsafe { of_length!(1 2 4 8 16) }
}

/// The kernel of `O` on `T`.
///
/// # Safety
/// As for [`Combine`].
#[inline(always)]
unsafe fn combine<T: Copy, O: Apply<T>, L: Calculate, const BLOCK: usize, const EACH: usize>(
    to: *mut u8,
    left: *const u8,
    right: *const u8,
    bytes: usize,
    streams: Streams,
) {
    debug_assert_eq!(bytes % size_of::<T>(), 0);
    // SAFETY: the caller's promise.
    unsafe {
        if bytes == size_of::<T>() {
            one::<T, O, L>(to, left, right);
        } else if bytes >= BLOCK {
            blocks::<T, O, L, BLOCK, EACH>(to, left, right, bytes, streams);
        } else {
            short::<T, O, L, BLOCK>(to, left, right, bytes);
        }
    }
}

/// A [`Level`] as a type.
trait Compile: Calculate {
    /// The kernel of `O` on `T`, compiled for this level. It must not be called where the level is not available.
    fn kernel<T: Copy, O: Apply<T>>() -> Kernel;
}

macro_rules! compile {
    ($($name:ident $(, $feature:literal)?: blocks of $block:literal, steps of $step:literal;)*) => {
        $(
            pub(super) struct $name;

            impl Compile for $name {
                fn kernel<T: Copy, O: Apply<T>>() -> Kernel {
                    $(#[target_feature(enable = $feature)])?
                    unsafe fn run<T: Copy, O: Apply<T>>(
                        to: *mut u8,
                        left: *const u8,
                        right: *const u8,
                        bytes: usize,
                        streams: Streams,
                    ) {
                        // SAFETY: the caller's promise.
                        unsafe { combine::<T, O, $name, $block, $step>(to, left, right, bytes, streams) }
                    }

                    Kernel { run: run::<T, O>, has_streams: true }
                }
            }
        )*
    };
}

// A block is four registers: enough independent work for two loads and a store per cycle.
compile! {
    Baseline: blocks of 64, steps of 64;
}
#[cfg(target_arch = "x86_64")]
compile! {
    Avx2, "avx2": blocks of 128, steps of 128;
    Avx512, "avx512f,avx512bw,avx512dq,avx512vl": blocks of 256, steps of 128;
}

/// For integers `T`. Only `MPI_MAX` and `MPI_MIN` depend on the sign; the rest is compiled once, for `Unsigned`.
fn integer<L: Compile, T: Copy, Unsigned: Copy>(op: Op) -> Option<Kernel>
where
    Max: Apply<T>,
    Min: Apply<T>,
    Sum: Apply<Unsigned>,
    Prod: Apply<Unsigned>,
    Land: Apply<Unsigned>,
    Band: Apply<Unsigned>,
    Lor: Apply<Unsigned>,
    Bor: Apply<Unsigned>,
    Lxor: Apply<Unsigned>,
    Bxor: Apply<Unsigned>,
{
    Some(match op {
        Op::Max => L::kernel::<T, Max>(),
        Op::Min => L::kernel::<T, Min>(),
        Op::Sum => L::kernel::<Unsigned, Sum>(),
        Op::Prod => L::kernel::<Unsigned, Prod>(),
        Op::Land => L::kernel::<Unsigned, Land>(),
        Op::Band => L::kernel::<Unsigned, Band>(),
        Op::Lor => L::kernel::<Unsigned, Lor>(),
        Op::Bor => L::kernel::<Unsigned, Bor>(),
        Op::Lxor => L::kernel::<Unsigned, Lxor>(),
        Op::Bxor => L::kernel::<Unsigned, Bxor>(),
        Op::Minloc | Op::Maxloc => return None,
    })
}

fn float<L: Compile, T: Copy>(op: Op) -> Option<Kernel>
where
    Max: Apply<T>,
    Min: Apply<T>,
    Sum: Apply<T>,
    Prod: Apply<T>,
{
    match op {
        Op::Max => Some(L::kernel::<T, Max>()),
        Op::Min => Some(L::kernel::<T, Min>()),
        Op::Sum => Some(L::kernel::<T, Sum>()),
        Op::Prod => Some(L::kernel::<T, Prod>()),
        _ => None,
    }
}

/// A sum of complex numbers is a sum of twice as many floats.
fn complex<L: Compile, T: Copy>(op: Op) -> Option<Kernel>
where
    Sum: Apply<T>,
    Prod: Apply<Complex<T>>,
{
    match op {
        Op::Sum => Some(L::kernel::<T, Sum>()),
        Op::Prod => Some(L::kernel::<Complex<T>, Prod>()),
        _ => None,
    }
}

fn compiled<L: Compile>(op: Op, element: Element) -> Option<Kernel> {
    match element {
        Element::I8 => integer::<L, i8, u8>(op),
        Element::I16 => integer::<L, i16, u16>(op),
        Element::I32 => integer::<L, i32, u32>(op),
        Element::I64 => integer::<L, i64, u64>(op),
        Element::U8 => integer::<L, u8, u8>(op),
        Element::U16 => integer::<L, u16, u16>(op),
        Element::U32 => integer::<L, u32, u32>(op),
        Element::U64 => integer::<L, u64, u64>(op),
        Element::F32 => float::<L, f32>(op),
        Element::F64 => float::<L, f64>(op),
        Element::C32 => complex::<L, f32>(op),
        Element::C64 => complex::<L, f64>(op),
        Element::PairI16 => pairs::kernel::<i16>(op),
        Element::PairI32 => pairs::kernel::<i32>(op),
        Element::PairI64 => pairs::kernel::<i64>(op),
        Element::PairF32 => pairs::kernel::<f32>(op),
        Element::PairF64 => pairs::kernel::<f64>(op),
    }
}

/// Kernels by element and operation.
type Table = [[Option<Kernel>; Op::ALL.len()]; Element::ALL.len()];

/// The kernels of `level`, or of the plainest level where the processor does not have it.
fn table(level: Level) -> &'static Table {
    static TABLES: [OnceLock<Table>; Level::ALL.len()] = [const { OnceLock::new() }; Level::ALL.len()];
    let level = if level.is_available() { level } else { Level::Baseline };
    TABLES[level as usize].get_or_init(|| {
        let kernel = match level {
            Level::Baseline => compiled::<Baseline>,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => compiled::<Avx2>,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => compiled::<Avx512>,
            #[cfg(not(target_arch = "x86_64"))]
            _ => compiled::<Baseline>,
        };
        Element::ALL.map(|element| Op::ALL.map(|op| kernel(op, element)))
    })
}

/// The table in use; null until a level is chosen or a kernel is asked for.
static CHOSEN: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());

/// From here on [`kernel`] picks from this level.
pub fn choose(level: Level) {
    // [kernels] release: pairs with the acquire in `kernel`.
    CHOSEN.store(std::ptr::from_ref(table(level)).cast_mut(), Ordering::Release);
}

#[cold]
fn choose_widest() -> &'static Table {
    let table = table(Level::widest());
    // A thread that chose meanwhile knows more, so its choice stays.
    let _ = CHOSEN.compare_exchange(
        std::ptr::null_mut(),
        std::ptr::from_ref(table).cast_mut(),
        Ordering::Release,
        Ordering::Relaxed,
    );
    table
}

/// The kernel for an operation on an element, of the level in use; none where the operation has no meaning there (bits
/// of a float, the maximum of complex numbers).
#[inline]
pub fn kernel(op: Op, element: Element) -> Option<Kernel> {
    // [kernels] acquire: pairs with the release where a table is chosen.
    let chosen = CHOSEN.load(Ordering::Acquire);
    // SAFETY: null or the address of a table that lives for ever.
    let table = unsafe { chosen.as_ref() }.unwrap_or_else(choose_widest);
    table[element as usize][op as usize]
}

/// The kernel that [`kernel`] would pick from a given level; none where this processor does not have the level.
pub fn kernel_at(level: Level, op: Op, element: Element) -> Option<Kernel> {
    if level.is_available() { table(level)[element as usize][op as usize] } else { None }
}

#[cfg(test)]
#[path = "reduce_tests.rs"]
mod tests;
