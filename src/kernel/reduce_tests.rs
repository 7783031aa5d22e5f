//! Every kernel against an oracle that computes one element at a time in the widest type.

use super::*;
use proptest::prelude::*;
use std::cmp::Ordering;

/// The integer in two's complement in `bytes`, sign-extended.
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
        Op::Minloc | Op::Maxloc => unreachable!("no pairs"),
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

fn element_is_pair(element: Element) -> bool {
    use Element::*;
    matches!(element, PairI16 | PairI32 | PairI64 | PairF32 | PairF64)
}

/// The extreme of two pairs, with the smaller index of equal ones.
fn pairs(op: Op, element: Element, left: &[u8], right: &[u8]) -> Vec<u8> {
    let split = |pair: &[u8]| (pair[..pair.len() - 4].to_vec(), signed(&pair[pair.len() - 4..]));
    let ((first, first_index), (second, second_index)) = (split(left), split(right));
    let order = match element {
        Element::PairF32 => f32_at(&first, 0).partial_cmp(&f32_at(&second, 0)),
        Element::PairF64 => f64_at(&first, 0).partial_cmp(&f64_at(&second, 0)),
        _ => Some(signed(&first).cmp(&signed(&second))),
    };
    let winner = if op == Op::Maxloc { Ordering::Greater } else { Ordering::Less };
    match order {
        Some(Ordering::Equal) => {
            let index = first_index.min(second_index).to_le_bytes();
            [&second, &index[..4]].concat()
        }
        Some(order) if order == winner => left.to_vec(),
        _ => right.to_vec(),
    }
}

/// The result for one element; none where the operation has no meaning.
fn oracle(op: Op, element: Element, left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
    Some(match element {
        _ if element_is_pair(element) != matches!(op, Op::Minloc | Op::Maxloc) => return None,
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
        Element::PairI16 | Element::PairI32 | Element::PairI64 | Element::PairF32 | Element::PairF64 => {
            pairs(op, element, left, right)
        }
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
        // Few values, so that some are equal.
        _ if element_is_pair(element) => {
            for chunk in bytes.chunks_exact_mut(element.bytes()) {
                let (value, kind) = (chunk.len() - 4, chunk[0] % 3);
                let few = [0x3f, 0x80, 0xff][usize::from(kind)];
                chunk[..value].fill(few);
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

/// Bytes of floats of every kind: both zeros, infinities, NaNs with and without a payload, subnormal and arbitrary
/// ones.
fn awkward(element: Element, random: &[u8]) -> Vec<u8> {
    const SINGLE: [u32; 8] = [0, 1 << 31, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0xffc0_1234, 1, 0x8000_0001];
    let size = if matches!(element, Element::F32 | Element::C32) { 4 } else { 8 };
    let mut bytes = random.to_vec();
    for chunk in bytes.chunks_exact_mut(size) {
        if let Some(&single) = SINGLE.get(usize::from(chunk[0]) % 12) {
            let narrow = single.to_le_bytes();
            let wide = f64::from(f32::from_bits(single)).to_le_bytes();
            chunk.copy_from_slice(if size == 4 { &narrow } else { &wide });
        }
    }
    bytes
}

/// Which operand the result replaces.
#[derive(Clone, Copy, Debug)]
enum Replaced {
    Neither,
    Left,
    Right,
}

/// Guards before and after each operand.
const GUARD: u8 = 0xa5;

/// The result of `kernel` on operands that lie `shift` bytes after the start of guards.
fn result(kernel: Kernel, left: &[u8], right: &[u8], shift: usize, replaced: Replaced) -> Vec<u8> {
    result_in(Streams::Several, kernel, left, right, shift, replaced)
}

fn result_in(streams: Streams, kernel: Kernel, left: &[u8], right: &[u8], shift: usize, replaced: Replaced) -> Vec<u8> {
    let n = left.len();
    let guarded = |bytes: &[u8]| [vec![GUARD; shift], bytes.to_vec(), vec![GUARD; 16]].concat();
    let (mut left, mut right, mut apart) = (guarded(left), guarded(right), guarded(&vec![0x5a; n]));
    let (left_at, right_at) = (left.as_mut_ptr().wrapping_add(shift), right.as_mut_ptr().wrapping_add(shift));
    let to = match replaced {
        Replaced::Neither => apart.as_mut_ptr().wrapping_add(shift),
        Replaced::Left => left_at,
        Replaced::Right => right_at,
    };
    // SAFETY: all point to `n` bytes of vectors that live on and are used by nobody else.
    unsafe { kernel.combine_in(streams, to, left_at, right_at, n) };
    let result = match replaced {
        Replaced::Neither => apart,
        Replaced::Left => left,
        Replaced::Right => right,
    };
    assert!(result[..shift].iter().chain(&result[shift + n..]).all(|&byte| byte == GUARD));
    result[shift..shift + n].to_vec()
}

/// Checks every level against the oracle.
fn check(op: Op, element: Element, left: &[u8], right: &[u8], shift: usize) {
    let size = element.bytes();
    let expected: Option<Vec<u8>> = left
        .chunks_exact(size)
        .zip(right.chunks_exact(size))
        .map(|(left, right)| oracle(op, element, left, right))
        .collect::<Option<Vec<_>>>()
        .map(|elements| elements.concat());
    for level in Level::available() {
        let Some(kernel) = kernel_at(level, op, element) else {
            assert!(expected.is_none() || left.is_empty(), "{op:?} on {element:?} has no kernel");
            return;
        };
        let expected = expected.as_ref().expect("an operation with a kernel has an oracle");
        for replaced in [Replaced::Neither, Replaced::Left, Replaced::Right] {
            for streams in [Streams::One, Streams::Several] {
                let result = result_in(streams, kernel, left, right, shift, replaced);
                assert_eq!(&result, expected, "{level:?} {op:?} {element:?} {replaced:?} {streams:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn kernels_agree_with_the_oracle(
        bytes in prop_oneof![0usize..300, 0usize..1200],
        shift in 0usize..17,
        random in proptest::collection::vec(any::<u8>(), 2 * 1200),
    ) {
        for element in Element::ALL {
            let n = bytes - bytes % element.bytes();
            let (left, right) = (ordinary(element, &random[..n]), ordinary(element, &random[random.len() - n..]));
            for op in Op::ALL {
                check(op, element, &left, &right, shift);
            }
        }
    }

    #[test]
    fn levels_and_places_agree_on_awkward_floats(
        bytes in prop_oneof![0usize..300, 0usize..1200, 4096usize..24_000],
        shift in 0usize..80,
        random in proptest::collection::vec(any::<u8>(), 48_000),
    ) {
        for element in [Element::F32, Element::F64, Element::C32, Element::C64] {
            let n = bytes - bytes % element.bytes();
            let (left, right) = (awkward(element, &random[..n]), awkward(element, &random[random.len() - n..]));
            for op in [Op::Max, Op::Min, Op::Sum, Op::Prod] {
                let Some(plain) = kernel_at(Level::Baseline, op, element) else { continue };
                let expected = result(plain, &left, &right, 0, Replaced::Neither);
                for level in Level::available() {
                    let kernel = kernel_at(level, op, element).expect("as the plainest level");
                    for replaced in [Replaced::Neither, Replaced::Left, Replaced::Right] {
                        let result = result(kernel, &left, &right, shift, replaced);
                        prop_assert!(result == expected, "{:?} {:?} {:?} {:?}", level, op, element, replaced);
                    }
                }
                if matches!(op, Op::Max | Op::Min) {
                    check(op, element, &left, &right, shift);
                }
            }
        }
    }
}

#[test]
fn of_two_nans_the_left_one_stays() {
    let single = |payload: u32| (0x7fc0_0000 + payload).to_le_bytes().repeat(6000);
    let double = |payload: u64| (0x7ff8_0000_0000_0000 + payload).to_le_bytes().repeat(3000);
    for (element, left, right) in [(Element::F32, single(5), single(7)), (Element::F64, double(5), double(7))] {
        for (level, op) in Level::available().flat_map(|level| [(level, Op::Sum), (level, Op::Prod)]) {
            let kernel = kernel_at(level, op, element).expect("a kernel");
            for n in [element.bytes(), 56, 1200, 24_000] {
                let result = result(kernel, &left[..n], &right[..n], 0, Replaced::Neither);
                assert!(result == left[..n], "{level:?} {op:?} {element:?}, {n} bytes");
            }
        }
    }
}

/// Long enough for several streams.
#[test]
fn long_operands_agree_with_the_oracle() {
    for (at, bytes) in
        [4096_usize, 4352, 4400, 8192, 8448, 9001, 12_800, 20_011, LINED_UP, LINED_UP + 16, 24_571, 65_536]
            .into_iter()
            .enumerate()
    {
        let random: Vec<u8> = (0..2 * bytes).map(|byte| (byte * 31 + byte / 251 * 7 + at) as u8).collect();
        for (element, op) in
            [(Element::F64, Op::Sum), (Element::I32, Op::Max), (Element::U8, Op::Bxor), (Element::C64, Op::Prod)]
        {
            let n = bytes / element.bytes() * element.bytes();
            let (left, right) = (ordinary(element, &random[..n]), ordinary(element, &random[bytes..bytes + n]));
            check(op, element, &left, &right, 5 * at);
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
                Op::Minloc | Op::Maxloc => element_is_pair(element),
                _ if element_is_pair(element) => false,
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
    let (left, right) = (i32::MAX.to_le_bytes(), 1i32.to_le_bytes());
    for level in Level::available() {
        let sum = kernel_at(level, Op::Sum, Element::I32).expect("a kernel");
        let wrapped = result(sum, &left, &right, 0, Replaced::Neither);
        assert_eq!(wrapped, i32::MIN.to_le_bytes());
    }
}

#[test]
fn the_level_in_use_is_one_that_the_processor_has() {
    assert!(kernel(Op::Sum, Element::F64).is_some());
    assert!(Level::widest().is_available() && Level::available().next() == Some(Level::Baseline));
    for level in Level::ALL {
        assert_eq!(Level::from_name(level.name()), Some(level));
        assert_eq!(kernel_at(level, Op::Sum, Element::F64).is_some(), level.is_available());
    }
}
