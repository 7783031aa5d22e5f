//! Calls with a root that move in halves, each with a flag of its own on another line of the same ticket.

use crate::case::{Case, Style, Way};
use crate::mismatches::{self, Shape, come_late};
use crate::world::{SLEEPING, SPINNING, World};
use Collective::{Allgather, Allreduce, Barrier, Bcast, Reduce, Scatter};
use huddle::coll::phase::short::is_halved;
use huddle::coll::{Knob, REGISTRY, find};
use huddle::fabric::INLINE;
use huddle::fabric::checked::Random;
use huddle::fabric::shm::{Fault, Waiting};
use huddle::types::{Collective, CommRank, Epoch};
use std::time::Duration;

/// A call whose tiles are as long as what fits a line.
fn case(world: &World, call: Shape, epoch: u64) -> Case {
    let mut case = mismatches::case(world, call, epoch);
    case.plan.knobs = case.plan.knobs.with(Knob::Tile, INLINE.0 as u32);
    assert_eq!(is_halved(&case.plan), call.3 > INLINE.0, "{case:?}");
    case.with_buffers(world, 0)
}

/// Like [`come_late`], with calls of this file; rank 2 makes its own in the given way.
fn late(early: &[Shape], late: Shape, way: Way) -> Result<(), Fault> {
    let world = World::single(3, 2, 512);
    let early: Vec<Case> = early.iter().zip(1..).map(|(call, epoch)| case(&world, *call, epoch)).collect();
    let mut late = case(&world, late, 1);
    late.styles = vec![Style { in_place: false, has_holes: false, way }; 3];
    come_late(&world, &early, &late)
}

const WAYS: [Way; 3] = [Way::Run, Way::Start(2), Way::Short];
const LINE: usize = 20;
const HALVED: usize = 120;

/// The flag of a half already tells of a barrier, a ring of lines further on, which claims no slot.
#[test]
fn halves_behind_a_barrier_are_found() {
    for way in WAYS {
        let small = (Bcast, "flat", 0, LINE);
        let early = [(Bcast, "flat", 0, HALVED), small, small, small, (Barrier, "flat", 0, 0)];
        assert_eq!(late(&early, (Bcast, "flat", 0, HALVED), way), Ok(()));
        let early = [(Scatter, "flat", 0, HALVED), small, small, small, (Barrier, "flat", 0, 0)];
        assert_eq!(late(&early, (Scatter, "flat", 0, HALVED), way), Ok(()));
        let small = (Reduce, "flat", 2, LINE);
        let early = [(Reduce, "flat", 2, HALVED), small, small, small, (Barrier, "flat", 0, 0)];
        assert_eq!(late(&early, (Reduce, "flat", 2, HALVED), way), Ok(()));
    }
}

/// The peer was in a call that moves whole, or in one in which it writes nothing.
#[test]
fn what_is_no_half_does_not_pass_for_one() {
    for way in WAYS {
        for (first, small, mine) in [
            ((Bcast, "flat", 0, 40), (Bcast, "flat", 0, LINE), (Bcast, "flat", 0, HALVED)),
            ((Bcast, "flat", 0, HALVED), (Bcast, "flat", 0, LINE), (Bcast, "flat", 0, 40)),
            ((Bcast, "flat", 0, HALVED), (Bcast, "flat", 0, LINE), (Bcast, "flat", 0, HALVED - 4)),
            ((Bcast, "flat", 0, HALVED), (Bcast, "flat", 0, LINE), (Reduce, "flat", 2, HALVED)),
            ((Reduce, "flat", 2, HALVED), (Reduce, "flat", 2, LINE), (Bcast, "flat", 0, HALVED)),
            ((Reduce, "flat", 2, HALVED), (Reduce, "flat", 2, LINE), (Allreduce, "flat", 0, HALVED)),
            ((Reduce, "flat", 2, HALVED), (Reduce, "flat", 2, LINE), (Allgather, "flat", 0, HALVED)),
            ((Reduce, "flat", 2, HALVED), (Reduce, "flat", 2, LINE), (Reduce, "tree", 2, HALVED)),
            ((Bcast, "flat", 0, HALVED), (Bcast, "flat", 0, LINE), (Bcast, "tiled", 0, HALVED)),
            ((Bcast, "tiled", 0, HALVED), (Bcast, "flat", 0, LINE), (Bcast, "flat", 0, HALVED)),
        ] {
            for more in 0..4 {
                let mut early = vec![first];
                early.extend(vec![small; if first.1 == "tiled" { 0 } else { more }]);
                if more == 3 {
                    early.push((Barrier, "flat", 0, 0));
                }
                let outcome = late(&early, mine, way);
                assert!(matches!(outcome, Err(Fault::Mismatch { .. })), "{early:?} {mine:?} {way:?}: {outcome:?}");
            }
        }
    }
}

/// Algorithms among which those that move in halves are frequent.
fn rows() -> Vec<usize> {
    let wanted = [
        (Bcast, "flat"),
        (Bcast, "flat"),
        (Reduce, "flat"),
        (Reduce, "flat"),
        (Scatter, "flat"),
        (Bcast, "single"),
        (Scatter, "single"),
        (Barrier, "flat"),
        (Barrier, "dissemination"),
        (Barrier, "tree"),
        (Allreduce, "flat"),
        (Allgather, "flat"),
        (Bcast, "tiled"),
        (Reduce, "tiled"),
        (Allreduce, "tiled"),
        (Bcast, "tree"),
        (Reduce, "tree"),
        (Scatter, "tree"),
    ];
    wanted.iter().map(|(collective, name)| find(*collective, name).expect("row")).collect()
}

/// A length around those at which data move in another way.
fn random_length(world: &World, random: &mut Random) -> usize {
    let (cell, line) = (world.cell, INLINE.0);
    let of_cells = [cell / 2, cell - 1, cell, cell / world.size(), 2 * cell];
    random.pick(&[&[1, 24, line - 1, line, line + 1, 128, 160][..], &of_cells].concat())
}

/// Runs a random program. Unless `fails` is 0, a rank fails one in `fails` of the calls of flat algorithms. Returns the
/// rows of the calls that moved in halves.
fn many(world: &World, waiting: &'static Waiting, count: u64, seed: u64, fails: usize) -> Vec<usize> {
    let random = &mut Random::new(seed);
    let rows = rows();
    let mut halved = Vec::new();
    let mut calls = Vec::new();
    let mut burst = (0, 0);
    for epoch in 1..=count {
        // Calls of one algorithm in a row, in which a root gets ahead.
        if burst.1 == 0 {
            burst = (random.pick(&rows), random.below(24));
        } else {
            burst.1 -= 1;
        }
        let row = burst.0;
        let root = CommRank(random.below(world.size()) as u32);
        let bytes = random_length(world, random);
        let case = Case::new(world, row, (Epoch(epoch), root, bytes), random).with_buffers(world, 0);
        if case.has_short() && is_halved(&case.plan) {
            halved.push(row);
        }
        let failed = if fails > 0 && random.one_in(fails) && REGISTRY[row].name == "flat" {
            Some(random.below(world.size()))
        } else {
            None
        };
        calls.push((case, failed));
    }
    world.run(|rank| {
        let mut random = Random::new(seed ^ u64::from(rank.me.0) << 32);
        let me = rank.me.index();
        for (case, failed) in &calls {
            if random.one_in(60) {
                std::thread::sleep(Duration::from_micros(random.below(200) as u64));
            }
            if *failed == Some(me) {
                rank.context.fail(case.plan.epoch);
                continue;
            }
            let outcome = case.call(&rank, waiting);
            match failed {
                Some(other) if case.depends(me, *other) => {
                    assert!(matches!(outcome, Err(Fault::PeerFailed { .. })), "{outcome:?} {case:?}");
                }
                _ => assert_eq!(outcome, Ok(()), "{case:?}"),
            }
        }
    });
    halved
}

#[test]
fn halves_among_all_else() {
    let mut halved = Vec::new();
    for (seed, size) in (1..).zip([1, 2, 2, 3, 4, 5]) {
        for (slots, lines, cell) in [(16, 32, 1024), (2, 32, 384), (16, 256, 1024), (64, 64, 8192), (2, 2, 640)] {
            for (waiting, fails) in [(&SPINNING, 0), (&SLEEPING, 0), (&SPINNING, 8)] {
                if waiting.is_oversubscribed && size > 3 || fails > 0 && size == 1 {
                    continue;
                }
                let world = World { lines, ..World::single(size, slots, cell) };
                halved.extend(many(&world, waiting, 300, seed * 100 + slots as u64, fails));
            }
        }
    }
    println!("{} halved", halved.len());
    for (collective, name) in
        [(Bcast, "flat"), (Reduce, "flat"), (Scatter, "flat"), (Bcast, "single"), (Scatter, "single")]
    {
        let row = find(collective, name).expect("row");
        assert!(halved.contains(&row), "{collective:?} {name} never moved in halves");
    }
}

/// Pairs of calls that differ, many of them in halves: every rank that is misled notices.
#[test]
fn halves_that_differ_are_noticed() {
    let worlds = [World::single(3, 2, 512), World::single(2, 4, 512)];
    let random = &mut Random::new(77);
    let rows = rows();
    let mut pairs = 0;
    while pairs < 400 {
        let world = &worlds[pairs % worlds.len()];
        let mut one = |_| {
            let (row, root) = (random.pick(&rows), CommRank(random.below(world.size()) as u32));
            Case::new(world, row, (Epoch(1), root, random.pick(&[8, INLINE.0, 128, 129, 160, 400, 512])), random)
                .with_buffers(world, 0)
        };
        let cases = [0, 1].map(&mut one);
        let odd = random.below(world.size());
        let key = |case: &Case| (case.row, case.plan.root.0, case.plan.bytes.0);
        pairs += 1;
        if key(&cases[0]) == key(&cases[1]) {
            continue;
        }
        mismatches::run(world, &cases[0], &cases[1], odd, &SPINNING);
    }
}
