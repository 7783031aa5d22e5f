//! The memory of one rank alone during a call: its buffers and scratch, with what is known of each byte.

use super::ranges::RangeMap;
use super::violation::Breach;
use crate::fabric::Place;
use std::ops::Range;

/// Bytes, and which of them hold something.
#[derive(Clone, Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    defined: RangeMap<()>,
    /// Bytes that were overwritten through the view of the receive buffer. If the send buffer views this block too, its
    /// input is lost there.
    overwritten: RangeMap<()>,
}

impl Block {
    fn input(bytes: Vec<u8>) -> Self {
        Self { defined: RangeMap::of(0..bytes.len(), ()), bytes, ..Self::default() }
    }

    /// A block whose initial contents are no valid result.
    fn output(length: usize) -> Self {
        Self { bytes: vec![0xA5; length], ..Self::default() }
    }
}

/// Which block, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    block: usize,
    pub(super) range: Range<usize>,
}

impl Spot {
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.block == other.block && self.range.start < other.range.end && other.range.start < self.range.end
    }
}

/// A buffer as the algorithm sees it: `length` bytes of a block from `offset` on.
#[derive(Clone, Copy, Debug, Default)]
struct View {
    block: usize,
    offset: usize,
    length: usize,
}

const SEND: usize = 0;
const RECV: usize = 1;
const SCRATCH: usize = 2;

/// What a rank brings to a call.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffers {
    /// Contents of the send buffer, or of the broadcast's buffer at its root.
    pub(super) input: Vec<u8>,
    /// Length of the receive buffer.
    pub(super) output: usize,
    /// Whether the input is found in the receive buffer only.
    pub(super) is_bcast: bool,
    /// Where the shorter buffer starts in the longer one, if the rank works in place.
    pub(super) in_place: Option<usize>,
    /// Length of the scratch memory.
    pub(super) scratch: usize,
}

/// Send buffer, receive buffer and scratch memory, indexed as the constants above.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    blocks: [Block; 3],
    views: [View; 3],
}

impl Memory {
    pub(super) fn new(buffers: Buffers) -> Self {
        let Buffers { input, output, is_bcast, in_place, scratch } = buffers;
        let whole = |block, length| View { block, offset: 0, length };
        let mut memory = Self {
            blocks: [Block::default(), Block::output(output), Block::output(scratch)],
            views: [whole(SEND, input.len()), whole(RECV, output), whole(SCRATCH, scratch)],
        };
        match in_place {
            _ if is_bcast => {
                memory.views[SEND] = View::default();
                if !input.is_empty() {
                    memory.blocks[RECV] = Block::input(input);
                }
            }
            Some(offset) if input.len() <= output => {
                memory.views[SEND] = View { block: RECV, offset, length: input.len() };
                memory.blocks[RECV].bytes[offset..offset + input.len()].copy_from_slice(&input);
                memory.blocks[RECV].defined.set(offset..offset + input.len(), ());
            }
            Some(offset) => {
                memory.views[RECV] = View { block: SEND, offset, length: output };
                memory.blocks[SEND] = Block::input(input);
            }
            None => memory.blocks[SEND] = Block::input(input),
        }
        memory
    }

    /// Where `n` bytes from `offset` of `place` are.
    pub(super) fn locate(&self, place: Place, offset: usize, n: usize) -> Result<Spot, Breach> {
        let view = self.views[index(place)];
        let end = offset + n;
        if end > view.length {
            return Err(Breach::OutOfBounds { end, length: view.length });
        }
        let start = view.offset + offset;
        Ok(Spot { block: view.block, range: start..start + n })
    }

    /// The bytes, if `place` may be read there.
    pub(super) fn read(&self, place: Place, spot: &Spot) -> Result<&[u8], Breach> {
        let block = &self.blocks[spot.block];
        if let Some(at) = block.defined.first_gap(spot.range.clone()) {
            return Err(Breach::Unwritten { at: at - self.views[index(place)].offset });
        }
        if place == Place::SendBuf && block.overwritten.overlapping(spot.range.clone()).next().is_some() {
            return Err(Breach::InputOverwritten);
        }
        Ok(&block.bytes[spot.range.clone()])
    }

    /// The bytes, all of which the caller has to write.
    pub(super) fn write(&mut self, place: Place, spot: &Spot) -> Result<&mut [u8], Breach> {
        if place == Place::SendBuf {
            return Err(Breach::InputWritten);
        }
        let block = &mut self.blocks[spot.block];
        block.defined.set(spot.range.clone(), ());
        if place == Place::RecvBuf {
            block.overwritten.set(spot.range.clone(), ());
        }
        Ok(&mut block.bytes[spot.range.clone()])
    }

    /// Makes the contents at `spot` undefined.
    pub(super) fn undefine(&mut self, place: Place, spot: &Spot) -> Result<(), Breach> {
        self.write(place, spot)?.fill(0x5A);
        self.blocks[spot.block].defined.clear(spot.range.clone());
        Ok(())
    }

    /// The receive buffer.
    pub(super) fn output(&self) -> &[u8] {
        let View { block, offset, length } = self.views[RECV];
        &self.blocks[block].bytes[offset..offset + length]
    }
}

fn index(place: Place) -> usize {
    match place {
        Place::SendBuf => SEND,
        Place::RecvBuf => RECV,
        Place::Scratch => SCRATCH,
        Place::Cell { .. } | Place::Payload { .. } => {
            unreachable!("slots are not a rank's own memory")
        }
    }
}
