//! Stems: the common part of lanes that differ in their count alone. A lane for any count grows from a stem.
//!
//! A communicator remembers some lanes of each collective ([`lanes`](super::lanes)). A program that calls with more
//! counts than that, or with a new one each time, finds none. But if the datatype is predefined and has no holes, such
//! a call differs from an earlier one in its count alone. So its arguments are not looked at again: only the choice is
//! made, as on every rank.

use super::arguments::Prepared;
use super::elements::Elements;
use super::lane::{Key, Lane, Lasting};
use super::op::Combiner;
use super::serve::{Served, Site};
use crate::mpi::handles::predefined;
use crate::tune::Shape;
use crate::types::Bytes;
use mpi_sys::{MPI_Datatype, MPI_Op};

/// The arguments that calls of one collective must have in common to share a stem: a key without its count.
pub(super) type StemKey = (MPI_Datatype, MPI_Op);

/// The common part of calls of one collective that differ in their count alone.
pub(super) struct Stem {
    /// Bytes of an element.
    element: usize,
    /// The shape of an earlier call; each call sets the length.
    shape: Shape,
    combiner: Option<Combiner>,
}

/// Stems of each collective: programs send headers and data, of two or three types.
const SOME: usize = 4;

/// The last stems of one collective that were opened.
pub(super) struct Stems<K, S> {
    stems: Vec<(K, S)>,
    oldest: usize,
}

impl<K, S> Default for Stems<K, S> {
    fn default() -> Self {
        Self { stems: Vec::new(), oldest: 0 }
    }
}

impl<K: PartialEq, S> Stems<K, S> {
    fn find(&self, key: &K) -> Option<&S> {
        self.stems.iter().find(|(other, _)| other == key).map(|(_, stem)| stem)
    }

    /// Adds a stem, in place of the oldest one if there are `SOME`.
    fn open(&mut self, key: K, stem: S) {
        if self.stems.len() < SOME {
            self.stems.push((key, stem));
        } else {
            self.stems[self.oldest] = (key, stem);
            self.oldest = (self.oldest + 1) % SOME;
        }
    }
}

impl Stem {
    /// The stem of a call with this key and lane; `None` if the lane tells nothing of other counts.
    fn of(key: &Key, lane: &Lane, shape: Shape) -> Option<Self> {
        let known = predefined(key.datatype).filter(|known| known.is_contiguous())?;
        Some(Self { element: known.size, shape, combiner: lane.combiner.clone() })
    }

    /// A lane for calls with this key; `None` if the long way has to decide.
    fn lane(&self, site: &Site<'_>, key: &Key) -> Option<Lane> {
        let bytes = usize::try_from(key.count).ok()?.checked_mul(self.element)?;
        bytes.checked_mul(site.blocks_at_most())?;
        let shape = Shape { bytes: Bytes(bytes), ..self.shape };
        let (row, plan) = site.choose(&shape).ok()?;
        // The ranks would have to agree on reserving more of their cells, which the long way does.
        let may_open = site.may_open_lane(&plan) && plan.reach <= site.shared.cells.get().reserved;
        let (packed, always) = (Elements::Packed { at: 0 }, Lasting::Always);
        may_open.then(|| Lane::of_elements(site, (*key, always), row, plan, self.combiner.clone(), packed))
    }
}

impl Site<'_> {
    /// Serves a call whose key has no lane, if a lane for it grows from a stem and `repeat` can take that.
    pub(super) fn try_stem(&self, key: &Key, repeat: impl FnOnce(&Lane) -> Option<Served>) -> Option<Served> {
        if !self.has_lanes() {
            return None;
        }
        let stem = self.shared.stems(self.collective).find(&(key.datatype, key.op))?;
        let lanes = self.shared.lanes(self.collective);
        let vacancy = lanes.vacancy(key)?;
        repeat(lanes.open(vacancy, stem.lane(self, key)?))
    }

    /// Notes the stem of a call and its lane, so that calls with other counts need not look at their arguments.
    pub(super) fn open_stem(&self, key: &Key, lane: &Lane, prepared: &Prepared) {
        let (stems, stem_key) = (self.shared.stems(self.collective), (key.datatype, key.op));
        if stems.find(&stem_key).is_none()
            && let Some(stem) = Stem::of(key, lane, prepared.shape(self.collective))
        {
            stems.open(stem_key, stem);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_that_were_opened_are_found() {
        let mut stems = Stems::default();
        for key in 0..SOME + 2 {
            assert_eq!(stems.find(&key), None);
            stems.open(key, 10 * key);
            assert_eq!(stems.find(&key), Some(&(10 * key)));
        }
        let found: Vec<_> = (0..SOME + 2).filter(|key| stems.find(key).is_some()).collect();
        assert_eq!(found, (2..SOME + 2).collect::<Vec<_>>());
    }
}
