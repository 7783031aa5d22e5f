//! Short calls whose root changes. Ranks try out when to look for the flag of the peer whose turn it is.

use crate::case::{Case, Style, Way};
use crate::mismatches;
use crate::world::{SPINNING, World};
use huddle::types::{Collective, CommRank, FirstLook};

/// Epochs around the first trial of waits, from 1024 to 2047.
const EPOCHS: std::ops::Range<u64> = 1000..2100;

/// A stretch of calls of each collective with a root, with pieces beside their flag, beyond it, and in cells.
#[test]
fn ranks_that_try_waits_get_right_results() {
    let world = World::single(2, 4, 512);
    let calls: Vec<Case> = EPOCHS.map(|epoch| case(&world, epoch)).collect();
    assert!(calls.iter().all(|case| case.is_called(Way::Short)));
    let contexts = world.contexts();
    contexts.iter().for_each(|context| context.set_first_looks(FirstLook::Auto, &SPINNING));
    world.run_on(contexts, |rank| {
        for case in &calls {
            assert_eq!(case.call(&rank, &SPINNING), Ok(()), "{case:?}");
        }
    });
}

fn case(world: &World, epoch: u64) -> Case {
    let collectives = [Collective::Bcast, Collective::Reduce, Collective::Scatter];
    let collective = collectives[(epoch / 12) as usize % 3];
    let bytes = [8, 64, 200][(epoch / 4) as usize % 3];
    let root = CommRank((epoch % 2) as u32);
    let mut case = mismatches::case(world, (collective, "flat", root.0, bytes), epoch).with_buffers(world, 0);
    case.styles = vec![Style { in_place: false, has_holes: false, way: Way::Short }; world.size()];
    case
}
