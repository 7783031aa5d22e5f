//! Hints to the compiler about where values may live.

use std::hint::black_box;

/// Returns a copy in memory, which the compiler does not take for the original. A value whose address is passed to a
/// function has to be in memory from its beginning, even if that function is hardly ever called. If the address of a
/// copy is passed instead, the value stays in registers. docs/PERFORMANCE.md, "Tried", says what that gains. Nothing
/// but speed depends on it.
#[inline(always)]
pub fn elsewhere<T: Copy>(value: T) -> T {
    black_box(value)
}

/// Returns the same value, and hides from the compiler that another expression has that value too.
#[inline(always)]
pub fn opaque<T: Copy>(value: T) -> T {
    black_box(value)
}

/// Calls `this` in a stack frame of its own. What `this` captures, with `move`, is in memory in that frame only; a
/// caller that comes here seldom keeps it in registers.
#[inline(never)]
#[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "entries of MPI call it"))]
pub fn apart<R>(this: impl FnOnce() -> R) -> R {
    this()
}
