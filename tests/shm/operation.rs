//! Operations of reductions, like those that programs define: one that commutes and one that does not.

use huddle::kernel::Combine;
use huddle::types::{Bytes, OperandOrder};

/// An associative operation on elements of `element` bytes.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Byte by byte, wrapping.
    Sum { element: usize },
    /// Composition of two maps `x → a·x + b`, the left one first, over numbers of half an element: 4 or 8 bytes.
    Affine { element: usize },
}

impl Operation {
    pub fn new(order: OperandOrder, element: Bytes) -> Self {
        match order {
            OperandOrder::Any => Self::Sum { element: element.0 },
            OperandOrder::Rank => Self::Affine { element: element.0 },
        }
    }

    fn element(self) -> usize {
        match self {
            Self::Sum { element } | Self::Affine { element } => element,
        }
    }

    /// `left op right`
    pub fn combined(self, left: &[u8], right: &[u8]) -> Vec<u8> {
        assert!(left.len() == right.len() && left.len().is_multiple_of(self.element()), "elements are not cut");
        match self {
            Self::Sum { .. } => left.iter().zip(right).map(|(left, right)| left.wrapping_add(*right)).collect(),
            Self::Affine { element } => {
                let half = element / 2;
                let maps = left.chunks_exact(element).zip(right.chunks_exact(element));
                let compose = |(left, right): (&[u8], &[u8])| {
                    let ((a, b), (c, d)) = (left.split_at(half), right.split_at(half));
                    let (a, b, c, d) = (number(a), number(b), number(c), number(d));
                    let both = [a.wrapping_mul(c), b.wrapping_mul(c).wrapping_add(d)];
                    both.into_iter().flat_map(move |number| number.to_le_bytes().into_iter().take(half))
                };
                maps.flat_map(compose).collect()
            }
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Combine for Operation {
    unsafe fn combine(&self, to: *mut u8, left: *const u8, right: *const u8, bytes: usize) {
        // SAFETY: the caller promises `bytes` bytes at each address; `to` is written after both operands have been
        // read.
        unsafe {
            let operand = |at| std::slice::from_raw_parts(at, bytes);
            let result = self.combined(operand(left), operand(right));
            to.copy_from_nonoverlapping(result.as_ptr(), bytes);
        }
    }
}
