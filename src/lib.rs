//! huddle makes the collectives of unmodified MPI programs faster. See ARCHITECTURE.md.
//!
//! A module uses only what stands below it in this list of layers: `interpose`, `capi` > `mpi` > `tune` > `config` >
//! `report` > `coll` > `fabric` > `topo`, `kernel`, `model` > `sync` > `callers`, `ends`, `kept`, `log`, `types`,
//! `codegen`, `fpenv`.
//!
//! Checks with loom cover `coll` and what it uses, not the layers above it.

pub mod callers;
#[cfg(not(loom))]
pub mod capi;
mod codegen;
pub mod coll;
#[cfg(not(loom))]
pub mod config;
#[cfg(not(loom))]
pub mod ends;
pub mod fabric;
#[cfg(not(loom))]
mod fpenv;
#[cfg(feature = "mpi")]
mod interpose;
pub mod kept;
pub mod kernel;
pub mod log;
pub mod model;
#[cfg(feature = "mpi")]
pub mod mpi;
#[cfg(not(loom))]
pub mod report;
pub mod sync;
pub mod topo;
#[cfg(not(loom))]
pub mod tune;
pub mod types;
