//! From the shape of a call to its plan.

use super::{Agreed, Choice, Map, OperatorClass, Reason, Shape};
use crate::coll::{Knob, Plan, REGISTRY, Reach, may_exceed_tickets};
use crate::config::{Config, Pick, Setting};
use crate::sync::Passed;
use crate::topo::Fit;
use crate::types::{Bytes, Collective, Epoch, OperandOrder, PAGE, Ticket};

/// Children per group and level of a tree, unless the user sets them.
const RADIX: u32 = 4;
/// The least number of tiles of a message: while one is written the one before is read.
const TILES: usize = 4;
/// Where tiles share cells, those of a message of at least so many quarters of a first-level cache take all of that
/// cache.
const LONG_IN_QUARTERS: usize = 16;
/// The most tiles of a long message, where tiles share cells.
const TILES_IN_TRAINS: usize = 32;
/// The least number of tiles of a relayed message: one for each relay.
const TILES_IN_RELAYS: usize = 2;
/// The most bytes of a tile of a relay. Eight such tiles are under way, and exceed the second-level cache on most
/// machines. Shorter ones would cost more, in switches between ranks (docs/PERFORMANCE.md, "Tried").
const TILE_OF_RELAYS: Bytes = Bytes(128 << 10);

/// From this call on a communicator is native: half a trillion calls later its tickets would run out.
pub const LAST_EPOCH: Epoch = Epoch(u64::MAX / Ticket::STEPS / 2);

/// Decides who serves a call, and how: the same on all ranks. What the user forces comes first, then what the models
/// choose (`map`, that of the communicator). `cargo bench --package huddle-benches --bench choose` times it.
#[inline]
pub fn choose(config: &Config, shape: &Shape, agreed: &Agreed, map: &Map, epoch: Epoch) -> Choice {
    // 1. What huddle cannot or shall not serve.
    let forced = match forced(config, shape, agreed, epoch) {
        Ok(forced) => forced,
        Err(reason) => return Choice::Decline(reason),
    };
    // 2. The algorithm.
    let wanted = match forced {
        Some(forced) => forced,
        None => usual(shape, map),
    };
    let lacking = REGISTRY[wanted.row].lacks(agreed.means(order_of(shape)));
    let chosen = if lacking.is_some() { usual(shape, map) } else { wanted };
    // 3. Its plan.
    let plan = plan(shape, agreed, epoch, &chosen);
    if may_exceed_tickets(&REGISTRY[chosen.row], &plan, &agreed.measures(), agreed.largest_node) {
        return Choice::Decline(Reason::TooManySteps);
    }
    match lacking {
        None => Choice::Run { row: chosen.row, plan },
        Some(need) => Choice::RunInstead { row: chosen.row, plan, forced: wanted.row, need },
    }
}

/// Why [`choose`] declines a call, if that is known before there is a plan. Later it declines only calls of too
/// many steps: all blocks together then have gigabytes.
#[inline]
pub fn early_reason(config: &Config, shape: &Shape, agreed: &Agreed, epoch: Epoch) -> Option<Reason> {
    forced(config, shape, agreed, epoch).err()
}

/// The algorithm that the user forces on a call, if any. The error is the reason why the call is declined.
#[inline]
fn forced(config: &Config, shape: &Shape, agreed: &Agreed, epoch: Epoch) -> Result<Option<Setting>, Reason> {
    if epoch >= LAST_EPOCH {
        return Err(Reason::TooManySteps);
    }
    if let Some(reason) = obstacle(shape, agreed) {
        return Err(reason);
    }
    match config.selection(shape.collective).pick(shape.bytes) {
        Pick::Native => Err(Reason::ForcedNative),
        Pick::Auto => Ok(None),
        Pick::Row(forced) => Ok(Some(forced)),
    }
}

/// The setting that huddle takes where the user forces none, or forces one that the call does not permit.
fn usual(shape: &Shape, map: &Map) -> Setting {
    map.pick(shape)
}

/// The reason why no algorithm can serve a call, if there is one.
fn obstacle(shape: &Shape, agreed: &Agreed) -> Option<Reason> {
    if agreed.ranks <= 1 {
        Some(Reason::SingleRank)
    } else if shape.bytes == Bytes::ZERO && shape.collective != Collective::Barrier {
        Some(Reason::Empty)
    } else if shape.granule > agreed.cell_bytes {
        Some(Reason::ElementLargerThanSlot)
    } else if has_too_short_cells(shape.collective, agreed) {
        Some(Reason::BlocksLargerThanSlot)
    } else if mixes_order(agreed) && order_of(shape) == OperandOrder::Rank {
        Some(Reason::OrderAcrossNodes)
    } else {
        None
    }
}

/// Whether a cell is too short for a piece of every rank's block.
pub(super) fn has_too_short_cells(collective: Collective, agreed: &Agreed) -> bool {
    collective.has_blocks() && agreed.largest_node > agreed.cell_bytes.0
}

/// Whether operands can't be combined in rank order.
pub(super) fn mixes_order(agreed: &Agreed) -> bool {
    agreed.nodes > 1 && !agreed.is_block_placed
}

/// The order in which operands are combined. User-defined operations follow rank order whether they commute or not. So
/// results of associative ones depend neither on the algorithm nor on the placement. Lanes rely on it too: a handle may
/// come to mean an operation that does not commute (`mpi::lane`).
pub(super) fn order_of(shape: &Shape) -> OperandOrder {
    match shape.operator {
        OperatorClass::User => OperandOrder::Rank,
        OperatorClass::None | OperatorClass::Predefined | OperatorClass::Library => shape.order,
    }
}

pub(super) fn plan(shape: &Shape, agreed: &Agreed, epoch: Epoch, setting: &Setting) -> Plan {
    // Whole elements, and no more than a cell holds.
    let size = |knob, usual: Bytes| {
        let wanted = setting.knobs.set(knob).map_or(usual, |size| Bytes(size as usize));
        let size = wanted.min(agreed.cell_bytes).round_down_to(shape.granule);
        (if size == Bytes::ZERO { shape.granule } else { size }).0 as u32
    };
    let plan = Plan {
        epoch,
        bytes: shape.bytes,
        granule: shape.granule,
        root: shape.root,
        order: order_of(shape),
        knobs: setting
            .knobs
            .or(Knob::Radix, RADIX)
            .with(Knob::Tile, size(Knob::Tile, usual_tile(shape, agreed, setting)))
            .with(Knob::Segment, size(Knob::Segment, usual_segment(agreed))),
        scratch: Bytes::ZERO,
        reach: Bytes::ZERO,
    };
    plan.measured(&REGISTRY[setting.row], &agreed.measures())
}

/// Bytes per tile, unless the user sets them: a part of the message that fits the first-level cache where the message
/// is short, the second-level cache where it is long. Tiles are whole pages: copies of tiles that begin anywhere in the
/// user's buffer take two to three times as long (docs/PERFORMANCE.md, "Tried"). Ranks that share cores take whole
/// cells, since each tile costs them a switch. Relays take half of the message, up to `TILE_OF_RELAYS`. Tiles that
/// share cells are shorter: three quarters of a first-level cache, or all of it in messages as long as four such
/// caches, but at most a quarter of a cell. Only the longest messages have longer tiles. Messages no longer than one
/// such tile have tiles of a quarter of the first-level cache.
fn usual_tile(shape: &Shape, agreed: &Agreed, setting: &Setting) -> Bytes {
    let Fit { l1, l2 } = agreed.fit;
    let part = |tiles: usize| Bytes(shape.bytes.0.div_ceil(tiles).next_multiple_of(PAGE)).min(l2);
    if is_relay(setting) {
        return part(TILES_IN_RELAYS).clamp(l1, TILE_OF_RELAYS.max(l1));
    }
    if agreed.crowding.is_shared() {
        return agreed.cell_bytes;
    }
    if !moves_in_trains(setting, agreed) {
        return part(TILES).max(l1);
    }
    let usual = tile_of_trains(shape.bytes, agreed);
    if setting.knobs.set(Knob::Try).is_some() && is_short_if_tried(shape.bytes, agreed, setting) {
        part(2).max(l1)
    } else if shape.bytes <= usual {
        l1.min(usual)
    } else {
        part(TILES_IN_TRAINS).max(usual)
    }
}

/// Bytes of a tile that shares its cell with others, except in the shortest and the longest messages.
fn tile_of_trains(bytes: Bytes, agreed: &Agreed) -> Bytes {
    let l1 = agreed.fit.l1;
    let quarters = if bytes < l1 * LONG_IN_QUARTERS { 3 } else { 4 };
    (l1 * quarters).min(Bytes(agreed.cell_bytes.0 / 4))
}

/// Whether a Bcast of this setting is a short call, in halves, if slots and memory are both tried: it is one between
/// two ranks, of up to two usual tiles. Its tiles then have half its length, so that `coll::phase::single::short_bcast`
/// finds it short. Such calls take less time than trains of tiles (docs/PERFORMANCE.md, "Tried").
pub(super) fn is_short_if_tried(bytes: Bytes, agreed: &Agreed, setting: &Setting) -> bool {
    moves_in_trains(setting, agreed) && bytes <= tile_of_trains(bytes, agreed) * 2
}

/// Whether ranks relay the message, whose tiles are to stay in caches.
pub(super) fn is_relay(setting: &Setting) -> bool {
    REGISTRY[setting.row].reach == Reach::RelayedTiles
}

/// Whether tiles may share cells. They do on two ranks, where each then costs a flag and little else. In messages below
/// 128 KiB, where cores are far apart, tiles of 24 KiB are up to 8 % better than those of 16 and 32, and no worse where
/// cores are close. In longer ones tiles of 32 KiB are up to 8 % better than those of 24 (docs/PERFORMANCE.md,
/// "Tried"). The models can't tell.
pub(super) fn moves_in_trains(setting: &Setting, agreed: &Agreed) -> bool {
    let is_pair = agreed.nodes == 1 && Passed::is_for(agreed.ranks) && !agreed.crowding.is_shared();
    let has_trains = REGISTRY[setting.row].reach == Reach::StagedTrains && setting.knobs.set(Knob::Buffers).is_none();
    is_pair && has_trains && agreed.slots > 2
}

/// Bytes that one step of a tree moves, unless the user sets them: what fits the second-level cache and a cell, or all
/// of a cell where ranks share cores.
fn usual_segment(agreed: &Agreed) -> Bytes {
    if agreed.crowding.is_shared() { agreed.cell_bytes } else { agreed.fit.l2.min(agreed.cell_bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coll::phase::bridge_block;
    use crate::coll::{self, Need};
    use crate::config::RawEnvironment;
    use crate::model::Parameters;
    use crate::topo::{Crowding, Hierarchy};
    use crate::types::CommRank;

    const EPOCH: Epoch = Epoch(7);
    const REDUCTION: Shape = Shape {
        collective: Collective::Allreduce,
        bytes: Bytes(64),
        granule: Bytes(8),
        root: CommRank(0),
        operator: OperatorClass::Predefined,
        order: OperandOrder::Any,
    };
    const ONE_NODE: Agreed = Agreed::on_one_node(4, Hierarchy::flat(4, None));
    const TWO_NODES: Agreed = Agreed { nodes: 2, largest_node: 2, ..ONE_NODE };

    fn config(variables: &[(&str, &str)]) -> Config {
        let (config, complaints) = Config::parse(&RawEnvironment::new(variables.iter().copied()));
        assert_eq!(complaints, []);
        config
    }

    fn choice(config: &Config, shape: &Shape, agreed: &Agreed) -> Choice {
        choose(config, shape, agreed, &Map::new(agreed, &Parameters::default()), EPOCH)
    }

    fn run(config: &Config, shape: &Shape, agreed: &Agreed) -> (&'static str, Plan) {
        match choice(config, shape, agreed) {
            Choice::Run { row, plan } => (REGISTRY[row].name, plan),
            Choice::RunInstead { forced, .. } => panic!("not {}", REGISTRY[forced].name),
            Choice::Decline(reason) => panic!("declined: {}", reason.name()),
        }
    }

    fn reason(config: &Config, shape: &Shape, agreed: &Agreed) -> Reason {
        match choice(config, shape, agreed) {
            Choice::Decline(reason) => reason,
            Choice::Run { row, .. } | Choice::RunInstead { row, .. } => panic!("ran {}", REGISTRY[row].name),
        }
    }

    #[test]
    fn plans_hold_the_shape_and_the_usual_knobs() {
        let (name, plan) = run(&config(&[("HUDDLE_ALLREDUCE", "flat")]), &REDUCTION, &ONE_NODE);
        assert_eq!(name, "flat");
        assert_eq!((plan.epoch, plan.bytes, plan.granule), (EPOCH, Bytes(64), Bytes(8)));
        assert_eq!((plan.knobs.radix(), plan.knobs.tile(), plan.scratch), (RADIX, Bytes(8 << 10), Bytes::ZERO));
    }

    #[test]
    fn plans_between_nodes_have_scratch() {
        let (_, plan) = run(&Config::default(), &REDUCTION, &TWO_NODES);
        assert!(plan.scratch > Bytes::ZERO);
    }

    #[test]
    fn the_environment_decides_by_size() {
        let config = config(&[("HUDDLE_ALLREDUCE", "<=64:tree:radix=2,<=1K:native,tiled:tile=100")]);
        let sized = |bytes| Shape { bytes: Bytes(bytes), ..REDUCTION };
        let (name, plan) = run(&config, &sized(64), &ONE_NODE);
        assert_eq!((name, plan.knobs.radix()), ("tree", 2));
        assert_eq!(reason(&config, &sized(72), &ONE_NODE), Reason::ForcedNative);
        let (name, plan) = run(&config, &sized(2048), &ONE_NODE);
        assert_eq!((name, plan.knobs.tile()), ("tiled", Bytes(96)));
    }

    #[test]
    fn each_relay_has_half_of_a_message_in_tiles_that_have_a_longest() {
        let agreed =
            Agreed { fit: Fit { l1: Bytes(8 << 10), l2: Bytes(512 << 10) }, cell_bytes: Bytes(256 << 10), ..ONE_NODE };
        let tile = |bytes| {
            let shape = Shape { bytes: Bytes(bytes), ..REDUCTION };
            run(&config(&[("HUDDLE_ALLREDUCE", "relay")]), &shape, &agreed).1.knobs.tile().0 >> 10
        };
        assert_eq!([64, 32 << 10, 100 << 10, 1 << 20, 1 << 30].map(tile), [8, 16, 52, 128, 128]);
    }

    #[test]
    fn tiles_hold_whole_elements_and_fit_a_cell() {
        let config = config(&[("HUDDLE_ALLREDUCE", "tiled:tile=64")]);
        let wide = Shape { granule: Bytes(3000), bytes: Bytes(6000), ..REDUCTION };
        assert_eq!(run(&config, &wide, &ONE_NODE).1.knobs.tile(), Bytes(3000));
        let (_, plan) = run(&Config::default(), &Shape { bytes: Bytes(60_000), ..wide }, &ONE_NODE);
        assert_eq!(plan.knobs.tile(), Bytes(6000));
    }

    #[test]
    fn tiles_and_segments_fit_the_caches() {
        let fit = Fit { l1: Bytes(4 << 10), l2: Bytes(32 << 10) };
        let agreed = Agreed { fit, cell_bytes: Bytes(64 << 10), ..ONE_NODE };
        let tiled = config(&[("HUDDLE_ALLREDUCE", "tiled")]);
        let sizes = |bytes: usize, agreed: &Agreed| {
            let knobs = run(&tiled, &Shape { bytes: Bytes(bytes), ..REDUCTION }, agreed).1.knobs;
            (knobs.tile().0 >> 10, knobs.segment().0 >> 10)
        };
        assert_eq!([8, 64 << 10, 1 << 20].map(|bytes| sizes(bytes, &agreed)), [(4, 32), (16, 32), (32, 32)]);
        let bytes = Shape { bytes: Bytes(77_777), granule: Bytes(1), collective: Collective::Bcast, ..REDUCTION };
        assert_eq!(run(&Config::default(), &bytes, &agreed).1.knobs.tile(), Bytes(20 << 10));
        assert_eq!(sizes(1 << 20, &Agreed { crowding: Crowding::new(2, 1.0), ..agreed }), (64, 64));
        assert_eq!(sizes(1 << 20, &Agreed { fit: Fit::ASSUMED, ..agreed }), (64, 64));
    }

    #[test]
    fn tiles_that_share_cells_take_a_part_of_the_first_cache_by_the_messages_length() {
        let pair = Agreed { cell_bytes: Bytes(128 << 10), ..Agreed::on_one_node(2, Hierarchy::flat(2, None)) };
        let tile = |bcast: &str, kib: usize| {
            let shape =
                Shape { collective: Collective::Bcast, bytes: Bytes(kib << 10), granule: Bytes(1), ..REDUCTION };
            run(&config(&[("HUDDLE_BCAST", bcast)]), &shape, &pair).1.knobs.tile().0 >> 10
        };
        // The unit is a quarter of the first-level cache: 8 KiB.
        assert_eq!(Fit::ASSUMED.l1, Bytes(8 << 10));
        let tiles = [16, 24, 32, 127, 128, 512, 1 << 10, 2 << 10, 4 << 10].map(|kib| tile("tiled", kib));
        assert_eq!(tiles, [8, 8, 24, 24, 32, 32, 32, 64, 128]);
        // Short calls where slots and memory are tried: whole up to a tile, in halves above that. Longer calls have
        // tiles as above.
        let tiles = [4, 16, 24, 48, 49, 64, 128].map(|kib| tile("single:try=slots", kib));
        assert_eq!(tiles, [8, 8, 12, 24, 24, 24, 32]);
    }

    #[test]
    fn obstacles_have_reasons() {
        let default = Config::default();
        let declined = |shape: &Shape, agreed: &Agreed| reason(&default, shape, agreed);
        assert_eq!(declined(&Shape { bytes: Bytes::ZERO, ..REDUCTION }, &ONE_NODE), Reason::Empty);
        let huge = Shape { granule: Bytes(8193), bytes: Bytes(8193), ..REDUCTION };
        assert_eq!(declined(&huge, &ONE_NODE), Reason::ElementLargerThanSlot);
        assert_eq!(declined(&REDUCTION, &Agreed { ranks: 1, largest_node: 1, ..ONE_NODE }), Reason::SingleRank);
        let crowd = Agreed { ranks: 1025, largest_node: 1025, cell_bytes: Bytes(1024), ..ONE_NODE };
        let scatter = Shape { collective: Collective::Scatter, granule: Bytes(1), ..REDUCTION };
        assert_eq!(declined(&scatter, &crowd), Reason::BlocksLargerThanSlot);
        let config = config(&[("HUDDLE_BCAST", "tiled:tile=64")]);
        let endless = Shape { collective: Collective::Bcast, bytes: Bytes(1 << 40), granule: Bytes(1), ..REDUCTION };
        assert_eq!(reason(&config, &endless, &ONE_NODE), Reason::TooManySteps);
    }

    /// Where nodes exchange operands, each operand has its share of the scratch memory for a chunk.
    #[test]
    fn chunks_that_several_operands_share_are_counted_as_short_as_they_are() {
        let config = config(&[("HUDDLE_ALLREDUCE", "dissemination:radix=16:chunk=64")]);
        let long = Shape { bytes: Bytes(32 << 20), ..REDUCTION };
        assert_eq!(reason(&config, &long, &Agreed { nodes: 16, ranks: 32, ..TWO_NODES }), Reason::TooManySteps);
        assert_eq!(run(&config, &long, &TWO_NODES).0, "dissemination");
    }

    /// On 64 nodes of 128 ranks each a chunk has 32 bytes of each block, and an Allgather of 256 KiB 8192 chunks.
    #[test]
    fn long_blocks_of_many_ranks_have_tickets() {
        let agreed = Agreed { nodes: 64, ranks: 64 * 128, largest_node: 128, ..TWO_NODES };
        for collective in [Collective::Allgather, Collective::Scatter] {
            let blocks = |bytes| Shape { collective, bytes: Bytes(bytes), granule: Bytes(1), ..REDUCTION };
            run(&Config::default(), &blocks(256 << 10), &agreed);
            assert_eq!(reason(&Config::default(), &blocks(1 << 20), &agreed), Reason::TooManySteps);
        }
    }

    /// The share of each of 513 ranks in a cell of 1 KiB is one byte, and each takes ten rounds: 17 million tickets.
    #[test]
    fn shares_of_short_cells_are_counted_in_whole_bytes() {
        let config = config(&[("HUDDLE_ALLGATHER", "dissemination:radix=2")]);
        let crowd = Agreed { ranks: 513, largest_node: 513, cell_bytes: Bytes(1024), ..ONE_NODE };
        let blocks =
            |bytes| Shape { collective: Collective::Allgather, bytes: Bytes(bytes), granule: Bytes(1), ..REDUCTION };
        assert_eq!(reason(&config, &blocks(1_700_000), &crowd), Reason::TooManySteps);
        assert_eq!(run(&config, &blocks(1_000_000), &crowd).0, "dissemination");
    }

    #[test]
    fn two_chunks_for_each_of_several_leaders_hold_the_blocks_of_all_ranks() {
        let config = config(&[("HUDDLE_ALLGATHER", "flat:leaders=2")]);
        let blocks =
            Shape { collective: Collective::Allgather, bytes: Bytes(64 << 10), granule: Bytes(1), ..REDUCTION };
        let (_, plan) = run(&config, &blocks, &Agreed { leaders: 2, ..TWO_NODES });
        assert_eq!([8, 64].map(|ranks| bridge_block(&plan, ranks)), [Bytes(16 << 10), Bytes(4 << 10)]);
    }

    #[test]
    fn rank_order_needs_blocks_of_ranks_between_nodes_only() {
        let default = Config::default();
        let ordered = Shape { order: OperandOrder::Rank, ..REDUCTION };
        let user = Shape { operator: OperatorClass::User, ..REDUCTION };
        let scattered = Agreed { is_block_placed: false, ..TWO_NODES };
        for shape in [ordered, user] {
            assert_eq!(run(&default, &shape, &ONE_NODE).1.order, OperandOrder::Rank);
            assert_eq!(run(&default, &shape, &TWO_NODES).1.order, OperandOrder::Rank);
            assert_eq!(reason(&default, &shape, &scattered), Reason::OrderAcrossNodes);
        }
        assert_eq!(run(&default, &REDUCTION, &scattered).1.order, OperandOrder::Any);
    }

    #[test]
    fn what_an_algorithm_needs_and_a_call_lacks_keeps_it_from_running() {
        let config = config(&[("HUDDLE_ALLREDUCE", "dissemination:radix=3")]);
        let (name, plan) = run(&config, &REDUCTION, &ONE_NODE);
        assert_eq!((name, plan.knobs.radix()), ("dissemination", 3));
        let ordered = Shape { order: OperandOrder::Rank, ..REDUCTION };
        let user = Shape { operator: OperatorClass::User, ..REDUCTION };
        for shape in [ordered, user] {
            let Choice::RunInstead { row, forced, need, .. } = choice(&config, &shape, &ONE_NODE) else {
                panic!("{shape:?}");
            };
            assert_eq!(REGISTRY[forced].name, "dissemination");
            assert_eq!(need, Need::Commutative);
            assert!(
                matches!(choice(&Config::default(), &shape, &ONE_NODE), Choice::Run { row: usual, .. } if usual == row)
            );
        }
    }

    #[test]
    fn barriers_have_no_bytes() {
        let barrier = Shape {
            collective: Collective::Barrier,
            bytes: Bytes::ZERO,
            granule: Bytes(1),
            operator: OperatorClass::None,
            ..REDUCTION
        };
        let (_, plan) = run(&Config::default(), &barrier, &ONE_NODE);
        assert_eq!((plan.bytes, plan.scratch), (Bytes::ZERO, Bytes::ZERO));
    }

    #[test]
    fn gigabytes_are_served() {
        for collective in Collective::ALL.into_iter().filter(|collective| *collective != Collective::Barrier) {
            let shape = Shape { collective, bytes: Bytes(2 << 30), granule: Bytes(1), ..REDUCTION };
            run(&Config::default(), &shape, &ONE_NODE);
        }
    }

    #[test]
    fn every_row_can_be_forced() {
        for (index, row) in coll::REGISTRY.iter().enumerate() {
            let variable = format!("HUDDLE_{}", row.collective.name().to_uppercase());
            let bytes = if row.collective == Collective::Barrier { Bytes::ZERO } else { Bytes(8) };
            let shape = Shape { collective: row.collective, bytes, granule: Bytes(1), ..REDUCTION };
            let choice = choice(&config(&[(&variable, row.name)]), &shape, &ONE_NODE);
            assert!(matches!(choice, Choice::Run { row, .. } if row == index));
        }
    }
}
