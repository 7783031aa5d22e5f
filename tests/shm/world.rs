//! Ranks as threads, on one node or several.

use crate::bridge::Switch;
use huddle::fabric::shm::{Context, Geometry, Segment, Stall, Traffic, Waiting};
use huddle::topo::{Layout, Levels};
use huddle::types::{Bytes, CommRank, FirstLook, NodeIndex, SlotReads, SlotStores};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A wait this long is a hang, also on a busy machine: the rank panics.
const HANG: Option<Duration> = Some(Duration::from_secs(60));

/// Ranks that believe they have cores of their own.
pub static SPINNING: Waiting = Waiting {
    is_oversubscribed: false,
    stall: HANG,
    progress: std::thread::yield_now,
    keep_pace: |_, _| {},
    traffic: || Traffic::Absent,
    patience: Duration::ZERO,
    report: hang,
};
/// Ranks that share cores and give them away.
pub static YIELDING: Waiting = Waiting { is_oversubscribed: true, patience: Waiting::PATIENCE, ..SPINNING };
/// Ranks that share cores and sleep.
pub static SLEEPING: Waiting = Waiting { is_oversubscribed: true, progress: || {}, ..SPINNING };

fn hang(stall: &Stall) {
    panic!("hangs: {stall:?}");
}

/// Holds a rank back until others have come as far as the test wants.
#[derive(Default)]
pub struct Signal(AtomicUsize);

impl Signal {
    pub const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    pub fn give(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// # Panics
    /// If it takes too long for `count` signals to be given.
    pub fn wait_for(&self, count: usize) {
        let started = Instant::now();
        while self.0.load(Ordering::Acquire) < count {
            assert!(HANG.is_none_or(|hang| started.elapsed() < hang), "nobody gives the signal");
            std::thread::yield_now();
        }
    }
}

/// A machine, and the ranks on it.
#[derive(Clone, Debug)]
pub struct World {
    /// The label of each rank's node.
    pub labels: Vec<u32>,
    /// Each rank's path through the hierarchy of its node.
    pub paths: Vec<Vec<u32>>,
    /// Leaders of each node; no more than the smallest node has ranks.
    pub leaders: usize,
    pub slots: usize,
    pub lines: usize,
    pub cell: usize,
}

/// A rank of a world.
pub struct Rank {
    pub me: CommRank,
    pub context: Arc<Context>,
    /// `Some` on leaders.
    pub switch: Option<Arc<Switch>>,
}

impl World {
    /// `size` ranks on one node without hierarchy, whose rings have twice as many lines as cells.
    pub fn single(size: usize, slots: usize, cell: usize) -> Self {
        Self { labels: vec![0; size], paths: vec![Vec::new(); size], leaders: 1, slots, lines: 2 * slots, cell }
    }

    pub fn size(&self) -> usize {
        self.labels.len()
    }

    pub fn layout(&self, me: CommRank) -> Layout {
        Layout::new(&self.labels, me).with_leaders(self.leaders)
    }

    /// The hierarchy of the node of rank `me`.
    pub fn levels(&self, me: CommRank) -> Levels {
        let layout = self.layout(me);
        let members = layout.members(layout.my_node());
        let paths: Vec<_> = members.iter().map(|rank| self.paths[rank.index()].clone()).collect();
        Levels::from_paths(&paths, layout.place(me).1)
    }

    /// New contexts, one for each rank.
    pub fn contexts(&self) -> Vec<Arc<Context>> {
        let layout = self.layout(CommRank(0));
        let geometry = |ranks| Geometry {
            ranks,
            slots: self.slots,
            lines: self.lines,
            cell: Bytes(self.cell),
            round: Bytes(self.cell),
        };
        let nodes = (0..layout.nodes() as u32).map(NodeIndex);
        let create = |geometry: Geometry| Segment::create(geometry.length(), geometry.front()).expect("memory").1;
        let files: Vec<_> = nodes.map(|node| create(geometry(layout.members(node).len()))).collect();
        let ranks = (0..self.size() as u32).map(CommRank);
        let contexts = ranks.map(|me| {
            let (node, rank) = layout.place(me);
            let geometry = geometry(layout.members(node).len());
            let file = files[node.index()].as_raw_fd();
            let segment = Segment::open(std::process::id(), file, geometry.length()).expect("a mapping");
            let context = Context::new(segment, geometry, rank, self.layout(me), self.levels(me));
            // Each rank reserves as much as it likes. Two ranks get the cells that they pass with their first
            // reservation.
            if self.size() == 2 {
                context.reserve_cells(Bytes(self.cell)).expect("memory");
            }
            if me.0.is_multiple_of(2) {
                context.widen_cells();
            }
            // How a rank writes must make no difference to its readers.
            let stores = [SlotStores::Auto, SlotStores::Streaming, SlotStores::Cached];
            context.set_stores(stores[me.index() % stores.len()]);
            let reads = [SlotReads::Taking, SlotReads::Sharing];
            context.set_reads(reads[me.index() / 2 % reads.len()]);
            let looks = [FirstLook::Late, FirstLook::Early];
            context.set_first_looks(looks[me.index() % looks.len()], &SPINNING);
            Arc::new(context)
        });
        contexts.collect()
    }

    /// Runs `body` as every rank, each on a thread of its own, and returns what they return.
    pub fn run<R: Send>(&self, body: impl Fn(Rank) -> R + Sync) -> Vec<R> {
        self.run_on(self.contexts(), body)
    }

    /// Like `run`, on contexts that may have been used before.
    pub fn run_on<R: Send>(&self, contexts: Vec<Arc<Context>>, body: impl Fn(Rank) -> R + Sync) -> Vec<R> {
        let layout = self.layout(CommRank(0));
        let switches: Vec<_> = (0..layout.leaders()).map(|_| Arc::new(Switch::new(&layout))).collect();
        let body = &body;
        std::thread::scope(|scope| {
            let start = |(me, context): (usize, Arc<Context>)| {
                let layout = context.layout();
                let index = layout.leader_index(layout.my_node(), context.rank()).filter(|_| layout.nodes() > 1);
                let switch = index.map(|index| Arc::clone(&switches[index]));
                scope.spawn(move || body(Rank { me: CommRank(me as u32), context, switch }))
            };
            let threads: Vec<_> = contexts.into_iter().enumerate().map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("a rank panicked")).collect()
        })
    }
}
