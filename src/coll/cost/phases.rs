//! The phases of a node that have a root.

use super::{Node, Phase, Time, Way, cut};
use crate::coll::Knob;
use crate::coll::knobs::PUSH;
use crate::coll::phase::tiled::train_of;
use crate::model::{Edge, Outline, Scene, SingleCopy, Work, in_cell};
use crate::sync::FlagLine;
use crate::types::Bytes;

/// Waits of a Scatter whose root cannot leave before all others have had their turns: its blocks do not fit its slots,
/// or the others copy them out of its own memory. No rank runs ahead meanwhile, so this is more than the two waits that
/// single copies have in succession. Measured on 4, 5 and 8 ranks of 2 cores (docs/PERFORMANCE.md, "Tried").
const ROOT_WAITS: f64 = 12.0;

impl Node<'_> {
    /// The operands of all ranks are combined at the root.
    pub(super) fn reduce(&self, total: f64) -> f64 {
        if matches!(self.way, Way::Tiled | Way::Hierarchical) {
            return self.reduce_parts(total);
        }
        let (pieces, n) = self.rooted(total, self.piece());
        let phase = self.climb(|_| (n, self.combining(n)), self.rates.write(n), self.rates.returns(n));
        self.elapsed(self.with_lines_back(self.repeated(phase, pieces), n, pieces))
    }

    /// In a Reduce only the root has to wait. The others leave once they have passed on their operands, unless the
    /// algorithm makes them wait too. Where ranks share cores such a wait lasts while other ranks of the core work
    /// between calls; each of them at least writes its operand. That was not found to matter for operands beyond a
    /// core's caches (docs/PERFORMANCE.md, "Tried").
    pub(super) fn held_up(&self, total: f64) -> f64 {
        let Scene { ranks_per_core, ref machine, .. } = *self.scene;
        if !self.scene.shares_cores() {
            return 0.0;
        }
        let waits = match self.way {
            Way::Tiled | Way::Hierarchical => 1.0,
            _ => self.up.depth as f64 - 1.0,
        };
        waits.max(0.0) * ranks_per_core * self.rates.write(total.min(machine.far.beyond / ranks_per_core))
    }

    /// A message of the root goes to all ranks.
    pub(super) fn bcast(&self, total: f64) -> f64 {
        let (pieces, n) = self.rooted(total, self.piece());
        if self.scene.local_ranks == 1 {
            return 0.0;
        }
        let buffers = self.plan.knobs.set(Knob::Buffers).filter(|buffers| f64::from(*buffers) < pieces);
        let Some(buffers) = buffers else {
            let phase = self.descend(self.rates.write(n), |_| n, n);
            let time = self.repeated(phase, pieces);
            if let Some((cells, train)) = self.trains(total) {
                // The first tile is half as long as the others.
                let path = time.path - self.rates.write(n) / 2.0;
                return self.elapsed(self.with_lines_back(Time { path, ..time }, train, cells));
            }
            return self.elapsed(self.with_lines_back(time, n, pieces));
        };
        // Before the root writes lines that a peer has just read, it waits until it sees the peer's release, and the
        // lines have to come back. So the root waits as often as its readers do. With one buffer nothing overlaps.
        let rewritten = self.rates.write(n) + self.scene.take(0, n, 1, Work::Copy(0.0)) + self.scene.line(0, 1);
        let phase = self.descend(rewritten, |_| n, n);
        let time = self.repeated(phase, pieces);
        let path = if buffers > 1 { time.path } else { pieces * phase.whole };
        self.elapsed(Time { path, waits: time.waits + pieces, ..time })
    }

    /// The number of cells that the tiles of a broadcast share, and the bytes in each; `None` where tiles do not share
    /// cells.
    fn trains(&self, total: f64) -> Option<(f64, f64)> {
        let Scene { local_ranks, slots, cell, .. } = *self.scene;
        let train = match self.way {
            Way::Tiled | Way::Hierarchical => train_of(self.plan, Bytes(total as usize), local_ranks, slots, cell),
            _ => None,
        };
        train.map(|train| cut(total, train))
    }

    /// A block of each rank goes to the root.
    pub(super) fn gather(&self, block: f64) -> f64 {
        let most = if self.way == Way::Tree { self.cell().0 / self.scene.local_ranks } else { self.piece().0 };
        let (pieces, n) = cut(block, Bytes(most));
        let own = self.rates.write(n);
        let phase = self.climb(|edge| (covered(edge, n), self.copying(covered(edge, n))), own, own);
        self.elapsed(self.repeated(phase, pieces))
    }

    /// A block of the root goes to each rank.
    pub(super) fn scatter(&self, block: f64) -> f64 {
        if self.way == Way::Tiled {
            let (pieces, n) = cut(block, self.tile());
            // The root lays out a tile for each receiver. The last receiver reads after that, while the root copies its
            // own tile.
            let (others, own) = (self.ranks() - 1.0, self.rates.copy(n));
            let written = others * (self.step() + self.rates.write(n));
            let taken = self.step() + self.scene.line(0, 1) + self.scene.take(0, n, 1, self.copying(n));
            let path = (pieces - 1.0) * (written + own).max(taken) + written + taken.max(own);
            let work = pieces * (written + own + others * taken);
            // Each receiver waits for a ticket of its own.
            return self.elapsed(Time { path, work, waits: self.waits_of_root(pieces * others) });
        }
        if self.way == Way::Single {
            return self.fetch(block);
        }
        let (pieces, n) = self.rooted(block, Bytes(self.cell().0 / self.scene.local_ranks));
        let layout = (self.ranks() - 1.0) * self.rates.write(n);
        // Short blocks of many ranks together do not fit a flag's line.
        let blocks = if self.way == Way::Flat { self.ranks() - 1.0 } else { self.ranks() };
        let is_in_cell = n * blocks > FlagLine::PAYLOAD as f64;
        let taken = |edge: &Edge| if is_in_cell { in_cell(covered(edge, n)) } else { covered(edge, n) };
        let phase = self.descend(layout, taken, n);
        // The root copies its own block while the others read.
        let (own, busiest) = (self.rates.copy(n), phase.busiest.max(layout + self.rates.copy(n)));
        let time = self.repeated(Phase { busiest, work: phase.work + own, ..phase }, pieces);
        self.elapsed(Time { waits: time.waits.max(self.waits_of_root(pieces)), ..time })
    }

    /// Waits of a Scatter whose root draws `tickets` tickets. The root continues until all of its slots are full.
    fn waits_of_root(&self, tickets: f64) -> f64 {
        let rings = tickets / self.scene.slots as f64;
        if rings > 1.0 { rings.max(ROOT_WAITS) } else { 1.0 }
    }

    /// Each rank fetches its block of the root's memory, all at the same time, while the root copies its own. The root
    /// then reads their answers.
    fn fetch(&self, block: f64) -> f64 {
        let own = self.rates.copy(block);
        if self.scene.local_ranks == 1 {
            return own;
        }
        let SingleCopy { call, per_byte } = self.scene.machine.single_copy;
        // The system looks up a few pages, copies them, and looks up the next: nothing overlaps. From memory its loop
        // is as fast as any.
        let copied = match self.is_from_memory {
            true => own.max((self.scene.machine.copy + per_byte) * block),
            false => own + per_byte * block,
        };
        let (mut longest, mut work, mut answers) = (own, own, 0.0);
        for edge in &self.down.edges {
            let transfer = self.scene.take(edge.level, in_cell(block), edge.sharing, Work::Copy(0.0));
            let taken = call + copied + transfer;
            let all = self.step() + self.scene.line(edge.level, edge.sharing) + taken;
            longest = longest.max(all);
            work += all;
            answers += self.step() + self.scene.line(edge.level, 1);
        }
        self.elapsed(Time { path: longest + answers, work: work + answers, waits: ROOT_WAITS })
    }

    /// A signal of each rank reaches the root.
    pub(super) fn arrive(&self) -> f64 {
        let mut ready = vec![0.0; self.scene.local_ranks];
        for edge in self.up.edges.iter().rev() {
            let line = self.scene.line(edge.level, 1);
            // A rank that pushes has to fetch the line that its parent polls before it can write there.
            let sent = ready[edge.child] + if self.pushes(Knob::Up) { line } else { 0.0 };
            ready[edge.parent] = f64::max(ready[edge.parent], sent) + line + self.step();
        }
        self.signalled(ready[0])
    }

    /// The time of signals along the tree, the longest path of which takes `path`.
    fn signalled(&self, path: f64) -> f64 {
        let lines: f64 = self.up.edges.iter().map(|edge| self.scene.line(edge.level, 1) + self.step()).sum();
        self.elapsed(Time { path, work: lines, waits: self.up.depth as f64 })
    }

    /// Whether signals in that direction are pushed: on lines of the ranks that wait for them.
    fn pushes(&self, direction: Knob) -> bool {
        self.plan.knobs.get(direction) == PUSH
    }

    /// A signal of the root reaches all ranks.
    pub(super) fn depart(&self) -> f64 {
        let mut ready = vec![0.0; self.scene.local_ranks];
        for edge in &self.up.edges {
            if self.pushes(Knob::Down) {
                // The parent signals one child after the other, each on a line of that child.
                ready[edge.parent] += self.scene.line(edge.level, 1);
                ready[edge.child] = ready[edge.parent] + self.scene.line(edge.level, 1) + self.step();
            } else {
                ready[edge.child] = ready[edge.parent] + self.scene.line(edge.level, edge.sharing) + self.step();
            }
        }
        self.signalled(ready.into_iter().fold(0.0, f64::max))
    }

    /// Up the tree: a leaf starts with `leaf`, an inner rank with `inner`. For each child it fetches the bytes and does
    /// the work that `work` returns.
    fn climb(&self, work: impl Fn(&Edge) -> (f64, Work), leaf: f64, inner: f64) -> Phase {
        let Outline { ranks, edges, is_inner, depth } = &*self.up;
        let start = |rank: usize| if is_inner[rank] { inner } else { leaf };
        let mut ready: Vec<f64> = (0..*ranks).map(start).collect();
        let mut load = ready.clone();
        for edge in edges.iter().rev() {
            let (n, work) = work(edge);
            let step = self.step() + self.scene.line(edge.level, 1) + self.scene.take(edge.level, n, 1, work);
            ready[edge.parent] = f64::max(ready[edge.parent], ready[edge.child]) + step;
            load[edge.parent] += step;
        }
        let busiest = load.iter().copied().fold(0.0, f64::max);
        Phase { whole: ready[0], busiest, work: load.iter().sum(), depth: *depth as f64 }
    }

    /// Down the tree: the root starts with a step and with `laid_out`. A child fetches `taken` bytes, passes them on if
    /// it has children, and copies `kept` of them to its buffer.
    fn descend(&self, laid_out: f64, taken: impl Fn(&Edge) -> f64, kept: f64) -> Phase {
        let Outline { ranks, edges, is_inner, depth } = &*self.down;
        let mut ready = vec![0.0; *ranks];
        let root = self.step() + laid_out;
        ready[0] = root;
        let (mut whole, mut busiest, mut work) = (root, root, root);
        for edge in edges {
            let n = taken(edge);
            let signalled = self.step() + self.scene.line(edge.level, edge.sharing);
            let take = |time| signalled + self.scene.take(edge.level, n, edge.sharing, Work::Copy(time));
            // A rank that passes data on copies them to its buffer afterwards, from its own cache.
            let passed = if is_inner[edge.child] { take(self.rates.write(n)) } else { 0.0 };
            let all = if is_inner[edge.child] { passed + self.rates.copy(kept) } else { take(self.rates.copy(kept)) };
            ready[edge.child] = ready[edge.parent] + passed;
            whole = whole.max(ready[edge.parent] + all);
            busiest = busiest.max(all);
            work += all;
        }
        Phase { whole, busiest, work, depth: *depth as f64 }
    }

    /// Each rank combines its part; the root collects all parts.
    fn reduce_parts(&self, total: f64) -> f64 {
        if self.scene.local_ranks == 1 {
            return self.rates.copy(total);
        }
        let (pieces, n) = cut(total, self.reduction_piece());
        let collect = self.collect_at_root(n);
        let collected = Time { path: collect, work: collect, waits: self.turns() };
        // Results are combined in the slots, except for the root's part.
        let stored = self.rates.returns(n / self.parts(n));
        let each = self.all(self.combine_part(n, stored), self.turns()) + self.elapsed(collected);
        // No cell is passed: results are combined in the cells of the operands.
        pieces * each + self.lines_back(n, pieces)
    }

    /// Bytes that one ticket of a tiled reduction moves.
    pub(super) fn reduction_piece(&self) -> Bytes {
        (self.tile() * self.crew().1).min(self.cell())
    }
}

/// Bytes of the blocks of a subtree.
fn covered(edge: &Edge, block: f64) -> f64 {
    edge.covers as f64 * block
}
