//! Lanes for calls with a datatype that is made anew each time, found by how its elements lie.
//!
//! Its handle tells nothing then: the last one was freed. But datatypes that are made alike have one layout ([`alike`](super::alike)), so a
//! call whose datatype was looked at can go on by a lane, before the rest of its arguments is if the last such call found one.

use super::alike;
use super::arguments::Prepared;
use super::datatype::TypeLayout;
use super::elements::Elements;
use super::lane::{Key, Lane, Lasting, Opening};
use super::serve::{Served, Site};
use crate::coll::Plan;
use crate::mpi::handles::predefined;
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
    /// Whether the last call that looked found one.
    has_found: bool,
}

impl<L> Default for LayoutLanes<L> {
    fn default() -> Self {
        Self { lanes: std::array::from_fn(|_| None), oldest: 0, latest: None, has_found: false }
    }
}

impl<L> LayoutLanes<L> {
    /// The lane for so many elements that lie so.
    pub fn find(&mut self, count: MPI_Count, layout: &Arc<TypeLayout>) -> Option<&L> {
        let mut lanes = self.lanes.iter().flatten();
        let found = lanes.find(|(elements, _)| elements.are(count, layout)).map(|(_, lane)| &**lane);
        self.has_found = found.is_some();
        found
    }

    /// Whether the next call is likely to find one: then it looks before its arguments are looked at.
    #[inline]
    pub fn are_likely(&self) -> bool {
        self.has_found
    }

    /// A call could not go by the one that it found, for its addresses, nor are those like it likely to.
    pub fn note_useless(&mut self) {
        self.has_found = false;
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
        self.has_found = true;
        let (_, lane) = self.lanes[at].insert((Likeness { count, layout: Arc::clone(layout) }, Box::new(lane)));
        lane
    }
}

impl Site<'_> {
    /// Opens a lane for calls like this one, whose datatype is made anew each time, if that is of use.
    pub(super) fn open_layout_lane(&self, key: Key, row: usize, plan: Plan, prepared: &Prepared) -> Option<&Lane> {
        let layout = match prepared.segmented() {
            Some(layout) => Arc::clone(layout),
            None => self.layout_of_packed(&key, prepared)?,
        };
        let lanes = self.shared.layout_lanes(self.collective);
        // Calls that can't go by the one that is there, for their addresses, do not open another.
        if !alike::may_be_remembered(&layout)
            || lanes.find(key.count, &layout).is_some()
            || !lanes.is_missed_again(key.count, &layout)
        {
            return None;
        }
        let blocks = self.blocks_at_most();
        let count = usize::try_from(key.count).ok()?.checked_mul(blocks)?;
        let elements = Elements::laid_out(Arc::clone(&layout), count, plan.bytes * blocks)?;
        let lane = Lane::of_elements(self, (key, Lasting::Always), row, plan, None, elements);
        Some(lanes.open(key.count, &layout, lane))
    }

    /// The layout of elements that are packed as they lie, of a datatype of the program's, which is looked at again for it: by one call of so many.
    fn layout_of_packed(&self, key: &Key, prepared: &Prepared) -> Option<Arc<TypeLayout>> {
        const LOOKS: u64 = 8;
        let moves = prepared.operator.is_none() && key.count > 0;
        // SAFETY: the datatype of the call that is under way, which MPI has found to be committed.
        let layout = || unsafe { TypeLayout::of_again(key.datatype, self.job.self_comm) }.ok();
        if moves && self.epoch.0.is_multiple_of(LOOKS) { layout() } else { None }
    }

    /// A call with a datatype that is made anew, if it can go by a lane that is found before its other arguments are looked at.
    pub(super) fn try_layout_lane(&self, key: &Key, repeat: impl FnOnce(&Lane) -> Option<Served>) -> Option<Served> {
        let lanes = self.shared.layout_lanes(self.collective);
        if !lanes.are_likely() || !self.looks_for_layout_lane() || key.count <= 0 || predefined(key.datatype).is_some()
        {
            return None;
        }
        // SAFETY: the datatype of the call that is under way; where MPI rejects it the long way does.
        let layout = unsafe { TypeLayout::of(key.datatype, self.job.self_comm) }.ok()?;
        let served = repeat(lanes.find(key.count, &layout)?);
        if served.is_none() {
            self.shared.layout_lanes(self.collective).note_useless();
        }
        served
    }

    /// The lane of such a call whose arguments have been looked at.
    pub(super) fn layout_lane(&self, opening: &Opening, prepared: &Prepared) -> Option<&Lane> {
        let layout = prepared.segmented().filter(|_| self.looks_for_layout_lane())?;
        self.shared.layout_lanes(self.collective).find(opening.key.count, layout)
    }

    /// Whether the call may go by such a lane. One of so many looks whether its datatype lasts by now, as others are no longer freed.
    fn looks_for_layout_lane(&self) -> bool {
        const LOOKS: u64 = 64;
        !self.epoch.0.is_multiple_of(LOOKS) && self.has_lanes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::datatype::TypeMap;
    use super::*;

    fn layout() -> Arc<TypeLayout> {
        let type_map = TypeMap::Contiguous { at: 0 };
        Arc::new(TypeLayout { size: 8, lb: 0, extent: 8, true_lb: 0, true_extent: 8, type_map })
    }

    #[test]
    fn the_last_ones_are_found_by_count_and_layout() {
        let layouts = [(); SOME + 1].map(|()| layout());
        let mut lanes = LayoutLanes::default();
        for (number, layout) in layouts.iter().enumerate() {
            assert_eq!(lanes.find(1, layout), None);
            assert_eq!(lanes.open(1, layout, number), &number);
        }
        assert!(lanes.are_likely());
        let found: Vec<_> = layouts.iter().map(|layout| lanes.find(1, layout).copied()).collect();
        assert_eq!(found, [None, Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(lanes.find(2, &layouts[1]), None);
        assert!(!lanes.are_likely());
        assert_eq!(lanes.find(1, &layout()), None);
        assert!(!lanes.are_likely());
        assert_eq!(lanes.find(1, &layouts[1]), Some(&1));
        assert!(lanes.are_likely());
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
