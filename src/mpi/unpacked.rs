//! Calls that take a lane, but whose elements lie at another address than the buffer's, or apart: these are packed
//! before the call and unpacked after it.

use super::communicator::Purpose;
use super::elements::{Apart, Elements};
use super::lane::Lane;
use super::serve::{Served, Site};
use crate::coll::phase::short::AtOnce;
use crate::fabric::shm::Ends;
use crate::mpi::handles::constants;
use crate::types::{Collective, CommRank};
use std::ptr::null_mut;

/// Blocks of a call in a buffer of the program's.
#[derive(Clone, Copy)]
struct Blocks {
    /// The address of the first; null where the call has no such buffer.
    at: *mut u8,
    /// Memory for the packed blocks.
    packed: *mut u8,
    /// The number of blocks.
    number: usize,
}

impl Blocks {
    const NONE: Self = Self { at: null_mut(), packed: null_mut(), number: 0 };
}

impl Site<'_> {
    /// `repeat` for elements that lie at another address than the buffer's, or apart.
    #[inline(never)]
    pub(super) fn repeat_unpacked<C: AtOnce>(
        self,
        lane: &Lane,
        root: CommRank,
        send: *mut u8,
        recv: *mut u8,
        is_in_place: bool,
    ) -> Served {
        let ends = Ends { send, recv, is_in_place };
        match &lane.elements {
            Elements::Packed { at } => {
                let shifted = |end: *mut u8| if end.is_null() { end } else { end.wrapping_offset(*at) };
                self.repeat_packed::<C>(lane, root, Ends { send: shifted(send), recv: shifted(recv), is_in_place })
            }
            Elements::Apart(apart) => self.repeat_apart::<C>(lane, apart, root, ends),
        }
    }

    /// `repeat` for elements that lie apart.
    fn repeat_apart<C: AtOnce>(self, lane: &Lane, apart: &Apart, root: CommRank, ends: Ends) -> Served {
        let [read, written] = self.blocks(lane, apart, root, ends);
        let count = lane.key.count as usize;
        if !read.at.is_null() {
            // SAFETY: MPI's contract covers the program's buffer, whose datatype is still that of the lane; the packed
            // memory is huddle's own and has room for as many blocks.
            unsafe { apart.pack(read.packed, read.at, count * read.number) };
        }
        let (send, recv) = match self.collective {
            // A Bcast has one buffer, which this rank either reads or writes.
            Collective::Bcast if written.at.is_null() => (null_mut(), read.packed),
            Collective::Bcast => (null_mut(), written.packed),
            _ => (read.packed, written.packed),
        };
        let served = self.repeat_packed::<C>(lane, root, Ends { send, recv, ..ends });
        if !written.at.is_null() && served == Served::Done(constants().success) {
            // SAFETY: as above.
            unsafe { apart.unpack(written.at, written.packed, count * written.number) };
        }
        served
    }

    /// The blocks that a call with the buffers `ends` reads and those that it writes at this rank.
    fn blocks(&self, lane: &Lane, apart: &Apart, root: CommRank, ends: Ends) -> [Blocks; 2] {
        let (me, ranks, bytes) = (self.shared.me, self.shared.agreed.ranks, lane.plan.bytes.0);
        let blocks = |at: *mut u8, purpose, number| match at.is_null() {
            true => Blocks::NONE,
            false => Blocks { at, packed: self.shared.memory(purpose, bytes * number), number },
        };
        match self.collective {
            Collective::Bcast => {
                let buffer = blocks(ends.recv, Purpose::Recv, 1);
                if me == root { [buffer, Blocks::NONE] } else { [Blocks::NONE, buffer] }
            }
            Collective::Scatter => [blocks(ends.send, Purpose::Send, ranks), blocks(ends.recv, Purpose::Recv, 1)],
            Collective::Allgather => {
                let all = blocks(ends.recv, Purpose::Recv, ranks);
                let before = lane.key.count as isize * me.index() as isize;
                let own = match ends.is_in_place {
                    true => Blocks {
                        at: ends.recv.wrapping_offset(apart.extent() * before),
                        packed: all.packed.wrapping_add(bytes * me.index()),
                        number: 1,
                    },
                    false => blocks(ends.send, Purpose::Send, 1),
                };
                [own, all]
            }
            Collective::Allreduce | Collective::Reduce | Collective::Barrier => {
                let result = blocks(ends.recv, Purpose::Recv, 1);
                [if ends.is_in_place { result } else { blocks(ends.send, Purpose::Send, 1) }, result]
            }
        }
    }
}
