//! The words and cells of a node's ranks, made of loom's types, and the buffers of a call.

use crate::fabric::{Line, Place, Span};
use crate::sync::{Control, Flag, FlagLine, LastClaim, Passed};
use crate::types::{Bytes, NodeRank, Ticket};
use loom::cell::UnsafeCell;

/// Bytes that are accessed together.
const UNIT: usize = 8;

/// What the ranks of a node share.
pub struct Node {
    pub(super) slots: usize,
    pub(super) lines: usize,
    pub(super) cell: Bytes,
    members: Vec<Member>,
    /// The cells that two ranks pass to each other. Each rank owns one at first.
    passed: Vec<Vec<UnsafeCell<[u8; UNIT]>>>,
}

/// The shared memory of one rank.
struct Member {
    control: Control,
    /// By line, by position.
    lines: Vec<FlagLine>,
    /// By posting rank: what it posts to this one.
    posts: Vec<Flag>,
    /// By position.
    last_claims: Vec<LastClaim>,
    /// By position, the units of a cell.
    cells: Vec<Vec<UnsafeCell<[u8; UNIT]>>>,
    /// By line: what the rank exposed last of its own memory.
    exposed: [UnsafeCell<Vec<u8>>; Line::COUNT],
}

// SAFETY: cells are accessed through `with` and `with_mut` only, where loom ends the model at the first access that is
// not ordered with another one.
unsafe impl Sync for Node {}
// SAFETY: as above.
unsafe impl Send for Node {}

impl Node {
    /// For `ranks` ranks with rings of `slots` cells of `cell` bytes, and of `lines` lines of each kind.
    ///
    /// # Panics
    /// If a cell does not consist of units of 8 bytes.
    pub fn new(ranks: usize, lines: usize, slots: usize, cell: Bytes) -> Self {
        assert!(cell.0.is_multiple_of(UNIT));
        let units = || (0..cell.0 / UNIT).map(|_| UnsafeCell::new([0; UNIT])).collect();
        let member = |_| Member {
            control: Control::default(),
            lines: (0..Line::COUNT * lines).map(|_| FlagLine::new()).collect(),
            posts: (0..ranks).map(|_| Flag::new()).collect(),
            last_claims: (0..lines).map(|_| LastClaim::default()).collect(),
            cells: (0..slots).map(|_| units()).collect(),
            exposed: [(); Line::COUNT].map(|()| UnsafeCell::new(Vec::new())),
        };
        let members = (0..ranks).map(member).collect();
        let passed = if Passed::is_for(ranks) { ranks } else { 0 };
        Self { slots, lines, cell, members, passed: (0..passed).map(|_| units()).collect() }
    }

    /// How many cells are passed.
    pub(super) fn passed(&self) -> usize {
        self.passed.len()
    }

    pub(super) fn ranks(&self) -> usize {
        self.members.len()
    }

    pub(super) fn control(&self, rank: NodeRank) -> &Control {
        &self.members[rank.index()].control
    }

    pub(super) fn line(&self, rank: NodeRank, line: Line, ticket: Ticket) -> &FlagLine {
        &self.members[rank.index()].lines[line as usize * self.lines + ticket.position(self.lines)]
    }

    pub(super) fn post(&self, to: NodeRank, from: NodeRank) -> &Flag {
        &self.members[to.index()].posts[from.index()]
    }

    pub(super) fn last_claim(&self, rank: NodeRank, ticket: Ticket) -> &LastClaim {
        &self.members[rank.index()].last_claims[ticket.position(self.lines)]
    }

    fn units(&self, rank: NodeRank, cell: u64, offset: Bytes, n: Bytes) -> &[UnsafeCell<[u8; UNIT]>] {
        assert!(offset.0.is_multiple_of(UNIT) && n.0.is_multiple_of(UNIT), "{offset:?} and {n:?} are whole units");
        let units = match (cell as usize).checked_sub(self.slots) {
            Some(passed) => &self.passed[passed],
            None => &self.members[rank.index()].cells[cell as usize],
        };
        &units[offset.0 / UNIT..][..n.0 / UNIT]
    }
}

/// The buffers of one rank in a call. The rank works in place if `send` is `None`.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    /// The input, if it is not part of the output.
    pub send: Option<Vec<u8>>,
    /// The output; for a broadcast the only buffer.
    pub recv: Vec<u8>,
    /// Where the input is in `recv`, if it is part of it.
    pub send_at: usize,
}

impl Buffers {
    fn own(&mut self, span: Span) -> &mut [u8] {
        match span.place {
            Place::SendBuf => match &mut self.send {
                Some(send) => &mut send[span.offset.0..],
                None => &mut self.recv[self.send_at + span.offset.0..],
            },
            Place::RecvBuf => &mut self.recv[span.offset.0..],
            place => unreachable!("{place:?} on one node"),
        }
    }
}

/// Gives the home of a rank's cell for a ticket, as the flag of that line tells.
pub(super) type Homes<'a> = &'a dyn Fn(NodeRank, Line, Ticket) -> u64;

impl Node {
    /// The `n` bytes at `span`.
    pub(super) fn load(&self, own: &mut Buffers, homes: Homes<'_>, span: Span, n: Bytes) -> Vec<u8> {
        let at = span.offset.0;
        match span.place {
            Place::Cell { rank, line, ticket } => {
                let units = self.units(rank, homes(rank, line, ticket), span.offset, n);
                // SAFETY: the unit is alive, and loom has seen that no write races with this.
                units.iter().flat_map(|unit| unit.with(|unit| unsafe { *unit })).collect()
            }
            Place::Payload { rank, line, ticket } => self.line(rank, line, ticket).read_payload(|payload| {
                // SAFETY: as above.
                let payload = unsafe { *payload };
                payload[at..][..n.0].to_vec()
            }),
            _ => own.own(span)[..n.0].to_vec(),
        }
    }

    /// Exposes a rank's memory from `span` on, with that line.
    pub(super) fn expose(&self, own: &mut Buffers, with: (NodeRank, Line), span: Span) {
        let bytes = own.own(span).to_vec();
        // SAFETY: the vector is alive, and loom has seen that no access races with this.
        self.exposed(with).with_mut(|exposed| unsafe { *exposed = bytes });
    }

    /// The `n` bytes at `offset` of what a rank exposed last with that line.
    pub(super) fn fetch(&self, with: (NodeRank, Line), offset: Bytes, n: Bytes) -> Vec<u8> {
        // SAFETY: the vector is alive, and loom has seen that no write races with this.
        self.exposed(with).with(|exposed| unsafe { (&*exposed)[offset.0..][..n.0].to_vec() })
    }

    fn exposed(&self, (rank, line): (NodeRank, Line)) -> &UnsafeCell<Vec<u8>> {
        &self.members[rank.index()].exposed[line as usize]
    }

    /// `rank` leaves a call. The program owns the exposed memory again and writes it.
    pub(super) fn take_back(&self, rank: NodeRank) {
        for exposed in &self.members[rank.index()].exposed {
            // SAFETY: as in `expose`.
            exposed.with_mut(|exposed| unsafe { (*exposed).clear() });
        }
    }

    /// Puts `bytes` at `span`.
    pub(super) fn store(&self, own: &mut Buffers, homes: Homes<'_>, span: Span, bytes: &[u8]) {
        let at = span.offset.0;
        match span.place {
            Place::Cell { rank, line, ticket } => {
                let units = self.units(rank, homes(rank, line, ticket), span.offset, Bytes(bytes.len()));
                for (unit, bytes) in units.iter().zip(bytes.as_chunks().0) {
                    // SAFETY: the unit is alive, and loom has seen that no access races with this.
                    unit.with_mut(|unit| unsafe { *unit = *bytes });
                }
            }
            Place::Payload { rank, line, ticket } => self.line(rank, line, ticket).write_payload(|payload| {
                // SAFETY: as above.
                let payload = unsafe { &mut *payload };
                payload[at..][..bytes.len()].copy_from_slice(bytes);
            }),
            _ => own.own(span)[..bytes.len()].copy_from_slice(bytes),
        }
    }
}
