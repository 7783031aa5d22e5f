//! `MPI_MINLOC` and `MPI_MAXLOC` on packed pairs of a value and an `int`: plain loops, the same at all levels.
//!
//! Most of these calls have few elements. As in the native libraries, the right operand stays where neither value is
//! beyond the other (a NaN). Where the values are equal, the right one stays, with the smaller index.

use super::reduce::Streams;
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

/// Combines pairs, one after the other.
///
/// # Safety
/// As for [`Combine::combine`](super::Combine::combine).
unsafe fn run<T: Copy + PartialOrd, L: Location>(
    to: *mut u8,
    left: *const u8,
    right: *const u8,
    bytes: usize,
    _: Streams,
) {
    debug_assert_eq!(bytes % size_of::<Pair<T>>(), 0);
    for at in (0..bytes).step_by(size_of::<Pair<T>>()) {
        // SAFETY: the caller's promise; a packed struct has no alignment, and a pair is read before its place is
        // written.
        unsafe {
            let operands = (left.add(at).cast::<Pair<T>>().read(), right.add(at).cast::<Pair<T>>().read());
            to.add(at).cast::<Pair<T>>().write(apply::<T, L>(operands.0, operands.1));
        }
    }
}

/// The kernel for pairs whose value is a `T`.
pub(super) fn kernel<T: Copy + PartialOrd>(op: Op) -> Option<Kernel> {
    match op {
        Op::Minloc => Some(Kernel { run: run::<T, Minloc>, has_streams: false }),
        Op::Maxloc => Some(Kernel { run: run::<T, Maxloc>, has_streams: false }),
        _ => None,
    }
}
