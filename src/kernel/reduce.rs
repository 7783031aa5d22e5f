//! Reduction kernels: one function per operation and element, picked from a table by [`kernel`].
//!
//! A kernel is a plain loop in three copies: result apart, in place of the left operand, and of the right one. In each copy
//! the compiler sees which pointers are equal and checks once that the others do not overlap, so that every kernel is
//! vector code on the baseline of the target (read in the assembly for x86-64), in place too.
//!
//! `MPI_MAX` and `MPI_MIN` are `left > right ? left : right` and its mirror image, logical operations yield 1 or 0, and
//! integers wrap, as in the native libraries.

use super::{Element, Kernel, Op};

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

/// Combines `count` elements one after the other.
///
/// # Safety
/// As for [`Kernel`].
#[inline(always)]
unsafe fn each<T: Copy, O: Apply<T>>(to: *mut u8, left: *const u8, right: *const u8, count: usize) {
    let (to, left, right) = (to.cast::<T>(), left.cast::<T>(), right.cast::<T>());
    for at in 0..count {
        // SAFETY: the caller vouches for `count` elements at each pointer; nothing is assumed about alignment.
        unsafe {
            let value = O::apply(left.add(at).read_unaligned(), right.add(at).read_unaligned());
            to.add(at).write_unaligned(value);
        }
    }
}

/// The kernel of `O` on `T`.
///
/// # Safety
/// As for [`Kernel`].
unsafe fn run<T: Copy, O: Apply<T>>(to: *mut u8, left: *const u8, right: *const u8, bytes: usize) {
    debug_assert_eq!(bytes % size_of::<T>(), 0);
    let count = bytes / size_of::<T>();
    // SAFETY: the contract of `each` is that of the kernel; equal pointers are exchanged for each other.
    unsafe {
        if to.cast_const() == left {
            each::<T, O>(to, to, right, count);
        } else if to.cast_const() == right {
            each::<T, O>(to, left, to, count);
        } else {
            each::<T, O>(to, left, right, count);
        }
    }
}

fn integer<T: Copy>(op: Op) -> Option<Kernel>
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
        Op::Max => run::<T, Max>,
        Op::Min => run::<T, Min>,
        Op::Sum => run::<T, Sum>,
        Op::Prod => run::<T, Prod>,
        Op::Land => run::<T, Land>,
        Op::Band => run::<T, Band>,
        Op::Lor => run::<T, Lor>,
        Op::Bor => run::<T, Bor>,
        Op::Lxor => run::<T, Lxor>,
        Op::Bxor => run::<T, Bxor>,
    })
}

fn float<T: Copy>(op: Op) -> Option<Kernel>
where
    Max: Apply<T>,
    Min: Apply<T>,
    Sum: Apply<T>,
    Prod: Apply<T>,
{
    match op {
        Op::Max => Some(run::<T, Max>),
        Op::Min => Some(run::<T, Min>),
        Op::Sum => Some(run::<T, Sum>),
        Op::Prod => Some(run::<T, Prod>),
        _ => None,
    }
}

fn complex<T: Copy>(op: Op) -> Option<Kernel>
where
    Sum: Apply<T>,
    Prod: Apply<T>,
{
    match op {
        Op::Sum => Some(run::<T, Sum>),
        Op::Prod => Some(run::<T, Prod>),
        _ => None,
    }
}

/// The kernel for an operation on an element; none where the operation has no meaning there (bits of a float, the maximum
/// of complex numbers). The one place that picks, also once kernels depend on the processor.
pub fn kernel(op: Op, element: Element) -> Option<Kernel> {
    match element {
        Element::I8 => integer::<i8>(op),
        Element::I16 => integer::<i16>(op),
        Element::I32 => integer::<i32>(op),
        Element::I64 => integer::<i64>(op),
        Element::U8 => integer::<u8>(op),
        Element::U16 => integer::<u16>(op),
        Element::U32 => integer::<u32>(op),
        Element::U64 => integer::<u64>(op),
        Element::F32 => float::<f32>(op),
        Element::F64 => float::<f64>(op),
        Element::C32 => complex::<Complex<f32>>(op),
        Element::C64 => complex::<Complex<f64>>(op),
    }
}

#[cfg(test)]
#[path = "reduce_tests.rs"]
mod tests;
