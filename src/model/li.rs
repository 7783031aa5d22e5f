//! Li, Hoefler, Hu, Snir 2014, "Improved MPI collectives for MPI processes in shared address spaces": equations (1) to
//! (11).
//!
//! Messages are `m` long, in the unit in which the rates of the crossings count (cache lines in the paper). An access
//! takes `a + b·m`; `t` of them that share a link together take `a + B·t·m`. Subscript α of the paper is `inside` (a
//! socket), β is `across`.

use super::{Crossing, ceil_log, floor_log2};

/// A node of `sockets` (s) with `cores` ranks (q) on each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// Sockets: s.
    pub sockets: usize,
    /// Ranks on each: q.
    pub cores: usize,
    /// An access within a socket: aα, bα, Bα.
    pub inside: Crossing,
    /// An access between sockets: aβ, bβ, Bβ.
    pub across: Crossing,
}

impl Node {
    fn q(&self) -> f64 {
        self.cores as f64
    }

    fn rounds_across(&self) -> f64 {
        f64::from(ceil_log(2, self.sockets))
    }

    /// d of equation (1): the most leaves of a binary tree of least depth whose steps do not congest the cache.
    pub fn uncongested(&self) -> usize {
        let Crossing { stream, shared, .. } = self.inside;
        if shared <= 0.0 || stream >= shared * self.q() {
            return self.cores;
        }
        let ratio = stream / shared;
        // ⌈log2(b/B)⌉, negative where one stream cannot fill the link.
        let (mut exponent, mut reach) = (0_i32, 1.0);
        while reach < ratio {
            reach *= 2.0;
            exponent += 1;
        }
        while reach / 2.0 >= ratio && exponent > -1 {
            reach /= 2.0;
            exponent -= 1;
        }
        ((1_usize << (1 + exponent)) + ratio as usize).clamp(1, self.cores.max(1))
    }

    /// The tree reduction within a socket, from (1): q − d ranks combine at once, then the others along a binary tree.
    pub fn reduce_inside(&self, m: f64) -> f64 {
        let Crossing { latency: a, stream: b, shared } = self.inside;
        let d = self.uncongested();
        a + (self.cores - d) as f64 * shared * m + (a + b * m) * f64::from(ceil_log(2, d))
    }

    /// (2): the tree reduction across sockets.
    pub fn reduce_across(&self, m: f64) -> f64 {
        (self.across.latency + self.across.stream * m) * self.rounds_across()
    }

    /// (3): the tree reduction.
    pub fn reduce(&self, m: f64) -> f64 {
        self.reduce_inside(m) + self.reduce_across(m)
    }

    /// The broadcast in one stage: all ranks read the root at once.
    pub fn bcast_in_one_stage(&self, m: f64) -> f64 {
        self.across.latency + self.across.shared * self.q() * m
    }

    /// The broadcast in two stages: a rank of each socket reads the root, the others of its socket read that rank.
    pub fn bcast_in_two_stages(&self, m: f64) -> f64 {
        let inside = self.inside.latency + self.inside.shared * (self.q() - 1.0) * m;
        inside + self.across.latency + self.across.stream * m
    }

    /// (4): the better broadcast.
    pub fn bcast(&self, m: f64) -> f64 {
        self.bcast_in_one_stage(m).min(self.bcast_in_two_stages(m))
    }

    /// (5): reduce-broadcast, "tree".
    pub fn tree(&self, m: f64) -> f64 {
        self.reduce(m) + self.bcast(m)
    }

    /// (6) where the number of ranks is a power of two, else (7): dissemination.
    pub fn dissemination(&self, m: f64) -> f64 {
        let inside = self.inside.latency + self.inside.shared * self.q() * m;
        let across = self.across.latency + self.across.shared * self.q() * m;
        let ranks = self.sockets * self.cores;
        if ranks.is_power_of_two() {
            return inside * f64::from(ceil_log(2, self.cores)) + across * self.rounds_across();
        }
        let rounds_inside = ceil_log(2, self.cores) + 2;
        let rounds_across = f64::from(ceil_log(2, ranks)) - f64::from(floor_log2(self.cores)) - 1.0;
        inside * f64::from(rounds_inside) + across * rounds_across
    }

    /// (8): the tiled reduction within a socket.
    pub fn tiled_inside(&self, m: f64) -> f64 {
        self.inside.latency * self.q() + self.inside.shared * self.q() * m
    }

    /// (9): the tiled reduction across sockets.
    pub fn tiled_across(&self, m: f64) -> f64 {
        (self.across.latency + self.across.shared * m) * self.rounds_across()
    }

    /// (10): the tiled reduction.
    pub fn tiled_reduce(&self, m: f64) -> f64 {
        self.tiled_inside(m) + self.tiled_across(m)
    }

    /// (11): tiled-reduce-broadcast.
    pub fn tiled(&self, m: f64) -> f64 {
        self.tiled_reduce(m) + self.bcast(m)
    }
}

/// Latencies of reading one cache line that another core has modified, §3.4, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineLatencies {
    /// From the core's own first-level cache: Rl.
    pub local: f64,
    /// From a core of the same socket: Rs.
    pub inside: f64,
    /// From a neighbouring socket: Rr.
    pub across: f64,
    /// From the socket farthest away: Rd.
    pub farthest: f64,
}

/// How a result is broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stages {
    /// All ranks read the root.
    One,
    /// One rank of each socket reads the root, the others of the socket read that rank.
    Two,
}

impl LineLatencies {
    /// §3.4: equation (5) for one cache line, unfolded into the lines that each step reads and writes. A step that
    /// combines reads a line of its own and one of its partner and writes one of its own; a step that copies reads and
    /// writes.
    pub fn tree(&self, sockets: usize, cores: usize, stages: Stages) -> f64 {
        let Self { local, inside, across, farthest } = *self;
        let reduction = f64::from(ceil_log(2, cores)) * (inside + 2.0 * local)
            + f64::from(ceil_log(2, sockets)) * (across + 2.0 * local);
        reduction
            + match stages {
                Stages::One => farthest + local,
                Stages::Two => (farthest + local) + (inside + local),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9 * expected.abs().max(1.0), "{found}, not {expected}");
    }

    /// Two sockets of six; b/B = 2, so that c = 2 and d = min(6, 2^2 + 2) = 6 inside.
    const SIX: Node = Node {
        sockets: 2,
        cores: 6,
        inside: Crossing { latency: 30.0, stream: 4.0, shared: 2.0 },
        across: Crossing { latency: 100.0, stream: 10.0, shared: 5.0 },
    };
    /// Four sockets of eight; b/B = 1, so that d = min(8, 2^1 + 1) = 3 inside.
    const EIGHT: Node = Node {
        sockets: 4,
        cores: 8,
        inside: Crossing { latency: 30.0, stream: 2.0, shared: 2.0 },
        across: Crossing { latency: 100.0, stream: 10.0, shared: 5.0 },
    };

    #[test]
    fn the_worked_value_of_westmere() {
        let latencies = LineLatencies { local: 1.2, inside: 28.5, across: 105.2, farthest: 105.2 };
        assert_near(latencies.tree(2, 6, Stages::One), 306.7);
    }

    #[test]
    fn the_worked_value_of_magny_cours() {
        // The paper has these latencies in a figure only: four that give its sum of 12 Rl + 4 Rs + 2 Rr + Rd.
        let latencies = LineLatencies { local: 1.3, inside: 50.0, across: 125.0, farthest: 142.8 };
        assert_near(latencies.tree(4, 8, Stages::Two), 608.4);
        let parts = LineLatencies { local: 1.0, inside: 100.0, across: 10_000.0, farthest: 1_000_000.0 };
        assert_near(parts.tree(4, 8, Stages::Two), 12.0 + 400.0 + 20_000.0 + 1_000_000.0);
    }

    #[test]
    fn equation_1() {
        assert_eq!((SIX.uncongested(), EIGHT.uncongested()), (6, 3));
        let with = |stream, shared| Node { inside: Crossing { latency: 0.0, stream, shared }, cores: 32, ..SIX };
        assert_eq!(with(3.0, 1.0).uncongested(), 8 + 3, "2^(1 + 2) + 3");
        assert_eq!(with(4.0, 1.0).uncongested(), 8 + 4);
        assert_eq!(with(5.0, 2.0).uncongested(), 8 + 2, "2^(1 + 2) + 2");
        assert_eq!(with(100.0, 1.0).uncongested(), 32, "never more than there are");
        assert_eq!(with(1.0, 0.0).uncongested(), 32, "a link without limit");
        assert_eq!(with(0.5, 1.0).uncongested(), 1, "2^0 + 0");
        // aα + (6 − 6)·Bα·m + (aα + bα·m)·3, and aα + (8 − 3)·Bα·m + (aα + bα·m)·2.
        assert_near(SIX.reduce_inside(10.0), 30.0 + 3.0 * 70.0);
        assert_near(EIGHT.reduce_inside(10.0), 30.0 + 5.0 * 20.0 + 2.0 * 50.0);
    }

    #[test]
    fn equations_2_and_3() {
        assert_near(SIX.reduce_across(10.0), 200.0);
        assert_near(EIGHT.reduce_across(10.0), 2.0 * 200.0);
        assert_near(SIX.reduce(10.0), 240.0 + 200.0);
        assert_near(EIGHT.reduce(10.0), 230.0 + 400.0);
    }

    #[test]
    fn equation_4() {
        // One stage: 100 + 5·6·10; two: 30 + 2·5·10 + 100 + 10·10.
        assert_near(SIX.bcast_in_one_stage(10.0), 400.0);
        assert_near(SIX.bcast_in_two_stages(10.0), 330.0);
        assert_near(SIX.bcast(10.0), 330.0);
        assert_near(SIX.bcast(1.0), 130.0);
        assert_near(EIGHT.bcast(10.0), 30.0 + 2.0 * 7.0 * 10.0 + 100.0 + 10.0 * 10.0);
    }

    #[test]
    fn equation_5() {
        assert_near(SIX.tree(10.0), 440.0 + 330.0);
        assert_near(EIGHT.tree(10.0), 630.0 + 370.0);
    }

    #[test]
    fn equations_6_and_7() {
        // 32 ranks: (30 + 2·8·10)·3 + (100 + 5·8·10)·2.
        assert_near(EIGHT.dissemination(10.0), 190.0 * 3.0 + 500.0 * 2.0);
        // 12 ranks: (30 + 2·6·10)·(3 + 2) + (100 + 5·6·10)·(4 − 2 − 1).
        assert_near(SIX.dissemination(10.0), 150.0 * 5.0 + 400.0);
    }

    #[test]
    fn equations_8_to_11() {
        assert_near(SIX.tiled_inside(10.0), 30.0 * 6.0 + 2.0 * 6.0 * 10.0);
        assert_near(SIX.tiled_across(10.0), 150.0);
        assert_near(SIX.tiled_reduce(10.0), 300.0 + 150.0);
        assert_near(SIX.tiled(10.0), 450.0 + 330.0);
        assert_near(EIGHT.tiled(10.0), 30.0 * 8.0 + 2.0 * 8.0 * 10.0 + 150.0 * 2.0 + 370.0);
    }

    #[test]
    fn short_messages_favour_trees_and_long_ones_tiles() {
        for node in [SIX, EIGHT] {
            assert!(node.tree(1.0) < node.tiled(1.0));
            assert!(node.tree(1e5) > node.tiled(1e5));
            assert!(node.dissemination(1e5) > node.tiled(1e5).min(node.tree(1e5)));
        }
    }
}
