//! What ranks ask of the fabric, as values: to be scheduled, mutated and named in reports.

use crate::fabric::{BridgeStep, Exposed, Line, Place, Room, Span};
use crate::types::{Bytes, NodeRank, Ticket};
use std::fmt;

/// One awaited operation of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`Fabric::claim`](crate::fabric::Fabric::claim)
    Claim(Ticket, Room),
    /// [`Fabric::release`](crate::fabric::Fabric::release)
    Release(Ticket),
    /// [`Fabric::publish`](crate::fabric::Fabric::publish)
    Publish(Line, Ticket),
    /// [`Fabric::wait`](crate::fabric::Fabric::wait)
    Wait(NodeRank, Line, Ticket),
    /// [`Fabric::drain`](crate::fabric::Fabric::drain)
    Drain(usize),
    /// [`Fabric::post`](crate::fabric::Fabric::post)
    Post(NodeRank, Ticket),
    /// [`Fabric::wait_post`](crate::fabric::Fabric::wait_post)
    WaitPost(NodeRank, Ticket),
    /// [`Fabric::copy`](crate::fabric::Fabric::copy)
    Copy {
        /// Destination.
        to: Span,
        /// Source.
        from: Span,
        /// Length.
        n: Bytes,
    },
    /// [`Fabric::reduce`](crate::fabric::Fabric::reduce)
    Reduce {
        /// Destination.
        to: Span,
        /// First operand.
        left: Span,
        /// Second operand.
        right: Span,
        /// Length.
        n: Bytes,
    },
    /// [`Fabric::expose`](crate::fabric::Fabric::expose)
    Expose(Line, Ticket, Span),
    /// [`Fabric::is_exposed`](crate::fabric::Fabric::is_exposed)
    IsExposed(NodeRank, Line, Ticket),
    /// [`Fabric::fetch`](crate::fabric::Fabric::fetch)
    Fetch {
        /// Destination.
        to: Span,
        /// Source.
        from: Exposed,
        /// Length.
        n: Bytes,
    },
    /// [`Fabric::answer`](crate::fabric::Fabric::answer)
    Answer(Line, Ticket, bool),
    /// [`Fabric::answered`](crate::fabric::Fabric::answered)
    Answered(NodeRank, Line, Ticket),
    /// [`Fabric::bridge_begin`](crate::fabric::Fabric::bridge_begin)
    BridgeBegin(BridgeStep),
    /// [`Fabric::bridge_end`](crate::fabric::Fabric::bridge_end)
    BridgeEnd,
}

/// The operations of a [`Fabric`](crate::fabric::Fabric) whose `step` takes each as a value, and returns what it found
/// if it looks for something. The types are those in scope where the macro is invoked.
macro_rules! operations_by_step {
    () => {
        async fn claim(&self, ticket: Ticket, room: Room) {
            self.step(Operation::Claim(ticket, room)).await;
        }

        async fn release(&self, ticket: Ticket) {
            self.step(Operation::Release(ticket)).await;
        }

        async fn publish(&self, line: Line, ticket: Ticket) {
            self.step(Operation::Publish(line, ticket)).await;
        }

        async fn wait(&self, rank: NodeRank, line: Line, ticket: Ticket) {
            self.step(Operation::Wait(rank, line, ticket)).await;
        }

        async fn drain(&self, cells: usize) {
            self.step(Operation::Drain(cells)).await;
        }

        async fn post(&self, rank: NodeRank, ticket: Ticket) {
            self.step(Operation::Post(rank, ticket)).await;
        }

        async fn wait_post(&self, rank: NodeRank, ticket: Ticket) {
            self.step(Operation::WaitPost(rank, ticket)).await;
        }

        async fn copy(&self, to: Span, from: Span, n: Bytes) {
            self.step(Operation::Copy { to, from, n }).await;
        }

        async fn reduce(&self, to: Span, left: Span, right: Span, n: Bytes) {
            self.step(Operation::Reduce { to, left, right, n }).await;
        }

        async fn expose(&self, line: Line, ticket: Ticket, from: Span) {
            self.step(Operation::Expose(line, ticket, from)).await;
        }

        async fn is_exposed(&self, rank: NodeRank, line: Line, ticket: Ticket) -> bool {
            self.step(Operation::IsExposed(rank, line, ticket)).await
        }

        async fn fetch(&self, to: Span, from: Exposed, n: Bytes) -> bool {
            self.step(Operation::Fetch { to, from, n }).await
        }

        async fn answer(&self, line: Line, ticket: Ticket, answer: bool) {
            self.step(Operation::Answer(line, ticket, answer)).await;
        }

        async fn answered(&self, rank: NodeRank, line: Line, ticket: Ticket) -> bool {
            self.step(Operation::Answered(rank, line, ticket)).await
        }

        async fn bridge_begin(&self, step: BridgeStep) {
            self.step(Operation::BridgeBegin(step)).await;
        }

        async fn bridge_end(&self) {
            self.step(Operation::BridgeEnd).await;
        }
    };
}
pub(in crate::fabric) use operations_by_step;

struct Show<T>(T);

impl fmt::Display for Show<Ticket> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = Ticket::last_of(self.0.epoch());
        match self.0 {
            ticket if ticket == last => write!(f, "{}.end", ticket.epoch().0),
            ticket => write!(f, "{}.{}", ticket.epoch().0, ticket.step()),
        }
    }
}

impl fmt::Display for Show<Span> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.place {
            Place::Cell { rank, ticket, .. } => write!(f, "cell[{}]@{}", rank.0, Show(ticket)),
            Place::Payload { rank, line, ticket } => {
                write!(f, "{line:?}[{}]@{}", rank.0, Show(ticket))
            }
            own => write!(f, "{own:?}"),
        }?;
        write!(f, "+{}", self.0.offset.0)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Claim(ticket, room) => write!(f, "claim {room:?} {}", Show(ticket)),
            Self::Release(ticket) => write!(f, "release {}", Show(ticket)),
            Self::Publish(line, ticket) => write!(f, "publish {line:?} {}", Show(ticket)),
            Self::Wait(rank, line, ticket) => {
                write!(f, "wait for {line:?}[{}]@{}", rank.0, Show(ticket))
            }
            Self::Drain(cells) => write!(f, "drain the cell of {cells} claims ago"),
            Self::Post(rank, ticket) => write!(f, "post {} to {}", Show(ticket), rank.0),
            Self::WaitPost(rank, ticket) => write!(f, "wait for the post of {} by {}", Show(ticket), rank.0),
            Self::Copy { to, from, n } => {
                write!(f, "copy {} B: {} = {}", n.0, Show(to), Show(from))
            }
            Self::Reduce { to, left, right, n } => {
                write!(f, "reduce {} B: {} = {} op {}", n.0, Show(to), Show(left), Show(right))
            }
            Self::Expose(line, ticket, from) => {
                write!(f, "expose {} beside {line:?} {}", Show(from), Show(ticket))
            }
            Self::IsExposed(rank, line, ticket) => {
                write!(f, "whether {line:?}[{}]@{} exposed anything", rank.0, Show(ticket))
            }
            Self::Fetch { to, from: Exposed { rank, line, ticket, offset }, n } => {
                let (to, ticket) = (Show(to), Show(ticket));
                write!(f, "fetch {} B: {to} = what {line:?}[{}]@{ticket} exposed+{}", n.0, rank.0, offset.0)
            }
            Self::Answer(line, ticket, answer) => write!(f, "answer {answer} beside {line:?} {}", Show(ticket)),
            Self::Answered(rank, line, ticket) => write!(f, "the answer of {line:?}[{}]@{}", rank.0, Show(ticket)),
            Self::BridgeBegin(BridgeStep::Barrier) => write!(f, "bridge barrier"),
            Self::BridgeBegin(BridgeStep::Allreduce { at, n }) => {
                write!(f, "bridge allreduce {} B at {}", n.0, Show(at))
            }
            Self::BridgeBegin(BridgeStep::Reduce { at, n, root }) => {
                write!(f, "bridge reduce {} B at {} to node {}", n.0, Show(at), root.0)
            }
            Self::BridgeBegin(BridgeStep::Bcast { at, n, root }) => {
                write!(f, "bridge bcast {} B at {} from node {}", n.0, Show(at), root.0)
            }
            Self::BridgeBegin(BridgeStep::Allgather { at, block }) => {
                write!(f, "bridge allgather {} B each at {}", block.0, Show(at))
            }
            Self::BridgeBegin(BridgeStep::Scatter { at, block, root }) => {
                write!(f, "bridge scatter {} B each at {} from node {}", block.0, Show(at), root.0)
            }
            Self::BridgeBegin(BridgeStep::SendRecv { at, send, receive }) => {
                write!(f, "bridge messages at {}: send {send:?}, receive {receive:?}", Show(at))
            }
            Self::BridgeEnd => write!(f, "end of the bridge step"),
        }
    }
}
