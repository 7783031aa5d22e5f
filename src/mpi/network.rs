//! The network between nodes, which rank 0 and a rank of another node measure in `MPI_Init` by messages of the native
//! library on huddle's own communicator.

use super::loader::LOADER;
use crate::config::Config;
use crate::model::Network;
use crate::mpi::handles::constants;
use crate::mpi::native::native;
use crate::tune::network::{self, PATIENCE, Place, Wire};
use mpi_sys::{MPI_Comm, MPI_Request};
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// The tag of all messages of the measurement; nothing else is ever sent on the communicator.
const TAG: c_int = 1;

/// On rank 0, what it knows of the network between the nodes of `labels`: kept by an earlier job, else measured; `None`
/// where neither is possible, and on other ranks. Every rank calls it; all but two return at once.
pub(super) fn find(world: MPI_Comm, rank: u32, labels: &[u32], config: &Config) -> Option<Network> {
    let other = labels.iter().position(|label| *label != labels[0])?;
    let peer = |rank: usize| Messages { comm: world, peer: rank as c_int };
    if rank as usize == other {
        network::answer(&mut peer(0));
    }
    if rank != 0 {
        return None;
    }
    let place = place(config);
    if let Some(kept) = place.as_ref().and_then(Place::read) {
        network::dismiss(&mut peer(other));
        return Some(kept);
    }
    let network = network::ask(&mut peer(other))?;
    if let Some(place) = place {
        place.write(&network);
    }
    Some(network)
}

fn place(config: &Config) -> Option<Place> {
    let directory = config.cache.directory()?;
    let library = LOADER.get().map_or("", |loader| loader.mpi_version.as_str());
    let nodes = if config.node_ranks.is_empty() { "hosts" } else { "virtual nodes" };
    Some(Place::new(&directory, &format!("{}, {nodes}", library.lines().next().unwrap_or_default())))
}

/// Messages to and from the rank `peer`.
struct Messages {
    comm: MPI_Comm,
    peer: c_int,
}

impl Messages {
    /// Whether the operation ends within `patience`.
    fn ends(request: &mut MPI_Request, patience: Duration) -> bool {
        let started = Instant::now();
        let mut done = 0;
        loop {
            // SAFETY: a request of this rank and valid places.
            let code = unsafe { native().test(request, &mut done, constants().status_ignore) };
            if done != 0 || code != constants().success || started.elapsed() > patience {
                return done != 0 && code == constants().success;
            }
            std::hint::spin_loop();
        }
    }
}

impl Wire for Messages {
    fn send(&mut self, message: &'static [u8]) -> bool {
        let c = constants();
        let (from, n) = (message.as_ptr().cast(), message.len() as c_int);
        let mut request = c.request_null;
        // SAFETY: a buffer of `n` bytes that is static, so it stays if nobody takes the message; valid rank,
        // communicator and place.
        let code = unsafe { native().isend(from, n, c.byte, self.peer, TAG, self.comm, &mut request) };
        code == c.success && Self::ends(&mut request, PATIENCE)
    }

    fn receive(&mut self, message: &mut [u8], patience: Duration) -> bool {
        let c = constants();
        let (to, n) = (message.as_mut_ptr().cast(), message.len() as c_int);
        let mut request = c.request_null;
        // SAFETY: a buffer of `n` bytes, which nobody touches until the request has ended; valid rank, communicator,
        // place.
        let code = unsafe { native().irecv(to, n, c.byte, self.peer, TAG, self.comm, &mut request) };
        if code != c.success || Self::ends(&mut request, patience) {
            return code == c.success;
        }
        // SAFETY: a request of this rank, unless it ended with an error; the wait for a cancelled request is local.
        unsafe {
            if request != c.request_null {
                native().cancel(&mut request);
                native().wait(&mut request, c.status_ignore);
            }
        }
        false
    }
}
