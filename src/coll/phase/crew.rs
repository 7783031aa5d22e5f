//! How the ranks of a node share the work of a reduction: each combines its part of the operands (tiled reduction of Li
//! et al. 2014, section 2.4, in the forms that its figure 16 compares).

use super::Local;
use super::flat::{are_same_memory, copy_unless_same};
use crate::coll::part;
use crate::fabric::{Fabric, Line, Place, Room, Span};
use crate::topo::Levels;
use crate::types::{Bytes, NodeRank, OperandOrder, Ticket};
use std::ops::Range;

/// A form of tiled reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Rank k combines part k of all operands in rank order. All ranks begin at the slot of rank 0.
    Naive,
    /// Rank k begins at its own operand and goes round, so that no slot is read by all ranks at once (Mamidala et al.).
    Cyclic,
    /// In each group of the outermost level rank k combines part k of the group's operands. A binary tree then combines
    /// each part over the groups.
    Hierarchical,
}

/// Which rank combines which part on one node: groups of positions, each with one worker per part.
#[derive(Clone, Copy)]
pub struct Crew<'a> {
    me: NodeRank,
    size: usize,
    is_cyclic: bool,
    /// The hierarchy, and the positions where its outermost groups start, followed by the number of ranks. `None` means
    /// one group, in rank order.
    groups: Option<(&'a Levels, &'a [u32])>,
    /// Workers in each group.
    parts: usize,
}

impl<'a> Crew<'a> {
    /// The crew of a node for that form of tiled reduction.
    pub fn of<F: Fabric>(local: &Local<'a, F>, sharing: Sharing) -> Self {
        let fabric = local.fabric;
        let (size, levels) = (fabric.size(), fabric.levels());
        let permits_positions = local.plan.order == OperandOrder::Any || levels.is_rank_ordered();
        // The smallest group sets the number of parts: a small one would leave ranks of the others without work.
        let is_even = |starts: &&[u32]| lengths(starts).min().unwrap_or(0) * 2 >= lengths(starts).max().unwrap_or(0);
        let groups = match sharing {
            Sharing::Hierarchical if permits_positions => levels.outermost().filter(is_even),
            _ => None,
        };
        let parts = groups.and_then(|starts| lengths(starts).min()).unwrap_or(size);
        let groups = groups.map(|starts| (levels, starts));
        Self { me: fabric.rank(), size, is_cyclic: sharing == Sharing::Cyclic, groups, parts }
    }

    /// The number of parts into which operands are cut.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// The number of groups with workers of their own.
    pub fn groups(&self) -> usize {
        self.groups.map_or(1, |(_, starts)| starts.len() - 1)
    }

    /// The positions of a group.
    fn positions(&self, group: usize) -> Range<usize> {
        self.groups.map_or(0..self.size, |(_, starts)| starts[group] as usize..starts[group + 1] as usize)
    }

    fn rank_at(&self, position: usize) -> NodeRank {
        self.groups.map_or(NodeRank(position as u32), |(levels, _)| levels.rank_at(position as u32))
    }

    /// The rank of `group` that combines part `part` of the group's operands.
    pub fn worker(&self, group: usize, part: usize) -> NodeRank {
        let positions = self.positions(group);
        self.rank_at(positions.start + part * positions.len() / self.parts)
    }

    /// The group of this rank.
    pub fn my_group(&self) -> usize {
        let Some((levels, starts)) = self.groups else { return 0 };
        starts.partition_point(|start| *start <= levels.position_of(self.me)) - 1
    }

    /// The part that this rank combines; `None` where it is no worker.
    pub fn my_part(&self) -> Option<usize> {
        let Some((levels, _)) = self.groups else { return Some(self.me.index()) };
        let group = self.my_group();
        let positions = self.positions(group);
        let place = levels.position_of(self.me) as usize - positions.start;
        let part = (place * self.parts).div_ceil(positions.len());
        (part < self.parts && self.worker(group, part) == self.me).then_some(part)
    }

    /// The ranks of this rank's group in the order in which it combines their operands. Each operand is the left one of
    /// its step, since a user's function replaces the right one by the result.
    fn operands(&self) -> impl Iterator<Item = NodeRank> + Send + use<'a> {
        let crew = *self;
        let positions = crew.positions(crew.my_group());
        let (size, last) = (positions.len(), positions.len() - 1);
        let first = if crew.is_cyclic { crew.me.index() } else { last };
        (0..size).map(move |step| crew.rank_at(positions.start + (first + size - step) % size))
    }
}

/// The lengths of the groups that start there.
fn lengths(starts: &[u32]) -> impl Iterator<Item = usize> {
    starts.windows(2).map(|pair| (pair[1] - pair[0]) as usize)
}

/// The piece of a message that one ticket of a tiled reduction moves.
#[derive(Clone, Copy)]
pub struct Piece {
    /// The ticket.
    pub ticket: Ticket,
    /// Where it begins in the message.
    pub offset: Bytes,
    /// Its length.
    pub length: Bytes,
}

/// Where part `index` of a piece of `n` bytes lies in it.
fn range_of<F: Fabric>(local: &Local<'_, F>, crew: &Crew<'_>, index: usize, n: Bytes) -> Range<usize> {
    part(n, local.plan.granule, NodeRank(index as u32), crew.parts)
}

/// Copies this rank's operand at `from` into its cell, except for the part that this rank combines itself, and
/// publishes it. `room` says whether the cell is passed.
pub async fn publish_operand<F: Fabric>(local: &Local<'_, F>, crew: &Crew<'_>, piece: Piece, from: Span, room: Room) {
    let fabric = local.fabric;
    let Piece { ticket, offset, length: n } = piece;
    let (cell, from) = (Place::Cell { rank: fabric.rank(), line: Line::Up, ticket }.start(), from.plus(offset));
    let own = crew.my_part().map_or(0..0, |part| range_of(local, crew, part, n));
    fabric.claim(ticket, room).await;
    for range in [0..own.start, own.end..n.0] {
        if !range.is_empty() {
            let at = Bytes(range.start);
            fabric.copy(cell.plus(at), from.plus(at), Bytes(range.len())).await;
        }
    }
    fabric.publish(Line::Up, ticket).await;
}

/// Combines this rank's part of the operands and publishes it in its cell. If this rank gets the result it also leaves
/// the part at `to`. In the first group the part is the result.
///
/// The part is combined in that buffer where possible. A loop that combines has to fetch the lines that it overwrites,
/// and those of cells are with peers. A copy to a cell need not fetch them.
pub async fn combine_part<F: Fabric>(
    local: &Local<'_, F>,
    crew: &Crew<'_>,
    piece: Piece,
    from: Span,
    to: Option<Span>,
) {
    let fabric = local.fabric;
    let (me, Piece { ticket, offset, length: n }) = (fabric.rank(), piece);
    let Some(part) = crew.my_part() else { return };
    let own = range_of(local, crew, part, n);
    let (at, length) = (Bytes(own.start), Bytes(own.len()));
    if length > Bytes::ZERO {
        let cell = |rank, line| Place::Cell { rank, line, ticket }.at(at);
        let mine = cell(me, Line::Down);
        // This rank's own operand comes from its buffer: nobody else needs this part of it.
        let operand = |rank| if rank == me { from.plus(offset + at) } else { cell(rank, Line::Up) };
        // In place the first step overwrites this rank's operand, unless the operand takes part in it.
        let is_in_first_step = crew.operands().take(2).any(|rank| rank == me);
        let (result, copied) = match to.map(|to| to.plus(offset + at)) {
            Some(to) if is_in_first_step || !are_same_memory(fabric, to, operand(me)) => (to, Some(mine)),
            to => (mine, to),
        };
        let mut right = None;
        for rank in crew.operands() {
            if rank != me {
                fabric.wait(rank, Line::Up, ticket).await;
            }
            match right {
                None => right = Some(operand(rank)),
                Some(before) => {
                    fabric.reduce(result, operand(rank), before, length).await;
                    right = Some(result);
                }
            }
        }
        if right == Some(operand(me)) {
            copy_unless_same(fabric, result, operand(me), length).await;
        }
        // Over the groups, nearest neighbours first.
        let (group, groups) = (crew.my_group(), crew.groups());
        let distances = std::iter::successors(Some(1), |distance| Some(distance * 2));
        let has_child = |distance: &usize| group.is_multiple_of(distance * 2) && *distance < groups;
        for distance in distances.take_while(has_child).filter(|distance| group + distance < groups) {
            let child = crew.worker(group + distance, part);
            fabric.wait(child, Line::Down, ticket).await;
            fabric.reduce(result, result, cell(child, Line::Down), length).await;
        }
        if let Some(copied) = copied {
            fabric.copy(copied, result, length).await;
        }
    }
    fabric.publish(Line::Down, ticket).await;
}

/// Copies the combined parts to `to`, from this rank's own place in their order on, except for the part that
/// [`combine_part`] left there.
pub async fn collect_parts<F: Fabric>(local: &Local<'_, F>, crew: &Crew<'_>, piece: Piece, to: Span) {
    collect_from(local, crew, 0, piece, to).await;
}

/// Copies the combined parts of one group's workers to `to`. Workers of the first group skip their own part: it is
/// there.
async fn collect_from<F: Fabric>(local: &Local<'_, F>, crew: &Crew<'_>, group: usize, piece: Piece, to: Span) {
    let fabric = local.fabric;
    let Piece { ticket, offset, length } = piece;
    let first = crew.my_part().unwrap_or(fabric.rank().index());
    for index in (first..first + crew.parts).map(|index| index % crew.parts) {
        let (range, worker) = (range_of(local, crew, index, length), crew.worker(group, index));
        let is_mine = worker == fabric.rank();
        if range.is_empty() || is_mine && group == 0 {
            continue;
        }
        if !is_mine {
            fabric.wait(worker, Line::Down, ticket).await;
        }
        let at = Bytes(range.start);
        let cell = Place::Cell { rank: worker, line: Line::Down, ticket }.at(at);
        fabric.copy(to.plus(offset + at), cell, Bytes(range.len())).await;
    }
}

/// Copies all combined parts to `to` in two stages. In each group but the first the workers copy their parts from the
/// workers of the first group, and all ranks of the group copy from them.
pub async fn collect_in_stages<F: Fabric>(local: &mut Local<'_, F>, crew: &Crew<'_>, piece: Piece, to: Span) {
    let fabric = local.fabric;
    let second = Piece { ticket: local.tickets.draw(), ..piece };
    let group = crew.my_group();
    if group == 0 {
        collect_from(local, crew, 0, piece, to).await;
    } else {
        if let Some(part) = crew.my_part() {
            let range = range_of(local, crew, part, piece.length);
            let (at, source) = (Bytes(range.start), crew.worker(0, part));
            fabric.claim(second.ticket, Room::Cell).await;
            if !range.is_empty() {
                fabric.wait(source, Line::Down, piece.ticket).await;
                let cell = |rank, piece: Piece| Place::Cell { rank, line: Line::Down, ticket: piece.ticket }.at(at);
                fabric.copy(cell(fabric.rank(), second), cell(source, piece), Bytes(range.len())).await;
            }
            fabric.publish(Line::Down, second.ticket).await;
        }
        collect_from(local, crew, group, second, to).await;
    }
    fabric.release(second.ticket).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crew(levels: &Levels, parts: usize) -> Crew<'_> {
        let starts = levels.outermost().expect("groups");
        Crew { me: NodeRank(0), size: levels.size(), is_cyclic: false, groups: Some((levels, starts)), parts }
    }

    #[test]
    fn every_part_has_one_worker_per_group() {
        let paths: Vec<Vec<u32>> = (0..11).map(|rank| vec![rank / 6]).collect();
        let levels = Levels::from_paths(&paths, NodeRank(0));
        let crew = crew(&levels, 5);
        for rank in 0..11 {
            let mine = Crew { me: NodeRank(rank), ..crew };
            assert_eq!(mine.my_group(), rank as usize / 6);
            let works = |part: &usize| crew.worker(mine.my_group(), *part) == NodeRank(rank);
            assert_eq!(mine.my_part(), (0..5).find(works));
        }
    }
}
