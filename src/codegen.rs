//! What the compiler is told of where values may live.

use std::hint::black_box;

/// A copy in memory, which the compiler does not take for the original. A value whose address is passed to a function has to be in memory
/// from its beginning, also where that function is hardly ever called; if the address is that of a copy made there, the value stays in
/// registers. What that gives stands in docs/PERFORMANCE.md, "Tried". Nothing but speed depends on it.
#[inline(always)]
pub fn elsewhere<T: Copy>(value: T) -> T {
    black_box(value)
}
