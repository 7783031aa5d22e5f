//! The sizes of a machine's caches.

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
    /// What holds for both: the smaller cache where both are known, the longer line.
    pub fn and(self, other: Self) -> Self {
        let smaller = |left: u32, right: u32| if left == 0 || right == 0 { left.max(right) } else { left.min(right) };
        Self {
            line: self.line.max(other.line),
            l1: smaller(self.l1, other.l1),
            l2: smaller(self.l2, other.l2),
            l3: smaller(self.l3, other.l3),
        }
    }

    /// For the wire.
    pub const fn to_numbers(self) -> [u32; 4] {
        [self.line, self.l1, self.l2, self.l3]
    }

    /// The inverse of [`Caches::to_numbers`].
    pub const fn from_numbers([line, l1, l2, l3]: [u32; 4]) -> Self {
        Self { line, l1, l2, l3 }
    }
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
}
