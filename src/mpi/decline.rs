//! The short way of a call that is empty or left to the native library.
//!
//! Where a communicator's calls of a collective are declined whatever their arguments, they are counted and go to the library without
//! any of this ([`Site::enter`]). Else the choice declines what is empty, and where the user asked for it or nodes hold no contiguous
//! ranks some more: that needs nothing but the length of the message and who defined the operation, so operands, operation and
//! plan are not made. Whether a rank takes this way is its own affair: on the long way it comes to the same verdict.

use super::datatype::{TypeLayout, freed};
use super::lane::Key;
use super::op::is_defined;
use super::serve::{Served, Site};
use crate::mpi::handles::{constants, predefined, predefined_op};
use crate::report::{Counter, Outcome, Reason};
use crate::tune::{LAST_EPOCH, OperatorClass, Prospect, Shape, early_reason};
use crate::types::{Bytes, CommRank, OperandOrder};
use std::ffi::c_void;

/// The addresses that are significant at this rank, but for `MPI_IN_PLACE` where it is allowed.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    /// Of the input.
    pub send: Option<*const c_void>,
    /// Of the output.
    pub recv: Option<*const c_void>,
}

/// A call that was declined. Calls with the same key are declined as well: of the operation counts who defined it, and no handle
/// of a user's ever becomes a predefined one.
pub(super) struct Declined {
    key: Key,
    /// Of a datatype of the user's: [`freed`] at that time. Its handle may be another one's later on, which MPI might reject.
    freed: Option<u64>,
    reason: Reason,
    /// Where it was counted.
    counter: Counter,
    bytes: Bytes,
}

/// Programs call in turn with a few counts; of the counts that share a place the last one is remembered.
const PLACES: usize = 4;

/// The last calls of one collective that were declined.
#[derive(Default)]
pub(super) struct LastDeclined([Option<Declined>; PLACES]);

impl LastDeclined {
    /// Where a call with this key is remembered.
    #[inline(always)]
    fn place(&mut self, key: &Key) -> &mut Option<Declined> {
        /// 2^64 over the golden ratio: neighbours and powers of two lie apart.
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        &mut self.0[((key.count as u64).wrapping_mul(SPREAD) >> (64 - PLACES.ilog2())) as usize]
    }
}

/// The address of a buffer that may be in place.
#[inline(always)]
pub(super) fn unless_in_place(address: *const c_void) -> Option<*const c_void> {
    (address != constants().in_place.cast_const()).then_some(address)
}

impl Site<'_> {
    /// What becomes of the call if it is one of the last again that were declined; it is counted as such.
    #[inline(always)]
    pub(super) fn try_decline_again(&self, key: &Key, root: Option<CommRank>, addresses: Addresses) -> Option<Served> {
        if !self.may_be_declined(key) {
            return None;
        }
        let last = self.shared.last_declined(self.collective).place(key).as_ref()?;
        // All at once, by one branch: more of them make branches of the native call harder to predict, 8 ns in one of MPICH 4.0.2
        // (docs/PERFORMANCE.md, "Tried").
        let now = freed();
        let is_again = (last.key == *key)
            & (last.freed.unwrap_or(now) == now)
            & (self.epoch < LAST_EPOCH)
            & root.is_some()
            // What is remembered has a predefined datatype or a count of 0, where that does not matter.
            & !is_doubtful(key, addresses, true);
        is_again.then(|| self.end_declined(last.reason, last.counter, last.bytes))
    }

    #[inline(always)]
    fn may_be_declined(&self, key: &Key) -> bool {
        key.count == 0 || self.shared.prospect(self.collective) == Prospect::Mixed
    }

    /// What becomes of the call if it is declined, and counted as such. `None` says nothing: the long way knows.
    pub(super) fn try_decline(&self, key: &Key, root: Option<CommRank>, addresses: Addresses) -> Option<Served> {
        if !self.may_be_declined(key) {
            return None;
        }
        // Read before MPI is asked for what is then remembered.
        let freed = freed();
        let (reason, bytes) = self.verdict(key, root?, addresses)?;
        let counter = Counter::of(Outcome::Declined(self.collective, reason), bytes);
        let is_predefined = predefined(key.datatype).is_some();
        if (is_predefined || key.count == 0) && self.epoch < LAST_EPOCH {
            let freed = (!is_predefined).then_some(freed);
            let declined = Declined { key: *key, reason, freed, counter, bytes };
            *self.shared.last_declined(self.collective).place(key) = Some(declined);
        }
        Some(self.end_declined(reason, counter, bytes))
    }

    /// Why the call is declined, and its length; `None` where MPI might reject it, or that is not known here.
    fn verdict(&self, key: &Key, root: CommRank, addresses: Addresses) -> Option<(Reason, Bytes)> {
        let known = predefined(key.datatype);
        // 1. Addresses that MPI might reject.
        if is_doubtful(key, addresses, known.is_some()) {
            return None;
        }
        // 2. The length.
        let size = match known {
            Some(known) => known.size,
            None if key.datatype == constants().datatype_null => return None,
            // SAFETY: not null, and the program's.
            None => unsafe { TypeLayout::known_size(key.datatype) }?,
        };
        let bytes = usize::try_from(key.count).ok()?.checked_mul(size)?;
        // The long way ends the job where the blocks of all ranks exceed the address space.
        bytes.checked_mul(self.shared.agreed.ranks)?;
        // 3. The operation.
        let is_reduction = self.collective.is_reduction();
        let operator = match (is_reduction, predefined_op(key.op)) {
            (false, _) => OperatorClass::None,
            // SAFETY: both are predefined.
            (true, Some(op)) if unsafe { is_defined(op, key.op, known?, self.job.self_comm) } => {
                OperatorClass::Predefined
            }
            (true, None) if key.op != constants().op_null => OperatorClass::User,
            _ => return None,
        };
        // 4. The choice.
        let granule = Bytes(if is_reduction { size.max(1) } else { 1 });
        let (collective, bytes, order) = (self.collective, Bytes(bytes), OperandOrder::Any);
        let shape = Shape { collective, bytes, granule, root, operator, order };
        Some((early_reason(&self.job.config, &shape, &self.shared.agreed, self.epoch)?, bytes))
    }
}

/// Whether MPI might reject the addresses of a call whose datatype is predefined or not.
#[inline(always)]
fn is_doubtful(key: &Key, Addresses { send, recv }: Addresses, is_predefined: bool) -> bool {
    let (in_place, has_data) = (constants().in_place.cast_const(), key.count > 0);
    let may_be_rejected =
        |address: *const c_void| (address == in_place) | (address.is_null() & is_predefined & has_data);
    let is_aliased = send.is_some() & (send == recv) & has_data;
    is_aliased | send.is_some_and(may_be_rejected) | recv.is_some_and(may_be_rejected)
}
