//! What machines cost: their parameters, and the formulas of the papers over them.
//!
//! [`Machine`] holds the parameters, [`Scene`] what the time of one call depends on besides its plan. The formulas are
//! those of Li, Hoefler, Hu, Snir 2014 ([`li`]), Tu, Fan, Zhan, Zhao 2009 ([`tu`]) and Nishtala 2009 ([`nishtala`]), as
//! printed; the costs of huddle's own algorithms, which copy into slots where the papers share the users' buffers,
//! stand beside the algorithms and are made of the same terms.
//!
//! All ranks must come to the same numbers, so formulas use only operations that IEEE 754 rounds alike everywhere:
//! no logarithms or powers of the mathematical library.

#![forbid(unsafe_code)]

pub mod li;
mod machine;
pub mod nishtala;
mod outline;
pub mod papers;
mod parameters;
mod scene;
pub mod tu;

pub use crate::kernel::SingleCopy;
pub use machine::{Between, Crossing, Far, Machine, Nanos, Network, Overlap, Software, Work};
pub use outline::{Edge, Outline};
pub use parameters::Parameters;
pub use scene::{Level, Rates, Scene, in_cell, part_beyond};

/// The least `l` with `base^l >= n`: ⌈log_base n⌉; 0 for `n` up to 1.
pub fn ceil_log(base: usize, n: usize) -> u32 {
    let base = base.max(2);
    let (mut rounds, mut reach) = (0, 1_usize);
    while reach < n {
        reach = reach.saturating_mul(base);
        rounds += 1;
    }
    rounds
}

/// The greatest `l` with `2^l <= n`: ⌊log2 n⌋; 0 for `n` up to 1.
pub fn floor_log2(n: usize) -> u32 {
    n.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_of_integers() {
        assert_eq!([0, 1, 2, 3, 8, 9].map(|n| ceil_log(2, n)), [0, 0, 1, 2, 3, 4]);
        assert_eq!([4, 5, 16, 17].map(|n| ceil_log(4, n)), [1, 2, 2, 3]);
        assert_eq!(ceil_log(1, 8), 3, "a base below 2 counts as 2");
        assert_eq!(ceil_log(2, usize::MAX), usize::BITS);
        assert_eq!([0, 1, 2, 3, 8, 9].map(floor_log2), [0, 0, 1, 1, 3, 3]);
    }
}
