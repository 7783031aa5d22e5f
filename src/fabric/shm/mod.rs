//! The real fabric: slots and flags in a segment that all ranks of a communicator on one node map.
//!
//! A process holds one [`Context`] per communicator. Each collective call on it is a [`Call`], which implements
//! [`Fabric`](super::Fabric). All futures of a call are ready at once, except waits. The driver ([`Call::drive`]) polls
//! them, keeps the MPI library's own traffic moving, and notices peers that failed or are in another call. A short call
//! that is like an earlier one runs without futures ([`ShortCall`]).

mod call;
mod clock;
mod company;
mod context;
mod copies;
mod drive;
mod first_looks;
mod geometry;
mod givers;
mod hopes;
mod latest;
mod lines;
mod loans;
mod near;
mod next_flags;
mod notices;
mod pace;
mod presences;
mod reads;
mod rhythm;
mod rotation;
mod segment;
mod short_call;
mod single;
mod trials;
mod turns;
mod waiting_calls;
mod ways;
mod writes;
mod yields;

pub use super::words::{Awaited, Entered, Fault};
pub use crate::sync::{Descriptor, PeerCall};
pub use call::{Buffer, Buffers, Call};
pub use context::Context;
pub use drive::{Stall, Waiting};
pub use geometry::Geometry;
pub use latest::LatestCall;
pub use near::take_near_pages;
pub use notices::SharedNotice;
pub use pace::{Asking, Pace, Traffic};
pub use presences::Presences;
pub use rotation::ROTATED;
pub use segment::Segment;
pub use short_call::{Ends, ShortCall, known};
pub use trials::{are_trials_held, forgo_trials};

use super::BridgeStep;

/// The step between nodes, taken by leaders only. Implemented over the native MPI library.
pub trait Bridge: Sync {
    /// Starts `step`, whose span begins at `at`.
    ///
    /// # Safety
    /// `at` is valid for the bytes that the step names until [`Bridge::is_done`] returns true; no other step is under
    /// way.
    unsafe fn start(&self, step: BridgeStep, at: *mut u8);

    /// Whether the step that was started has ended.
    fn is_done(&self) -> bool;
}
