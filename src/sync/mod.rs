//! The words through which processes synchronise: one writer each, values that only grow.
//!
//! The same source runs on real atomics and, with `--cfg loom`, on loom's. So `tests/loom.rs` explores the code that
//! ranks run.

mod atomic;
mod claims;
mod control;
mod descriptor;
mod event;
mod flag;
mod notice;
mod passed;
mod presence;
mod private;
mod teller;

#[cfg(loom)]
pub use atomic::weakened;
pub use atomic::{Pair, Side};
pub use claims::{Claims, HOME_UNIT, LastClaim, Room, Stretch};
pub use control::{CallLine, Control, Finding};
pub use descriptor::{Descriptor, PeerCall};
pub use event::Event;
pub use flag::{Flag, FlagLine, Payload};
pub use notice::Notice;
pub use passed::{Next, Passed};
pub use presence::Presence;
pub use private::Private;
pub use teller::Teller;
