//! Whether this rank lends its memory in a call, where trials decide that.

use super::Context;
use crate::fabric::Source;
use crate::fabric::shm::Waiting;
use crate::fabric::shm::loans::{Loans, Ranks};
use crate::types::{Bytes, Collective};

impl Context {
    /// Chooses the source out of which peers copy this rank's `n` bytes in the call that begins, where both sources are
    /// tried, and counts the call for their trials. The first call of a length begins with `first`. Every rank asks
    /// once in each such call, whether it has data for others or not.
    #[inline]
    pub fn choose_source(&self, waiting: &Waiting, collective: Collective, n: Bytes, first: Source) -> Source {
        let ranks = if self.is_pair_with_cores(waiting) { Ranks::Pair } else { Ranks::Many(self) };
        self.loans.get_or_init(Box::default).decide(ranks, collective, n, first)
    }

    /// Ends a call for which [`Self::choose_source`] may have been asked.
    #[inline(always)]
    pub(in crate::fabric::shm) fn note_leave(&self, waiting: &Waiting) {
        if !self.is_pair_with_cores(waiting)
            && let Some(loans) = self.loans()
        {
            loans.leave();
        }
    }

    /// The call that was decided on has failed.
    #[cold]
    pub(in crate::fabric::shm) fn fail_loan(&self) {
        if let Some(loans) = self.loans() {
            loans.fail();
        }
    }

    /// A peer could not fetch what was lent, so this rank lends no more in calls that are decided on.
    #[cold]
    pub(in crate::fabric::shm) fn refuse_loans(&self) {
        self.loans.get_or_init(Box::default).refuse();
    }

    /// What trials of lending found in this context, if a call was decided on.
    pub(in crate::fabric::shm) fn loans(&self) -> Option<&Loans> {
        self.loans.get().map(|loans| &**loans)
    }
}
