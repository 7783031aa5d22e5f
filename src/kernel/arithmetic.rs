//! Sums and products of packed floats: on x86-64 as instructions of the processor, elsewhere as a comparison.
//!
//! Where both operands are NaNs, the instructions keep the payload of the first one. `+` and `*` do not define which
//! payload stays, and a compiler may order their operands differently in each loop. Ranks whose results start at other
//! places in a cache line run other loops, and would get other bits.

use super::reduce::Baseline;
#[cfg(target_arch = "x86_64")]
use super::reduce::{Avx2, Avx512};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128i, __m256i, __m512i};

/// What to calculate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    SumF32,
    SumF64,
    ProdF32,
    ProdF64,
}

/// Arithmetic with the vectors of a level.
pub trait Calculate {
    /// Computes `left op= right` for arrays of packed numbers. Where both are NaNs the left one stays.
    ///
    /// # Safety
    /// This processor has the level; `BYTES` is a multiple of the numbers' length.
    unsafe fn calculate<const BYTES: usize>(arithmetic: Arithmetic, left: &mut [u8; BYTES], right: &[u8; BYTES]);
}

/// Applies the instruction to as many of the longest vectors as fit, then to the shorter ones and single numbers that
/// are left.
#[cfg(target_arch = "x86_64")]
macro_rules! instructions {
    ($left:ident, $right:ident, [$($vector:ty: $register:ident),+]: $packed:expr, $number:ty: $scalar:expr) => {
        instructions!($left, $right: $($vector, $register: $packed;)+ $number, xmm_reg: $scalar;)
    };
    ($left:ident, $right:ident: $($vector:ty, $register:ident: $instruction:expr;)+) => {{
        let mut at = 0;
        $(while $left.len() - at >= size_of::<$vector>() {
            // SAFETY: both vectors lie within arrays of the same length; the caller vouches for the level.
            unsafe {
                let place = $left.as_mut_ptr().add(at).cast::<$vector>();
                let mut value = place.read_unaligned();
                let other = $right.as_ptr().add(at).cast::<$vector>().read_unaligned();
                std::arch::asm!($instruction, inout($register) value, in($register) other, options(pure, nomem, nostack));
                place.write_unaligned(value);
            }
            at += size_of::<$vector>();
        })+
        debug_assert_eq!(at, $left.len());
    }};
}

// Each instruction has a prefix that names its encoding. Without it assemblers exchange operands where that saves a
// byte.
#[cfg(target_arch = "x86_64")]
macro_rules! calculate {
    ($level:ident $(, $feature:literal)?: $start:literal, $end:literal, $($vector:ty: $register:ident),+) => {
        impl Calculate for $level {
            $(#[target_feature(enable = $feature)])?
            #[inline]
            unsafe fn calculate<const BYTES: usize>(arithmetic: Arithmetic, left: &mut [u8; BYTES], right: &[u8; BYTES]) {
                macro_rules! by {
                    ($operation:literal, $kind:literal, $number:ty) => {
                        instructions!(
                            left, right, [$($vector: $register),+]: concat!($start, $operation, "p", $kind, $end),
                            $number: concat!($start, $operation, "s", $kind, $end)
                        )
                    };
                }
                match arithmetic {
                    Arithmetic::SumF32 => by!("add", "s", f32),
                    Arithmetic::ProdF32 => by!("mul", "s", f32),
                    Arithmetic::SumF64 => by!("add", "d", f64),
                    Arithmetic::ProdF64 => by!("mul", "d", f64),
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
calculate! { Baseline: "", " {0}, {1}", __m128i: xmm_reg }
#[cfg(target_arch = "x86_64")]
calculate! { Avx2, "avx2": "{{vex3}} v", " {0}, {0}, {1}", __m256i: ymm_reg, __m128i: xmm_reg }
#[cfg(target_arch = "x86_64")]
calculate! { Avx512, "avx512f,avx512bw,avx512dq,avx512vl": "{{evex}} v", " {0}, {0}, {1}", __m512i: zmm_reg, __m256i: ymm_reg, __m128i: xmm_reg }

#[cfg(not(target_arch = "x86_64"))]
impl Calculate for Baseline {
    unsafe fn calculate<const BYTES: usize>(arithmetic: Arithmetic, left: &mut [u8; BYTES], right: &[u8; BYTES]) {
        // SAFETY: floats have no invalid bits; the caller's promise.
        unsafe {
            match arithmetic {
                Arithmetic::SumF32 => {
                    each(left, right, |left: f32, right| if left.is_nan() { left } else { left + right })
                }
                Arithmetic::ProdF32 => {
                    each(left, right, |left: f32, right| if left.is_nan() { left } else { left * right })
                }
                Arithmetic::SumF64 => {
                    each(left, right, |left: f64, right| if left.is_nan() { left } else { left + right })
                }
                Arithmetic::ProdF64 => {
                    each(left, right, |left: f64, right| if left.is_nan() { left } else { left * right })
                }
            }
        }
    }
}

/// Computes `left = of(left, right)` for each element of two arrays of packed elements.
///
/// # Safety
/// All bits of a `T` are valid; `BYTES` is a multiple of its length.
#[inline(always)]
pub unsafe fn each<T: Copy, const BYTES: usize>(left: &mut [u8; BYTES], right: &[u8; BYTES], of: impl Fn(T, T) -> T) {
    let mut at = 0;
    while at < BYTES / size_of::<T>() {
        // SAFETY: the elements lie within arrays of the same length; the caller's promise.
        unsafe {
            let place = left.as_mut_ptr().cast::<T>().add(at);
            place.write_unaligned(of(place.read_unaligned(), right.as_ptr().cast::<T>().add(at).read_unaligned()));
        }
        at += 1;
    }
}
