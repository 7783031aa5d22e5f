//! Every kernel against an oracle that computes one element at a time in the widest type.

use super::*;
use proptest::prelude::*;

/// Two's complement of `size` bytes at `bytes`, sign-extended.
fn signed(bytes: &[u8]) -> i128 {
    let mut wide = [if bytes[bytes.len() - 1] & 0x80 != 0 { 0xff } else { 0 }; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

fn unsigned(bytes: &[u8]) -> i128 {
    let mut wide = [0; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

fn integers(op: Op, left: i128, right: i128) -> i128 {
    let logical = |value: bool| i128::from(value);
    match op {
        Op::Max => left.max(right),
        Op::Min => left.min(right),
        Op::Sum => left + right,
        Op::Prod => left.wrapping_mul(right),
        Op::Land => logical(left != 0 && right != 0),
        Op::Band => left & right,
        Op::Lor => logical(left != 0 || right != 0),
        Op::Bor => left | right,
        Op::Lxor => logical((left != 0) != (right != 0)),
        Op::Bxor => left ^ right,
    }
}

fn f32_at(bytes: &[u8], index: usize) -> f32 {
    f32::from_le_bytes(bytes[4 * index..4 * index + 4].try_into().expect("four bytes"))
}

fn f64_at(bytes: &[u8], index: usize) -> f64 {
    f64::from_le_bytes(bytes[8 * index..8 * index + 8].try_into().expect("eight bytes"))
}

macro_rules! floats {
    ($op:expr, $left:expr, $right:expr) => {
        match $op {
            Op::Max => {
                if $left > $right {
                    $left
                } else {
                    $right
                }
            }
            Op::Min => {
                if $left < $right {
                    $left
                } else {
                    $right
                }
            }
            Op::Sum => $left + $right,
            Op::Prod => $left * $right,
            _ => return None,
        }
    };
}

macro_rules! complexes {
    ($op:expr, $at:ident, $left:expr, $right:expr) => {{
        let (a, b, c, d) = ($at($left, 0), $at($left, 1), $at($right, 0), $at($right, 1));
        let (real, imaginary) = match $op {
            Op::Sum => (a + c, b + d),
            Op::Prod => (a * c - b * d, a * d + b * c),
            _ => return None,
        };
        [real.to_le_bytes(), imaginary.to_le_bytes()].concat()
    }};
}

/// One element; none where the operation has no meaning.
fn oracle(op: Op, element: Element, left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
    Some(match element {
        Element::I8 | Element::I16 | Element::I32 | Element::I64 => {
            integers(op, signed(left), signed(right)).to_le_bytes()[..left.len()].to_vec()
        }
        Element::U8 | Element::U16 | Element::U32 | Element::U64 => {
            integers(op, unsigned(left), unsigned(right)).to_le_bytes()[..left.len()].to_vec()
        }
        Element::F32 => floats!(op, f32_at(left, 0), f32_at(right, 0)).to_le_bytes().to_vec(),
        Element::F64 => floats!(op, f64_at(left, 0), f64_at(right, 0)).to_le_bytes().to_vec(),
        Element::C32 => complexes!(op, f32_at, left, right),
        Element::C64 => complexes!(op, f64_at, left, right),
    })
}

/// Bytes of ordinary values: any integers, small floats. Some elements are zero.
fn ordinary(element: Element, random: &[u8]) -> Vec<u8> {
    let mut bytes = random.to_vec();
    match element {
        Element::F32 | Element::C32 => {
            for chunk in bytes.chunks_exact_mut(4) {
                let value = f32::from(i16::from_le_bytes([chunk[0], chunk[1]])) / 16.0;
                chunk.copy_from_slice(&value.to_le_bytes());
            }
        }
        Element::F64 | Element::C64 => {
            for chunk in bytes.chunks_exact_mut(8) {
                let value = f64::from(i32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]])) / 1024.0;
                chunk.copy_from_slice(&value.to_le_bytes());
            }
        }
        _ => {}
    }
    for chunk in bytes.chunks_exact_mut(element.bytes()) {
        if chunk[0] % 4 == 0 {
            chunk.fill(0);
        }
    }
    bytes
}

/// Which operand the result replaces.
#[derive(Clone, Copy, Debug)]
enum Target {
    Elsewhere,
    Left,
    Right,
}

fn check(op: Op, element: Element, left: &[u8], right: &[u8], shift: usize, target: Target) {
    let size = element.bytes();
    let expected: Option<Vec<u8>> = left
        .chunks_exact(size)
        .zip(right.chunks_exact(size))
        .map(|(left, right)| oracle(op, element, left, right))
        .collect::<Option<Vec<_>>>()
        .map(|elements| elements.concat());
    let Some(kernel) = kernel(op, element) else {
        assert!(expected.is_none() || left.is_empty(), "{op:?} on {element:?} has no kernel");
        return;
    };
    let expected = expected.expect("an operation with a kernel has an oracle");
    let shifted = |bytes: &[u8]| [vec![0xa5; shift], bytes.to_vec(), vec![0xa5; 16]].concat();
    let (mut left, mut right, mut apart) = (shifted(left), shifted(right), shifted(&vec![0x5a; expected.len()]));
    let (left_at, right_at) = (left.as_mut_ptr().wrapping_add(shift), right.as_mut_ptr().wrapping_add(shift));
    let (to, result) = match target {
        Target::Elsewhere => (apart.as_mut_ptr().wrapping_add(shift), &apart),
        Target::Left => (left_at, &left),
        Target::Right => (right_at, &right),
    };
    // SAFETY: all three point to `expected.len()` bytes of vectors that live on and are used by nobody else.
    unsafe { kernel(to, left_at, right_at, expected.len()) };
    assert_eq!(result[shift..shift + expected.len()], expected, "{op:?} {element:?} {target:?}");
    assert!(result[..shift].iter().chain(&result[shift + expected.len()..]).all(|&byte| byte == 0xa5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn kernels_agree_with_the_oracle(
        count in 0usize..70,
        shift in 0usize..17,
        random in proptest::collection::vec(any::<u8>(), 2 * 70 * 16),
    ) {
        for element in Element::ALL {
            let n = count * element.bytes();
            let (left, right) = (ordinary(element, &random[..n]), ordinary(element, &random[random.len() - n..]));
            for op in Op::ALL {
                for target in [Target::Elsewhere, Target::Left, Target::Right] {
                    check(op, element, &left, &right, shift, target);
                }
            }
        }
    }
}

#[test]
fn the_table_has_what_mpi_defines() {
    for element in Element::ALL {
        let is_complex = matches!(element, Element::C32 | Element::C64);
        let is_float = matches!(element, Element::F32 | Element::F64);
        for op in Op::ALL {
            let expected = match op {
                Op::Sum | Op::Prod => true,
                Op::Max | Op::Min => !is_complex,
                _ => !is_complex && !is_float,
            };
            assert_eq!(kernel(op, element).is_some(), expected, "{op:?} {element:?}");
        }
    }
}

#[test]
fn integers_wrap() {
    let sum = kernel(Op::Sum, Element::I32).expect("a kernel");
    let (left, right) = (i32::MAX.to_le_bytes(), 1i32.to_le_bytes());
    let mut to = [0u8; 4];
    // SAFETY: three arrays of four bytes.
    unsafe { sum(to.as_mut_ptr(), left.as_ptr(), right.as_ptr(), 4) };
    assert_eq!(i32::from_le_bytes(to), i32::MIN);
}
