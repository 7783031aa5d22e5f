//! What calls have in common that differ in their count alone: a lane for any count follows from it.
//!
//! A communicator remembers the last lanes of each collective ([`lanes`](super::lanes)). Programs that call with more counts than that, or
//! with a new one each time, find none; but where the datatype is predefined and has no holes, all about such a call but its count is what it
//! was for the one before, so its arguments are not looked at again: only the choice is made, as every rank makes it.

use super::arguments::Prepared;
use super::elements::Elements;
use super::lane::{Key, Lane, Lasting};
use super::op::{Combiner, Operator};
use super::serve::{Served, Site};
use crate::mpi::handles::predefined;
use crate::tune::{Choice, Shape, choose};
use crate::types::Bytes;
use mpi_sys::{MPI_Count, MPI_Datatype, MPI_Op};

/// Calls of one collective that are alike but for their count.
pub(super) struct Family {
    datatype: MPI_Datatype,
    op: MPI_Op,
    /// Bytes of an element.
    element: usize,
    /// Of some call.
    shape: Shape,
    combiner: Option<Combiner>,
}

/// So many for each collective: headers and data, of two or three types.
const SOME: usize = 4;

/// Those of the last calls of one collective that opened one.
#[derive(Default)]
pub(super) struct Families {
    families: Vec<Family>,
    oldest: usize,
}

impl Families {
    fn find(&self, key: &Key) -> Option<&Family> {
        self.families.iter().find(|family| (family.datatype, family.op) == (key.datatype, key.op))
    }

    /// A family takes the place of the oldest one.
    fn open(&mut self, family: Family) {
        if self.families.len() < SOME {
            self.families.push(family);
        } else {
            self.families[self.oldest] = family;
            self.oldest = (self.oldest + 1) % SOME;
        }
    }
}

impl Family {
    /// That of a call; none where a lane tells nothing of other counts.
    fn of(site: &Site<'_>, key: &Key, prepared: &Prepared) -> Option<Self> {
        let known = predefined(key.datatype).filter(|known| known.is_contiguous())?;
        let combiner = match &prepared.operator {
            Some(operator) => Some(Operator::share_combiner(operator)?),
            None => None,
        };
        let (element, shape) = (known.size, prepared.shape(site.collective));
        Some(Self { datatype: key.datatype, op: key.op, element, shape, combiner })
    }

    /// The lane for so many elements; none where the long way is to decide.
    fn lane(&self, site: &Site<'_>, count: MPI_Count) -> Option<Lane> {
        let bytes = usize::try_from(count).ok()?.checked_mul(self.element)?;
        bytes.checked_mul(site.blocks_at_most())?;
        let shape = Shape { bytes: Bytes(bytes), ..self.shape };
        let agreed = &site.shared.agreed;
        match choose(&site.job.config, &shape, agreed, &site.shared.map, site.epoch) {
            Choice::Run { row, plan }
                if site.may_open_lane(&plan) && plan.reach <= site.shared.cells.get().reserved =>
            {
                let key = Key { count, datatype: self.datatype, op: self.op };
                let elements = Elements::Packed { at: 0 };
                Some(Lane::of_elements(site, (key, Lasting::Always), row, plan, self.combiner.clone(), elements))
            }
            _ => None,
        }
    }
}

impl Site<'_> {
    /// A call whose key has no lane, if its family opens one by which `repeat` can take it.
    pub(super) fn try_family(&self, key: &Key, repeat: impl FnOnce(&Lane) -> Option<Served>) -> Option<Served> {
        if !self.has_lanes() {
            return None;
        }
        let family = self.shared.families(self.collective).find(key)?;
        let lanes = self.shared.lanes(self.collective);
        let vacancy = lanes.vacancy(key)?;
        repeat(lanes.open(vacancy, family.lane(self, key.count)?))
    }

    /// Notes the family of a call that opened a lane, so that calls with other counts need not look at their arguments.
    pub(super) fn open_family(&self, key: &Key, prepared: &Prepared) {
        let families = self.shared.families(self.collective);
        if families.find(key).is_none()
            && let Some(family) = Family::of(self, key, prepared)
        {
            families.open(family);
        }
    }
}
