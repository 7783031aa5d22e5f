use super::*;
use crate::coll::{Knobs, REGISTRY};
use crate::types::{Collective, CommRank, Epoch, OperandOrder};

fn plan(bytes: usize, granule: usize) -> Plan {
    Plan {
        epoch: Epoch(1),
        bytes: Bytes(bytes),
        granule: Bytes(granule),
        root: CommRank(0),
        order: OperandOrder::Any,
        knobs: Knobs::UNSET,
        scratch: Bytes::ZERO,
        reach: Bytes::ZERO,
    }
}

/// Calls in lines keep no account of cells, so they have to be exactly the calls that reach into no cell. Calls in
/// short pieces have no homes in rings.
#[test]
fn short_calls_reach_as_far_as_is_said_of_them() {
    let sizes = || (0..=200).chain([2000, 4095, 4096]);
    let (mut found, mut long) = (0, 0);
    for row in REGISTRY {
        for (ranks, size) in (2..=8).flat_map(|ranks| sizes().map(move |size| (ranks, size))) {
            let bytes = if row.collective == Collective::Barrier { 0 } else { size };
            let (plan, measures) = (plan(bytes, 1), Measures { ranks, nodes: 1, cell: Bytes(4096), slots: 4 });
            let Some(short) = (row.short)(&plan, &measures) else { continue };
            let reach = row.reach.depth(&plan, &measures);
            let expected = match short {
                Short::InLines(_) => reach == Bytes::ZERO,
                Short::InShortPieces => reach > Bytes::ZERO && reach < ROTATED,
                Short::InCells(_) => reach >= ROTATED,
            };
            assert!(expected, "{} {bytes} bytes on {ranks}: {short:?}", row.name);
            found += usize::from(size <= 200);
            long += usize::from(reach >= ROTATED);
        }
    }
    assert!(found == Collective::ALL.len() * 7 * 201 && long > 0, "{found} {long}");
}

#[test]
fn payloads_go_beyond_the_flags_cache_line() {
    let measures = Measures { ranks: 2, nodes: 1, cell: Bytes(4096), slots: 4 };
    let takes = |bytes| match Short::new(&plan(bytes, 1), &measures, Bytes(bytes)) {
        Some(Short::InLines(payload)) => Some(payload),
        _ => None,
    };
    let [beside, beyond] = [Payload::BesideFlag, Payload::BeyondFlag].map(Some);
    assert_eq!([1, 32, 33, 96, 97].map(takes), [beside, beside, beyond, beyond, None]);
}

/// With a bound on buffers the root waits for its readers, even where one piece is the whole message.
#[test]
fn a_bcast_with_few_buffers_is_not_short() {
    let row = REGISTRY.iter().find(|row| row.collective == Collective::Bcast && row.name == "flat").unwrap();
    let measures = Measures { ranks: 2, nodes: 1, cell: Bytes(4096), slots: 4 };
    let (free, bound) = (plan(8, 1), Plan { knobs: Knobs::UNSET.with(Knob::Buffers, 1), ..plan(8, 1) });
    assert!((row.short)(&free, &measures).is_some() && (row.short)(&bound, &measures).is_none());
}

fn cut(bytes: usize, granule: usize) -> usize {
    let plan = plan(bytes, granule);
    let [first, second] = parts::<2>(&plan, Line::Down);
    assert_eq!((first.line, first.offset, second.line), (Line::Up, Bytes::ZERO, Line::Down));
    assert_eq!((second.offset, first.length + second.length), (first.length, Bytes(bytes)));
    first.length.0
}

#[test]
fn halves_meet_between_elements_and_where_they_can_between_cache_lines() {
    for (bytes, granule) in [(64, 8), (126, 1), (56, 56), (168, 56), (24_000, 24), (40_016, 8), (128, 128)] {
        assert_eq!(cut(bytes, granule) % granule, 0);
    }
    for granule in [1, 2, 4, 8, 16] {
        // Ranks that describe the same data by elements of different lengths: an error that native libraries
        // tolerate.
        assert_eq!((cut(40_016, granule) % 64, cut(40_016, granule)), (0, cut(40_016, 8)));
    }
}
