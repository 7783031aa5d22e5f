//! The phases of a node in which all ranks do the same work.

use super::{Node, Way, cut};
use crate::coll::Knob;
use crate::model::{Work, ceil_log, in_cell, part_beyond};
use crate::types::Bytes;

/// Up to this many bytes of the operands of all ranks, a flat Allreduce of ranks that share cores takes as long as its
/// formula says. At about this size the operands exceed a first-level cache: each rank reads all of them in turn.
const IN_FIRST_CACHE: f64 = (64 << 10) as f64;

/// How much longer it takes to read operands that are all beyond that size, as a fraction of the time to read them.
/// Chosen so that relays win in the models where they win in measurements: from 24 or 32 KiB on, on 3, 4 and 5 ranks of
/// 2 cores (docs/PERFORMANCE.md, "Tried").
const BEYOND_FIRST_CACHE: f64 = 2.4;

impl Node<'_> {
    /// Turns of a core's ranks until each rank has seen all others. The rank that runs first finds what the last ones
    /// do only in a later turn.
    pub(super) fn turns(&self) -> f64 {
        (0.5 + self.scene.ranks_per_core / 4.0).max(1.0)
    }

    /// The time in which all ranks work for `path` each and wait `waits` times for others. If at least half of the
    /// cores have one rank more than the rest, these cores decide: of 3 ranks on 2 cores two share one. A smaller
    /// fraction is not rounded up, since it may be a quota of processor time.
    pub(super) fn all(&self, path: f64, waits: f64) -> f64 {
        let ranks_per_core = self.scene.ranks_per_core.min(self.ranks());
        path * ranks_per_core.round().max(ranks_per_core) + self.waited(waits)
    }

    /// Every rank signals to every other rank.
    pub(super) fn signal_all(&self) -> f64 {
        self.all(self.read_all(0.0, Work::Copy(0.0)), self.turns())
    }

    /// The time in which every rank reads `n` bytes of every other rank.
    fn read_all(&self, n: f64, work: Work) -> f64 {
        self.read_within(0, self.ranks(), n, work)
    }

    /// The time in which every rank of a group reads `n` bytes of every other. The group's `ranks` ranks part at
    /// `outermost` or further in.
    fn read_within(&self, outermost: usize, ranks: f64, n: f64, work: Work) -> f64 {
        let scene = self.scene;
        let others = (ranks - 1.0).max(1.0);
        scene.each_level().skip(outermost).fold(0.0, |time, level| {
            let peers = scene.peers(level) as f64;
            // The number of ranks outside a group that read from it at a time.
            let readers = (peers * scene.width(level) as f64 / others).max(1.0) as usize;
            time + peers * (scene.line(level, readers) + scene.take(level, n, readers, work))
        })
    }

    /// Allreduce: every rank combines all operands.
    pub(super) fn combine_all(&self, total: f64) -> f64 {
        let (pieces, n) = cut(total, self.cell());
        let beyond = if self.scene.shares_cores() { part_beyond(IN_FIRST_CACHE, n * self.ranks()) } else { 0.0 };
        let late = beyond * BEYOND_FIRST_CACHE * self.read_all(n, self.copying(n));
        let combined = self.read_all(n, self.combining(n)) + late;
        self.all(self.step() + self.rates.write(n) + combined, self.turns()) * pieces
    }

    /// Allreduce: every rank combines its part of all operands in its buffer and collects the parts of the others. It
    /// collects one piece behind, so that one wait serves both. In stages, or without slots for that, it collects the
    /// same piece.
    pub(super) fn combine_parts(&self, total: f64) -> f64 {
        let (pieces, n) = cut(total, self.reduction_piece());
        let stored = self.rates.write(n / self.parts(n));
        let work = self.combine_part(n, stored) + self.collect_parts(n);
        let is_behind = self.scene.slots > 2 && !(self.crew().0 > 1 && self.plan.knobs.get(Knob::Stages) > 1);
        let waits = if is_behind { pieces + 1.0 } else { 2.0 * pieces };
        // A rank that combined its part before others ran needs another turn to fetch theirs (docs/PERFORMANCE.md,
        // "Tried").
        let waits = waits + 1.0 + pieces * self.waits_over_groups();
        self.all(work * pieces, waits * self.turns())
    }

    /// A rank publishes its operand of `n` bytes, except its part, and combines its part of all operands. It takes
    /// `stored` more to have the result in a slot.
    pub(super) fn combine_part(&self, n: f64, stored: f64) -> f64 {
        let (scene, part) = (self.scene, n / self.parts(n));
        let (groups, workers) = self.crew();
        let published = self.step() + self.rates.write(n - part) + stored;
        if groups == 1 {
            return published + self.read_parts(part, self.combining(part));
        }
        let in_group = self.read_within(1, scene.width(0) as f64, in_cell(part), self.combining(part));
        let step = scene.line(0, workers) + scene.take(0, in_cell(part), workers, self.combining(part));
        published + in_group + f64::from(ceil_log(2, groups)) * step
    }

    /// Waits for other groups per piece: to combine the results of other groups, and to collect in a second stage.
    fn waits_over_groups(&self) -> f64 {
        let (groups, _) = self.crew();
        if groups == 1 {
            return 0.0;
        }
        let stages = self.plan.knobs.get(Knob::Stages).clamp(1, 2);
        f64::from(ceil_log(2, groups)) + f64::from(stages - 1)
    }

    /// A rank collects all parts of `n` bytes; with one group, all but its own.
    pub(super) fn collect_parts(&self, n: f64) -> f64 {
        let (parts, others) = (self.parts(n), (self.ranks() - 1.0).max(1.0));
        let part = n / parts;
        let (groups, workers) = self.crew();
        if groups > 1 {
            return self.collect_over_groups(part, parts, (groups - 1) * workers);
        }
        // If there are fewer elements than ranks, some ranks have no part.
        let share = (parts - 1.0).max(1.0) / others;
        self.step() + share * self.read_parts(part, self.copying(part))
    }

    /// Ranks of the other groups read all workers of the first group. With two stages only the workers of their group
    /// do.
    fn collect_over_groups(&self, part: f64, parts: f64, workers_elsewhere: usize) -> f64 {
        let (scene, copy) = (self.scene, self.rates.copy(part));
        let read = |readers: usize| scene.line(0, readers) + scene.take(0, in_cell(part), readers, self.copying(part));
        if self.plan.knobs.get(Knob::Stages) < 2 {
            return self.step() + parts * read(scene.local_ranks - scene.width(0));
        }
        2.0 * self.step()
            + read(workers_elsewhere)
            + copy
            + self.read_within(1, scene.width(0) as f64, in_cell(part), self.copying(part))
    }

    /// The root, which is in the first group, collects all parts of `n` bytes.
    pub(super) fn collect_at_root(&self, n: f64) -> f64 {
        let part = n / self.parts(n);
        let copy = self.rates.copy(part);
        if self.crew().0 == 1 {
            return copy + self.collect_parts(n);
        }
        self.step() + copy + self.read_within(1, self.scene.width(0) as f64, in_cell(part), self.copying(part))
    }

    /// The number of groups with workers of their own, and of workers per group; see
    /// [`phase::crew`](crate::coll::phase).
    pub(super) fn crew(&self) -> (usize, usize) {
        let (ranks, one_group) = (self.scene.local_ranks, (1, self.scene.local_ranks));
        if self.way != Way::Hierarchical || self.scene.levels.len() < 2 {
            return one_group;
        }
        let width = self.scene.width(0);
        let groups = ranks.div_ceil(width);
        let smallest = ranks - (groups - 1) * width;
        if groups > 1 && smallest * 2 >= width { (groups, smallest) } else { one_group }
    }

    /// The number of ranks of a group that have a part of `n` bytes.
    pub(super) fn parts(&self, n: f64) -> f64 {
        (n / self.plan.granule.0.max(1) as f64).clamp(1.0, self.crew().1 as f64)
    }

    /// The same as `read_all` for parts, which are in cells whatever their length.
    fn read_parts(&self, part: f64, work: Work) -> f64 {
        self.read_all(in_cell(part), work)
    }

    /// Allgather: every rank reads the block of every other rank.
    pub(super) fn gather_all(&self, block: f64) -> f64 {
        let (pieces, n) = cut(block, if self.way == Way::Tiled { self.tile() } else { self.cell() });
        let (own, others) = (self.rates.write(n) + self.rates.copy(n), self.read_all(n, self.copying(n)));
        self.all(self.step() + own + others, self.turns()) * pieces
    }

    /// Allreduce by dissemination: the steps of the first rank, which is a head.
    pub(super) fn disseminate(&self, total: f64) -> f64 {
        let scene = self.scene;
        let (pieces, n) = cut(total, self.cell());
        let levels = scene.positions();
        let exchange = levels.exchange(self.radix());
        let take = |rank: &crate::types::NodeRank| {
            let level = scene.parting(0, rank.0);
            let readers = scene.width(level);
            scene.line(level, readers) + scene.take(level, n, readers, self.combining(n))
        };
        let mut time = self.step() + self.rates.write(n);
        let mut waits = exchange.steps.len() as f64 * self.turns_of_step();
        if exchange.has_runs() {
            // The longest run decides. Its head combines the operands of its members and hands them the result.
            let innermost = scene.each_level().last().unwrap_or(0);
            let member = |work| scene.line(innermost, 1) + scene.take(innermost, n, 1, work);
            let members = exchange.run.len().max(2) as f64 - 1.0;
            let there = members * member(self.combining(n));
            time += 2.0 * self.step() + there + self.rates.write(n) + member(self.copying(n));
            waits += 2.0;
        }
        for (index, step) in exchange.steps.iter().enumerate() {
            // The result of the last step goes to the buffer, the results of the others to the next slot.
            let is_last = index + 1 == exchange.steps.len();
            time += if is_last { 0.0 } else { self.step() + self.rates.write(n) - self.rates.copy(n) };
            time += step.iter().filter(|rank| rank.0 != 0).map(take).sum::<f64>();
        }
        self.all(time * self.behind_others(), waits) * pieces
    }

    /// Barrier by dissemination: in each step a rank fetches a line of each partner.
    pub(super) fn disseminate_signals(&self) -> f64 {
        let (size, radix) = (self.scene.local_ranks, self.radix() as usize);
        let (mut time, mut waits, mut distance) = (0.0, 0.0, 1);
        while distance < size {
            time += self.step();
            waits += self.turns_of_step();
            for times in (1..radix).take_while(|times| times * distance < size) {
                // A partner that many positions away: for some rank it is beyond the outermost border, and all wait for
                // that rank.
                time += self.scene.line(0, times * distance);
            }
            distance = distance.saturating_mul(radix);
        }
        self.all(time, waits)
    }

    /// Allgather by dissemination: the number of blocks that a rank has grows by the radix in each step.
    pub(super) fn disseminate_blocks(&self, block: f64) -> f64 {
        let scene = self.scene;
        let (size, radix) = (scene.local_ranks, self.radix() as usize);
        let (pieces, n) = cut(block, Bytes(self.cell().0 / size));
        // The distance counts as in `disseminate_signals`. At the end ranks copy one block at a time.
        let take = |distance: usize, bytes: f64| {
            let readers = distance.min(scene.width(0));
            scene.line(0, readers) + scene.take(0, bytes, readers, self.copying(bytes))
        };
        let (mut time, mut waits, mut held) = (self.step() + self.rates.write(n), self.turns_of_step(), 1);
        while held * radix < size {
            let bytes = n * held as f64;
            time +=
                self.step() + self.rates.write(bytes) + (1..radix).map(|times| take(times * held, bytes)).sum::<f64>();
            held *= radix;
            waits += self.turns_of_step();
        }
        time += self.step() + self.rates.copy(n * held as f64);
        let mut distance = held;
        while distance < size {
            let blocks = held.min(size - distance);
            time += take(distance, n * blocks as f64) + self.rates.copy(0.0) * (blocks - 1) as f64;
            distance += held;
        }
        self.all(time, waits) * pieces + self.all(self.rates.copy(block), 0.0)
    }

    /// By which factor an Allreduce by dissemination takes longer where ranks share cores. Partners reach their step
    /// only after another rank of their core has run, and the models have no wait for that. The factor 1.5 is less than
    /// measured. It suffices for other algorithms to be chosen where they are faster (docs/PERFORMANCE.md, "Tried").
    /// Allgathers were not measured.
    fn behind_others(&self) -> f64 {
        if self.scene.shares_cores() { 1.5 } else { 1.0 }
    }

    /// Turns of a step: one with one partner, as in `turns` with several.
    fn turns_of_step(&self) -> f64 {
        if self.radix() > 2 { self.turns() } else { 1.0 }
    }

    fn radix(&self) -> u32 {
        self.plan.knobs.radix().max(2)
    }
}
