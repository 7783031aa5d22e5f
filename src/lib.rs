//! huddle makes the collectives of unmodified MPI programs faster. See ARCHITECTURE.md.
//!
//! A module uses only what stands below it in this list of layers:
//! `interpose` and `capi` > `mpi` > `tune` > `coll` > `fabric`, `topo`, `kernel` > `sync` > `config`, `report`, `log`, `types`.

pub mod capi;
pub mod coll;
pub mod config;
pub mod fabric;
pub mod kernel;
pub mod log;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod report;
pub mod sync;
pub mod topo;
pub mod tune;
pub mod types;
