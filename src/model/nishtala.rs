//! Nishtala 2009, "Automatically tuning collective communication for one-sided programming models": the LogGP models of
//! §5.3 (trees) and §6.1, §6.2 (exchanges).
//!
//! `nodes` (N) communicate, `threads` (t) on each; every thread has `bytes` (B).

use super::{Network, ceil_log};

/// The parameters of a model, in any unit of time: L, o, g, G.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// L, o, g, G.
    pub network: Network,
    /// Nodes: N.
    pub nodes: usize,
    /// Threads on each node: t.
    pub threads: usize,
}

impl Cluster {
    /// λ(L + o + kg): the latency of λ = ⌈log_k N⌉ levels of a tree.
    fn tree_latency(&self, radix: usize) -> f64 {
        let Network { latency, overhead, gap, .. } = self.network;
        f64::from(ceil_log(radix, self.nodes)) * (latency + overhead + radix as f64 * gap)
    }

    /// §5.3.1, §5.3.2: Scatter and Gather along a tree of `radix` (k > 1): λ(L + o + kg) + kGBt(N − 1)/(k − 1).
    pub fn scatter(&self, radix: usize, bytes: f64) -> f64 {
        let k = radix as f64;
        let moved = k * bytes * self.threads as f64 * (self.nodes as f64 - 1.0) / (k - 1.0);
        self.tree_latency(radix) + self.network.per_byte * moved
    }

    /// §5.3.3: Bcast and Reduce along a tree of `radix`: λ(L + o + kg + kGB).
    pub fn bcast(&self, radix: usize, bytes: f64) -> f64 {
        let levels = f64::from(ceil_log(radix, self.nodes));
        self.tree_latency(radix) + levels * radix as f64 * self.network.per_byte * bytes
    }

    /// §6.1: Exchange by dissemination of `radix`: Σ [L + (min(k, N/kⁱ) − 1)(o + g + GBNt²/k)] over the λ rounds. (The
    /// sum is printed up to i = λ, one round more than the text counts; that round has no partners.)
    pub fn exchange(&self, radix: usize, bytes: f64) -> f64 {
        let Network { latency, overhead, gap, per_byte } = self.network;
        let (k, nodes, threads) = (radix as f64, self.nodes as f64, self.threads as f64);
        let message = overhead + gap + per_byte * bytes * nodes * threads * threads / k;
        let (mut time, mut left) = (0.0, nodes);
        for _ in 0..ceil_log(radix, self.nodes) {
            time += latency + (k.min(left) - 1.0) * message;
            left /= k;
        }
        time
    }

    /// §6.2: Gather-to-all by dissemination of radix 2: λ(L + o + g) + GBNt.
    pub fn gather_to_all(&self, bytes: f64) -> f64 {
        let Network { latency, overhead, gap, per_byte } = self.network;
        let rounds = f64::from(ceil_log(2, self.nodes));
        rounds * (latency + overhead + gap) + per_byte * bytes * (self.nodes * self.threads) as f64
    }

    /// §6.2: Gather-to-all, each node to each: L + (N − 1)(o + g + GBt).
    pub fn gather_to_all_flat(&self, bytes: f64) -> f64 {
        let Network { latency, overhead, gap, per_byte } = self.network;
        latency + (self.nodes as f64 - 1.0) * (overhead + gap + per_byte * bytes * self.threads as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 5.1: Sun Constellation, in microseconds.
    const SUN: Cluster =
        Cluster { network: Network { latency: 2.0, overhead: 0.5, gap: 2.0, per_byte: 1e-3 }, nodes: 256, threads: 4 };

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
    }

    #[test]
    fn trees() {
        // Radix 4: 4 levels of 2 + 0.5 + 8; scatter of 8 bytes: 4·10⁻³·8·4·255/3 = 10.88.
        assert_near(SUN.scatter(4, 8.0), 42.0 + 10.88);
        assert_near(SUN.scatter(256, 8.0), 514.5 + 256.0 * 1e-3 * 8.0 * 4.0);
        assert_near(SUN.bcast(4, 1000.0), 42.0 + 4.0 * 4.0);
        assert_near(SUN.bcast(2, 0.0), 8.0 * 6.5);
    }

    #[test]
    fn deep_trees_suit_short_scatters_only() {
        let best = |bytes| {
            let time = |radix: &usize| SUN.scatter(*radix, bytes);
            (1..=8).map(|power| 1 << power).min_by(|a, b| time(a).total_cmp(&time(b)))
        };
        assert!(best(8.0) < best(8192.0));
    }

    #[test]
    fn exchanges() {
        // Radix 2 at 8 bytes: 8 rounds of 2 + (0.5 + 2 + 10⁻³·8·256·16/2 = 16.384).
        assert_near(SUN.exchange(2, 8.0), 8.0 * (2.0 + 18.884));
        // Radix 8: 8, 8 and 4 partners, less one; 10⁻³·8·256·16/8 = 4.096.
        assert_near(SUN.exchange(8, 8.0), 3.0 * 2.0 + (7.0 + 7.0 + 3.0) * (2.5 + 4.096));
        assert!(SUN.exchange(8, 8.0) < SUN.exchange(256, 8.0), "§6.1.1: flat is a bad choice at 8 bytes");
        let least = [2, 4, 8, 16].map(|radix| SUN.exchange(radix, 1024.0)).into_iter().fold(f64::MAX, f64::min);
        assert!(SUN.exchange(256, 1024.0) < least, "and the best at 1 KiB");
    }

    #[test]
    fn gathering_to_all() {
        assert_near(SUN.gather_to_all(8.0), 8.0 * 4.5 + 8.192);
        assert_near(SUN.gather_to_all_flat(8.0), 2.0 + 255.0 * (2.5 + 0.032));
        // Up to 128 KiB; beyond, the flat form saves the one message of N that a node would send to itself.
        let is_better = |bytes| SUN.gather_to_all(bytes) < SUN.gather_to_all_flat(bytes);
        assert!((0..=17).all(|power| is_better(f64::from(1 << power))));
    }
}
