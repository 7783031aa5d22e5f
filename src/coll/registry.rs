//! The one table of algorithms. Environment values, documentation, tests and the choice of an algorithm iterate over
//! it.

use super::{Algorithm, Knob, Means, Measures, Need, Plan, Reach, Short};
use crate::fabric::{Fabric, shm};
#[cfg(feature = "scheduler")]
use crate::fabric::{checked, simulated};
use crate::model::{Nanos, Scene};
use crate::types::{Bytes, Collective};
use std::future::Future;
use std::pin::Pin;

/// A call that is under way. It owns or borrows everything that it needs.
pub type Running<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One algorithm: its description, and its one source compiled into an entry point for every fabric.
pub struct Row {
    /// The collective that it implements.
    pub collective: Collective,
    /// Its name in the environment.
    pub name: &'static str,
    /// One sentence for people.
    pub summary: &'static str,
    /// Paper and section.
    pub source: &'static str,
    /// What a call costs, for people.
    pub cost_in_words: &'static str,
    /// Its phases, in ASCII.
    pub drawing: &'static str,
    /// What a call must offer for the algorithm to run.
    pub needs: &'static [Need],
    /// What users may set.
    pub knobs: &'static [Knob],
    /// The algorithms in whose place huddle tries this one.
    pub tried_for: &'static [&'static str],
    /// Whether ranks or leaders exchange in rounds.
    pub has_rounds: bool,
    /// Bytes of scratch memory of a call.
    pub scratch: fn(&Plan, &Measures) -> Bytes,
    /// How long a call takes.
    pub cost: fn(&Plan, &Scene) -> Option<Nanos>,
    /// How far a call on one node reaches into cells.
    pub reach: Reach,
    /// On shared memory: whether a call runs as a plain function, and as which.
    pub short: fn(&Plan, &Measures) -> Option<Short>,
    /// On shared memory: runs a call to its end.
    pub run: fn(&shm::Call<'_>, &Plan) -> Result<(), shm::Fault>,
    /// On shared memory: starts a call, which the caller polls.
    pub start: for<'a> fn(&'a shm::Call<'a>, &'a Plan) -> Running<'a>,
    /// Starts a call under the checking scheduler.
    #[cfg(feature = "scheduler")]
    pub scheduled: for<'a> fn(&'a checked::Rank, &'a Plan) -> Running<'a>,
    /// Starts a call under loom.
    #[cfg(all(loom, feature = "scheduler"))]
    pub explored: for<'a> fn(&'a crate::fabric::explored::Rank, &'a Plan) -> Running<'a>,
    /// Starts a call in the simulator.
    #[cfg(feature = "scheduler")]
    pub simulated: for<'a> fn(&'a simulated::Rank, &'a Plan) -> Running<'a>,
}

impl Row {
    /// The first need of the algorithm that a call with these means does not meet.
    #[inline]
    pub fn lacks(&self, means: Means) -> Option<Need> {
        self.needs.iter().copied().find(|need| !need.is_met(means))
    }
}

const fn row<A: Algorithm>() -> Row {
    Row {
        collective: A::COLLECTIVE,
        name: A::NAME,
        summary: A::SUMMARY,
        source: A::SOURCE,
        cost_in_words: A::COST,
        drawing: A::DRAWING,
        needs: A::NEEDS,
        knobs: A::KNOBS,
        tried_for: A::TRIED_FOR,
        has_rounds: A::HAS_ROUNDS,
        scratch: A::scratch,
        cost: A::cost,
        reach: A::REACH,
        short: A::short,
        run: |call, plan| call.drive(A::run(call, plan)),
        start: |call, plan| boxed::<A, _>(call, plan),
        #[cfg(feature = "scheduler")]
        scheduled: boxed::<A, checked::Rank>,
        #[cfg(all(loom, feature = "scheduler"))]
        explored: boxed::<A, crate::fabric::explored::Rank>,
        #[cfg(feature = "scheduler")]
        simulated: boxed::<A, simulated::Rank>,
    }
}

fn boxed<'a, A: Algorithm, F: Fabric>(fabric: &'a F, plan: &'a Plan) -> Running<'a> {
    Box::pin(A::run(fabric, plan))
}

/// All algorithms. The first row of each collective is its fallback.
pub static REGISTRY: &[Row] = &[
    row::<super::allreduce_flat::AllreduceFlat>(),
    row::<super::allreduce_tree::AllreduceTree>(),
    row::<super::allreduce_tiled::AllreduceTiled>(),
    row::<super::allreduce_cyclic::AllreduceCyclic>(),
    row::<super::allreduce_hierarchical::AllreduceHierarchical>(),
    row::<super::allreduce_relay::AllreduceRelay>(),
    row::<super::allreduce_dissemination::AllreduceDissemination>(),
    row::<super::bcast_flat::BcastFlat>(),
    row::<super::bcast_tree::BcastTree>(),
    row::<super::bcast_tiled::BcastTiled>(),
    row::<super::bcast_single::BcastSingle>(),
    row::<super::reduce_flat::ReduceFlat>(),
    row::<super::reduce_tree::ReduceTree>(),
    row::<super::reduce_tiled::ReduceTiled>(),
    row::<super::reduce_cyclic::ReduceCyclic>(),
    row::<super::reduce_hierarchical::ReduceHierarchical>(),
    row::<super::reduce_relay::ReduceRelay>(),
    row::<super::allgather_flat::AllgatherFlat>(),
    row::<super::allgather_tree::AllgatherTree>(),
    row::<super::allgather_tiled::AllgatherTiled>(),
    row::<super::allgather_dissemination::AllgatherDissemination>(),
    row::<super::allgather_single::AllgatherSingle>(),
    row::<super::barrier_flat::BarrierFlat>(),
    row::<super::barrier_tree::BarrierTree>(),
    row::<super::barrier_dissemination::BarrierDissemination>(),
    row::<super::scatter_flat::ScatterFlat>(),
    row::<super::scatter_tree::ScatterTree>(),
    row::<super::scatter_tiled::ScatterTiled>(),
    row::<super::scatter_single::ScatterSingle>(),
];

// The descriptor of a call has six bits for its row.
const _: () = assert!(REGISTRY.len() <= 64);

/// The rows of a collective, with their indices in [`REGISTRY`].
pub fn rows_of(collective: Collective) -> impl Iterator<Item = (usize, &'static Row)> {
    REGISTRY.iter().enumerate().filter(move |(_, row)| row.collective == collective)
}

/// The index in `REGISTRY` of the row with that name.
pub fn find(collective: Collective, name: &str) -> Option<usize> {
    rows_of(collective).find(|(_, row)| row.name == name).map(|(index, _)| index)
}
