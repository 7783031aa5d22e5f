//! Classes of sizes: choices treat all sizes of a class alike.

use crate::types::Bytes;

/// A class of lengths that the map does not tell apart: 0 and 1, 2, 3, 4, 5 to 6, 7 to 8, 9 to 12, 13 to 16, …
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeClass(u8);

impl SizeClass {
    /// Number of classes, up to 8 MiB. Longer calls are in the last one.
    pub const COUNT: usize = 46;

    /// The class of a call.
    #[inline]
    pub const fn of(bytes: Bytes) -> Self {
        let last = match bytes.0 {
            0 | 1 => return Self(0),
            2 => return Self(1),
            n => n - 1,
        };
        let power = last.ilog2();
        let class = 2 * power as usize + (last >> (power - 1) & 1);
        Self(if class < Self::COUNT { class as u8 } else { Self::COUNT as u8 - 1 })
    }

    /// The length at which the models judge the class: that of its longest call, or 8 MiB for the last class, which has
    /// none.
    pub const fn judged_at(self) -> Bytes {
        match self.0 {
            0 => Bytes(1),
            1 => Bytes(2),
            class => Bytes((3 + class as usize % 2) << (class / 2 - 1)),
        }
    }

    /// The length of its longest call; `None` for the last class.
    pub fn end(self) -> Option<Bytes> {
        (usize::from(self.0) + 1 < Self::COUNT).then(|| self.judged_at())
    }

    /// Its index among all classes.
    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// All of them, ascending.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_end_at_powers_of_two_and_half_way_between() {
        let ends: Vec<usize> = SizeClass::all().take(12).map(|class| class.judged_at().0).collect();
        assert_eq!(ends, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]);
        for class in SizeClass::all() {
            assert_eq!(SizeClass::of(class.judged_at()), class);
        }
        for bytes in 1..5000 {
            let class = SizeClass::of(Bytes(bytes));
            assert!(bytes <= class.judged_at().0);
            assert!(class.0 == 0 || SizeClass(class.0 - 1).judged_at().0 < bytes);
        }
        assert_eq!(SizeClass::of(Bytes::ZERO), SizeClass(0));
        let last = SizeClass::of(Bytes(usize::MAX));
        assert_eq!((last.judged_at(), last.end()), (Bytes(8 << 20), None));
        assert_eq!(SizeClass::of(Bytes(4 << 20)).end(), Some(Bytes(4 << 20)));
    }
}
