//! Every algorithm of the registry on the real shared-memory fabric: the ranks are threads of one process, each with
//! its own mapping. This tests what the checking scheduler can't see: addresses, real fences, sleeping, faults and
//! reports.
//!
//! Several nodes are several segments, with [`bridge::Switch`] between them.

#[path = "shm/bridge.rs"]
mod bridge;
#[path = "shm/case.rs"]
mod case;
#[path = "shm/cells.rs"]
mod cells;
#[path = "shm/conformance.rs"]
mod conformance;
#[path = "shm/failures.rs"]
mod failures;
#[path = "shm/halves.rs"]
mod halves;
#[path = "shm/memory.rs"]
mod memory;
#[path = "shm/mismatches.rs"]
mod mismatches;
#[path = "shm/operation.rs"]
mod operation;
#[path = "shm/stalls.rs"]
mod stalls;
#[path = "shm/turns.rs"]
mod turns;
#[path = "shm/world.rs"]
mod world;
