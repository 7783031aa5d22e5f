//! Random layouts against an oracle that lists every byte.

use super::*;
use proptest::prelude::*;

/// A layout as it is described to the builder.
#[derive(Clone, Debug)]
enum Pattern {
    Blocks(Vec<(isize, usize)>),
    Repeat { inner: Box<Pattern>, extent: isize, at: isize, stride: isize, repeat: usize },
    Several(Vec<(isize, Pattern)>),
}

impl Pattern {
    /// The displacement of each packed byte.
    fn bytes(&self) -> Vec<isize> {
        match self {
            Self::Blocks(blocks) => blocks.iter().flat_map(|&(at, len)| at..at + len as isize).collect(),
            Self::Repeat { inner, at, stride, repeat, .. } => {
                let inner = inner.bytes();
                (0..*repeat).flat_map(|copy| inner.iter().map(move |byte| at + stride * copy as isize + byte)).collect()
            }
            Self::Several(parts) => {
                parts.iter().flat_map(|(at, part)| part.bytes().into_iter().map(move |byte| at + byte)).collect()
            }
        }
    }

    fn build(&self, extent: isize) -> Segments {
        let mut builder = Builder::new(1 << 12);
        match self {
            Self::Blocks(blocks) => blocks.iter().for_each(|&(at, len)| builder.push(at, len).expect("small")),
            Self::Repeat { inner, extent, at, stride, repeat } => {
                builder.push_all(&inner.build(*extent), *at, *stride, *repeat).expect("small");
            }
            Self::Several(parts) => {
                for (at, part) in parts {
                    builder.push_all(&part.build(0), *at, 0, 1).expect("small");
                }
            }
        }
        builder.finish(extent).expect("small")
    }
}

fn patterns() -> impl Strategy<Value = Pattern> {
    let block = (-60isize..60, prop_oneof![0usize..6, Just(8), Just(16), 0usize..40, 41usize..140]);
    let equal =
        (-60isize..60, prop_oneof![1usize..9, 9usize..140], -20isize..20, 0usize..9).prop_map(|(at, len, gap, n)| {
            (0..n as isize).map(|i| (at + i * (len as isize + gap), len)).collect::<Vec<_>>()
        });
    let leaf = prop_oneof![proptest::collection::vec(block, 0..6), equal].prop_map(Pattern::Blocks);
    leaf.prop_recursive(3, 40, 4, |inner| {
        prop_oneof![
            (inner.clone(), -60isize..60, -60isize..60, -90isize..90, 0usize..9).prop_map(
                |(inner, extent, at, stride, repeat)| {
                    Pattern::Repeat { inner: Box::new(inner), extent, at, stride, repeat }
                }
            ),
            proptest::collection::vec((-60isize..60, inner), 1..4).prop_map(Pattern::Several),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn any_range_moves_as_the_oracle_says(
        pattern in patterns(), extent in -150isize..150, count in 1usize..6, cut in any::<(u32, u32)>(),
    ) {
        let segments = pattern.build(extent);
        let element = pattern.bytes();
        prop_assert_eq!(segments.size(), element.len());
        let bytes: Vec<isize> =
            (0..count as isize).flat_map(|i| element.iter().map(move |byte| i * extent + byte)).collect();
        let low = bytes.iter().copied().min().unwrap_or(0);
        let span = (bytes.iter().copied().max().unwrap_or(0) - low + 1) as usize;
        let offset = cut.0 as usize % (bytes.len() + 1);
        let n = cut.1 as usize % (bytes.len() - offset + 1);
        let mut memory: Vec<u8> = (0..span).map(|i| (i * 7 + i / 251) as u8).collect();

        let mut packed = vec![0xee; n + 2];
        let base = memory.as_mut_ptr().wrapping_offset(-low);
        // SAFETY: `memory` spans all bytes of the elements; `packed` has `n` bytes after the first.
        unsafe { segments.gather(base, offset, packed.as_mut_ptr().add(1), n) };
        let expected: Vec<u8> = bytes[offset..offset + n].iter().map(|byte| memory[(byte - low) as usize]).collect();
        prop_assert_eq!(&packed[1..n + 1], &expected[..]);
        prop_assert_eq!((packed[0], packed[n + 1]), (0xee, 0xee));

        let source: Vec<u8> = (0..n).map(|i| (i * 13 + 5) as u8).collect();
        let mut expected = memory.clone();
        for (byte, value) in bytes[offset..offset + n].iter().zip(&source) {
            expected[(byte - low) as usize] = *value;
        }
        // SAFETY: as above.
        unsafe { segments.scatter(memory.as_mut_ptr().wrapping_offset(-low), offset, source.as_ptr(), n) };
        prop_assert_eq!(memory, expected);
        let high = bytes.iter().copied().max().map(|last| last + 1);
        prop_assert_eq!(segments.bounds(count), high.map(|high| (low, high)));
        let blocks = segments.blocks(count).flat_map(|(at, len)| at..at + len as isize);
        prop_assert_eq!(blocks.collect::<Vec<_>>(), bytes.clone());
        if let Some(at) = segments.contiguous_at(count) {
            prop_assert!(bytes.iter().enumerate().all(|(i, &byte)| byte == at + i as isize));
        }
    }
}

#[test]
fn a_long_vector_is_few_runs() {
    let mut element = Builder::new(4);
    element.push(0, 8).expect("one block");
    let element = element.finish(8).expect("one block");
    let mut vector = Builder::new(4);
    vector.push_all(&element, 16, 24, 1 << 40).expect("one run");
    let vector = vector.finish(0).expect("one run");
    assert_eq!((vector.runs(), vector.size()), (1, 8 << 40));
    let mut contiguous = Builder::new(4);
    contiguous.push_all(&element, 0, 8, 1 << 40).expect("one block");
    let contiguous = contiguous.finish(8 << 40).expect("one block");
    assert_eq!((contiguous.runs(), contiguous.contiguous_at(3)), (1, Some(0)));
}

#[test]
fn vectors_with_a_fitting_extent_are_one_run() {
    let segments = Pattern::Blocks((0..5).map(|i| (i * 12, 4)).collect()).build(60);
    assert_eq!((segments.runs(), segments.stride), (1, Some(12)));
    assert_eq!(segments.resized(64).stride, None);
}

#[test]
fn complex_layouts_are_refused() {
    let pair = Pattern::Blocks(vec![(0, 8), (12, 4)]).build(16);
    let mut builder = Builder::new(1000);
    assert_eq!(builder.push_all(&pair, 0, 16, 1 << 50), Err(TooComplex));
    let mut builder = Builder::new(1000);
    assert_eq!(builder.push(isize::MAX - 2, 8), Err(TooComplex));
    let block = Pattern::Blocks(vec![(0, 8)]).build(8);
    let mut builder = Builder::new(1000);
    assert_eq!(builder.push_all(&block, 0, 1 << 40, 1 << 40), Err(TooComplex));
    let mut builder = Builder::new(1000);
    assert_eq!(builder.push_all(&block, 0, 8, usize::MAX / 4), Err(TooComplex));
}

#[test]
fn blocks_of_all_lengths_move_whole() {
    const GAP: usize = 5;
    for len in 1..=200_usize {
        let blocks: Vec<(isize, usize)> = (0..7).map(|i| ((i * (len + GAP)) as isize, len)).collect();
        let segments = Pattern::Blocks(blocks).build((7 * (len + GAP)) as isize);
        assert_eq!((segments.runs(), segments.fills_lines()), (1, len >= LINE));
        let memory: Vec<u8> = (0..7 * (len + GAP)).map(|at| (at * 31 % 251) as u8).collect();
        let mut packed = vec![0xee_u8; 7 * len + 1];
        let mut copy = vec![0xee_u8; memory.len()];
        // SAFETY: both have all blocks of one element, `packed` as many bytes as these.
        unsafe {
            segments.gather(memory.as_ptr(), 0, packed.as_mut_ptr(), 7 * len);
            segments.scatter(copy.as_mut_ptr(), 0, packed.as_ptr(), 7 * len);
        }
        assert_eq!(packed[7 * len], 0xee, "{len} bytes");
        for (block, from) in memory.chunks(len + GAP).enumerate() {
            let to = &copy[block * (len + GAP)..][..len + GAP];
            assert!(packed[block * len..][..len] == from[..len] && to[..len] == from[..len], "{len} bytes");
            assert_eq!(to[len..], [0xee; GAP], "{len} bytes");
        }
    }
}

#[test]
fn lines_are_filled_where_nearly_all_lies_in_long_blocks() {
    let fills = |blocks: &[(isize, usize)]| Pattern::Blocks(blocks.to_vec()).build(1000).fills_lines();
    assert_eq!([fills(&[(3, 63)]), fills(&[(3, 64)]), fills(&[(0, 8), (8, 56)])], [false, true, true]);
    assert_eq!([fills(&[(0, 8), (16, 56)]), fills(&[(0, 8), (16, 57)])], [false; 2]);
    assert_eq!([fills(&[(0, 8), (16, 64)]), fills(&[(0, 16), (24, 64)])], [true, false]);
}
