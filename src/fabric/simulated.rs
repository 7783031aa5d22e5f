//! The simulator: it runs all ranks in one thread on virtual time, and charges each operation by the distance in the
//! machine and by contention. So algorithms can be compared on machines that nobody has at hand.
//!
//! Source: Li, Hoefler, Hu, Snir 2014, §2.1 (an access costs `a + b·m` by the level it crosses, and the streams that
//! cross a level together share `1/B`); between nodes LogGP, as Nishtala 2009. No data are moved.
//!
//! - A wait fetches the flag's line from its owner, once per value; the payload comes with it.
//! - A copy or a reduction reads each operand, from this rank's own cache or over the levels that lie between, and
//!   writes its result to its own cache. What a rank has fetched of a cell is in its own cache from then on.
//! - A publication or a release costs nothing: the rank has the line in its cache.
//!
//! Ranks take turns in the order of their clocks, so transfers that meet on a link meet in the order of time.

mod engine;
mod machine;
#[cfg(test)]
mod tests;
mod turns;

pub use engine::{Rank, simulate, simulate_in_succession};
pub use machine::Placement;
