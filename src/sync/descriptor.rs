//! What ranks tell each other of the calls that they are in.

use crate::types::{Bytes, Collective, Epoch, OperandOrder};
use std::fmt;

/// Some bits of a word that stand next to each other.
#[derive(Clone, Copy)]
struct Field {
    shift: u32,
    bits: u32,
}

/// More bits of the epoch than are needed to tell apart epochs that share a line, since a ring has 256 lines at most.
const EPOCH: Field = Field { shift: 0, bits: 10 };
const COLLECTIVE: Field = EPOCH.then(4);
const ROW: Field = COLLECTIVE.then(6);
const ROOT: Field = ROW.then(18);
const BYTES: Field = ROOT.then(24);
/// [`Descriptor::ordered`].
const ORDERED: Field = BYTES.then(1);
/// [`Descriptor::telling`].
const TELLS: Field = ORDERED.then(1);
const _: () = assert!(TELLS.shift + TELLS.bits == u64::BITS);

impl Field {
    /// The field of `bits` bits directly above this one.
    const fn then(self, bits: u32) -> Self {
        Self { shift: self.shift + self.bits, bits }
    }

    #[inline(always)]
    const fn mask(self) -> u64 {
        ((1 << self.bits) - 1) << self.shift
    }

    /// The lowest bits of `value`, shifted to this field's place in the word.
    #[inline(always)]
    const fn of(self, value: u64) -> u64 {
        value << self.shift & self.mask()
    }

    const fn value(self, word: u64) -> u64 {
        (word & self.mask()) >> self.shift
    }
}

/// What MPI makes equal on all ranks of a call, in one word that is published with every flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor(u64);

impl Descriptor {
    /// The descriptor of a call with this root and length, run by the algorithm of that `row` of the registry. A value
    /// that does not fit its field loses its upper bits.
    pub fn new(epoch: Epoch, collective: Collective, row: usize, root: u32, bytes: Bytes) -> Self {
        Self(
            EPOCH.of(epoch.0)
                | COLLECTIVE.of(collective as u64)
                | ROW.of(row as u64)
                | ROOT.of(u64::from(root))
                | BYTES.of(bytes.0 as u64),
        )
    }

    /// The same descriptor with another epoch and root.
    #[must_use]
    #[inline(always)]
    pub fn again(self, epoch: Epoch, root: u32) -> Self {
        let kept = self.0 & !(EPOCH.mask() | ROOT.mask());
        Self(kept | EPOCH.of(epoch.0) | ROOT.of(u64::from(root)))
    }

    /// The same descriptor, marked if `tells`: whether the ranks of the call tell each other where their cells are. The
    /// mark follows from what MPI makes equal. So a rank notices a peer whose call differs before it reads at a wrong
    /// place.
    #[must_use]
    #[inline]
    pub fn telling(self, tells: bool) -> Self {
        Self(self.0 | TELLS.of(u64::from(tells)))
    }

    /// The same descriptor, marked if the operands keep the order of ranks. That order decides who waits for whom, and
    /// in whose cell operands are combined.
    #[must_use]
    #[inline]
    pub fn ordered(self, order: OperandOrder) -> Self {
        Self(self.0 | ORDERED.of(u64::from(order == OperandOrder::Rank)))
    }

    /// The word.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// Whether a word found beside a flag belongs to the same epoch but to another call.
    #[inline]
    pub fn contradicts(self, word: u64) -> bool {
        self.0 != word && (self.0 ^ word) & EPOCH.mask() == 0
    }

    /// Collective, row and root, at their places in the word.
    pub(super) fn what(self) -> u64 {
        self.0 & (COLLECTIVE.mask() | ROW.mask() | ROOT.mask())
    }
}

/// A peer's account of the call that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCall {
    /// The call's ordinal.
    pub epoch: Epoch,
    /// The collective; `None` before the first call.
    pub collective: Option<Collective>,
    /// The root's rank in the communicator.
    pub root: u32,
    /// Packed bytes as in [`crate::coll::Plan`].
    pub bytes: u64,
}

impl PeerCall {
    /// The call in `epoch` of `bytes` bytes. `what` is the word of a [`Descriptor`], or only the part that its method
    /// `what` returns.
    pub(super) fn new(epoch: Epoch, what: u64, bytes: u64) -> Self {
        let collective = if epoch.0 == 0 { None } else { Collective::from_index(COLLECTIVE.value(what) as usize) };
        Self { epoch, collective, root: ROOT.value(what) as u32, bytes }
    }

    /// The algorithm, as an index in the registry, of the call that a [`Descriptor`] describes by `what`.
    pub(super) fn row(what: u64) -> usize {
        ROW.value(what) as usize
    }

    /// The call in `epoch` that a descriptor's word describes. Its length may lack the upper bits.
    pub fn of_word(epoch: Epoch, word: u64) -> Self {
        Self::new(epoch, word, BYTES.value(word))
    }
}

impl fmt::Display for PeerCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collective, root, bytes, .. } = self;
        let name = collective.map_or("?", Collective::name);
        match collective {
            Some(Collective::Barrier) => write!(f, "MPI_{name}"),
            Some(collective) if collective.has_root() => {
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
    fn fields_lie_where_the_layout_of_the_words_says() {
        let call =
            Descriptor::new(Epoch(0x7ff), Collective::from_index(4).expect("one of six"), 9, 0x2_0001, Bytes(96));
        let what = 4 << 10 | 9 << 14 | 0x2_0001 << 20;
        assert_eq!((call.what(), call.word()), (what, what | 0x3ff | 96 << 38));
        assert_eq!(call.telling(true).word(), call.word() | 1 << 63);
        assert_eq!(call.ordered(OperandOrder::Rank).word(), call.word() | 1 << 62);
        assert_eq!(call.ordered(OperandOrder::Any), call);
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
        // Calls whose lengths differ in upper bits alone still differ in whether they tell of cells.
        assert!(new(7, 8).contradicts(new(7, 8 + (1 << 40)).telling(true).word()));
        assert_eq!(PeerCall::of_word(Epoch(7), new(7, 16).telling(true).word()), peer);
        // Calls also differ if the operation of only one keeps the order of ranks.
        assert!(new(7, 8).contradicts(new(7, 8).ordered(OperandOrder::Rank).word()));
        let what = new(7, 8).what();
        assert_eq!(PeerCall::new(Epoch(7), what, 8), PeerCall { bytes: 8, ..peer });
        assert_eq!((PeerCall::row(what), what), (3, new(8, 16).what()));
    }
}
