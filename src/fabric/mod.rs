//! The fabric: what an algorithm may do, in symbolic terms, so that one source runs on shared memory, under the
//! checking scheduler, under loom and in the simulator.
//!
//! # The slot protocol
//! Each rank owns a ring of slots. A slot has per [`Line`] a flag with [`INLINE`] bytes of payload beside it, and a
//! *cell* of [`Fabric::cell_bytes`] bytes if its owner claims one. A [`Ticket`] names one slot of every rank. Cells are
//! a ring of their own: an owner takes one after the other, and tells with each flag where the cell of the ticket is.
//! (Short pieces have cells that follow from tickets, [`shm`]: the rules below suffice for both.) The ring of lines may
//! be longer than the ring of cells, so that messages that fit a line may run further ahead.
//!
//! Only the owner of a slot writes it for a ticket, except for cells that are relayed (below); all ranks read it. For
//! ticket `t` a rank takes those of these steps that it needs, in this order:
//! 1. `claim(t)`: waits until every peer has released the ticket for which this rank last wrote that line, or the cell
//!    that it takes next;
//! 2. writes cell or payload by `copy` or `reduce`;
//! 3. `publish(line, t)`: makes all its writes so far visible to ranks that wait for that flag;
//! 4. `wait(rank, line, t)` for peers, and reads their slots: the payload beside that flag, and the cell that was told
//!    with it. Or it copies out of a peer's own memory, with no slot between. The peer `expose`s that memory beside a
//!    flag. Before the peer writes that memory or ends the call, it waits for the `answer`s of all ranks that `fetch`
//!    from there, beside flags of theirs. If a peer may or may not expose memory, ranks ask `is_exposed`. The flag of a
//!    later ticket of the call, which claimed its lines alone, may tell of more data in the cell of `t`, where the
//!    owner writes on (a *train*). A rank that reads these data waits for the last of these tickets before it releases
//!    any of them;
//! 5. `release(t)`: promises to read no slot of any ticket up to `t` again, and to write no peer's slot. Tickets are
//!    released in order. The driver releases the whole call when it ends, so an algorithm releases only within calls
//!    longer than the ring.
//!
//! A cell that is claimed as [`Room::Passed`] goes to the peer that reads it. On a node of two ranks the peer may write
//! that cell, in later calls or tickets, once it has released the ticket. Before that release the peer has to wait for
//! the last flag by which the owner tells of the cell. The owner does not touch the cell after that flag. With more
//! ranks nothing is passed.
//!
//! A cell that is claimed as [`Room::Relayed`] is written by its owner first. Then peers write there for the same
//! ticket, one after the other, each after a flag of the writer before it. That flag also orders what the owner told
//! with its own flag, so peers need not wait for the owner's flag. A peer writes before it releases the ticket, and
//! nobody copies from there before the last writer has published. Before a rank claims a cell of one kind, relayed or
//! not, it has released what it claimed of the other kind: each kind takes memory in an order of its own.
//!
//! A claim of a cell may wait until all ranks have released the ticket for which this rank claimed a cell `slots()`
//! claims or tickets before, and any ticket of earlier calls. So a rank that goes on to the ticket `slots()` further,
//! without releasing the earlier one itself, may wait for ever.
//!
//! Flags without data need no claim: their values only grow, and waits are satisfied by later values. Only barriers
//! publish without a claim, and only barriers post. All `post`s to a rank lie together in lines that this rank alone
//! polls.

use crate::kernel::Destination;
use crate::topo::{Layout, Levels};
use crate::types::{Bytes, NodeIndex, NodeRank, Ticket};
use std::future::Future;

mod awaited;
#[cfg(feature = "scheduler")]
pub mod checked;
#[cfg(all(loom, feature = "scheduler"))]
pub mod explored;
pub mod shm;
#[cfg(feature = "scheduler")]
pub mod simulated;
mod words;

pub use crate::sync::Room;

/// Bytes of payload that travel in the pair of cache lines of a flag.
pub const INLINE: Bytes = Bytes(crate::sync::FlagLine::PAYLOAD);

/// The flags of a slot. One is for data that flow towards a root, or to higher ranks in a relay. The other is for data
/// that flow away from a root, or to lower ranks. Data that move in halves
/// ([`coll::phase::short`](crate::coll::phase::short)) use the opposite flag for the first half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Line {
    /// Towards the root.
    Up,
    /// Away from the root.
    Down,
}

impl Line {
    /// How many lines a slot has.
    pub const COUNT: usize = 2;

    /// The other line.
    #[inline]
    pub const fn other(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

/// Where data is, without addresses. Buffers hold packed data, whatever the user's datatype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// This rank's input. With `MPI_IN_PLACE` it is the same memory as `RecvBuf` ([`Fabric::is_in_place`]).
    SendBuf,
    /// This rank's output; for a broadcast the only buffer.
    RecvBuf,
    /// Memory of this rank alone, of [`Plan::scratch`](crate::coll::Plan) bytes.
    Scratch,
    /// The cell of a slot of `rank`.
    Cell {
        /// The owner, the only writer unless the cell is [relayed](Room::Relayed).
        rank: NodeRank,
        /// The flag by which a peer has learned where the cell is; the owner may name either.
        line: Line,
        /// Which slot.
        ticket: Ticket,
    },
    /// The payload beside a flag of `rank`, [`INLINE`] bytes.
    Payload {
        /// The owner, the only writer.
        rank: NodeRank,
        /// Which flag.
        line: Line,
        /// Which slot.
        ticket: Ticket,
    },
}

impl Place {
    /// Which kind of destination this place is for a copy.
    #[inline(always)]
    pub const fn destination(self) -> Destination {
        match self {
            Self::SendBuf | Self::RecvBuf | Self::Scratch => Destination::Private,
            Self::Cell { .. } | Self::Payload { .. } => Destination::Slot,
        }
    }

    /// The position at the start of this place.
    #[inline]
    pub fn start(self) -> Span {
        self.at(Bytes::ZERO)
    }

    /// The position `offset` bytes into this place.
    #[inline]
    pub fn at(self, offset: Bytes) -> Span {
        Span { place: self, offset }
    }

    /// Where `rank` puts `n` bytes for the readers of `line`: beside the flag where they fit, else into the cell.
    #[inline]
    pub fn stage(rank: NodeRank, line: Line, ticket: Ticket, n: Bytes) -> Self {
        match Room::of(n) {
            Room::Lines => Self::Payload { rank, line, ticket },
            _ => Self::Cell { rank, line, ticket },
        }
    }
}

/// A position in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The memory.
    pub place: Place,
    /// The distance from its start.
    pub offset: Bytes,
}

impl Span {
    /// `n` bytes further on.
    #[inline]
    pub fn plus(self, n: Bytes) -> Self {
        Self { place: self.place, offset: self.offset + n }
    }
}

/// Bytes at the start of a payload that tell of exposed memory.
pub const EXPOSURE: Bytes = Bytes(16);
const _: () = assert!(EXPOSURE.0 <= INLINE.0);

/// Memory of a rank's own that a peer may read, as the rank told beside a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// The rank that owns the memory.
    pub rank: NodeRank,
    /// The flag beside which it was told.
    pub line: Line,
    /// The slot of that flag.
    pub ticket: Ticket,
    /// The distance from the start of the exposed memory.
    pub offset: Bytes,
}

/// Where peers copy a rank's data from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Slots, in which the rank lays them out.
    Slots,
    /// Memory of its own, which it lends.
    Memory,
}

/// Whether a rank that has data for others lends them the memory in which they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lending {
    /// The rank lends whatever can be lent.
    Always,
    /// The rank goes by how long calls on this shared memory took. Until these have shown anything, it uses this
    /// source.
    Tried(Source),
}

/// One direction of a message between two leaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The other node.
    pub node: NodeIndex,
    /// Where the data lie, counted from the span of the step.
    pub offset: Bytes,
    /// The length.
    pub n: Bytes,
}

/// One step between nodes, taken by the leaders of all nodes together. Spans must lie in buffers of this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BridgeStep {
    /// Nobody leaves before all have entered.
    Barrier,
    /// Combines `n` bytes at `at` over all nodes, in node order; the result replaces them on every node.
    Allreduce {
        /// Input and output.
        at: Span,
        /// The length, a multiple of the element.
        n: Bytes,
    },
    /// Combines `n` bytes at `at` over all nodes, in node order. The result replaces them on node `root` only;
    /// elsewhere the contents are undefined afterwards.
    Reduce {
        /// Input and, on `root`, output.
        at: Span,
        /// The length, a multiple of the element.
        n: Bytes,
        /// The node that gets the result.
        root: NodeIndex,
    },
    /// Copies `n` bytes at `at` on node `root` to `at` on all others.
    Bcast {
        /// Source on `root`, destination elsewhere.
        at: Span,
        /// The length.
        n: Bytes,
        /// The node that has the data.
        root: NodeIndex,
    },
    /// Node `i` contributes `block` bytes per member, which lie at `at + block * first(i)`, where `first(i)` counts the
    /// members of the nodes before `i`; afterwards everyone has all contributions at those places.
    Allgather {
        /// Start of the gathered data, input and output.
        at: Span,
        /// Bytes per member.
        block: Bytes,
    },
    /// Node `root` has, at `at + block * first(i)`, `block` bytes for each member of node `i`; afterwards node `i` has
    /// them at `at + block * first(i)`.
    Scatter {
        /// Start of the data on all nodes.
        at: Span,
        /// Bytes per member.
        block: Bytes,
        /// The node that has the data.
        root: NodeIndex,
    },
    /// Messages between pairs of leaders: the leader of the other node receives in the same step what a leader sends. A
    /// leader waits for no other leader than the one from which it receives.
    SendRecv {
        /// The position from which the offsets of legs count.
        at: Span,
        /// What this node sends.
        send: Option<Leg>,
        /// What this node receives, into other memory than what it sends.
        receive: Option<Leg>,
    },
}

/// What an algorithm may do. Every shared operation is awaited, so that a scheduler can switch ranks at each; the
/// futures of the real fabric are ready at once, but for waits.
pub trait Fabric: Sync {
    /// This rank on its node.
    fn rank(&self) -> NodeRank;
    /// Ranks of the communicator on this node.
    fn size(&self) -> usize;
    /// How the ranks of this node lie in its caches and memories.
    fn levels(&self) -> &Levels;
    /// How the ranks of the communicator lie on nodes.
    fn layout(&self) -> &Layout;
    /// Length of a cell.
    fn cell_bytes(&self) -> Bytes;
    /// Cells in each rank's ring, a power of two, at least 2; there are as many lines of each kind or more.
    fn slots(&self) -> usize;
    /// Whether `SendBuf` and `RecvBuf` of this rank are the same memory. Local: peers may differ, so it must not change
    /// what is published or waited for.
    fn is_in_place(&self) -> bool;

    /// Ready when this rank may write `room` of its slot for `ticket`.
    fn claim(&self, ticket: Ticket, room: Room) -> impl Future<Output = ()> + Send;
    /// Promises to read no slot of any ticket up to `ticket` again, and to write no peer's slot of any of them.
    fn release(&self, ticket: Ticket) -> impl Future<Output = ()> + Send;
    /// Makes all writes of this rank visible to those who wait for this flag.
    fn publish(&self, line: Line, ticket: Ticket) -> impl Future<Output = ()> + Send;
    /// Ready when `rank` has published `line` for `ticket` or a later one.
    fn wait(&self, rank: NodeRank, line: Line, ticket: Ticket) -> impl Future<Output = ()> + Send;
    /// A hint: this rank will wait for that flag after its current work, and may well find it published by then.
    fn expect_flag(&self, _rank: NodeRank, _line: Line, _ticket: Ticket) {}
    /// Ready when all peers have released the ticket for which this rank claimed a cell `cells` claims ago, at most
    /// [`slots`](Fabric::slots). This waits as a claim does, but takes nothing.
    fn drain(&self, cells: usize) -> impl Future<Output = ()> + Send;
    /// Signals `ticket` to `rank` alone, with tickets that only grow. Carries no data.
    fn post(&self, rank: NodeRank, ticket: Ticket) -> impl Future<Output = ()> + Send;
    /// Ready when `rank` has posted `ticket` or a later one to this rank.
    fn wait_post(&self, rank: NodeRank, ticket: Ticket) -> impl Future<Output = ()> + Send;
    /// Copies `n` bytes. The spans do not overlap unless they are equal.
    fn copy(&self, to: Span, from: Span, n: Bytes) -> impl Future<Output = ()> + Send;
    /// `to = left op right` element by element. `to` may equal `left` or `right`, else the spans do not overlap.
    fn reduce(&self, to: Span, left: Span, right: Span, n: Bytes) -> impl Future<Output = ()> + Send;
    /// Decides whether this rank lends its memory at `from`, where its data for others lie; `from` is `None` if it has
    /// none. Each rank decides once in each call that moves `n` bytes so, whether it has data or not, since the
    /// decisions count and time the calls. Local: peers find out from what is exposed.
    fn decide_to_lend(&self, from: Option<Span>, n: Bytes, lending: Lending) -> bool;
    /// Tells with a flag of this rank that peers may read its memory from `from` on. The rank has claimed the lines of
    /// `ticket` alone, and will publish that flag. Until all ranks that read there have answered, the rank neither
    /// writes that memory nor ends the call.
    fn expose(&self, line: Line, ticket: Ticket, from: Span) -> impl Future<Output = ()> + Send;
    /// Whether a peer exposed memory with that flag, for which this rank has waited.
    fn is_exposed(&self, rank: NodeRank, line: Line, ticket: Ticket) -> impl Future<Output = bool> + Send;
    /// Copies `n` bytes to `to`, a buffer of this rank, out of memory that a peer exposed with a flag that this rank
    /// has waited for. Returns whether that was possible; if not, the contents of `to` are undefined.
    fn fetch(&self, to: Span, from: Exposed, n: Bytes) -> impl Future<Output = bool> + Send;
    /// Puts an answer beside a flag of this rank, which it has claimed and will publish.
    fn answer(&self, line: Line, ticket: Ticket, answer: bool) -> impl Future<Output = ()> + Send;
    /// The answer of a peer for whose flag this rank has waited.
    fn answered(&self, rank: NodeRank, line: Line, ticket: Ticket) -> impl Future<Output = bool> + Send;
    /// Begins a step between nodes. Only [leaders](Layout::leader) do so. Those of the same index on all nodes take the
    /// same steps together, in the same order, one at a time. Until the step has ended, its memory belongs to the
    /// bridge.
    fn bridge_begin(&self, step: BridgeStep) -> impl Future<Output = ()> + Send;
    /// Ready when the step that this rank began has ended.
    fn bridge_end(&self) -> impl Future<Output = ()> + Send;
    /// Begins a step between nodes and waits until it has ended.
    fn bridge(&self, step: BridgeStep) -> impl Future<Output = ()> + Send {
        async move {
            self.bridge_begin(step).await;
            self.bridge_end().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Epoch;

    #[test]
    fn what_peers_read_is_a_slot() {
        let (rank, ticket) = (NodeRank(0), Ticket::new(Epoch(1), 0));
        let line = Line::Up;
        let slots = [Place::Cell { rank, line, ticket }, Place::Payload { rank, line, ticket }];
        assert_eq!(slots.map(Place::destination), [Destination::Slot; 2]);
        let own = [Place::SendBuf, Place::RecvBuf, Place::Scratch];
        assert_eq!(own.map(Place::destination), [Destination::Private; 3]);
    }
}
