//! The parameters of machines, and of communicators on them.

use crate::kernel::SingleCopy;

/// Time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Nanos(pub f64);

/// An access between two ranks that part at some level of the hierarchy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// Nanoseconds until the first line is there: `a`.
    pub latency: f64,
    /// Nanoseconds per byte of one stream: `b`. Where fetching and copying overlap, that of a copy from there.
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

/// What huddle's own instructions take, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Software {
    /// A call: entry, choice, exit.
    pub call: f64,
    /// A piece in a phase that is composed of others: more than in a call that fits one slot and is flat, whose phases the
    /// compiler makes one function of.
    pub step: f64,
}

/// What takes longer where a call's data do not fit a core's own caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Far {
    /// Bytes of those caches.
    pub beyond: f64,
    /// Nanoseconds per byte that is copied.
    pub copy: f64,
    /// Nanoseconds per byte that is combined.
    pub reduce: f64,
}

/// The part of the shorter one of fetching and working that does not show: all of it where processors load data far ahead of
/// their use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overlap {
    /// Of a copy.
    pub copy: f64,
    /// Of a reduction.
    pub reduce: f64,
}

impl Overlap {
    /// First everything is fetched.
    pub const NONE: Self = Self { copy: 0.0, reduce: 0.0 };
}

/// What a rank does with data that it fetches: how long it takes where they are at hand, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// It copies them.
    Copy(f64),
    /// It combines them with data of its own.
    Combine(f64),
}

impl Work {
    /// The same, of data that are fetched for `transfer` meanwhile.
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
    /// By the number of containers that two ranks share, from none on; the last one counts for all that share more.
    pub crossings: Vec<Crossing>,
    /// Nanoseconds per byte that is copied.
    pub copy: f64,
    /// Nanoseconds per byte that is combined.
    pub reduce: f64,
    /// Nanoseconds per byte that is copied into a slot: its lines come back from who has read them.
    pub write: f64,
    /// The part of a line's latency that it takes from a flag to the data that it announces: less than all where
    /// processors load data ahead of the flag's value.
    pub ahead: f64,
    /// Where a rank works on what it fetches.
    pub overlap: Overlap,
    /// Copies and combinations of long calls.
    pub far: Far,
    /// The same where the buffers of all ranks do not fit the last-level cache.
    pub memory: Far,
    /// Single copies.
    pub single_copy: SingleCopy,
    /// Besides all that.
    pub software: Software,
    /// Nanoseconds until another rank runs on a core that one gives away.
    pub switch: f64,
    /// Between nodes.
    pub network: Network,
}

impl Machine {
    /// A machine as the papers have it: software takes no time, a copy takes as long wherever it goes, data come after flags.
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

    /// What an access costs between ranks that share `common` containers.
    pub fn crossing(&self, common: usize) -> Crossing {
        let last = self.crossings.len().saturating_sub(1);
        self.crossings.get(common.min(last)).copied().unwrap_or(Crossing { latency: 0.0, stream: 0.0, shared: 0.0 })
    }
}

/// A step between nodes, as far as its time depends on it.
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
    /// So many bytes go from one node to another, as many or fewer come back.
    Message(f64),
    /// A node takes part with no message.
    Nothing,
}

impl Machine {
    /// What a step between `nodes` nodes costs once all that it needs have come: LogGP, binomial trees or rings.
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
