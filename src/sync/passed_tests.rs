//! Which cells are given for which pieces.

use super::*;
use crate::types::Epoch;

fn ticket(step: u64) -> Ticket {
    Ticket::new(Epoch(3), step)
}

const SHORT: Bytes = Bytes(4096);
const L2: Bytes = Bytes(2 << 20);

fn all(passed: &Passed) -> Vec<u32> {
    let give = |next: Next| {
        passed.give(next, ticket(1));
        next.cell
    };
    std::iter::from_fn(|| passed.next(SHORT).map(give)).collect()
}

/// The peer has written `reach` bytes into a cell, and this rank has read them and released the ticket.
fn come_back(passed: &Passed, cell: u32, reach: Bytes) {
    passed.await_release(ticket(1), cell, reach);
    passed.release(ticket(1));
}

/// Gives `pieces` pieces of that length. The cell of each comes back once `back_after` pieces were given from that one
/// on. -> the cells that were given
fn given(cells: u32, length: usize, back_after: usize, pieces: usize) -> Vec<u32> {
    let passed = Passed::new(cells as usize, L2);
    (0..cells).for_each(|cell| passed.take(cell));
    let mut given = Vec::new();
    for piece in 0..pieces {
        let next = passed.next(Bytes(length)).expect("a cell");
        passed.give(next, ticket(1));
        given.push(next.cell);
        if piece + 1 >= back_after {
            come_back(&passed, given[piece + 1 - back_after], Bytes(length));
        }
    }
    given
}

#[test]
fn a_cell_of_long_pieces_is_given_again_when_it_has_rested() {
    const KIB: usize = 1024;
    for (length, back_after, cells) in
        [(32 * KIB, 1, 7), (64 * KIB, 1, 4), (128 * KIB, 1, 3), (32 * KIB, 4, 7), (16 * KIB, 1, 13)]
    {
        let given = given(16, length, back_after, 200);
        let late = &given[100..];
        let used: std::collections::HashSet<_> = late.iter().collect();
        assert_eq!(used.len(), cells, "{length} bytes: {late:?}");
        assert!((cells..100).all(|at| late[at] == late[at - cells]), "in turn: {late:?}");
    }
    assert!(given(16, 8 * KIB, 1, 10).iter().all(|cell| *cell == 15), "short ones stay");
}

#[test]
fn a_smaller_cache_means_less_rest() {
    let passed = Passed::new(16, Bytes(256 << 10));
    (0..16).for_each(|cell| passed.take(cell));
    let cells = [(); 6].map(|()| {
        let next = passed.next(Bytes(16 << 10)).expect("a cell");
        passed.give(next, ticket(1));
        come_back(&passed, next.cell, Bytes(16 << 10));
        next.cell
    });
    assert_eq!(cells, [15, 14, 13, 15, 14, 13]);
}

#[test]
fn where_no_cell_has_rested_the_one_that_has_longest_is_given() {
    assert_eq!(given(2, 32 << 10, 1, 6)[2..], [1, 0, 1, 0]);
}

/// Both ranks of a pair send pieces of these lengths to each other. -> how many bytes were slow to write, in the second
/// half of the calls
fn misplaced(lengths: &[usize], calls: usize) -> usize {
    let pair = Pair::with(16);
    let (mut slow, mut cells) = (0, Vec::new());
    for call in 0..calls {
        let reach = Bytes(lengths[call % lengths.len()]);
        cells.clear();
        for rank in &pair.ranks {
            let next = rank.next(reach).expect("a cell");
            let [own, peers] = {
                let lengths = &rank.cells[next.cell as usize].lengths;
                [&lengths.own, &lengths.peers].map(|length| length.get())
            };
            slow += if call < calls / 2 { 0 } else { reach.0.min(own).saturating_sub(peers) };
            rank.give(next, ticket(call as u64));
            cells.push(next.cell);
        }
        for (rank, cell) in pair.ranks.iter().zip(cells.iter().rev()) {
            rank.await_release(ticket(call as u64), *cell, reach);
            rank.release(ticket(call as u64));
        }
    }
    slow
}

#[test]
fn pieces_of_several_lengths_are_written_where_lines_are_near() {
    const KIB: usize = 1024;
    let programs: [&[usize]; 5] = [
        &[64 * KIB],
        &[64 * KIB, 8 * KIB],
        &[8 * KIB, 2 * KIB, 2 * KIB],
        &[64 * KIB, 2 * KIB, 40 * KIB],
        &[2 * KIB, 64 * KIB, 64 * KIB, 8 * KIB, 2 * KIB],
    ];
    for lengths in programs {
        assert_eq!(misplaced(lengths, 200), 0, "{lengths:?}");
    }
}

#[test]
fn a_cell_is_slow_where_this_rank_wrote_last_and_the_peer_has_read() {
    let lengths = Lengths::default();
    let misplaced = |reaches: [usize; 3]| reaches.map(|reach| lengths.misplaced(Bytes(reach)));
    assert_eq!(misplaced([8000, 32_000, 64_000]), [0; 3], "new");
    lengths.write(Bytes(64_000));
    lengths.read(Bytes(8000));
    assert_eq!(misplaced([8500, 32_000, 64_000]), [0, 24_000, 56_000], "the peer wrote an eighth of it since");
    lengths.write(Bytes(32_000));
    lengths.read(Bytes(64_000));
    assert_eq!(
        misplaced([8000, 32_000, 64_000]),
        [3500, 2000, 0],
        "the peer wrote all of it: what is left would be slow for it"
    );
}

#[test]
fn what_came_last_is_given_first_and_given_once() {
    let passed = Passed::new(4, L2);
    assert_eq!(passed.next(SHORT), None);
    [2, 3].into_iter().for_each(|cell| passed.take(cell));
    assert_eq!(all(&passed), [3, 2]);
    assert_eq!(passed.next(SHORT), None);
}

#[test]
fn what_was_read_is_owned_with_the_release_of_its_ticket() {
    let passed = Passed::new(4, L2);
    passed.take(0);
    passed.await_release(ticket(1), 2, SHORT);
    passed.await_release(ticket(1), 2, SHORT);
    passed.await_release(ticket(2), 3, SHORT);
    passed.release(ticket(0));
    assert_eq!(passed.next(SHORT).map(|next| next.cell), Some(0));
    passed.release(ticket(1));
    assert_eq!(all(&passed), [2, 0]);
    passed.release(Ticket::last_of(Epoch(3)));
    assert_eq!(all(&passed), [3]);
}

/// Two ranks with cells to pass, and their calls.
struct Pair {
    ranks: [Passed; 2],
    call: u64,
}

impl Pair {
    /// With so many cells each.
    fn with(cells: u32) -> Self {
        let ranks = [(); 2].map(|()| Passed::new(2 * cells as usize, L2));
        (0..2 * cells).for_each(|cell| ranks[(cell / cells) as usize].take(cell));
        Self { ranks, call: 0 }
    }

    fn give(&self, rank: usize) -> u32 {
        let next = self.ranks[rank].next(SHORT).expect("a cell");
        self.ranks[rank].give(next, ticket(self.call));
        next.cell
    }

    fn get(&self, rank: usize, cell: u32) {
        self.ranks[rank].await_release(ticket(self.call), cell, SHORT);
        self.ranks[rank].release(ticket(self.call));
    }

    /// Both ranks write. -> the cell that each expects the other one to write, and the cell that the other one wrote
    fn exchange(&mut self) -> [[Option<u32>; 2]; 2] {
        self.call += 1;
        let cells = [0, 1].map(|rank| self.give(rank));
        let expected = self.ranks.each_ref().map(|rank| rank.likely(ticket(self.call)));
        (0..2).for_each(|rank| self.get(rank, cells[1 - rank]));
        [expected, [Some(cells[1]), Some(cells[0])]]
    }

    /// The root writes. -> the cell that the other rank expects, and the one that it gets
    fn send(&mut self, root: usize) -> [Option<u32>; 2] {
        self.call += 1;
        let expected = self.ranks[1 - root].likely(ticket(self.call));
        let cell = self.give(root);
        self.get(1 - root, cell);
        [expected, Some(cell)]
    }
}

#[test]
fn in_exchanges_the_peers_cell_is_known_from_the_second_one_on() {
    let mut pair = Pair::with(4);
    let [expected, _] = pair.exchange();
    assert_eq!(expected, [None; 2], "nothing was given before");
    for _ in 0..5 {
        let [expected, cells] = pair.exchange();
        assert_eq!(expected, cells);
    }
}

#[test]
fn with_roots_in_turn_the_reader_knows_the_cell() {
    let mut pair = Pair::with(4);
    pair.send(0);
    for call in 1..6 {
        let [expected, cell] = pair.send(call % 2);
        assert_eq!(expected, cell);
    }
}

#[test]
fn the_peers_cell_is_known_again_soon_after_other_pieces() {
    let mut pair = Pair::with(4);
    (0..3).for_each(|_| _ = pair.exchange());
    (0..2).for_each(|_| _ = pair.send(0));
    pair.exchange();
    pair.exchange();
    let [expected, cells] = pair.exchange();
    assert_eq!(expected, cells);
}

#[test]
fn other_cells_matter_where_these_do_not_suffice() {
    let passed = Passed::new(2, L2);
    passed.miss();
    assert!(!passed.are_missed());
    (0..100).for_each(|_| passed.miss());
    assert!(passed.are_missed() && Passed::new(0, L2).are_missed());
}

#[test]
fn what_was_read_in_a_failed_call_is_nobodys() {
    let passed = Passed::new(2, L2);
    passed.await_release(ticket(1), 1, SHORT);
    passed.forget();
    passed.release(Ticket::last_of(Epoch(4)));
    assert_eq!(passed.next(SHORT), None);
}
