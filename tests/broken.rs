//! Small algorithms that are right, and the same ones with one mistake each, which the checking scheduler must find.

use huddle::coll::{Plan, Tickets, find, part, pieces, pieces_between};
use huddle::fabric::checked::{Breach, Program, Rank, Running};
use huddle::fabric::{BridgeStep, Exposed, Fabric, Line, Place, Room, Span};
use huddle::types::{Bytes, Collective, NodeRank, Ticket};
use std::ops::Range;

/// Every mistake shows within this many programs.
const WITHIN: u64 = 40;

/// How many nodes the ranks of a program are on.
#[derive(Clone, Copy, PartialEq)]
enum Nodes {
    One,
    Any,
}

/// An algorithm, and the name of the registry row whose place it takes.
struct Named {
    row: &'static str,
    start: for<'a> fn(&'a Rank, &'a Plan) -> Running<'a>,
}

/// The program of `seed`, with all calls made by one algorithm, on one node or on any number.
fn program(seed: u64, collective: Collective, Named { row, start }: &Named, nodes: Nodes) -> Program {
    let row = find(collective, row).expect("a row");
    let mut program = Program::random_of(seed, &[row]);
    program.calls.iter_mut().for_each(|call| call.start = *start);
    if nodes == Nodes::One {
        program.labels.fill(0);
    }
    // Whatever is exposed can be fetched.
    program.misses = 0;
    program
}

/// Checks that the algorithm keeps all rules.
fn is_right(collective: Collective, nodes: Nodes, named: &Named) {
    for seed in 1..=300 {
        if let Err(violation) = program(seed, collective, named, nodes).run(seed) {
            panic!("seed {seed}: {violation}");
        }
    }
}

/// Checks that the scheduler finds the mistake within `WITHIN` programs, as the right breach.
fn is_wrong(collective: Collective, nodes: Nodes, named: &Named, breach: fn(&Breach) -> bool) {
    let run = |seed| program(seed, collective, named, nodes).run(seed).err();
    let found: Vec<_> = (1..=WITHIN).filter_map(run).collect();
    assert!(found.iter().any(|violation| breach(&violation.breach)), "not found; only {found:#?}");
}

macro_rules! start {
    ($algorithm:ident, $mistake:ident) => {
        start!("flat", $algorithm, $mistake)
    };
    ($row:literal, $algorithm:ident, $mistake:ident) => {
        &Named { row: $row, start: |fabric, plan| Box::pin($algorithm(fabric, plan, Mistake::$mistake)) }
    };
}

/// `is_found!(name: algorithm, collective, nodes, mistake => breach)`: a test that the mistake is found as this breach.
macro_rules! is_found {
    ($name:ident: $($row:literal,)? $algorithm:ident, $collective:ident, $nodes:ident, $mistake:ident => $breach:pat) => {
        #[test]
        fn $name() {
            is_wrong(Collective::$collective, Nodes::$nodes, start!($($row,)? $algorithm, $mistake), |breach| {
                matches!(breach, $breach)
            });
        }
    };
}

#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    None,
    PublishFirst,
    NoClaim,
    NoWait,
    OtherLine,
    EarlyRelease,
    NoRelease,
    AlwaysPayload,
    TooLong,
    SkippedTicket,
    WastesTickets,
    OthersSlot,
    Overwrites,
    SplitsElements,
    WrongOrder,
    OverlappingParts,
    ReadsTooEarly,
    RewritesPublished,
    WritesInput,
    LeavesEarly,
    MemberBridges,
    SkipsBridge,
    ExposesNothing,
    AsksUntold,
    AsksTooLate,
    ClaimsCell,
    ReadsPassed,
    PassesToNobody,
    MixesCells,
}

fn ranks<F: Fabric>(fabric: &F) -> impl Iterator<Item = NodeRank> + Send + use<F> {
    (0..fabric.size() as u32).map(NodeRank)
}

/// Flat broadcast: all ranks read the root's slots.
async fn bcast<F: Fabric>(fabric: &F, plan: &Plan, mistake: Mistake) {
    let root = NodeRank(plan.root.0);
    let mut tickets = Tickets::of(plan);
    for (index, (offset, n)) in pieces_between(fabric.size(), plan.bytes, fabric.cell_bytes(), Bytes(1)).enumerate() {
        let ticket = match mistake {
            Mistake::SkippedTicket if index > 0 && fabric.rank() != root => Ticket::new(plan.epoch, index as u64 - 1),
            _ => tickets.draw(),
        };
        let stage = match mistake {
            Mistake::AlwaysPayload => Place::Payload { rank: root, line: Line::Down, ticket },
            _ => Place::stage(root, Line::Down, ticket, n),
        };
        let buffer = Place::RecvBuf.at(offset);
        if fabric.rank() == root {
            send(fabric, stage.start(), buffer, ticket, n, mistake).await;
        } else {
            receive(fabric, root, stage.start(), buffer, ticket, n, mistake).await;
        }
        if !matches!(mistake, Mistake::NoRelease | Mistake::EarlyRelease) {
            fabric.release(ticket).await;
        }
    }
    if mistake == Mistake::WastesTickets {
        fabric.release(tickets.skip(1 << 20)).await;
    }
    if mistake == Mistake::PassesToNobody && fabric.rank() == root {
        let ticket = tickets.draw();
        fabric.claim(ticket, Room::Passed).await;
        fabric.publish(Line::Down, ticket).await;
    }
}

async fn send<F: Fabric>(fabric: &F, stage: Span, from: Span, ticket: Ticket, n: Bytes, mistake: Mistake) {
    if mistake != Mistake::NoClaim {
        fabric.claim(ticket, Room::passing(n)).await;
    }
    if mistake == Mistake::PublishFirst {
        fabric.publish(Line::Down, ticket).await;
    }
    fabric.copy(stage, from, n).await;
    if mistake != Mistake::PublishFirst {
        fabric.publish(Line::Down, ticket).await;
    }
    if mistake == Mistake::RewritesPublished {
        fabric.copy(stage, from, n).await;
    }
    if mistake == Mistake::ReadsPassed {
        fabric.copy(from, stage, n).await;
    }
    if mistake == Mistake::EarlyRelease {
        fabric.release(ticket).await;
    }
}

async fn receive<F: Fabric>(
    fabric: &F,
    root: NodeRank,
    stage: Span,
    to: Span,
    ticket: Ticket,
    n: Bytes,
    mistake: Mistake,
) {
    if mistake == Mistake::EarlyRelease {
        fabric.release(ticket).await;
    }
    if mistake == Mistake::OthersSlot {
        fabric.claim(ticket, Room::of(n)).await;
        fabric.copy(stage, to, n).await;
    }
    match mistake {
        Mistake::NoWait => {}
        Mistake::OtherLine => fabric.wait(root, Line::Up, ticket).await,
        _ => fabric.wait(root, Line::Down, ticket).await,
    }
    let n = if mistake == Mistake::TooLong { n + Bytes(1) } else { n };
    fabric.copy(to, stage, n).await;
}

#[test]
fn bcast_is_right() {
    is_right(Collective::Bcast, Nodes::One, start!(bcast, None));
}

is_found!(published_before_copied_in: bcast, Bcast, One, PublishFirst => Breach::ReadRace { .. });
is_found!(slot_not_claimed: bcast, Bcast, One, NoClaim => Breach::Unclaimed);
is_found!(flag_not_awaited: bcast, Bcast, One, NoWait => Breach::ReadRace { .. } | Breach::Unwritten { .. });
is_found!(other_line_awaited: bcast, Bcast, One, OtherLine => Breach::Deadlock { .. });
is_found!(read_after_release: bcast, Bcast, One, EarlyRelease => Breach::ReadAfterRelease);
is_found!(ring_held_by_its_writer: bcast, Bcast, One, NoRelease => Breach::Lookahead { .. });
is_found!(payload_for_long_messages: bcast, Bcast, One, AlwaysPayload => Breach::OutOfBounds { .. });
is_found!(buffer_overrun: bcast, Bcast, One, TooLong => Breach::OutOfBounds { .. } | Breach::Unwritten { .. });
is_found!(ticket_drawn_too_few: bcast, Bcast, One, SkippedTicket => Breach::ReadAfterRelease | Breach::OutOfOrder { .. });
is_found!(more_tickets_than_declared: bcast, Bcast, One, WastesTickets => Breach::TooManyTickets { .. });
is_found!(slot_of_another: bcast, Bcast, One, OthersSlot => Breach::NotOwner | Breach::Unwritten { .. });
is_found!(cell_read_after_it_was_passed: bcast, Bcast, One, ReadsPassed => Breach::TouchedAfterPassing);

/// Flat broadcast in halves that share a cell: the flag of a second ticket announces the second half.
async fn bcast_in_trains<F: Fabric>(fabric: &F, plan: &Plan, mistake: Mistake) {
    if plan.reach == Bytes::ZERO {
        return bcast(fabric, plan, Mistake::None).await;
    }
    let root = NodeRank(plan.root.0);
    let mut tickets = Tickets::of(plan);
    for (offset, n) in pieces_between(fabric.size(), plan.bytes, fabric.cell_bytes(), Bytes(1)) {
        let halves = [tickets.draw(), tickets.draw()];
        let cell = Place::Cell { rank: root, line: Line::Down, ticket: halves[0] };
        let half = Bytes(n.0 / 2);
        for (ticket, at, n) in [(halves[0], Bytes::ZERO, half), (halves[1], half, n - half)] {
            let (is_first, buffer) = (ticket == halves[0], Place::RecvBuf.at(offset + at));
            if fabric.rank() == root {
                fabric.claim(ticket, if is_first { Room::Passed } else { Room::Lines }).await;
                fabric.copy(cell.at(at), buffer, n).await;
                fabric.publish(Line::Down, ticket).await;
                continue;
            }
            if is_first || mistake != Mistake::NoWait {
                fabric.wait(root, Line::Down, ticket).await;
            }
            fabric.copy(buffer, cell.at(at), n).await;
            if is_first && mistake == Mistake::EarlyRelease {
                fabric.release(ticket).await;
            }
        }
        fabric.release(halves[1]).await;
    }
}

#[test]
fn bcast_in_trains_is_right() {
    is_right(Collective::Bcast, Nodes::One, start!(bcast_in_trains, None));
}

is_found!(flag_of_the_rest_not_awaited: bcast_in_trains, Bcast, One, NoWait => Breach::ReadRace { .. } | Breach::Unwritten { .. });
is_found!(shared_cell_read_after_release: bcast_in_trains, Bcast, One, EarlyRelease => Breach::ReadAfterRelease);
is_found!(cell_passed_to_nobody: bcast, Bcast, One, PassesToNobody => Breach::NeverTold);
is_found!(rewritten_after_publication: bcast, Bcast, One, RewritesPublished => Breach::WriteRace { .. });

/// Flat allreduce: every rank combines all slots in rank order.
async fn allreduce<F: Fabric>(fabric: &F, plan: &Plan, mistake: Mistake) {
    let me = fabric.rank();
    let mut tickets = Tickets::of(plan);
    let granule = if mistake == Mistake::SplitsElements { Bytes(1) } else { plan.granule };
    for (offset, n) in pieces_between(fabric.size(), plan.bytes, fabric.cell_bytes(), granule) {
        let ticket = tickets.draw();
        let (from, to) = (Place::SendBuf.at(offset), Place::RecvBuf.at(offset));
        let slot = |rank| Place::stage(rank, Line::Up, ticket, n).start();
        fabric.claim(ticket, Room::of(n)).await;
        fabric.copy(slot(me), from, n).await;
        fabric.publish(Line::Up, ticket).await;
        for rank in ranks(fabric) {
            fabric.wait(rank, Line::Up, ticket).await;
            let operand = if rank == me && mistake == Mistake::Overwrites { from } else { slot(rank) };
            match mistake {
                _ if rank.0 == 0 => fabric.copy(to, operand, n).await,
                Mistake::WrongOrder => fabric.reduce(to, operand, to, n).await,
                Mistake::WritesInput => fabric.reduce(from, from, operand, n).await,
                _ => fabric.reduce(to, to, operand, n).await,
            }
        }
        fabric.release(ticket).await;
    }
}

#[test]
fn allreduce_is_right() {
    is_right(Collective::Allreduce, Nodes::One, start!(allreduce, None));
}

is_found!(input_overwritten_in_place: allreduce, Allreduce, One, Overwrites => Breach::InputOverwritten);
is_found!(elements_split: allreduce, Allreduce, One, SplitsElements => Breach::SplitElement);
is_found!(operands_in_the_wrong_order: allreduce, Allreduce, One, WrongOrder => Breach::WrongResult { .. });
is_found!(input_written: allreduce, Allreduce, One, WritesInput => Breach::InputWritten);

/// Tiled allreduce: rank k combines part k of all slots in its own slot; every rank collects the parts.
async fn tiled<F: Fabric>(fabric: &F, plan: &Plan, mistake: Mistake) {
    let (me, size) = (fabric.rank(), fabric.size());
    let mut tickets = Tickets::of(plan);
    for (offset, n) in pieces(plan.bytes, plan.reach.max(plan.granule), plan.granule) {
        let ticket = tickets.draw();
        let cell = |rank, at: usize| Place::Cell { rank, line: Line::Down, ticket }.at(Bytes(at));
        let mut own = part(n, plan.granule, me, size);
        if mistake == Mistake::OverlappingParts {
            own.end = (own.end + plan.granule.0).min(n.0);
        }
        fabric.claim(ticket, Room::Cell).await;
        fabric.copy(cell(me, 0), Place::SendBuf.at(offset), n).await;
        fabric.publish(Line::Up, ticket).await;
        combine(fabric, ticket, Place::SendBuf.at(offset), own).await;
        for rank in ranks(fabric) {
            let range = part(n, plan.granule, rank, size);
            let line = if mistake == Mistake::ReadsTooEarly { Line::Up } else { Line::Down };
            fabric.wait(rank, line, ticket).await;
            if mistake == Mistake::EarlyRelease && rank.index() + 1 == size {
                fabric.release(ticket).await;
            }
            let to = Place::RecvBuf.at(offset + Bytes(range.start));
            fabric.copy(to, cell(rank, range.start), Bytes(range.len())).await;
        }
        if mistake != Mistake::EarlyRelease {
            fabric.release(ticket).await;
        }
    }
}

/// Combines the part `own` of all slots in this rank's slot. It reads its own operand from its buffer, at `from`.
async fn combine<F: Fabric>(fabric: &F, ticket: Ticket, from: Span, own: Range<usize>) {
    let me = fabric.rank();
    let (at, n) = (Bytes(own.start), Bytes(own.len()));
    let cell = |rank| Place::Cell { rank, line: Line::Up, ticket }.at(at);
    let operand = |rank| {
        if rank == me { from.plus(at) } else { cell(rank) }
    };
    let mut left = operand(NodeRank(0));
    for rank in ranks(fabric) {
        fabric.wait(rank, Line::Up, ticket).await;
        if rank.0 > 0 {
            fabric.reduce(cell(me), left, operand(rank), n).await;
            left = cell(me);
        }
    }
    fabric.publish(Line::Down, ticket).await;
}

#[test]
fn tiled_allreduce_is_right() {
    is_right(Collective::Allreduce, Nodes::One, start!("tiled", tiled, None));
}

is_found!(cells_in_place_of_lines: "flat", tiled, Allreduce, One, None => Breach::TooDeep { .. });
is_found!(parts_overlap: "tiled", tiled, Allreduce, One, OverlappingParts => Breach::ReadRace { .. } | Breach::WriteRace { .. });
is_found!(result_read_before_down: "tiled", tiled, Allreduce, One, ReadsTooEarly => Breach::ReadRace { .. } | Breach::Untold);
is_found!(tiles_released_too_early: "tiled", tiled, Allreduce, One, EarlyRelease => Breach::ReadAfterRelease);

/// Allreduce by one relay: each rank combines its operand in the leader's cell, after the rank before it.
async fn relay<F: Fabric>(fabric: &F, plan: &Plan, mistake: Mistake) {
    let (me, leader, last) = (fabric.rank(), NodeRank::LEADER, NodeRank(fabric.size() as u32 - 1));
    let mut tickets = Tickets::of(plan);
    for (offset, n) in pieces(plan.bytes, plan.reach.max(plan.granule), plan.granule) {
        let ticket = tickets.draw();
        let (sum, own) = (Place::Cell { rank: leader, line: Line::Up, ticket }.start(), Place::SendBuf.at(offset));
        let room = if mistake == Mistake::ClaimsCell { Room::Cell } else { Room::Relayed };
        fabric.claim(ticket, if me == leader { room } else { Room::Lines }).await;
        if me == leader {
            fabric.copy(sum, own, n).await;
        } else {
            let is_hasty = matches!(mistake, Mistake::ReadsTooEarly | Mistake::Overwrites);
            fabric.wait(if is_hasty { leader } else { NodeRank(me.0 - 1) }, Line::Up, ticket).await;
            if mistake == Mistake::EarlyRelease && fabric.size() > 2 {
                fabric.release(ticket).await;
            }
            match mistake {
                Mistake::Overwrites | Mistake::EarlyRelease => fabric.copy(sum, own, n).await,
                _ => fabric.reduce(sum, sum, own, n).await,
            }
        }
        fabric.publish(Line::Up, ticket).await;
        fabric.wait(last, Line::Up, ticket).await;
        fabric.copy(Place::RecvBuf.at(offset), sum, n).await;
        if mistake == Mistake::MixesCells {
            fabric.claim(tickets.draw(), Room::Cell).await;
        }
        fabric.release(ticket).await;
    }
}

#[test]
fn relay_is_right() {
    is_right(Collective::Allreduce, Nodes::One, start!("relay", relay, None));
}

is_found!(relayed_too_early: "relay", relay, Allreduce, One, ReadsTooEarly => Breach::ReadRace { .. } | Breach::WriteRace { .. });
is_found!(overwritten_in_a_relay: "relay", relay, Allreduce, One, Overwrites => Breach::OverwriteRace { .. });
is_found!(relayed_after_release: "relay", relay, Allreduce, One, EarlyRelease => Breach::WriteAfterRelease);
is_found!(relayed_and_others: "relay", relay, Allreduce, One, MixesCells => Breach::Lookahead { .. });
is_found!(written_without_a_relay: "relay", relay, Allreduce, One, ClaimsCell => Breach::NotOwner);

/// Scatter: all ranks fetch their blocks from the root's memory.
async fn scatter<F: Fabric>(fabric: &F, plan: &Plan, mistake: Mistake) {
    let (me, root) = (fabric.rank(), NodeRank(plan.root.0));
    let ticket = Tickets::of(plan).draw();
    let block = |rank: NodeRank| plan.bytes * rank.index();
    if me != root {
        if !matches!(mistake, Mistake::NoWait | Mistake::AsksUntold) {
            fabric.wait(root, Line::Down, ticket).await;
        }
        let from = Exposed { rank: root, line: Line::Down, ticket, offset: block(me) };
        if mistake == Mistake::AsksTooLate {
            fabric.release(ticket).await;
        }
        if matches!(mistake, Mistake::AsksUntold | Mistake::AsksTooLate) {
            fabric.is_exposed(root, Line::Down, ticket).await;
        }
        assert!(fabric.fetch(Place::RecvBuf.start(), from, plan.bytes).await);
        return fabric.publish(Line::Up, ticket).await;
    }
    fabric.claim(ticket, if mistake == Mistake::ClaimsCell { Room::Cell } else { Room::Lines }).await;
    if mistake == Mistake::PublishFirst {
        fabric.publish(Line::Down, ticket).await;
    }
    if mistake != Mistake::ExposesNothing {
        fabric.expose(Line::Down, ticket, Place::SendBuf.start()).await;
    }
    if mistake != Mistake::PublishFirst {
        fabric.publish(Line::Down, ticket).await;
    }
    if !fabric.is_in_place() {
        fabric.copy(Place::RecvBuf.start(), Place::SendBuf.at(block(me)), plan.bytes).await;
    }
    for rank in ranks(fabric).filter(|rank| *rank != me && mistake != Mistake::LeavesEarly) {
        fabric.wait(rank, Line::Up, ticket).await;
    }
}

#[test]
fn scatter_is_right() {
    is_right(Collective::Scatter, Nodes::One, start!("single", scatter, None));
}

is_found!(memory_taken_back_too_early: "single", scatter, Scatter, One, LeavesEarly => Breach::StillFetched { .. } | Breach::FetchedTooLate);
is_found!(memory_exposed_too_late: "single", scatter, Scatter, One, PublishFirst => Breach::ExposedTooLate | Breach::Unexposed);
is_found!(nothing_exposed: "single", scatter, Scatter, One, ExposesNothing => Breach::Unexposed);
is_found!(fetched_too_early: "single", scatter, Scatter, One, NoWait => Breach::ReadRace { .. } | Breach::Untold);
is_found!(asked_too_early: "single", scatter, Scatter, One, AsksUntold => Breach::ReadRace { .. } | Breach::Untold);
is_found!(asked_too_late: "single", scatter, Scatter, One, AsksTooLate => Breach::ReadAfterRelease);
is_found!(memory_exposed_beside_a_cell: "single", scatter, Scatter, One, ClaimsCell => Breach::ExposedWithCell);

/// Barrier: all ranks of a node report to its leader, the leaders meet, the leader releases its ranks.
async fn barrier<F: Fabric>(fabric: &F, plan: &Plan, mistake: Mistake) {
    let ticket = Tickets::of(plan).draw();
    let leader = NodeRank::LEADER;
    fabric.publish(Line::Up, ticket).await;
    if fabric.rank() == leader {
        for rank in ranks(fabric).skip(usize::from(mistake == Mistake::LeavesEarly)) {
            fabric.wait(rank, Line::Up, ticket).await;
            if mistake == Mistake::LeavesEarly {
                break;
            }
        }
    }
    if mistake == Mistake::MemberBridges || fabric.rank() == leader && mistake != Mistake::SkipsBridge {
        fabric.bridge(BridgeStep::Barrier).await;
    }
    if fabric.rank() == leader {
        fabric.publish(Line::Down, ticket).await;
    } else {
        fabric.wait(leader, Line::Down, ticket).await;
    }
}

#[test]
fn barrier_is_right() {
    is_right(Collective::Barrier, Nodes::Any, start!(barrier, None));
}

is_found!(barrier_left_early: barrier, Barrier, Any, LeavesEarly => Breach::LeftBarrierEarly { .. });
is_found!(step_between_nodes_skipped: barrier, Barrier, Any, SkipsBridge => Breach::LeftBarrierEarly { .. });
is_found!(step_between_nodes_by_a_member: barrier, Barrier, Any, MemberBridges => Breach::NotLeader);
