//! Operations on random elements whose results show a wrong order, a missing operand and a doubled one.

use super::random::Random;
use crate::types::{Bytes, OperandOrder};

/// An associative operation on elements of some length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    /// Wrapping addition, of the widest units of which the element consists: commutative.
    Sum { granule: usize },
    /// Composition of two maps `x → a·x + b` over 4-byte or 8-byte numbers, the left one first: not commutative.
    Affine { granule: usize },
}

impl Operator {
    /// For elements of `granule` bytes; where the order matters, 8 or 16.
    pub(super) fn new(order: OperandOrder, granule: Bytes) -> Self {
        let granule = granule.0;
        match order {
            OperandOrder::Any => Self::Sum { granule },
            OperandOrder::Rank => {
                assert!(matches!(granule, 8 | 16), "maps are pairs of numbers of 4 or 8 bytes");
                Self::Affine { granule }
            }
        }
    }

    pub(super) fn granule(self) -> usize {
        match self {
            Self::Sum { granule } | Self::Affine { granule } => granule,
        }
    }

    /// Bytes of the numbers of which an element consists.
    fn unit(self) -> usize {
        match self {
            Self::Affine { granule } => granule / 2,
            Self::Sum { granule } => [8, 4, 2].into_iter().find(|unit| granule.is_multiple_of(*unit)).unwrap_or(1),
        }
    }

    /// `n` bytes of random elements, none of which makes others irrelevant.
    pub(super) fn random(self, random: &mut Random, n: usize) -> Vec<u8> {
        let mut bytes = random.bytes(n);
        if let Self::Affine { granule } = self {
            // A product with an odd factor can be undone.
            bytes.chunks_exact_mut(granule).for_each(|element| element[0] |= 1);
        }
        bytes
    }

    /// Appends `left op right` to `result`.
    pub(super) fn combine(self, left: &[u8], right: &[u8], result: &mut Vec<u8>) {
        let unit = self.unit();
        match self {
            Self::Sum { .. } => {
                for (left, right) in left.chunks_exact(unit).zip(right.chunks_exact(unit)) {
                    put(result, unit, get(left).wrapping_add(get(right)));
                }
            }
            Self::Affine { granule } => {
                for (left, right) in left.chunks_exact(granule).zip(right.chunks_exact(granule)) {
                    let ((a, b), (c, d)) = (left.split_at(unit), right.split_at(unit));
                    put(result, unit, get(a).wrapping_mul(get(c)));
                    put(result, unit, get(b).wrapping_mul(get(c)).wrapping_add(get(d)));
                }
            }
        }
    }
}

fn get(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn put(result: &mut Vec<u8>, unit: usize, value: u64) {
    result.extend_from_slice(&value.to_le_bytes()[..unit]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composition_is_associative_and_not_commutative() {
        let mut random = Random::new(5);
        for granule in [8, 16] {
            let operator = Operator::new(OperandOrder::Rank, Bytes(granule));
            let [a, b, c] = [(); 3].map(|()| operator.random(&mut random, granule * 3));
            let op = |left: &[u8], right: &[u8]| {
                let mut result = Vec::new();
                operator.combine(left, right, &mut result);
                result
            };
            assert_eq!(op(&op(&a, &b), &c), op(&a, &op(&b, &c)));
            assert_ne!(op(&a, &b), op(&b, &a));
        }
    }

    #[test]
    fn sums_wrap_within_their_units() {
        let mut result = Vec::new();
        Operator::new(OperandOrder::Any, Bytes(1)).combine(&[255, 1], &[1, 2], &mut result);
        assert_eq!(result, [0, 3]);
        Operator::new(OperandOrder::Any, Bytes(12)).combine(&[255; 12], &[1; 12], &mut result);
        assert_eq!(result[2..], [0, 1, 1, 1].repeat(3));
    }
}
