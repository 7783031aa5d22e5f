//! The only code that names MPI.

mod agree;
mod arguments;
mod bridge;
mod build;
pub mod collectives;
mod communicator;
pub mod datatype;
mod decline;
mod device;
mod elements;
pub mod finish;
mod flatten;
pub mod handles;
mod holes;
mod init;
mod job;
mod lane;
mod lanes;
pub mod native;
mod network;
pub mod op;
mod peers;
mod pool;
mod recent;
mod refusals;
pub mod serve;
mod whole;
