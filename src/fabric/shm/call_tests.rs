//! Copies between slots and data with holes; cells that are passed.

use super::super::context::tests::{two_ranks, two_ranks_with};
use super::super::drive::tests::WAITING;
use super::*;
use crate::coll::Knobs;
use crate::types::{CommRank, Epoch, OperandOrder, SlotStores};

const STORES: [SlotStores; 3] = [SlotStores::Auto, SlotStores::Cached, SlotStores::Streaming];

fn plan(epoch: u64) -> Plan {
    Plan {
        epoch: Epoch(epoch),
        bytes: Bytes(64),
        granule: Bytes(1),
        root: CommRank(0),
        order: OperandOrder::Any,
        knobs: Knobs::UNSET,
        scratch: Bytes::ZERO,
        reach: Bytes(64),
    }
}

/// Memory of which every third byte is data.
struct Sparse {
    memory: *mut u8,
    /// What `fills_lines` returns.
    fills_lines: bool,
    /// Where the last `read` put its bytes.
    read_to: Private<*mut u8>,
}

impl Sparse {
    fn new(memory: &mut [u8], fills_lines: bool) -> Self {
        Self { memory: memory.as_mut_ptr(), fills_lines, read_to: Private::ZERO }
    }
}

// SAFETY: the memory is that of one test.
unsafe impl Sync for Sparse {}

impl PackedBuffer for Sparse {
    unsafe fn read(&self, offset: usize, to: *mut u8, n: usize) {
        self.read_to.set(to);
        // SAFETY: the caller's promise.
        (offset..offset + n).for_each(|at| unsafe { *to.add(at - offset) = *self.memory.add(3 * at) });
    }

    unsafe fn write(&self, offset: usize, from: *const u8, n: usize) {
        // SAFETY: the caller's promise.
        (offset..offset + n).for_each(|at| unsafe { *self.memory.add(3 * at) = *from.add(at - offset) });
    }

    fn fills_lines(&self) -> bool {
        self.fills_lines
    }
}

#[test]
fn data_with_holes_are_copied_whole_however_many_pieces_they_take() {
    const PIECE: usize = 16 << 10;
    let [context, _] = two_ranks();
    let call = Entered::new(Collective::Bcast, 0, &plan(1));
    for (n, stores) in
        [1, 512, 513, PIECE, PIECE + 1, 3 * PIECE - 5].into_iter().flat_map(|n| STORES.map(|way| (n, way)))
    {
        context.set_stores(stores);
        let (offset, room) = (7, 3 * (n + 7));
        let mut from: Vec<u8> = (0..room).map(|at| (at / 3 * 31 % 251) as u8).collect();
        let expected: Vec<u8> = (offset..offset + n).map(|at| (at * 31 % 251) as u8).collect();
        let (from, mut slot, mut sparse) = (Sparse::new(&mut from, false), vec![0_u8; n], vec![0_u8; room]);
        let to = Sparse::new(&mut sparse, false);
        // SAFETY: all have `n` bytes, either in a row or, from `offset` on, three apart.
        unsafe {
            let packed = Location::Packed(&from, offset);
            copy(
                &context,
                &call,
                [Destination::Slot, Destination::Private],
                Location::Memory(slot.as_mut_ptr()),
                packed,
                n,
            );
            let packed = Location::Packed(&from, offset);
            copy(&context, &call, [Destination::Private; 2], Location::Packed(&to, offset), packed, n);
        }
        assert_eq!(slot, expected);
        let written: Vec<u8> = sparse[3 * offset..].iter().step_by(3).copied().collect();
        assert_eq!(written[..n], expected);
    }
}

/// Data with holes go straight to a passed cell where their blocks are long, else by way of this rank's own memory.
#[test]
fn data_with_holes_come_to_cells_whole() {
    const N: usize = 3000;
    let contexts @ [owner, _] = &two_ranks_with(Bytes(4096));
    contexts.iter().for_each(|context| context.reserve_cells(Bytes(4096)).expect("memory"));
    let mut from: Vec<u8> = (0..3 * N).map(|at| (at / 3 * 31 % 251) as u8).collect();
    let expected: Vec<u8> = (0..N).map(|at| (at * 31 % 251) as u8).collect();
    for (epoch, (room, fills_lines)) in
        [(Room::Passed, false), (Room::Passed, true), (Room::Cell, false), (Room::Cell, true)].into_iter().enumerate()
    {
        let plan = Plan { bytes: Bytes(4096), reach: Bytes(4096), ..plan(epoch as u64 + 1) };
        let call = Entered::new(Collective::Bcast, 0, &plan);
        let ticket = Ticket::new(plan.epoch, 0);
        assert!(owner.take(ticket, room, call.reach, call.descriptor));
        let cell = owner.cell(NodeRank(0), Line::Down, ticket, call.reach);
        assert_eq!(owner.is_passed(cell), room == Room::Passed);
        let sparse = Sparse::new(&mut from, fills_lines);
        // SAFETY: the cell is longer than `N` bytes; the source has `N` bytes, three apart.
        let found = unsafe {
            let places = [Destination::Slot, Destination::Private];
            copy(owner, &call, places, Location::Memory(cell), Location::Packed(&sparse, 0), N);
            std::slice::from_raw_parts(cell, N)
        };
        assert!(found == expected, "{room:?}, {fills_lines}");
        let is_straight = sparse.read_to.get() == cell;
        assert_eq!(is_straight, room == Room::Passed && fills_lines, "{room:?}, {fills_lines}");
        contexts.iter().for_each(|context| Words::release(context, Ticket::last_of(plan.epoch)));
    }
}

/// Rank 0 passes a cell to rank 1, which fails that call if `fails`. Returns where rank 1 writes in the next call, and
/// where it has read.
fn written_after_reading(fails: bool) -> [usize; 2] {
    let contexts @ [owner, reader] = &two_ranks();
    contexts.iter().for_each(|context| context.reserve_cells(Bytes(64)).expect("memory"));
    let [first, second] = [1, 2].map(|epoch| Entered::new(Collective::Bcast, 0, &plan(epoch)));
    let [sent, next] = [1, 2].map(|epoch| Ticket::new(Epoch(epoch), 0));
    assert!(owner.take(sent, Room::Passed, first.reach, first.descriptor));
    owner.publish(Line::Down, sent, first.descriptor);
    let flag = reader.line(NodeRank(0), Line::Down, sent);
    assert_eq!(reader.has_come_of(&first, NodeRank(0), flag, sent), Ok(true));
    let read = reader.cell(NodeRank(0), Line::Down, sent, first.reach);
    match fails {
        true => reader.fail(Epoch(1)),
        false => Words::release(reader, Ticket::last_of(Epoch(1))),
    }
    Words::release(reader, Ticket::last_of(Epoch(1)));
    assert!(reader.take(next, Room::Passed, second.reach, second.descriptor));
    [reader.cell(NodeRank(1), Line::Down, next, second.reach), read].map(|at| at.addr())
}

#[test]
fn a_cell_is_its_readers_unless_that_fails_the_call() {
    let [written, read] = written_after_reading(false);
    assert_eq!(written, read);
    let [written, read] = written_after_reading(true);
    assert_ne!(written, read);
}

/// A Scatter that the rank of `context` has entered, as a root with its data in `send`.
fn scatter<'a>(context: &'a Context, epoch: u64, send: Buffer<'a>) -> Call<'a> {
    let buffers = Buffers { send, ..Buffers::NONE };
    // SAFETY: nothing is copied.
    unsafe { Call::enter(context, &WAITING, Collective::Scatter, 0, &plan(epoch), buffers) }
}

#[test]
fn memory_is_lent_by_who_has_data_without_holes_and_as_calls_have_shown() {
    let mut memory = vec![0_u8; 64];
    let start = memory.as_mut_ptr();
    let sparse = Sparse::new(&mut memory, false);
    let (n, from) = (Bytes(1 << 20), Some(Place::SendBuf.start()));
    let [memory, slots] = [Source::Memory, Source::Slots].map(Lending::Tried);
    for (lending, buffer, from, expected) in [
        (Lending::Always, Buffer::Contiguous(start), from, true),
        (memory, Buffer::Contiguous(start), from, true),
        (slots, Buffer::Contiguous(start), from, false),
        (Lending::Always, Buffer::Packed(&sparse), from, false),
        (memory, Buffer::Packed(&sparse), from, false),
        (memory, Buffer::Absent, None, false),
    ] {
        let [context, _] = two_ranks();
        assert_eq!(scatter(&context, 1, buffer).decide_to_lend(from, n, lending), expected, "{lending:?}");
    }
    // A source that was chosen before is not asked for again. Data with holes are not lent even then.
    for (chosen, buffer, expected) in [
        (Source::Memory, Buffer::Contiguous(start), true),
        (Source::Memory, Buffer::Packed(&sparse), false),
        (Source::Slots, Buffer::Contiguous(start), false),
    ] {
        let [context, _] = two_ranks();
        let call = scatter(&context, 1, buffer).chosen(chosen);
        assert_eq!(call.decide_to_lend(from, n, memory), expected, "{chosen:?}");
    }
    // Trials reach the fabric: the calls of a block go the same way, and both ways occur.
    let [context, peer] = two_ranks();
    let lends: Vec<bool> = (1..=24)
        .map(|epoch| scatter(&context, epoch, Buffer::Contiguous(start)).decide_to_lend(from, n, slots))
        .collect();
    assert!(lends[..8].iter().all(|lends| !lends) && lends[8..15].iter().all(|lends| *lends), "{lends:?}");
    assert!(lends[16..23].iter().all(|lends| !lends), "{lends:?}");
    // A peer that could not fetch ends the lending.
    let (line, ticket) = (Line::Up, Ticket::new(Epoch(25), 0));
    let call = scatter(&context, 25, Buffer::Contiguous(start));
    for (answer, lends) in [(true, true), (false, false)] {
        // SAFETY: nothing else is in that line.
        unsafe { peer.line(NodeRank(1), line, ticket).payload().write(u8::from(answer)) };
        assert_eq!(call.take_answer(NodeRank(1), line, ticket), answer);
        assert_eq!(call.decide_to_lend(from, Bytes(64 << 10), memory), lends);
    }
}

#[test]
fn what_is_told_of_memory_is_found_there() {
    let [owner, reader] = &two_ranks();
    let mut memory: Vec<u8> = (0..64).collect();
    let start = memory.as_mut_ptr();
    let mut to = vec![0_u8; 16];
    for (epoch, is_exposed) in [(1, true), (2, false), (3, true)] {
        let (line, ticket) = (Line::Down, Ticket::new(Epoch(epoch), 0));
        let call = scatter(owner, epoch, Buffer::Contiguous(start));
        if is_exposed {
            call.tell_of_memory(line, ticket, Place::SendBuf.at(Bytes(8)));
        }
        owner.publish(line, ticket, call.entered.descriptor);
        let buffers = Buffers { recv: Buffer::Contiguous(to.as_mut_ptr()), ..Buffers::NONE };
        // SAFETY: the buffer is as long as what is fetched.
        let call = unsafe { Call::enter(reader, &WAITING, Collective::Scatter, 0, &plan(epoch), buffers) };
        let is_told = |line| reader.line(NodeRank(0), line, ticket).tells_of_memory(ticket);
        assert_eq!([line, line.other()].map(is_told), [is_exposed, false]);
        if is_exposed {
            let lent = Exposed { rank: NodeRank(0), line, ticket, offset: Bytes(16) };
            match call.fetch_exposed(Place::RecvBuf.start(), lent, Bytes(16)) {
                true => assert_eq!(to, memory[24..40]),
                false => println!("skipped: the system does not permit it"),
            }
        }
    }
}
