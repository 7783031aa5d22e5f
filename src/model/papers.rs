//! The machines of Li, Hoefler, Hu, Snir 2014. What the text does not tell is assumed, and marked as assumed.

use super::{Crossing, Machine, Network};

/// A machine of sockets and cores.
pub struct Paper {
    /// Its name.
    pub name: &'static str,
    /// Sockets.
    pub sockets: usize,
    /// Cores of a socket.
    pub cores: usize,
    /// Between sockets, then within one.
    pub crossings: [Crossing; 2],
    /// Rl, and nanoseconds per byte that is copied and combined.
    pub rates: [f64; 3],
}

/// Xeon X5650. Latencies: §3.4. Assumed: a core streams 8 GB/s from its socket's L3 and 5 GB/s from the other's; the L3
/// gives 40 GB/s; a core copies 12 GB/s and combines 8 GB/s. Six readers of the same data across sockets hardly disturb
/// each other, as §3.1 says of the inclusive L3: it hands on what one of its cores has fetched.
pub const WESTMERE: Paper = Paper {
    name: "2×6 (Westmere)",
    sockets: 2,
    cores: 6,
    crossings: [
        Crossing { latency: 105.2, stream: 0.2, shared: 0.02 },
        Crossing { latency: 28.5, stream: 0.125, shared: 0.025 },
    ],
    rates: [1.2, 0.08, 0.125],
};

/// Opteron 6100. The paper has the latencies in a figure only: these give the sum of §3.4 (see
/// [`LineLatencies`](super::li)). Assumed: a core streams 5 GB/s from its socket's L3 and 3 GB/s from another's; the L3
/// gives 16 GB/s, a link 5 GB/s; a core copies 8 GB/s and combines 6 GB/s.
pub const MAGNY_COURS: Paper = Paper {
    name: "4×8 (Magny-Cours)",
    sockets: 4,
    cores: 8,
    crossings: [
        Crossing { latency: 125.0, stream: 0.33, shared: 0.2 },
        Crossing { latency: 50.0, stream: 0.2, shared: 0.0625 },
    ],
    rates: [1.3, 0.125, 0.16],
};

/// 128 threads, as Nishtala 2009 has them for barriers (§7.1): here eight sockets of sixteen, with the costs of
/// [`MAGNY_COURS`].
pub const THREADS_128: Paper = Paper { name: "8×16", sockets: 8, cores: 16, ..MAGNY_COURS };

impl Paper {
    /// Its parameters.
    pub fn machine(&self) -> Machine {
        let [local, copy, reduce] = self.rates;
        let network = Network { latency: 2000.0, overhead: 500.0, gap: 2000.0, per_byte: 1.0 };
        Machine::plain(local, self.crossings.to_vec(), [copy, reduce], network)
    }

    /// All ranks.
    pub fn ranks(&self) -> usize {
        self.sockets * self.cores
    }

    /// The node for equations (1) to (11), with messages in bytes.
    pub fn node(&self) -> super::li::Node {
        let [across, inside] = self.crossings;
        super::li::Node { sockets: self.sockets, cores: self.cores, inside, across }
    }
}
