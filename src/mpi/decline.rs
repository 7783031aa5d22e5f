//! The verdict for a call that is empty or left to the native library, without the long way.
//!
//! Where a communicator's calls of a collective are declined whatever their arguments, [`Site::enter`] counts them and
//! leaves them to the library, and nothing here runs. Else the choice declines empty calls, and some more where the
//! user asked for it or nodes hold no contiguous ranks. That needs only the length of the message and who defined the
//! operation, so operands, operation and plan are not made. Each rank may take this way or the long one: both reach the
//! same verdict. So do the permits of repeated calls ([`permits`]).

use super::communicator::find;
use super::datatype::{TypeLayout, freed};
use super::lane::Key;
use super::op::is_defined;
use super::permits::{self, Permit, Scope};
use super::serve::{Served, Site};
use crate::mpi::handles::{constants, predefined, predefined_op};
use crate::report::{Counter, Outcome, Reason};
use crate::tune::{OperatorClass, Prospect, Shape, early_reason};
use crate::types::{Bytes, Collective, CommRank, OperandOrder};
use mpi_sys::{MPI_Count, MPI_Datatype};
use std::ffi::{c_int, c_void};

/// This rank and the number of ranks of its communicator.
#[derive(Clone, Copy)]
pub(super) struct Seat {
    pub me: CommRank,
    pub ranks: usize,
}

impl Seat {
    /// The root, if it is a rank of the communicator.
    #[inline(always)]
    pub fn root(self, root: c_int) -> Option<CommRank> {
        let root = u32::try_from(root).ok().filter(|root| (*root as usize) < self.ranks)?;
        Some(CommRank(root))
    }

    /// Whether this rank is the root.
    #[inline(always)]
    pub fn is_me(self, root: c_int) -> bool {
        root == self.me.0 as c_int
    }
}

/// The significant addresses at this rank, without `MPI_IN_PLACE` where MPI allows it.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    /// The address of the input.
    send: Option<*const c_void>,
    /// The address of the output.
    recv: Option<*const c_void>,
}

/// What a null address means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Null {
    /// `MPI_BOTTOM`, with a datatype of the user's.
    Bottom,
    /// The address of no memory, with a predefined datatype.
    NoMemory,
}

/// The constructors; the arguments have the names that the standard gives them.
impl Addresses {
    pub const NONE: Self = Self { send: None, recv: None };

    #[inline(always)]
    pub fn of_bcast(buffer: *const c_void) -> Self {
        Self { recv: Some(buffer), ..Self::NONE }
    }

    /// The addresses of an Allreduce or an Allgather.
    #[inline(always)]
    pub fn of_allreduce(sendbuf: *const c_void, recvbuf: *const c_void) -> Self {
        Self { send: unless_in_place(sendbuf), recv: Some(recvbuf) }
    }

    #[inline(always)]
    pub fn of_reduce(seat: Seat, root: c_int, sendbuf: *const c_void, recvbuf: *const c_void) -> Self {
        match seat.is_me(root) {
            true => Self::of_allreduce(sendbuf, recvbuf),
            false => Self { send: Some(sendbuf), ..Self::NONE },
        }
    }

    #[inline(always)]
    pub fn of_scatter(seat: Seat, root: c_int, sendbuf: *const c_void, recvbuf: *const c_void) -> Self {
        match seat.is_me(root) {
            true => Self { send: Some(sendbuf), recv: unless_in_place(recvbuf) },
            false => Self { recv: Some(recvbuf), ..Self::NONE },
        }
    }

    /// Whether MPI might reject the addresses in a call with this key.
    #[inline(always)]
    fn are_doubtful(self, key: &Key, null: Null) -> bool {
        let Self { send, recv } = self;
        let (in_place, has_data) = (constants().in_place.cast_const(), key.count > 0);
        let may_be_rejected =
            |address: *const c_void| address == in_place || (address.is_null() && null == Null::NoMemory && has_data);
        let is_aliased = || send.is_some() && send == recv && has_data;
        send.is_some_and(may_be_rejected) || recv.is_some_and(may_be_rejected) || is_aliased()
    }

    /// Whether MPI certainly accepts the addresses in a call that has a permit. Its datatype is predefined, or else its
    /// count is 0 and a null address is accepted anyway.
    #[inline(always)]
    pub fn are_sound(self, key: &Key) -> bool {
        !self.are_doubtful(key, Null::NoMemory)
    }
}

/// The key of an Allgather: count and datatype of a block. `None` if `send` and `recv`, each count and datatype, differ
/// and both are significant.
#[inline(always)]
pub(super) fn allgather_key(
    sendbuf: *const c_void,
    send: (MPI_Count, MPI_Datatype),
    recv: (MPI_Count, MPI_Datatype),
) -> Option<Key> {
    let is_alike = sendbuf == constants().in_place.cast_const() || send == recv;
    is_alike.then(|| Key::moving(recv.0, recv.1))
}

/// The key under which a Scatter is counted whose other arguments are not looked at; some of these may not be
/// significant.
#[inline(always)]
pub(super) fn counted_scatter_key(
    send: (MPI_Count, MPI_Datatype),
    recv: (MPI_Count, MPI_Datatype),
    recvbuf: *const c_void,
) -> Key {
    let (count, datatype) = if recvbuf == constants().in_place.cast_const() { send } else { recv };
    Key::moving(count, datatype)
}

/// The key of a Scatter: count and datatype of a block. `None` if `send` and `recv`, each count and datatype, differ
/// and both are significant.
#[inline(always)]
pub(super) fn scatter_key(
    seat: Seat,
    root: c_int,
    send: (MPI_Count, MPI_Datatype),
    recv: (MPI_Count, MPI_Datatype),
    recvbuf: *const c_void,
) -> Option<Key> {
    match seat.is_me(root) {
        true if recvbuf == constants().in_place.cast_const() || send == recv => Some(Key::moving(send.0, send.1)),
        true => None,
        false => Some(Key::moving(recv.0, recv.1)),
    }
}

/// Packed bytes of a call with a predefined datatype; `None` for any other: the library might reject the question for
/// its size.
pub(super) fn known_size(collective: Collective, key: &Key) -> Option<Bytes> {
    if collective == Collective::Barrier {
        return Some(Bytes::ZERO);
    }
    let known = predefined(key.datatype)?;
    usize::try_from(key.count).ok()?.checked_mul(known.size).map(Bytes)
}

/// The address of a buffer, `None` if it is `MPI_IN_PLACE`.
#[inline(always)]
fn unless_in_place(address: *const c_void) -> Option<*const c_void> {
    (address != constants().in_place.cast_const()).then_some(address)
}

impl Site<'_> {
    /// This rank's seat.
    #[inline(always)]
    pub(super) fn seat(&self) -> Seat {
        Seat { me: self.shared.me, ranks: self.shared.agreed.ranks }
    }

    #[inline(always)]
    fn may_be_declined(&self, key: &Key) -> bool {
        key.count == 0 || self.shared.prospect(self.collective) == Prospect::Mixed
    }

    /// Declines the call if the verdict is clear: counts it and returns its outcome. `None` leaves the decision to
    /// the long way.
    pub(super) fn try_decline(&self, key: &Key, root: Option<CommRank>, addresses: Addresses) -> Option<Served> {
        if !self.may_be_declined(key) {
            return None;
        }
        // Read before MPI is asked about the datatype, so that a permit does not outlive the answer.
        let freed = freed();
        let (reason, bytes) = self.verdict(key, root?, addresses)?;
        let counter = Counter::of(Outcome::Declined(self.collective, reason), bytes);
        let is_predefined = predefined(key.datatype).is_some();
        if is_predefined || key.count == 0 {
            let scope = match reason {
                Reason::Empty => Scope::SoundAndEmpty(self.seat()),
                _ => Scope::Sound(self.seat()),
            };
            let freed = (!is_predefined).then_some(freed);
            if let Some(communicator) = find(self.job, self.comm) {
                let (comm, key) = (self.comm, *key);
                permits::keep(self.collective, communicator, counter, Permit { comm, key, freed, scope, bytes });
            }
        }
        Some(self.end_declined(reason, counter, bytes))
    }

    /// Why the call is declined, and its length. `None` if MPI might reject it, if it is not declined, or if that is
    /// not known here.
    fn verdict(&self, key: &Key, root: CommRank, addresses: Addresses) -> Option<(Reason, Bytes)> {
        let known = predefined(key.datatype);
        // 1. Addresses that MPI might reject.
        let null = if known.is_some() { Null::NoMemory } else { Null::Bottom };
        if addresses.are_doubtful(key, null) {
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
