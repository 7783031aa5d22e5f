//! The sizes of a machine's caches, and what follows from them.

use crate::types::Bytes;

/// The smallest cache of each level near any PU, in bytes, and the length of a cache line; 0 where nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caches {
    /// Bytes that move between caches together.
    pub line: u32,
    /// Data cache of level 1.
    pub l1: u32,
    /// Level 2.
    pub l2: u32,
    /// Level 3.
    pub l3: u32,
}

impl Caches {
    /// The sizes that hold for both machines: the smaller cache where both are known, the longer line.
    pub fn and(self, other: Self) -> Self {
        let smaller = |left: u32, right: u32| if left == 0 || right == 0 { left.max(right) } else { left.min(right) };
        Self {
            line: self.line.max(other.line),
            l1: smaller(self.l1, other.l1),
            l2: smaller(self.l2, other.l2),
            l3: smaller(self.l3, other.l3),
        }
    }

    /// The lengths of data that fit these caches.
    pub const fn fit(self) -> Fit {
        Fit { l1: Bytes(quarter(self.l1, ASSUMED_L1)), l2: Bytes(quarter(self.l2, ASSUMED_L2)) }
    }

    /// Bytes over which the slots of a rank rotate: twice the second-level cache. A slot whose lines a peer has just
    /// read is slow to write; one that has left the cache is not.
    pub const fn ring(self) -> Bytes {
        Bytes(8 * quarter(self.l2, ASSUMED_L2))
    }

    /// The wire format.
    pub const fn to_numbers(self) -> [u32; 4] {
        [self.line, self.l1, self.l2, self.l3]
    }

    /// The inverse of [`Caches::to_numbers`].
    pub const fn from_numbers([line, l1, l2, l3]: [u32; 4]) -> Self {
        Self { line, l1, l2, l3 }
    }
}

/// First-level cache assumed of a machine that does not tell.
pub const ASSUMED_L1: u32 = 32 << 10;
/// Second-level cache assumed of a machine that does not tell.
pub const ASSUMED_L2: u32 = 1 << 20;

/// The greatest power of two in a quarter of a cache of `found` bytes, or of `assumed` ones where nothing was found.
const fn quarter(found: u32, assumed: u32) -> usize {
    let bytes = if found == 0 { assumed } else { found };
    let quarter = if bytes / 4 < SHORTEST { SHORTEST } else { bytes / 4 };
    1 << quarter.ilog2()
}

/// The least size that is derived from a cache.
const SHORTEST: u32 = 1 << 10;

/// Lengths that fit a cache four times: a tile, its source, its destination, and the next tile.
/// Tu, Fan, Zhan, Zhao 2009, section 6: `fitL1CacheSize` and `fitL2CacheSize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The first-level cache.
    pub l1: Bytes,
    /// The second-level cache.
    pub l2: Bytes,
}

impl Fit {
    /// The lengths assumed of a machine that does not tell its caches.
    pub const ASSUMED: Self = Caches { line: 0, l1: 0, l2: 0, l3: 0 }.fit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_known_cache_counts() {
        let (big, little) = (Caches { line: 64, l1: 48, l2: 2048, l3: 0 }, Caches { line: 0, l1: 32, l2: 0, l3: 9 });
        assert_eq!(big.and(little), Caches { line: 64, l1: 32, l2: 2048, l3: 9 });
        assert_eq!(Caches::default().and(big), big);
        assert_eq!(Caches::from_numbers(big.to_numbers()), big);
    }

    #[test]
    fn sizes_follow_from_the_caches() {
        let of = |l1: u32, l2: u32| Caches { line: 64, l1: l1 << 10, l2: l2 << 10, l3: 0 };
        let kib = |fit: Fit| (fit.l1.0 >> 10, fit.l2.0 >> 10);
        assert_eq!(kib(of(48, 1024).fit()), (8, 256));
        assert_eq!(kib(of(32, 256).fit()), (8, 64));
        assert_eq!(kib(of(128, 2560).fit()), (32, 512));
        assert_eq!(kib(of(1, 1).fit()), (1, 1));
        assert_eq!((kib(Caches::default().fit()), Caches::default().fit()), ((8, 256), Fit::ASSUMED));
        assert_eq!([of(48, 1024), of(48, 512), of(0, 0)].map(|caches| caches.ring().0 >> 10), [2048, 1024, 2048]);
    }
}
