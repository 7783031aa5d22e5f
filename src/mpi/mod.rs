//! The only code that names MPI.

mod arguments;
mod bridge;
mod build;
mod communicator;
pub mod datatype;
mod device;
pub mod finish;
mod flatten;
pub mod handles;
mod init;
mod job;
mod lane;
pub mod native;
pub mod op;
mod peers;
mod pool;
mod refusals;
pub mod serve;
mod whole;
