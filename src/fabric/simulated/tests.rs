use super::engine::{Rank, Running, drive};
use super::*;
use crate::coll::{Knob, Knobs, Plan, REGISTRY, find};
use crate::fabric::{Fabric, Line, Place, Room};
use crate::model::{Crossing, Machine, Nanos, Network};
use crate::types::{Bytes, Collective, CommRank, Epoch, NodeRank, OperandOrder, Ticket};

const EIGHT: Bytes = Bytes(8);

/// Li et al. §3.4: Xeon X5650, two sockets of six cores; latencies of a line in nanoseconds.
fn westmere() -> (Machine, Placement) {
    let crossing = |latency| Crossing { latency, stream: 0.0, shared: 0.0 };
    let network = Network { latency: 2000.0, overhead: 500.0, gap: 2000.0, per_byte: 1.0 };
    let machine = Machine::plain(1.2, vec![crossing(105.2), crossing(28.5)], [0.0, 0.0], network);
    (machine, placement(2, 6))
}

fn placement(sockets: u32, cores: u32) -> Placement {
    let ranks = sockets * cores;
    let paths = (0..ranks).map(|rank| vec![rank / cores]).collect();
    Placement { labels: vec![0; ranks as usize], paths, slots: 4, cell: Bytes(8192) }
}

fn plan(bytes: usize) -> Plan {
    Plan {
        epoch: Epoch(1),
        bytes: Bytes(bytes),
        granule: EIGHT,
        root: CommRank(0),
        order: OperandOrder::Any,
        knobs: Knobs::UNSET.with(Knob::Radix, 2).with(Knob::Tile, 4096).with(Knob::Segment, 8192),
        scratch: Bytes::ZERO,
        reach: Bytes::ZERO,
    }
}

fn last(times: &[Nanos]) -> f64 {
    times.iter().map(|time| time.0).fold(0.0, f64::max)
}

/// The paper's Fig. 20: a binary tree in each socket, then a step between the sockets, and then all ranks read the
/// root.
async fn paper_tree(fabric: &Rank, cores: u32) {
    let ticket = Ticket::new(Epoch(1), 0);
    let me = fabric.rank();
    let payload = |rank, line| Place::Payload { rank, line, ticket }.start();
    let mut own = Place::SendBuf.start();
    fabric.claim(ticket, Room::Lines).await;
    let in_socket = std::iter::successors(Some(1), |step| Some(step * 2)).take_while(|step| *step < cores);
    let mine = me.0 % cores;
    let is_child = |step: &u32| !mine.is_multiple_of(step * 2);
    for step in in_socket.take_while(|step| !is_child(step)).filter(|step| mine + step < cores) {
        let child = NodeRank(me.0 + step);
        fabric.wait(child, Line::Up, ticket).await;
        fabric.reduce(payload(me, Line::Up), own, payload(child, Line::Up), EIGHT).await;
        own = payload(me, Line::Up);
    }
    if me.0 == 0 {
        let far = NodeRank(cores);
        fabric.wait(far, Line::Up, ticket).await;
        fabric.reduce(payload(me, Line::Down), own, payload(far, Line::Up), EIGHT).await;
        return fabric.publish(Line::Down, ticket).await;
    }
    if own.place == Place::SendBuf {
        fabric.copy(payload(me, Line::Up), own, EIGHT).await;
    }
    fabric.publish(Line::Up, ticket).await;
    fabric.wait(NodeRank(0), Line::Down, ticket).await;
    fabric.copy(Place::RecvBuf.start(), payload(NodeRank(0), Line::Down), EIGHT).await;
}

#[test]
fn the_papers_tree_takes_the_papers_time() {
    let (machine, placement) = westmere();
    let ranks = Rank::all(&machine, &placement);
    let running = ranks.iter().map(|rank| Box::pin(paper_tree(rank, 6)) as Running<'_>).collect();
    let time = last(&drive(&ranks, running));
    // 3(Rs + 2Rl) + (Rr + 2Rl) + (Rr + Rl), and the copy into the slot that the paper's shared user buffers save.
    assert!((time - (306.7 + 2.0 * 1.2)).abs() < 1e-6, "{time}");
}

#[test]
fn streams_out_of_one_group_share_its_link() {
    let (mut machine, placement) = westmere();
    machine.crossings[0].shared = 0.1;
    let row = &REGISTRY[find(Collective::Bcast, "flat").expect("a row")];
    let pair = Placement { labels: vec![0; 2], paths: vec![vec![0], vec![1]], ..placement.clone() };
    let alone = last(&simulate(row, &plan(4096), &machine, &pair));
    let together = last(&simulate(row, &plan(4096), &machine, &placement));
    // The link carries six messages of 4096 bytes in place of one; only the first flag's line is not hidden behind
    // them.
    assert!((together - alone - 5.0 * 409.6).abs() < 0.1, "{alone} {together}");
}

#[test]
fn every_row_ends_and_larger_messages_take_longer() {
    let (mut machine, mut placement) = westmere();
    (machine.copy, machine.reduce) = (0.05, 0.1);
    for nodes in [1, 2] {
        placement.labels = (0..12).map(|rank| rank % nodes).collect();
        for row in REGISTRY {
            let time = |bytes| last(&simulate(row, &plan(bytes), &machine, &placement));
            let (short, long) = (time(8), time(80_000));
            let is_longer = long > short || row.collective == Collective::Barrier;
            assert!(short > 0.0 && is_longer, "{} {}: {short} {long}", row.collective.name(), row.name);
        }
    }
}
