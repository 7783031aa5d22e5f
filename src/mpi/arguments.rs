//! From the arguments of a collective to the shape that the choice sees and the operands that the call needs.
//!
//! Arguments that MPI rejects are left to the native call, which calls the error handler with its own error class.
//! Where input and output of this rank differ in length, the native call might wait for peers instead, so huddle calls
//! the handler itself. Where the standard leaves room, huddle asks the library, on a communicator of this process
//! alone.

use super::asking::is_accepted;
use super::datatype::{Rejected, TypeLayout};
use super::device::{self, Role, Staged};
use super::job::abort;
use super::op::Operator;
use super::serve::Site;
use super::view::View;
use crate::kernel::PackedBuffer;
use crate::log;
use crate::mpi::handles::{constants, predefined};
use crate::mpi::native::native;
use crate::tune::{OperatorClass, Shape};
use crate::types::{Bytes, Collective, CommRank, OperandOrder};
use mpi_sys::{MPI_Count, MPI_Datatype, MPI_Op};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// Why a call can't run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The MPI library rejects the arguments; the native call reports it.
    ByLibrary,
    /// Input and output of this rank differ in length; the native call might wait for its peers.
    Truncated,
}

/// A buffer of the program.
pub enum Operand {
    /// Not significant at this rank.
    Absent,
    /// In memory as it is packed.
    Memory(*mut u8),
    /// With holes between its data.
    View(View),
    /// A block in a buffer with holes.
    Part(Part),
    /// In memory of a device.
    Staged(Box<Staged>),
}

/// The packed bytes of a buffer from `offset` on.
pub struct Part {
    view: View,
    offset: usize,
}

impl PackedBuffer for Part {
    unsafe fn read(&self, offset: usize, to: *mut u8, n: usize) {
        // SAFETY: the caller's promise for the part holds for the view, `self.offset` bytes further on.
        unsafe { self.view.read(self.offset + offset, to, n) }
    }

    unsafe fn write(&self, offset: usize, from: *const u8, n: usize) {
        // SAFETY: as in `read`.
        unsafe { self.view.write(self.offset + offset, from, n) }
    }

    fn fills_lines(&self) -> bool {
        self.view.fills_lines()
    }
}

/// A call whose arguments are in order.
pub struct Prepared {
    /// As in [`Shape`].
    pub bytes: Bytes,
    granule: Bytes,
    root: CommRank,
    /// The input.
    pub send: Operand,
    /// The output.
    pub recv: Operand,
    /// Whether the call runs in place.
    pub is_in_place: bool,
    /// The operation of a reduction.
    pub operator: Option<Operator>,
    /// Datatype and operation, where the native library can reduce packed data.
    pub native_op: Option<(MPI_Datatype, MPI_Op)>,
}

impl Prepared {
    fn moving(bytes: Bytes, root: CommRank, send: Operand, recv: Operand) -> Self {
        let granule = Bytes(1);
        Self { bytes, granule, root, send, recv, is_in_place: false, operator: None, native_op: None }
    }

    /// The shape of the call, which is the same on all ranks.
    #[inline]
    pub fn shape(&self, collective: Collective) -> Shape {
        let (operator, order) = match &self.operator {
            None => (OperatorClass::None, OperandOrder::Any),
            Some(operator) => {
                (operator.class(), if operator.is_commutative() { OperandOrder::Any } else { OperandOrder::Rank })
            }
        };
        Shape { collective, bytes: self.bytes, granule: self.granule, root: self.root, operator, order }
    }

    /// The layout of elements that lie in segments, in a call that only moves data and whose buffers all have one
    /// datatype.
    pub(super) fn segmented(&self) -> Option<&Arc<TypeLayout>> {
        let views = [&self.recv, &self.send].into_iter().filter_map(|operand| match operand {
            Operand::View(view) => Some(view),
            _ => None,
        });
        if self.operator.is_some() { None } else { views.filter_map(View::segmented).next() }
    }

    /// After the call: delivers data that were held back to the program's buffer.
    #[inline]
    pub fn finish(&self) {
        if let Operand::View(view) = &self.recv {
            view.finish();
        }
        if let Operand::Part(part) = &self.recv {
            part.view.finish();
        }
        if let Operand::Staged(staged) = &self.recv {
            staged.store();
        }
    }
}

/// Address, count and datatype of an input.
pub type Input = (*const c_void, MPI_Count, MPI_Datatype);
/// Address, count and datatype of an output.
pub type Output = (*mut c_void, MPI_Count, MPI_Datatype);

/// A buffer and its packed length.
#[inline]
fn operand(
    site: &Site<'_>,
    role: Role,
    address: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
) -> Result<(Operand, Bytes), Refused> {
    if count < 0 || datatype == constants().datatype_null {
        return Err(Refused::ByLibrary);
    }
    let known = predefined(datatype);
    // MPI_BOTTOM is null, and no data of a predefined datatype can be at address 0.
    if known.is_some() && address.is_null() && count > 0 {
        return Err(Refused::ByLibrary);
    }
    if device::may_be_used()
        && let Some(staged) = staged(site, role, address, count, datatype)?
    {
        return Ok(staged);
    }
    match known {
        Some(known) if known.is_contiguous() => match (count as usize).checked_mul(known.size) {
            Some(bytes) => Ok((Operand::Memory(address.cast()), Bytes(bytes))),
            None => too_large(),
        },
        _ => Ok(operand_of(view(site, address, count, datatype)?)),
    }
}

/// The operand for a view, which may have no holes, and its packed length.
fn operand_of(view: View) -> (Operand, Bytes) {
    let bytes = Bytes(view.len());
    match view.as_contiguous() {
        Some(at) => (Operand::Memory(at), bytes),
        None => (Operand::View(view), bytes),
    }
}

/// As [`operand`], for a call's second buffer: if it has the datatype of the other one, that one's layout serves for
/// both.
#[inline]
fn operand_beside(
    site: &Site<'_>,
    role: Role,
    (address, count, datatype): Output,
    (other, other_type): (&Operand, MPI_Datatype),
) -> Result<(Operand, Bytes), Refused> {
    if let Operand::View(view) = other
        && datatype == other_type
        && count >= 0
        && !device::may_be_used()
        && let Some(alike) = view.alike(address, count as u64).unwrap_or_else(|_| too_large())
    {
        return Ok(operand_of(alike));
    }
    operand(site, role, address, count, datatype)
}

fn view(site: &Site<'_>, address: *mut c_void, count: MPI_Count, datatype: MPI_Datatype) -> Result<View, Refused> {
    // SAFETY: the program's arguments.
    let view = unsafe { View::new(address, count as u64, datatype, site.job.self_comm) };
    view.map_err(|rejected| match rejected {
        Rejected::TooLarge => too_large(),
        _ => Refused::ByLibrary,
    })
}

/// The operand for a buffer in a device's memory, and its packed length; `None` if the buffer is not in such memory.
#[cold]
fn staged(
    site: &Site<'_>,
    role: Role,
    address: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
) -> Result<Option<(Operand, Bytes)>, Refused> {
    let view = view(site, address, count, datatype)?;
    let staged = Staged::new(&view, role, |n| site.shared.memory(role.purpose(), n));
    Ok(staged.map(|staged| (Operand::Staged(Box::new(staged)), Bytes(view.len()))))
}

/// Ends the job. The peers know nothing of this rank's datatype, so this rank can't decline the call alone.
#[cold]
fn too_large() -> ! {
    log::error(format_args!(
        "a buffer exceeds the address space, or what one MPI_Pack takes of a datatype that only the MPI library can pack; \
         HUDDLE_<COLLECTIVE>=native leaves such calls to the library"
    ));
    abort()
}

/// The number of elements in the blocks of all ranks together, `count` in each.
fn count_of_all(site: &Site<'_>, count: MPI_Count, datatype: MPI_Datatype) -> Result<MPI_Count, Refused> {
    match count.checked_mul(site.shared.agreed.ranks as MPI_Count) {
        Some(all) => Ok(all),
        None if count < 0 => Err(Refused::ByLibrary),
        // The product overflows. Without data any count will do; with data the blocks exceed every address space.
        None => match view(site, std::ptr::null_mut(), count, datatype)?.is_empty() {
            true => Ok(count),
            false => too_large(),
        },
    }
}

fn is_root(site: &Site<'_>, root: c_int) -> Result<bool, Refused> {
    if root < 0 || root as usize >= site.shared.agreed.ranks {
        return Err(Refused::ByLibrary);
    }
    Ok(site.shared.me.0 as c_int == root)
}

/// # Safety
/// The arguments are the program's, under MPI's contract; the same holds for all functions here.
#[inline]
pub unsafe fn allreduce(
    site: &Site<'_>,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
    op: MPI_Op,
) -> Result<Prepared, Refused> {
    let in_place = constants().in_place;
    if recvbuf == in_place {
        return Err(Refused::ByLibrary);
    }
    let is_aliased = sendbuf == recvbuf.cast_const() && count > 0 && !recvbuf.is_null();
    if is_aliased {
        // Input and output are the same memory without MPI_IN_PLACE. Some libraries reject that, Open MPI not for one
        // element; where the library accepts it, it means the same as in place.
        let count = count.min(2) as c_int;
        // SAFETY: on one process the result is the operand itself.
        let call = |comm| unsafe { native().allreduce(sendbuf, recvbuf, count, datatype, op, comm) };
        if !is_accepted(site.job.self_comm, call) {
            return Err(Refused::ByLibrary);
        }
    }
    let is_in_place = is_aliased || sendbuf == in_place.cast_const();
    // SAFETY: the caller's promise.
    unsafe { reduction(site, (!is_in_place).then_some(sendbuf), Some(recvbuf), count, datatype, op, CommRank(0)) }
}

/// # Safety
/// As for `allreduce`.
#[inline]
pub unsafe fn reduce(
    site: &Site<'_>,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
    op: MPI_Op,
    root: c_int,
) -> Result<Prepared, Refused> {
    let in_place = constants().in_place;
    let is_root = is_root(site, root)?;
    let is_in_place = sendbuf == in_place.cast_const();
    if is_in_place && !is_root || is_root && recvbuf == in_place {
        return Err(Refused::ByLibrary);
    }
    if is_root && sendbuf == recvbuf.cast_const() && count > 0 && !recvbuf.is_null() {
        // SAFETY: as in `allreduce`.
        let call = |comm| unsafe { native().reduce(sendbuf, recvbuf, count.min(2) as c_int, datatype, op, 0, comm) };
        if !is_accepted(site.job.self_comm, call) {
            return Err(Refused::ByLibrary);
        }
        // SAFETY: the caller's promise.
        return unsafe { reduction(site, None, Some(recvbuf), count, datatype, op, CommRank(root as u32)) };
    }
    let send = (!is_in_place).then_some(sendbuf);
    // SAFETY: the caller's promise.
    unsafe { reduction(site, send, is_root.then_some(recvbuf), count, datatype, op, CommRank(root as u32)) }
}

/// A reduction, in place where `send` is `None`.
///
/// # Safety
/// As for `allreduce`.
#[inline]
unsafe fn reduction(
    site: &Site<'_>,
    send: Option<*const c_void>,
    recv: Option<*mut c_void>,
    count: MPI_Count,
    datatype: MPI_Datatype,
    op: MPI_Op,
    root: CommRank,
) -> Result<Prepared, Refused> {
    if op == constants().op_null {
        return Err(Refused::ByLibrary);
    }
    let mut bytes = Bytes::ZERO;
    let mut take = |role, address: Option<*mut c_void>| match address {
        None => Ok(Operand::Absent),
        Some(address) => {
            let (operand, length) = operand(site, role, address, count, datatype)?;
            bytes = length;
            Ok(operand)
        }
    };
    let send_operand = take(Role::Input, send.map(<*const c_void>::cast_mut))?;
    let recv_operand = take(if send.is_some() { Role::Output } else { Role::InPlace }, recv)?;
    // SAFETY: the program's arguments.
    let operator = unsafe { Operator::resolve(op, datatype, site.job.self_comm) }.map_err(|_| Refused::ByLibrary)?;
    let is_native = operator.predefined().is_some() && predefined(datatype).is_some_and(|known| known.is_contiguous());
    Ok(Prepared {
        bytes,
        granule: Bytes(operator.granule()),
        root,
        send: send_operand,
        recv: recv_operand,
        is_in_place: send.is_none(),
        native_op: is_native.then_some((datatype, op)),
        operator: Some(operator),
    })
}

/// # Safety
/// As for `allreduce`.
#[inline]
pub unsafe fn bcast(
    site: &Site<'_>,
    buffer: *mut c_void,
    count: MPI_Count,
    datatype: MPI_Datatype,
    root: c_int,
) -> Result<Prepared, Refused> {
    let role = if is_root(site, root)? { Role::Input } else { Role::Output };
    if buffer == constants().in_place {
        return Err(Refused::ByLibrary);
    }
    let (buffer, bytes) = operand(site, role, buffer, count, datatype)?;
    Ok(Prepared::moving(bytes, CommRank(root as u32), Operand::Absent, buffer))
}

/// # Safety
/// As for `allreduce`.
#[inline]
pub unsafe fn allgather(site: &Site<'_>, send: Input, recv: Output) -> Result<Prepared, Refused> {
    let in_place = constants().in_place;
    if recv.0 == in_place {
        return Err(Refused::ByLibrary);
    }
    let ranks = site.shared.agreed.ranks;
    let count = count_of_all(site, recv.1, recv.2)?;
    let is_in_place = send.0 == in_place.cast_const();
    let is_aliased = send.0 == recv.0.cast_const() && !send.0.is_null();
    let role = if is_in_place || is_aliased { Role::InPlace } else { Role::Output };
    let (buffer, total) = operand(site, role, recv.0, count, recv.2)?;
    let bytes = Bytes(total.0 / ranks);
    if is_in_place {
        return Ok(allgather_in_place(site, bytes, buffer));
    }
    let send_at = (send.0.cast_mut(), send.1, send.2);
    let (own, length) = operand_beside(site, Role::Input, send_at, (&buffer, recv.2))?;
    if length != bytes {
        return Err(Refused::Truncated);
    }
    if is_aliased && length > Bytes::ZERO {
        let is_placed = place_own_block(site, send, recv);
        return if is_placed { Ok(allgather_in_place(site, bytes, buffer)) } else { Err(Refused::ByLibrary) };
    }
    Ok(Prepared::moving(bytes, CommRank(0), own, buffer))
}

/// An Allgather whose input is this rank's block of `buffer`.
fn allgather_in_place(site: &Site<'_>, bytes: Bytes, buffer: Operand) -> Prepared {
    let offset = bytes.0 * site.shared.me.index();
    let own = match &buffer {
        Operand::Memory(at) => Operand::Memory(at.wrapping_add(offset)),
        Operand::View(view) => Operand::Part(Part { view: view.clone(), offset }),
        Operand::Staged(staged) => Operand::Memory(staged.packed().wrapping_add(offset)),
        Operand::Absent | Operand::Part(_) => Operand::Absent,
    };
    Prepared { is_in_place: true, ..Prepared::moving(bytes, CommRank(0), own, buffer) }
}

/// Has the library copy the input of an Allgather to this rank's block of the output, which begins at the same address
/// as the input: the block of rank 0 would overwrite the input before all peers have it. Returns whether the library
/// accepts that; MPICH and its kin reject an input that is the rank's own block.
fn place_own_block(site: &Site<'_>, send: Input, recv: Output) -> bool {
    let (Ok(sends), Ok(receives)) = (c_int::try_from(send.1), c_int::try_from(recv.1)) else {
        return false;
    };
    let (mut lb, mut extent) = (0, 0);
    // SAFETY: a datatype that was just read, and valid places.
    unsafe { native().type_get_extent_x(recv.2, &mut lb, &mut extent) };
    let block = recv.0.wrapping_byte_offset(site.shared.me.index() as isize * recv.1 as isize * extent as isize);
    // SAFETY: on one process, from the program's input to its output.
    let call = |comm| unsafe { native().allgather(send.0, sends, send.2, block, receives, recv.2, comm) };
    is_accepted(site.job.self_comm, call)
}

/// # Safety
/// As for `allreduce`.
#[inline]
pub unsafe fn scatter(site: &Site<'_>, send: Input, recv: Output, root: c_int) -> Result<Prepared, Refused> {
    let in_place = constants().in_place;
    let is_root = is_root(site, root)?;
    let root = CommRank(root as u32);
    if !is_root {
        if recv.0 == in_place {
            return Err(Refused::ByLibrary);
        }
        let (buffer, bytes) = operand(site, Role::Output, recv.0, recv.1, recv.2)?;
        return Ok(Prepared::moving(bytes, root, Operand::Absent, buffer));
    }
    if send.0 == in_place.cast_const() {
        return Err(Refused::ByLibrary);
    }
    let ranks = site.shared.agreed.ranks;
    let count = count_of_all(site, send.1, send.2)?;
    let (blocks, total) = operand(site, Role::Input, send.0.cast_mut(), count, send.2)?;
    let bytes = Bytes(total.0 / ranks);
    if recv.0 == in_place {
        return Ok(Prepared { is_in_place: true, ..Prepared::moving(bytes, root, blocks, Operand::Absent) });
    }
    let (buffer, length) = operand_beside(site, Role::Output, recv, (&blocks, send.2))?;
    if length != bytes {
        return Err(Refused::Truncated);
    }
    Ok(Prepared::moving(bytes, root, blocks, buffer))
}

/// A barrier has no arguments but the communicator.
#[inline]
pub fn barrier() -> Prepared {
    Prepared::moving(Bytes::ZERO, CommRank(0), Operand::Absent, Operand::Absent)
}
