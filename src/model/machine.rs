//! The parameters of machines, and of communicators on them.

use crate::kernel::SingleCopy;

/// Time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Nanos(pub f64);

/// An access between two ranks that part at some level of the hierarchy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// Nanoseconds until the first line arrives: `a`.
    pub latency: f64,
    /// Nanoseconds per byte of one stream: `b`. Where fetching and copying overlap it is the rate of a copy from there.
    pub stream: f64,
    /// Nanoseconds per byte of all streams from one group together: `B`.
    pub shared: f64,
}

/// LogGP parameters of the network between nodes, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Wire: L.
    pub latency: f64,
    /// Processor time per message, on each side: o.
    pub overhead: f64,
    /// Between two messages of one sender: g.
    pub gap: f64,
    /// Per byte: G.
    pub per_byte: f64,
}

/// The time that huddle's own instructions take, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Software {
    /// A call: entry, choice, exit.
    pub call: f64,
    /// A piece in a composed phase, beyond what it takes in a flat call that fits one slot: the compiler makes one
    /// function of the phases of such a call.
    pub step: f64,
}

/// Rates where a call's data do not fit certain caches: a core's own, or the last level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Far {
    /// Bytes that count as fitting those caches.
    pub beyond: f64,
    /// Nanoseconds per byte that is copied.
    pub copy: f64,
    /// Nanoseconds per byte that is combined.
    pub reduce: f64,
}

/// How far fetching data and working on them overlap, as a part of the shorter one's time: 1 where processors load data
/// far ahead of their use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overlap {
    /// For copies.
    pub copy: f64,
    /// For reductions.
    pub reduce: f64,
}

impl Overlap {
    /// No overlap: first everything is fetched.
    pub const NONE: Self = Self { copy: 0.0, reduce: 0.0 };
}

/// What a rank does with data that it fetches, and the nanoseconds that this takes where they are at hand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// It copies them.
    Copy(f64),
    /// It combines them with data of its own.
    Combine(f64),
}

impl Work {
    /// The nanoseconds that this work takes with fetching its data, which alone takes `transfer`.
    pub fn fetching(self, transfer: f64, overlap: Overlap) -> f64 {
        let (work, hidden) = match self {
            Self::Copy(work) => (work, overlap.copy),
            Self::Combine(work) => (work, overlap.reduce),
        };
        transfer + work - hidden * transfer.min(work)
    }
}

/// A kind of machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Access to a rank's own first-level cache, per operand: Rl.
    pub local: f64,
    /// Crossings by the number of containers that two ranks share, from none on; the last one counts for all that share
    /// more.
    pub crossings: Vec<Crossing>,
    /// Nanoseconds per byte that is copied.
    pub copy: f64,
    /// Nanoseconds per byte that is combined.
    pub reduce: f64,
    /// Nanoseconds per byte that is copied into a slot, whose lines come back from the peers that have read them.
    pub write: f64,
    /// The part of a line's latency that passes between a flag and the data that it announces. It is less than 1 where
    /// processors load data before they know the flag's value.
    pub ahead: f64,
    /// How far a rank's work overlaps with fetching its data.
    pub overlap: Overlap,
    /// Rates of calls whose data do not fit a core's own caches.
    pub far: Far,
    /// Rates of calls where the buffers of all ranks do not fit the last-level cache.
    pub memory: Far,
    /// What single copies take beyond ordinary ones.
    pub single_copy: SingleCopy,
    /// The time of huddle's own instructions, besides all that.
    pub software: Software,
    /// Nanoseconds until another rank runs on a core that a rank gives away.
    pub switch: f64,
    /// The network between nodes.
    pub network: Network,
}

impl Machine {
    /// A machine as the papers model it: software takes no time, a copy takes equally long wherever it goes, and data
    /// are fetched after their flag.
    pub fn plain(local: f64, crossings: Vec<Crossing>, [copy, reduce]: [f64; 2], network: Network) -> Self {
        let [far, memory] = [Far { beyond: f64::INFINITY, copy, reduce }; 2];
        let (single_copy, software, switch) = (SingleCopy::default(), Software::default(), 0.0);
        Self {
            local,
            crossings,
            copy,
            reduce,
            write: copy,
            ahead: 1.0,
            overlap: Overlap::NONE,
            far,
            memory,
            single_copy,
            software,
            switch,
            network,
        }
    }

    /// The cost of an access between ranks that share `common` containers.
    pub fn crossing(&self, common: usize) -> Crossing {
        let last = self.crossings.len().saturating_sub(1);
        self.crossings.get(common.min(last)).copied().unwrap_or(Crossing { latency: 0.0, stream: 0.0, shared: 0.0 })
    }
}

/// A step between nodes, with what its time depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Between {
    /// Nobody leaves before all have entered.
    Barrier,
    /// So many bytes of every node are combined.
    Reduce(f64),
    /// So many bytes go to all nodes.
    Bcast(f64),
    /// So many bytes come together on all nodes.
    Allgather(f64),
    /// So many bytes are dealt to the nodes.
    Scatter(f64),
    /// So many bytes go from one node to another; as many or fewer come back.
    Message(f64),
    /// A node takes part with no message.
    Nothing,
}

impl Machine {
    /// The time of a step between `nodes` nodes once all data that it needs have arrived: LogGP, binomial trees or
    /// rings.
    pub fn between(&self, step: Between, nodes: usize) -> f64 {
        let Network { latency, overhead, gap, per_byte } = self.network;
        let rounds = f64::from(super::ceil_log(2, nodes));
        let hop = latency + 2.0 * overhead;
        let others = nodes.saturating_sub(1) as f64;
        match step {
            Between::Barrier => rounds * hop,
            Between::Reduce(n) => rounds * (hop + n * (per_byte + self.reduce)),
            Between::Bcast(n) => rounds * (hop + n * per_byte),
            Between::Allgather(n) => rounds * hop + n * others / nodes as f64 * per_byte,
            Between::Message(n) => hop + n * per_byte,
            Between::Nothing => 0.0,
            Between::Scatter(_) if nodes == 1 => 0.0,
            Between::Scatter(n) => hop + others * gap + n * others / nodes as f64 * per_byte,
        }
    }
}
