//! What ranks tell each other of the calls that they are in.

use crate::types::{Bytes, Collective, Epoch};
use std::fmt;

/// The lowest bits of `value`, where they stand in a word.
#[inline(always)]
const fn field(value: u64, bits: u32, shift: u32) -> u64 {
    (value & ((1 << bits) - 1)) << shift
}

/// What MPI makes equal on all ranks of a call, in one word; travels with every flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor(u64);

impl Descriptor {
    /// Bits of the epoch: more than tell apart those that share a line, since a ring has 256 lines at most.
    const EPOCH: u32 = 10;

    /// Bits of the root, and where they begin.
    const ROOT: [u32; 2] = [18, 20];

    /// Bits of the bytes.
    const BYTES: u32 = 25;

    /// 10 bits of the epoch, 4 of the collective, 6 of the row, 18 of the root, 25 of the bytes; one is left for [`Descriptor::telling`].
    pub fn new(epoch: Epoch, collective: Collective, row: usize, root: u32, bytes: Bytes) -> Self {
        let [bits, shift] = Self::ROOT;
        Self(
            field(epoch.0, Self::EPOCH, 0)
                | field(collective as u64, 4, 10)
                | field(row as u64, 6, 14)
                | field(u64::from(root), bits, shift)
                | field(bytes.0 as u64, Self::BYTES, 38),
        )
    }

    /// The same of another epoch, with that root.
    #[must_use]
    #[inline(always)]
    pub fn again(self, epoch: Epoch, root: u32) -> Self {
        let [bits, shift] = Self::ROOT;
        let kept = self.0 & !(field(u64::MAX, Self::EPOCH, 0) | field(u64::MAX, bits, shift));
        Self(kept | field(epoch.0, Self::EPOCH, 0) | field(u64::from(root), bits, shift))
    }

    /// The same of a call whose ranks tell each other where their cells are. It follows from what MPI makes equal, so who differs is
    /// noticed before it looks at a wrong place.
    #[must_use]
    #[inline]
    pub fn telling(self, tells: bool) -> Self {
        Self(self.0 | u64::from(tells) << (38 + Self::BYTES))
    }

    /// The word.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// Whether a word found beside a flag belongs to the same epoch but to another call.
    #[inline]
    pub fn contradicts(self, word: u64) -> bool {
        self.0 != word && (self.0 ^ word) & ((1 << Self::EPOCH) - 1) == 0
    }

    /// Collective, row and root.
    pub(super) fn what(self) -> u64 {
        self.0 >> Self::EPOCH & ((1 << 28) - 1)
    }
}

/// A peer's account of the call that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCall {
    /// The call's ordinal.
    pub epoch: Epoch,
    /// The collective; none before the first.
    pub collective: Option<Collective>,
    /// The root's rank in the communicator.
    pub root: u32,
    /// Packed bytes as in [`crate::coll::Plan`].
    pub bytes: u64,
}

impl PeerCall {
    /// The call in `epoch` of which [`Descriptor`] keeps `what`.
    pub(super) fn new(epoch: Epoch, what: u64, bytes: u64) -> Self {
        let collective = if epoch.0 == 0 { None } else { Collective::from_index((what & 0xf) as usize) };
        Self { epoch, collective, root: (what >> 10 & ((1 << 18) - 1)) as u32, bytes }
    }

    /// The algorithm, as an index in the registry, of a call of which [`Descriptor`] keeps `what`.
    pub(super) fn row(what: u64) -> usize {
        (what >> 4 & 0x3f) as usize
    }

    /// The call in `epoch` that a descriptor's word tells of, whose bytes may have lost their upper bits.
    pub fn of_word(epoch: Epoch, word: u64) -> Self {
        Self::new(epoch, word >> Descriptor::EPOCH, word >> 38 & ((1 << Descriptor::BYTES) - 1))
    }
}

impl fmt::Display for PeerCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collective, root, bytes, .. } = self;
        let name = collective.map_or("?", Collective::name);
        match collective {
            Some(Collective::Barrier) => write!(f, "MPI_{name}"),
            Some(Collective::Bcast | Collective::Reduce | Collective::Scatter) => {
                write!(f, "MPI_{name} with root {root} and {bytes} bytes")
            }
            _ => write!(f, "MPI_{name} with {bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_again_differs_in_epoch_and_root() {
        let first = Descriptor::new(Epoch(3), Collective::Scatter, 9, 70_000, Bytes(96)).telling(true);
        let second = Descriptor::new(Epoch(2051), Collective::Scatter, 9, 1, Bytes(96)).telling(true);
        assert_eq!(first.again(Epoch(2051), 1), second);
        assert_eq!(second.again(Epoch(3), 70_000), first);
    }

    #[test]
    fn descriptors_contradict_only_within_an_epoch() {
        let new = |epoch, bytes| Descriptor::new(Epoch(epoch), Collective::Reduce, 3, 5, Bytes(bytes));
        assert!(new(7, 8).contradicts(new(7, 16).word()));
        assert!(!new(7, 8).contradicts(new(7, 8).word()));
        assert!(!new(7, 8).contradicts(new(8, 16).word()));
        // A barrier may have published in the same line, a ring further on.
        assert!(!new(7, 8).contradicts(new(7 + 256, 16).word()));
        let peer = PeerCall::of_word(Epoch(7), new(7, 16).word());
        assert_eq!(peer, PeerCall { epoch: Epoch(7), collective: Some(Collective::Reduce), root: 5, bytes: 16 });
        assert_eq!(peer.to_string(), "MPI_Reduce with root 5 and 16 bytes");
        // Lengths that differ in upper bits alone differ in this.
        assert!(new(7, 8).contradicts(new(7, 8 + (1 << 40)).telling(true).word()));
        assert_eq!(PeerCall::of_word(Epoch(7), new(7, 16).telling(true).word()), peer);
        assert_eq!(new(7, 8).what() & 0xf, Collective::Reduce as u64);
        assert_eq!(new(7, 8).what() >> 10, 5);
    }
}
