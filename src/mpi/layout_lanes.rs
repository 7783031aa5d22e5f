//! Lanes for calls with a datatype that is made anew each time, found by how its elements lie.
//!
//! Its handle tells nothing then: the last one was freed. But datatypes that are made alike have one layout ([`alike`](super::alike)), so a
//! call whose arguments were looked at can go on by a lane.

use super::datatype::TypeLayout;
use mpi_sys::MPI_Count;
use std::sync::Arc;

/// So many, as layouts that are remembered.
const SOME: usize = 4;

/// What calls have in common that go by one lane.
struct Likeness {
    count: MPI_Count,
    layout: Arc<TypeLayout>,
}

impl Likeness {
    fn are(&self, count: MPI_Count, layout: &Arc<TypeLayout>) -> bool {
        // As long as this is there nothing else has its address.
        self.count == count && Arc::ptr_eq(&self.layout, layout)
    }
}

/// The last lanes of one collective of a communicator that were opened so.
pub(super) struct LayoutLanes<L> {
    lanes: [Option<(Likeness, Box<L>)>; SOME],
    oldest: usize,
    /// Of the last call that found none.
    latest: Option<Likeness>,
}

impl<L> Default for LayoutLanes<L> {
    fn default() -> Self {
        Self { lanes: std::array::from_fn(|_| None), oldest: 0, latest: None }
    }
}

impl<L> LayoutLanes<L> {
    /// The lane for so many elements that lie so.
    pub fn find(&self, count: MPI_Count, layout: &Arc<TypeLayout>) -> Option<&L> {
        let mut lanes = self.lanes.iter().flatten();
        lanes.find(|(elements, _)| elements.are(count, layout)).map(|(_, lane)| &**lane)
    }

    /// A call found none. -> whether the one before that found none had as many elements that lie so: else a lane would not be of use either
    pub fn is_missed_again(&mut self, count: MPI_Count, layout: &Arc<TypeLayout>) -> bool {
        let is_again = self.latest.as_ref().is_some_and(|latest| latest.are(count, layout));
        if !is_again {
            self.latest = Some(Likeness { count, layout: Arc::clone(layout) });
        }
        is_again
    }

    /// A lane takes the place of the oldest one.
    pub fn open(&mut self, count: MPI_Count, layout: &Arc<TypeLayout>, lane: L) -> &L {
        let at = self.oldest;
        self.oldest = (at + 1) % SOME;
        let (_, lane) = self.lanes[at].insert((Likeness { count, layout: Arc::clone(layout) }, Box::new(lane)));
        lane
    }
}

#[cfg(test)]
mod tests {
    use super::super::datatype::TypeMap;
    use super::*;

    fn layout() -> Arc<TypeLayout> {
        let type_map = TypeMap::Contiguous { at: 0 };
        Arc::new(TypeLayout { size: 8, extent: 8, true_lb: 0, true_extent: 8, type_map })
    }

    #[test]
    fn the_last_ones_are_found_by_count_and_layout() {
        let layouts = [(); SOME + 1].map(|()| layout());
        let mut lanes = LayoutLanes::default();
        for (number, layout) in layouts.iter().enumerate() {
            assert_eq!(lanes.find(1, layout), None);
            assert_eq!(lanes.open(1, layout, number), &number);
        }
        let found: Vec<_> = layouts.iter().map(|layout| lanes.find(1, layout).copied()).collect();
        assert_eq!(found, [None, Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!((lanes.find(2, &layouts[1]), lanes.find(1, &layout())), (None, None));
    }

    #[test]
    fn what_is_missed_twice_in_a_row_is_worth_a_lane() {
        let [one, other] = [layout(), layout()];
        let mut lanes = LayoutLanes::<()>::default();
        let calls = [(1, &one), (1, &other), (1, &one), (1, &one), (2, &one), (2, &one)];
        let missed = calls.map(|(count, layout)| lanes.is_missed_again(count, layout));
        assert_eq!(missed, [false, false, false, true, false, true]);
    }
}
