//! Reduction kernels: one function per operation and element, picked from a table by [`kernel`].
//!
//! A kernel loads a block of [`BLOCK`] bytes of each operand, combines them and stores the block. All loads of a block
//! precede its stores, so the compiler needs no proof that the operands do not overlap the result (it may equal either),
//! and every kernel becomes vector code on the baseline of the target.
//!
//! `MPI_MAX` and `MPI_MIN` are `left > right ? left : right` and its mirror image, logical operations yield 1 or 0, and
//! integers wrap, as in the native libraries.

use super::{Element, Kernel, Op};

/// Bytes per block: four SSE2 registers per operand.
const BLOCK: usize = 64;

/// A binary operation on `T`.
trait Apply<T> {
    fn apply(left: T, right: T) -> T;
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

macro_rules! apply {
    ($($op:ident for $($type:ty),+: |$left:ident, $right:ident| $value:expr;)*) => {
        $($(impl Apply<$type> for $op {
            #[inline(always)]
            fn apply($left: $type, $right: $type) -> $type {
                $value
            }
        })+)*
    };
}

apply! {
    Max for i8, i16, i32, i64, u8, u16, u32, u64, f32, f64: |left, right| if left > right { left } else { right };
    Min for i8, i16, i32, i64, u8, u16, u32, u64, f32, f64: |left, right| if left < right { left } else { right };
    Sum for i8, i16, i32, i64, u8, u16, u32, u64: |left, right| left.wrapping_add(right);
    Prod for i8, i16, i32, i64, u8, u16, u32, u64: |left, right| left.wrapping_mul(right);
    Sum for f32, f64: |left, right| left + right;
    Prod for f32, f64: |left, right| left * right;
    Sum for Complex<f32>, Complex<f64>: |left, right| Complex {
        real: left.real + right.real,
        imaginary: left.imaginary + right.imaginary,
    };
    Prod for Complex<f32>, Complex<f64>: |left, right| Complex {
        real: left.real * right.real - left.imaginary * right.imaginary,
        imaginary: left.real * right.imaginary + left.imaginary * right.real,
    };
    Land for i8, i16, i32, i64, u8, u16, u32, u64: |left, right| ((left != 0) & (right != 0)).into();
    Lor for i8, i16, i32, i64, u8, u16, u32, u64: |left, right| ((left != 0) | (right != 0)).into();
    Lxor for i8, i16, i32, i64, u8, u16, u32, u64: |left, right| ((left != 0) ^ (right != 0)).into();
    Band for i8, i16, i32, i64, u8, u16, u32, u64: |left, right| left & right;
    Bor for i8, i16, i32, i64, u8, u16, u32, u64: |left, right| left | right;
    Bxor for i8, i16, i32, i64, u8, u16, u32, u64: |left, right| left ^ right;
}

/// Combines `LANES` elements.
///
/// # Safety
/// As for [`Kernel`], with `LANES` elements.
#[inline(always)]
unsafe fn block<T: Copy, O: Apply<T>, const LANES: usize>(to: *mut u8, left: *const u8, right: *const u8) {
    // SAFETY: the caller vouches for `LANES` elements at each pointer; nothing is assumed about alignment.
    unsafe {
        let left = left.cast::<[T; LANES]>().read_unaligned();
        let right = right.cast::<[T; LANES]>().read_unaligned();
        let result: [T; LANES] = std::array::from_fn(|lane| O::apply(left[lane], right[lane]));
        to.cast::<[T; LANES]>().write_unaligned(result);
    }
}

/// The kernel of `O` on `T`, where `LANES` elements make a block.
///
/// # Safety
/// As for [`Kernel`].
unsafe fn run<T: Copy, O: Apply<T>, const LANES: usize>(to: *mut u8, left: *const u8, right: *const u8, bytes: usize) {
    const { assert!(LANES * size_of::<T>() == BLOCK) };
    debug_assert_eq!(bytes % size_of::<T>(), 0);
    let mut at = 0;
    // SAFETY: `at` grows in steps of what is combined and stays within `bytes`.
    unsafe {
        while at + BLOCK <= bytes {
            block::<T, O, LANES>(to.add(at), left.add(at), right.add(at));
            at += BLOCK;
        }
        while at < bytes {
            block::<T, O, 1>(to.add(at), left.add(at), right.add(at));
            at += size_of::<T>();
        }
    }
}

fn integer<T: Copy, const LANES: usize>(op: Op) -> Option<Kernel>
where
    Max: Apply<T>,
    Min: Apply<T>,
    Sum: Apply<T>,
    Prod: Apply<T>,
    Land: Apply<T>,
    Band: Apply<T>,
    Lor: Apply<T>,
    Bor: Apply<T>,
    Lxor: Apply<T>,
    Bxor: Apply<T>,
{
    Some(match op {
        Op::Max => run::<T, Max, LANES>,
        Op::Min => run::<T, Min, LANES>,
        Op::Sum => run::<T, Sum, LANES>,
        Op::Prod => run::<T, Prod, LANES>,
        Op::Land => run::<T, Land, LANES>,
        Op::Band => run::<T, Band, LANES>,
        Op::Lor => run::<T, Lor, LANES>,
        Op::Bor => run::<T, Bor, LANES>,
        Op::Lxor => run::<T, Lxor, LANES>,
        Op::Bxor => run::<T, Bxor, LANES>,
    })
}

fn float<T: Copy, const LANES: usize>(op: Op) -> Option<Kernel>
where
    Max: Apply<T>,
    Min: Apply<T>,
    Sum: Apply<T>,
    Prod: Apply<T>,
{
    match op {
        Op::Max => Some(run::<T, Max, LANES>),
        Op::Min => Some(run::<T, Min, LANES>),
        Op::Sum => Some(run::<T, Sum, LANES>),
        Op::Prod => Some(run::<T, Prod, LANES>),
        _ => None,
    }
}

fn complex<T: Copy, const LANES: usize>(op: Op) -> Option<Kernel>
where
    Sum: Apply<T>,
    Prod: Apply<T>,
{
    match op {
        Op::Sum => Some(run::<T, Sum, LANES>),
        Op::Prod => Some(run::<T, Prod, LANES>),
        _ => None,
    }
}

/// The kernel for an operation on an element; none where the operation has no meaning there (bits of a float, the maximum
/// of complex numbers). The one place that picks, also once kernels depend on the processor.
pub fn kernel(op: Op, element: Element) -> Option<Kernel> {
    match element {
        Element::I8 => integer::<i8, 64>(op),
        Element::I16 => integer::<i16, 32>(op),
        Element::I32 => integer::<i32, 16>(op),
        Element::I64 => integer::<i64, 8>(op),
        Element::U8 => integer::<u8, 64>(op),
        Element::U16 => integer::<u16, 32>(op),
        Element::U32 => integer::<u32, 16>(op),
        Element::U64 => integer::<u64, 8>(op),
        Element::F32 => float::<f32, 16>(op),
        Element::F64 => float::<f64, 8>(op),
        Element::C32 => complex::<Complex<f32>, 8>(op),
        Element::C64 => complex::<Complex<f64>, 4>(op),
    }
}

#[cfg(test)]
#[path = "reduce_tests.rs"]
mod tests;
