//! Lanes for calls with a datatype that is made anew each time, found by the layout of its elements.
//!
//! The handle of such a datatype tells nothing, since the one before was freed. But datatypes that are made alike share
//! one layout ([`alike`](super::alike)), so a call that has looked at its datatype can take a lane. If the last such
//! call found one, it looks for it before it looks at its other arguments.

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

/// Lanes that are remembered, as many as layouts in `alike`.
const SOME: usize = 4;

/// The count and layout that all calls of one lane have.
struct Likeness {
    count: MPI_Count,
    layout: Arc<TypeLayout>,
}

impl Likeness {
    fn are(&self, count: MPI_Count, layout: &Arc<TypeLayout>) -> bool {
        // While this `Arc` is held, no other layout has its address.
        self.count == count && Arc::ptr_eq(&self.layout, layout)
    }
}

/// The last lanes of one collective of a communicator that were opened by layout.
pub(super) struct LayoutLanes<L> {
    lanes: [Option<(Likeness, Box<L>)>; SOME],
    oldest: usize,
    /// Count and layout of the last call that found no lane.
    latest: Option<Likeness>,
    /// Whether the last call that looked for a lane found one.
    has_found: bool,
}

impl<L> Default for LayoutLanes<L> {
    fn default() -> Self {
        Self { lanes: std::array::from_fn(|_| None), oldest: 0, latest: None, has_found: false }
    }
}

impl<L> LayoutLanes<L> {
    /// The lane for `count` elements of this layout. Notes whether there is one.
    pub fn find(&mut self, count: MPI_Count, layout: &Arc<TypeLayout>) -> Option<&L> {
        let mut lanes = self.lanes.iter().flatten();
        let found = lanes.find(|(elements, _)| elements.are(count, layout)).map(|(_, lane)| &**lane);
        self.has_found = found.is_some();
        found
    }

    /// Whether the next call is likely to find a lane. It then looks for one before it looks at its other arguments.
    #[inline]
    pub fn are_likely(&self) -> bool {
        self.has_found
    }

    /// Notes that a call could not take the lane that it found, because of its addresses; calls like it likely can't
    /// either.
    pub fn note_useless(&mut self) {
        self.has_found = false;
    }

    /// Notes a call that found no lane. Returns whether the last one before it without a lane had the same count and
    /// layout; otherwise a lane would be of no use either.
    pub fn is_missed_again(&mut self, count: MPI_Count, layout: &Arc<TypeLayout>) -> bool {
        let is_again = self.latest.as_ref().is_some_and(|latest| latest.are(count, layout));
        if !is_again {
            self.latest = Some(Likeness { count, layout: Arc::clone(layout) });
        }
        is_again
    }

    /// Opens a lane in place of the oldest one.
    pub fn open(&mut self, count: MPI_Count, layout: &Arc<TypeLayout>, lane: L) -> &L {
        let at = self.oldest;
        self.oldest = (at + 1) % SOME;
        self.has_found = true;
        let (_, lane) = self.lanes[at].insert((Likeness { count, layout: Arc::clone(layout) }, Box::new(lane)));
        lane
    }
}

impl Site<'_> {
    /// Opens a lane for calls like this one, whose datatype is made anew each time. `None` if that is of no use.
    pub(super) fn open_layout_lane(&self, key: Key, row: usize, plan: Plan, prepared: &Prepared) -> Option<&Lane> {
        let layout = match prepared.segmented() {
            Some(layout) => Arc::clone(layout),
            None => self.layout_of_packed(&key, prepared)?,
        };
        let lanes = self.shared.layout_lanes(self.collective);
        // Calls that can't take the existing lane, because of their addresses, do not open another.
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

    /// The layout of a derived datatype whose elements lie in memory as they are packed. The datatype is looked at
    /// again for it, so only one in `LOOKS` calls gets it.
    fn layout_of_packed(&self, key: &Key, prepared: &Prepared) -> Option<Arc<TypeLayout>> {
        const LOOKS: u64 = 8;
        let moves = prepared.operator.is_none() && key.count > 0;
        // SAFETY: the datatype of the call that is under way, which MPI has found to be committed.
        let layout = || unsafe { TypeLayout::of_again(key.datatype, self.job.self_comm) }.ok();
        if moves && self.epoch.0.is_multiple_of(LOOKS) { layout() } else { None }
    }

    /// Serves a call whose datatype is made anew, if its lane is found before its other arguments are looked at.
    pub(super) fn try_layout_lane(&self, key: &Key, repeat: impl FnOnce(&Lane) -> Option<Served>) -> Option<Served> {
        let lanes = self.shared.layout_lanes(self.collective);
        if !lanes.are_likely() || !self.looks_for_layout_lane() || key.count <= 0 || predefined(key.datatype).is_some()
        {
            return None;
        }
        // SAFETY: the datatype of the call that is under way; if MPI rejects it, `of` fails and the long way rejects
        // the call.
        let layout = unsafe { TypeLayout::of(key.datatype, self.job.self_comm) }.ok()?;
        let served = repeat(lanes.find(key.count, &layout)?);
        if served.is_none() {
            self.shared.layout_lanes(self.collective).note_useless();
        }
        served
    }

    /// The lane of a call with such a datatype, whose arguments have been looked at.
    pub(super) fn layout_lane(&self, opening: &Opening, prepared: &Prepared) -> Option<&Lane> {
        let layout = prepared.segmented().filter(|_| self.looks_for_layout_lane())?;
        self.shared.layout_lanes(self.collective).find(opening.key.count, layout)
    }

    /// Whether the call may take such a lane. One in `LOOKS` calls doesn't, to find out whether its datatype lasts by
    /// now: the program may no longer free others.
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
