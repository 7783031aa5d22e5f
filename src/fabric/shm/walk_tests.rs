//! Claims of cells of all lengths in rings of all kinds. What a rank takes must lie in memory that it has, and must not
//! overlap what a peer may still read.

use super::*;
use crate::fabric::checked::Random;
use crate::fabric::words::Entered;
use crate::types::Collective;
use std::os::fd::AsRawFd;

/// A piece that the peer has not released, or a cell that it has not passed back.
struct Unreleased {
    /// The number of the cell, if it was passed.
    passed: Option<u32>,
    ticket: Ticket,
    start: usize,
    end: usize,
}

/// Rank 0 of two, without a real peer: the test releases for the peer what a claim waits for, or more.
struct Walk {
    context: Context,
    /// How many bytes its process has written, to other communicators too.
    written: &'static Private<u64>,
    unreleased: Vec<Unreleased>,
}

impl Walk {
    fn new(random: &mut Random) -> Self {
        let slots = random.pick(&[2, 2, 4, 8, 16, 64, 256]);
        let any = 64 * random.between(1, 1200);
        let usual = random.pick(&[64, 1024, 2048, 4096, 4160, 5056, 8192, 12288, 16384, 20480, 40960, 65536, 131_072]);
        let cell = if random.one_in(6) { any } else { usual };
        let round = Bytes(random.pick(&[cell, 8192, 16384, 32768, 65536])).min(Bytes(cell));
        let lines = slots * random.pick(&[1, 1, 2, 16]);
        let geometry = Geometry { ranks: 2, slots, lines, cell: Bytes(cell), round };
        let (_, file) = Segment::create(geometry.length(), geometry.front()).expect("memfd");
        let segment = Segment::open(std::process::id(), file.as_raw_fd(), geometry.length()).expect("mapping");
        let mut context = Context::new(segment, geometry, NodeRank(0), Layout::single(2), Levels::flat(2, NodeRank(0)));
        let written = Box::leak(Box::default());
        context.company = Company::in_all(written);
        Self { context, written, unreleased: Vec::new() }
    }

    fn release(&mut self, ticket: Ticket) {
        let released = &self.context.control(NodeRank(1)).released;
        if released.peek() < ticket.0 {
            released.publish(ticket);
        }
        self.unreleased.retain(|of| of.passed.is_some() || of.ticket > ticket);
    }

    /// The peer passes a cell back, with a ticket that this rank reads.
    fn get_back(&mut self, ticket: Ticket) {
        if let Some(at) = self.unreleased.iter().position(|of| of.passed.is_some() && of.ticket < ticket) {
            let passed = self.unreleased.swap_remove(at).passed;
            passed.into_iter().for_each(|cell| self.context.passed.await_release(ticket, cell, ROTATED));
        }
    }

    /// Claims and publishes a piece of `reach` bytes, or one that fits a line.
    fn step(&mut self, ticket: Ticket, room: Room, reach: Bytes) {
        let descriptor = Descriptor::new(ticket.epoch(), Collective::Bcast, 0, 0, reach);
        let slots = self.context.geometry.slots as u64;
        let mut tries = 0;
        if reach >= ROTATED && room.has_cell() {
            self.context.company.enter(ticket.epoch());
        }
        // Where `rhythm` foresees this piece, since nothing else is claimed meanwhile.
        let foreseen = room.has_cell().then(|| {
            let stretch = self.context.stretch(ticket, room, reach, self.context.claims.cursor());
            self.context.piece(NodeRank(0), ticket, stretch.home)
        });
        while !self.context.take(ticket, room, reach, descriptor) {
            let missing = self.context.claims.missing();
            let is_earlier = missing.epoch() < ticket.epoch();
            assert!(is_earlier || missing.step() + slots <= ticket.step(), "a call would wait for itself");
            self.release(missing);
            tries += 1;
            assert!(tries < 3, "what it waits for is what it needs");
        }
        Words::publish(&self.context, Line::Down, ticket, descriptor);
        if let Some(foreseen) = foreseen {
            let piece = self.context.cell(NodeRank(0), Line::Up, ticket, reach);
            assert!(piece == foreseen || self.context.is_passed(piece));
            assert_eq!(piece, self.context.piece(NodeRank(0), ticket, self.context.claims.home(ticket)));
            self.look(ticket, reach);
        }
    }

    fn look(&mut self, ticket: Ticket, reach: Bytes) {
        let (context, geometry) = (&self.context, &self.context.geometry);
        let start =
            context.cell(NodeRank(0), Line::Up, ticket, reach) as usize - context.segment.base().as_ptr() as usize;
        let (first, end) = (geometry.cell_start(0, 0), start + reach.0);
        let reserved = context.reserved.get();
        let told = context.line(NodeRank(0), Line::Down, ticket).home(ticket);
        let passed = told.and_then(|home| context.passed_at(NodeRank(0), home));
        if passed.is_some() {
            let (first, cells) = (geometry.passed_start(), geometry.passed());
            assert!((start - first).is_multiple_of(geometry.cell.0) && start < first + cells * geometry.cell.0);
            let reserved = context.reserved_passed.get();
            assert!(reach.0 <= reserved, "there is no memory");
        } else {
            assert!(start >= first && end <= geometry.cell_start(0, geometry.slots) + geometry.slack());
            assert!(
                (start - first) % geometry.cell.0 + reach.0 <= reserved || reserved == geometry.cell.0,
                "there is no memory"
            );
        }
        if reach >= ROTATED {
            assert_eq!(told.map(|home| first + home as usize * HOME_UNIT), Some(start));
        }
        let overlaps = |of: &&Unreleased| start < of.end && of.start < end;
        assert!(self.unreleased.iter().find(overlaps).is_none(), "a peer may still read that");
        self.unreleased.push(Unreleased { passed, ticket, start, end });
    }

    fn call(&mut self, random: &mut Random, epoch: Epoch) {
        let geometry = self.context.geometry;
        let (cell, any) = (geometry.cell.0, random.between(1, geometry.cell.0 + 1));
        let reach = random.pick(&[cell, cell / 2 + 1, any, any, 100, 4095, 4096, 5000, 8192, 12288, 16383, 16384]);
        let reach = Bytes(reach.min(cell));
        self.context.reserve_cells(geometry.depth_for(reach)).expect("memory");
        if random.one_in(20) {
            self.context.widen_cells();
        }
        self.written.set(self.written.get() + random.pick(&[0, 0, 5000, 50_000, 1 << 20]));
        let others = random.pick(&[1, 1, 2, 5]);
        let rooms = match random.one_in(4) {
            true => &[Room::Lines, Room::Relayed, Room::Relayed, Room::Relayed, Room::Relayed, Room::Relayed],
            false => &[Room::Lines, Room::Cell, Room::Cell, Room::Passed, Room::Passed, Room::Passed],
        };
        for step in 0..random.between(1, 3 * geometry.slots.min(40)) as u64 {
            let ticket = Ticket::new(epoch, step);
            if random.one_in(others) {
                self.step(ticket, random.pick(rooms), reach);
            }
            if random.one_in(10) {
                self.release(ticket);
            }
            if random.one_in(4) {
                self.get_back(ticket);
            }
        }
        if random.one_in(3) {
            self.release(Ticket::last_of(epoch));
        }
        Words::release(&self.context, Ticket::last_of(epoch));
    }
}

#[test]
fn nothing_is_written_where_a_peer_may_still_read() {
    let random = &mut Random::new(1);
    for _ in 0..300 {
        let mut walk = Walk::new(random);
        let mut epoch = 0;
        for _ in 1..random.between(20, 200) {
            // Tickets any number of calls apart use the same lines.
            epoch += random.pick(&[1, 1, 1, 1, 1, 17, 1 << 22, 9_792_021]);
            walk.call(random, Epoch(epoch));
        }
    }
}

/// Whatever a reader expects, it finds a piece where its writer has put it.
#[test]
fn pieces_are_read_where_they_were_written() {
    let random = &mut Random::new(2);
    let mut expected = 0;
    for _ in 0..40 {
        let cell = random.pick(&[64, 4096, 20480]);
        let ranks = tests::two_ranks_with(Bytes(cell));
        ranks.iter().for_each(|rank| rank.reserve_cells(Bytes(cell)).expect("memory"));
        let at = |rank: &Context, piece: *mut u8| piece as usize - rank.segment.base().as_ptr() as usize;
        let is_long_run = random.one_in(2);
        for epoch in (1..200).map(Epoch) {
            let (ticket, reach) = (Ticket::new(epoch, 0), Bytes(random.between(1, cell)));
            let room = if is_long_run { Room::Passed } else { random.pick(&[Room::Passed, Room::Passed, Room::Cell]) };
            let descriptor = Descriptor::new(epoch, Collective::Bcast, 0, 0, reach).telling(reach >= ROTATED);
            let call = Entered { collective: Collective::Bcast, epoch, bytes: reach, descriptor, reach };
            let root = if is_long_run { epoch.0 as usize % 2 } else { random.between(0, 1) };
            let writers = if random.one_in(3) { 0..2 } else { root..root + 1 };
            for writer in writers.clone() {
                assert!(ranks[writer].take(ticket, room, reach, descriptor));
                Words::publish(&ranks[writer], Line::Down, ticket, descriptor);
            }
            for (writer, reader) in writers.map(|writer| (&ranks[writer], &ranks[1 - writer])) {
                let flag = reader.line(writer.me, Line::Down, ticket);
                assert_eq!(reader.has_come_of(&call, writer.me, flag, ticket), Ok(true));
                let [written, read] = [writer, reader].map(|rank| rank.cell(writer.me, Line::Down, ticket, reach));
                assert_eq!(at(writer, written), at(reader, read));
                let told = reader.told_home(writer.me, Line::Down, ticket);
                let likely = reader.passed.likely(ticket).map(|cell| reader.home_of_passed(writer.me, cell));
                expected += u32::from(told.is_some() && told == likely);
            }
            ranks.iter().for_each(|rank| Words::release(rank, Ticket::last_of(epoch)));
        }
    }
    assert!((1000..10_000).contains(&expected), "{expected}: neither never nor always expected");
}
