//! How the operands of a call are combined, in the kinds that the models tell apart.

use super::choose::order_of;
use super::{OperatorClass, Shape};
use crate::model::{Far, Parameters};
use crate::types::{Bytes, Collective, CommRank, OperandOrder};

/// Assumed: nanoseconds per byte by which the MPI library combines numbers without kernels more slowly than huddle's
/// kernels combine others. Allreduces of long doubles take that much longer than others on 5 ranks of a Zen 5
/// (docs/PERFORMANCE.md, "Tried"); the additions alone take two thirds of it. So it pays sooner than for other numbers
/// to combine these once, not on all ranks.
pub(super) const LIBRARY: f64 = 0.35;

/// Assumed: nanoseconds per byte by which functions of the user are slower than kernels. It is that of a function that
/// adds doubles one by one. Functions that do more are slower, and nothing tells before they are called.
pub(super) const USER: f64 = 0.05;

/// How operands are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combining {
    /// By kernels, or not at all.
    Kernel,
    /// By the library, in any order.
    Library,
    /// In the order of ranks: by functions of the user's, and by operations that do not commute.
    Ordered,
}

impl Combining {
    pub const COUNT: usize = 3;

    /// All, in the order of their discriminants.
    pub const ALL: [Self; Self::COUNT] = [Self::Kernel, Self::Library, Self::Ordered];

    /// How the operands of this call are combined.
    #[inline]
    pub fn of(shape: &Shape) -> Self {
        match (order_of(shape), shape.operator) {
            (OperandOrder::Rank, _) => Self::Ordered,
            (OperandOrder::Any, OperatorClass::Library) => Self::Library,
            (OperandOrder::Any, _) => Self::Kernel,
        }
    }

    /// The call that the models judge for all calls whose operands are combined so.
    pub fn shape(self, collective: Collective, bytes: Bytes) -> Shape {
        let (operator, order) = match self {
            Self::Kernel => (OperatorClass::Predefined, OperandOrder::Any),
            Self::Library => (OperatorClass::Library, OperandOrder::Any),
            Self::Ordered => (OperatorClass::User, OperandOrder::Rank),
        };
        let (is_reduction, is_barrier) = (collective.is_reduction(), collective == Collective::Barrier);
        Shape {
            collective,
            bytes: if is_barrier { Bytes::ZERO } else { bytes },
            granule: if is_reduction { bytes.min(Bytes(8)) } else { Bytes(1) },
            root: CommRank(0),
            operator: if is_reduction { operator } else { OperatorClass::None },
            order,
        }
    }

    /// The parameters of the machine with reductions as slow as this way to combine makes them.
    pub fn slowed(self, parameters: &Parameters) -> Parameters {
        let more = match self {
            Self::Kernel => 0.0,
            Self::Library => LIBRARY,
            Self::Ordered => USER,
        };
        let slower = |far: Far| Far { reduce: far.reduce + more, ..far };
        let Parameters { reduce, far, memory, .. } = *parameters;
        Parameters { reduce: reduce + more, far: slower(far), memory: slower(memory), ..*parameters }
    }
}
