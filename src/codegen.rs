//! What the compiler is told of where values may live.

use std::hint::black_box;

/// A copy in memory, which the compiler does not take for the original. A value whose address is passed to a function has to be in memory
/// from its beginning, also where that function is hardly ever called; if the address is that of a copy made there, the value stays in
/// registers. What that gives stands in docs/PERFORMANCE.md, "Tried". Nothing but speed depends on it.
#[inline(always)]
pub fn elsewhere<T: Copy>(value: T) -> T {
    black_box(value)
}

/// The same value, of which the compiler does not know that it is that of another expression too.
#[inline(always)]
pub fn opaque<T: Copy>(value: T) -> T {
    black_box(value)
}

/// Calls `this` in a frame of its own: what it captures, with `move`, is in memory only there, and in registers of a caller that comes here
/// seldom.
#[inline(never)]
#[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "entries of MPI call it"))]
pub fn apart<R>(this: impl FnOnce() -> R) -> R {
    this()
}
