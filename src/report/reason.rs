//! Why a call was not accelerated.

/// Why a call, all calls on a communicator or all calls of a job went to the native library. Empty calls did not:
/// huddle ended them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// `HUDDLE_DISABLE`
    Disabled,
    /// `HUDDLE_<COLLECTIVE>=native`
    ForcedNative,
    /// The communicator has had fewer blocking collectives than `HUDDLE_WARMUP`.
    WarmUp,
    /// No context, for a reason that is none of the following.
    NoContext,
    /// An intercommunicator.
    Intercommunicator,
    /// Processes that are not in this one's `MPI_COMM_WORLD`.
    OutsideCommWorld,
    /// A communicator of one rank.
    SingleRank,
    /// No two ranks share a node.
    OneRankPerNode,
    /// Shared memory could not be had.
    NoSharedMemory,
    /// As many communicators between nodes as `HUDDLE_BRIDGES` permits are in use.
    TooManyBridges,
    /// Ranks run builds of huddle that do not fit together, or serve different names (`HUDDLE_PMPI`).
    HuddleMissing,
    /// The MPI library is to survive processes that fail.
    SurvivesFailures,
    /// Before `MPI_Init`, or after huddle ended in `MPI_Finalize`.
    NotRunning,
    /// The MPI library rejects the arguments.
    RejectedArguments,
    /// A buffer may be in memory of a device that huddle can't copy.
    DevicePointer,
    /// Nothing to move.
    Empty,
    /// An element exceeds a slot.
    ElementLargerThanSlot,
    /// A piece of every rank's block exceeds a slot.
    BlocksLargerThanSlot,
    /// More steps than a call may take.
    TooManySteps,
    /// Operands must be combined in rank order, and nodes do not hold contiguous ranks.
    OrderAcrossNodes,
}

/// Name and meaning of a reason.
struct Entry {
    reason: Reason,
    name: &'static str,
    meaning: &'static str,
}

const fn entry(reason: Reason, name: &'static str, meaning: &'static str) -> Entry {
    Entry { reason, name, meaning }
}

/// All reasons, by discriminant. Names are part of the report's format: they never change.
const TABLE: [Entry; Reason::COUNT] = [
    entry(Reason::Disabled, "disabled", "HUDDLE_DISABLE is set."),
    entry(Reason::ForcedNative, "forced-native", "The variable of the collective says native for this size."),
    entry(
        Reason::WarmUp,
        "warm-up",
        "The communicator has seen fewer calls of the six collectives than HUDDLE_WARMUP.",
    ),
    entry(Reason::NoContext, "no-context", "huddle could not set itself up on this communicator."),
    entry(Reason::Intercommunicator, "intercommunicator", "The communicator connects two groups."),
    entry(
        Reason::OutsideCommWorld,
        "outside-comm-world",
        "The communicator has processes outside this one's MPI_COMM_WORLD: spawned, connected, or of an MPI session.",
    ),
    entry(Reason::SingleRank, "single-rank", "The communicator has one rank, which exchanges nothing."),
    entry(Reason::OneRankPerNode, "one-rank-per-node", "No two ranks of the communicator share a node."),
    entry(Reason::NoSharedMemory, "no-shared-memory", "A rank of the communicator could not get the shared memory."),
    entry(
        Reason::TooManyBridges,
        "too-many-bridges",
        "The communicator spans nodes, and HUDDLE_BRIDGES communicators between nodes are in use already. A larger number \
         permits more.",
    ),
    entry(
        Reason::HuddleMissing,
        "huddle-missing",
        "Some ranks run without huddle, with another build of it, or with another HUDDLE_PMPI.",
    ),
    entry(
        Reason::SurvivesFailures,
        "survives-failures",
        "The MPI library was told to survive processes that fail (Open MPI 5: mpiexec --with-ft ulfm), and only the library \
         knows which processes have failed.",
    ),
    entry(Reason::NotRunning, "not-running", "The call came before MPI_Init or after huddle ended in MPI_Finalize."),
    entry(
        Reason::RejectedArguments,
        "rejected-arguments",
        "The MPI library rejects the arguments and reports the error. If a rank's own buffers differ in length, the library \
         might wait instead, so huddle reports MPI_ERR_TRUNCATE.",
    ),
    entry(
        Reason::DevicePointer,
        "device-pointer",
        "A rank has loaded a library of CUDA, HIP or HSA with which huddle can't copy, and buffers may be in memory of its \
         devices.",
    ),
    entry(
        Reason::Empty,
        "empty",
        "The call has no data: the count is 0, or elements have no bytes. huddle ends it at once, without waiting for other \
         ranks.",
    ),
    entry(Reason::ElementLargerThanSlot, "element-larger-than-slot", "One element exceeds HUDDLE_SLOT_BYTES."),
    entry(
        Reason::BlocksLargerThanSlot,
        "blocks-larger-than-slot",
        "A slot has less than a byte for each rank of a node: HUDDLE_SLOT_BYTES is too small for so many ranks.",
    ),
    entry(
        Reason::TooManySteps,
        "too-many-steps",
        "The message takes more steps than a call may have. The blocks of an Allgather or a Scatter do if together \
         they have some gigabytes; shorter messages do if HUDDLE_SLOT_BYTES, the tile or the chunk is too small. Or the \
         communicator has seen half a trillion calls.",
    ),
    entry(
        Reason::OrderAcrossNodes,
        "order-across-nodes",
        "The operation is user-defined or not commutative, and the nodes do not hold contiguous ranks.",
    ),
];

impl Reason {
    /// How many reasons there are.
    pub const COUNT: usize = Self::OrderAcrossNodes as usize + 1;

    /// All of them, by discriminant.
    pub const ALL: [Self; Self::COUNT] = {
        let mut all = [Self::Disabled; Self::COUNT];
        let mut index = 0;
        while index < Self::COUNT {
            all[index] = TABLE[index].reason;
            assert!(all[index] as usize == index, "the table is in the order of the enum");
            index += 1;
        }
        all
    };

    /// The stable name, as in reports and the names of counters.
    pub const fn name(self) -> &'static str {
        TABLE[self as usize].name
    }

    /// One or two sentences for people.
    pub const fn meaning(self) -> &'static str {
        TABLE[self as usize].meaning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_simple() {
        for reason in Reason::ALL {
            assert!(reason.name().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", reason.name());
            assert_eq!(Reason::ALL.iter().filter(|other| other.name() == reason.name()).count(), 1);
        }
    }
}
