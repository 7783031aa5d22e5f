//! The parameters of a kind of machine by what two ranks share, and those assumed where nothing was measured.

use super::{Crossing, Far, Level, Machine, Network, Overlap, SingleCopy, Software};
use crate::topo::{Hierarchy, Kind};

/// The parameters of a kind of machine. A choice uses those of rank 0, on all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Access to a rank's own first-level cache, per operand: Rl.
    pub local: f64,
    /// Crossings: first of ranks that share nothing but the node, then by the innermost kind shared, in the order of
    /// [`Kind::ALL`].
    pub crossings: [Crossing; 1 + Kind::ALL.len()],
    /// Nanoseconds per byte that is copied.
    pub copy: f64,
    /// Nanoseconds per byte that is combined.
    pub reduce: f64,
    /// Nanoseconds per byte that is copied into a slot.
    pub write: f64,
    /// The part of a line's latency that passes between a flag and the data that it announces.
    pub ahead: f64,
    /// How far a rank's work overlaps with fetching its data.
    pub overlap: Overlap,
    /// Rates of calls whose data do not fit a core's own caches.
    pub far: Far,
    /// Rates of calls where the buffers of all ranks do not fit the last-level cache.
    pub memory: Far,
    /// What single copies take beyond ordinary ones.
    pub single_copy: SingleCopy,
    /// The time that huddle's own instructions take.
    pub software: Software,
    /// Nanoseconds until another rank runs on a core that a rank gives away.
    pub switch: f64,
    /// The network between nodes.
    pub network: Network,
}

/// The time of a call, and of a piece in a composed phase, besides moving and combining data: the difference between
/// the exchange of bare lines and short calls of 2 ranks (`scripts/model`), on a core of 2024.
const SOFTWARE: Software = Software { call: 10.0, step: 30.0 };

/// A rank that comes later than its peer finds the flag set, and its processor loads the data before it has seen the
/// flag. 128 bytes behind the flag took 10 ns longer than 8 bytes in the flag's line, where a line takes 60.
const AHEAD: f64 = 0.2;

/// A switch between two processes that yield to each other on a core of 2024, including what they miss in its caches
/// afterwards.
const SWITCH: f64 = 1200.0;

/// The part of `SWITCH` that a bare switch between two threads of one process lacks. On a core where `SWITCH` holds
/// such a switch takes 540, so the part is 660, rounded down.
const MISSED: f64 = 600.0;

/// Copies: the rate of one stream is measured by copies, so nothing of their own work shows. Reductions of 32 KiB to 1
/// MiB: 0.3 to 0.7 of the work shows, since an Allreduce of 2 ranks took that much longer than an Allgather without the
/// copy of a rank's own block (`scripts/model`). The least, 0.3, is assumed: more makes the models prefer tiled
/// Allreduces below 128 KiB, which are slower while cores are far apart.
const OVERLAP: Overlap = Overlap { copy: 1.0, reduce: 0.7 };

impl Default for Parameters {
    /// Assumed of a machine that nobody has measured: a server of the 2020s. Lines come from the other package in 140
    /// ns, from another NUMA domain or L3 of the package in about 100, from a core of the same L3 in 50, from the other
    /// thread of a core in 15. One stream reads 15 to 50 GB/s there. A core copies and combines 20 to 25 GB/s in its
    /// second-level cache of 1 MiB, half as much beyond. A network of 100 Gbit/s takes 1.5 µs.
    fn default() -> Self {
        let crossing = |latency, stream, shared| Crossing { latency, stream, shared };
        Self {
            local: 2.0,
            crossings: [
                crossing(140.0, 0.06, 0.03),
                crossing(100.0, 0.04, 0.015),
                crossing(95.0, 0.04, 0.015),
                crossing(50.0, 0.02, 0.008),
                crossing(15.0, 0.02, 0.01),
            ],
            copy: 0.04,
            reduce: 0.05,
            write: 0.02,
            ahead: AHEAD,
            overlap: OVERLAP,
            far: Far { beyond: (1 << 20) as f64, copy: 0.08, reduce: 0.1 },
            memory: Far { beyond: (8 << 20) as f64, copy: 0.16, reduce: 0.16 },
            single_copy: SingleCopy::ASSUMED,
            software: SOFTWARE,
            switch: SWITCH,
            network: Network { latency: 1500.0, overhead: 300.0, gap: 300.0, per_byte: 0.08 },
        }
    }
}

/// Numbers in the wire format before those of the crossings.
const RATES: usize = 22;

/// Numbers in the wire format.
const NUMBERS: usize = RATES + 3 * (1 + Kind::ALL.len());

impl Parameters {
    /// The crossing of ranks that share a container of kind `shares`, or the node alone where it is `None`.
    pub fn crossing(&self, shares: Option<Kind>) -> Crossing {
        self.crossings[shares.map_or(0, |kind| 1 + kind as usize)]
    }

    /// These parameters for ranks that share cores: with the assumed crossings, since the models' costs of waits were
    /// found by calls of such ranks, with these crossings. The second rank on a core finds there what the first one has
    /// fetched. So with crossings measured by a single pair the models prefer trees and relays too soon
    /// (docs/PERFORMANCE.md, "Tried"). That pair also measured the time to write slots, so the assumed time replaces
    /// it, but never less than that of a copy.
    pub fn for_shared_cores(&self) -> Self {
        let Self { crossings, write, .. } = Self::default();
        Self { crossings, write: write.max(self.copy), ..*self }
    }

    /// Nanoseconds until another rank runs on a core that a rank gives away, if a switch between two threads that touch
    /// nothing takes `bare_ns`.
    pub fn switch_from(bare_ns: f64) -> f64 {
        bare_ns + MISSED
    }

    /// The levels of a node's hierarchy.
    pub fn levels(&self, hierarchy: &Hierarchy) -> Vec<Level> {
        let level = |step: &crate::topo::Step| Level { fan: step.fan.into(), crossing: self.crossing(step.shares) };
        hierarchy.steps().iter().map(level).collect()
    }

    /// The machine of a simulation. `shares` has the innermost kind that ranks share, by the number of containers that
    /// they share, from none on.
    pub fn machine(&self, shares: impl IntoIterator<Item = Option<Kind>>) -> Machine {
        Machine {
            local: self.local,
            crossings: shares.into_iter().map(|shares| self.crossing(shares)).collect(),
            copy: self.copy,
            reduce: self.reduce,
            write: self.write,
            ahead: self.ahead,
            overlap: self.overlap,
            far: self.far,
            memory: self.memory,
            single_copy: self.single_copy,
            software: self.software,
            switch: self.switch,
            network: self.network,
        }
    }

    fn to_numbers(self) -> [f64; NUMBERS] {
        let Self {
            local,
            copy,
            reduce,
            write,
            ahead,
            overlap,
            far,
            memory,
            single_copy,
            software,
            switch,
            network,
            crossings,
        } = self;
        let Network { latency, overhead, gap, per_byte } = network;
        let mut numbers = [0.0; NUMBERS];
        let (rates, rest) = numbers.split_at_mut(RATES);
        rates[..7].copy_from_slice(&[local, copy, reduce, latency, overhead, gap, per_byte]);
        rates[7..12].copy_from_slice(&[write, ahead, far.beyond, far.copy, far.reduce]);
        rates[12..17].copy_from_slice(&[software.call, software.step, switch, overlap.copy, overlap.reduce]);
        rates[17..].copy_from_slice(&[
            single_copy.call,
            single_copy.per_byte,
            memory.beyond,
            memory.copy,
            memory.reduce,
        ]);
        for (numbers, crossing) in rest.chunks_mut(3).zip(crossings) {
            numbers.copy_from_slice(&[crossing.latency, crossing.stream, crossing.shared]);
        }
        numbers
    }

    /// As a line of numbers.
    pub fn to_text(self) -> String {
        self.to_numbers().map(|number| number.to_string()).join(" ")
    }

    /// The inverse of [`Parameters::to_text`]; none where the text is something else.
    pub fn from_text(text: &str) -> Option<Self> {
        let numbers: Option<Vec<f64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
        Self::from_numbers(&numbers?)
    }

    /// The wire format: numbers of 8 bytes, little-endian.
    pub fn to_bytes(self) -> Vec<u8> {
        self.to_numbers().iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// The inverse of [`Parameters::to_bytes`]; none where the bytes are something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let numbers: Vec<f64> = numbers.iter().map(|number| f64::from_le_bytes(*number)).collect();
        if rest.is_empty() { Self::from_numbers(&numbers) } else { None }
    }

    fn from_numbers(numbers: &[f64]) -> Option<Self> {
        let is_sane = |number: &f64| number.is_finite() && (0.0..1e12).contains(number);
        if numbers.len() != NUMBERS || !numbers.iter().all(is_sane) {
            return None;
        }
        let mut parameters = Self {
            local: numbers[0],
            copy: numbers[1],
            reduce: numbers[2],
            network: Network { latency: numbers[3], overhead: numbers[4], gap: numbers[5], per_byte: numbers[6] },
            write: numbers[7],
            ahead: numbers[8],
            far: Far { beyond: numbers[9], copy: numbers[10], reduce: numbers[11] },
            software: Software { call: numbers[12], step: numbers[13] },
            switch: numbers[14],
            overlap: Overlap { copy: numbers[15], reduce: numbers[16] },
            single_copy: SingleCopy { call: numbers[17], per_byte: numbers[18] },
            memory: Far { beyond: numbers[19], copy: numbers[20], reduce: numbers[21] },
            ..Self::default()
        };
        for (crossing, numbers) in parameters.crossings.iter_mut().zip(numbers[RATES..].chunks(3)) {
            *crossing = Crossing { latency: numbers[0], stream: numbers[1], shared: numbers[2] };
        }
        Some(parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_survive_the_wire_and_damage_is_noticed() {
        let mut parameters = Parameters { copy: 0.123, ..Parameters::default() };
        parameters.crossings[4].shared = 7.5;
        let bytes = parameters.to_bytes();
        assert_eq!(Parameters::from_bytes(&bytes), Some(parameters));
        assert_eq!(Parameters::from_text(&parameters.to_text()), Some(parameters));
        assert_eq!(Parameters::from_text("1 2 x"), None);
        assert_eq!(Parameters::from_bytes(&bytes[1..]), None);
        assert_eq!(Parameters::from_bytes(&[]), None);
        assert_eq!(Parameters::from_bytes(&Parameters { local: f64::NAN, ..parameters }.to_bytes()), None);
        assert_eq!(Parameters::from_bytes(&Parameters { local: -1.0, ..parameters }.to_bytes()), None);
    }

    #[test]
    fn the_assumed_switch_is_a_bare_one_and_what_it_misses() {
        assert!((Parameters::switch_from(540.0) / Parameters::default().switch - 1.0).abs() < 0.1);
    }

    #[test]
    fn what_is_nearer_costs_no_more() {
        let crossings = Parameters::default().crossings;
        for pair in crossings.windows(2) {
            assert!(pair[0].latency >= pair[1].latency && pair[0].stream >= pair[1].stream);
        }
        assert!(crossings.iter().all(|crossing| crossing.shared <= crossing.stream));
    }
}
