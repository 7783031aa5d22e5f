//! `MPI_MINLOC` and `MPI_MAXLOC` on packed pairs of a value and an `int`: plain loops, the same at all levels.
//!
//! Most of these calls are of a few elements. As in the native libraries, the right operand stays where neither value is
//! beyond the other's (a NaN); of equal values the right one stays, with the smaller index.

use super::{Kernel, Op};

/// A pair as it lies in packed memory.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Pair<T> {
    value: T,
    index: i32,
}

/// Which of two values wins.
trait Location {
    fn is_beyond<T: PartialOrd>(value: T, other: T) -> bool;
}

struct Minloc;
struct Maxloc;

impl Location for Minloc {
    #[inline(always)]
    fn is_beyond<T: PartialOrd>(value: T, other: T) -> bool {
        value < other
    }
}

impl Location for Maxloc {
    #[inline(always)]
    fn is_beyond<T: PartialOrd>(value: T, other: T) -> bool {
        value > other
    }
}

#[inline(always)]
fn apply<T: Copy + PartialOrd, L: Location>(left: Pair<T>, right: Pair<T>) -> Pair<T> {
    let (value, other) = (left.value, right.value);
    if L::is_beyond(value, other) {
        left
    } else if value == other {
        Pair { value: other, index: left.index.min(right.index) }
    } else {
        right
    }
}

/// Hands each result to `put`, with the bytes before it.
///
/// # Safety
/// `left` and `right` are readable for `bytes` bytes, a multiple of the pair.
#[inline(always)]
unsafe fn each<T: Copy + PartialOrd, L: Location>(
    left: *const u8,
    right: *const u8,
    bytes: usize,
    put: impl Fn(usize, Pair<T>),
) {
    debug_assert_eq!(bytes % size_of::<Pair<T>>(), 0);
    for at in (0..bytes).step_by(size_of::<Pair<T>>()) {
        // SAFETY: within `bytes`; a packed struct has no alignment.
        let operands = unsafe { (left.add(at).cast::<Pair<T>>().read(), right.add(at).cast::<Pair<T>>().read()) };
        put(at, apply::<T, L>(operands.0, operands.1));
    }
}

/// # Safety
/// As for [`Combine::combine`](super::Combine::combine).
unsafe fn once<T: Copy + PartialOrd, L: Location>(to: *mut u8, left: *const u8, right: *const u8, bytes: usize) {
    // SAFETY: the caller's promise; a pair is read before its place is written.
    unsafe { each::<T, L>(left, right, bytes, |at, pair| to.add(at).cast::<Pair<T>>().write(pair)) }
}

/// # Safety
/// As for [`Combine::combine_twice`](super::Combine::combine_twice).
unsafe fn twice<T: Copy + PartialOrd, L: Location>(
    to: *mut u8,
    second: *mut u8,
    left: *const u8,
    right: *const u8,
    bytes: usize,
) {
    // SAFETY: as in `once`.
    unsafe {
        each::<T, L>(left, right, bytes, |at, pair| {
            to.add(at).cast::<Pair<T>>().write(pair);
            second.add(at).cast::<Pair<T>>().write(pair);
        });
    }
}

/// The kernel for pairs whose value is a `T`.
pub(super) fn kernel<T: Copy + PartialOrd>(op: Op) -> Option<Kernel> {
    match op {
        Op::Minloc => Some(Kernel { once: once::<T, Minloc>, twice: twice::<T, Minloc> }),
        Op::Maxloc => Some(Kernel { once: once::<T, Maxloc>, twice: twice::<T, Maxloc> }),
        _ => None,
    }
}
