//! Where each rank of a node may run: its processors, and the containers (package, NUMA domain, caches) around them.
//!
//! Each rank reads its own [`CpuMask`]. The node's leader finds the [`Containers`] and publishes them as bytes. From
//! both, [`paths`] derives what [`Levels`](super::Levels) is built from, the same on all ranks. A *PU* is one hardware
//! thread, named by the number that the operating system gives it.

use super::Caches;

/// The PUs that a rank may run on.
#[derive(Clone, PartialEq, Eq)]
pub struct CpuMask([u64; Self::BYTES / 8]);

impl CpuMask {
    /// PUs that a mask can hold: the limit of Linux on x86-64 and ARM. Higher numbers are ignored.
    pub const CPUS: usize = 8192;

    /// Length of the wire format.
    pub const BYTES: usize = Self::CPUS / 8;

    /// No PU.
    pub const EMPTY: Self = Self([0; Self::BYTES / 8]);

    /// The mask of this process, which is that of the calling thread; empty if the system does not tell.
    pub fn of_this_process() -> Self {
        let mut mask = Self::EMPTY;
        // SAFETY: the kernel writes at most BYTES bytes to `mask`, which is as long, aligned as cpu_set_t is, and valid
        // for any bits.
        let status = unsafe { libc::sched_getaffinity(0, Self::BYTES, mask.0.as_mut_ptr().cast()) };
        if status == 0 { mask } else { Self::EMPTY }
    }

    /// Lets the calling thread run on these PUs only. Returns whether the system allowed it.
    pub fn bind_this_thread(&self) -> bool {
        // SAFETY: the kernel reads BYTES bytes of the mask, which is as long.
        unsafe { libc::sched_setaffinity(0, Self::BYTES, self.0.as_ptr().cast()) == 0 }
    }

    /// Adds a PU.
    pub fn insert(&mut self, pu: u32) {
        if let Some(word) = self.0.get_mut(pu as usize / 64) {
            *word |= 1 << (pu % 64);
        }
    }

    /// Whether it holds a PU.
    pub fn contains(&self, pu: u32) -> bool {
        self.0.get(pu as usize / 64).is_some_and(|word| word >> (pu % 64) & 1 == 1)
    }

    /// Number of PUs.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The PUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..Self::CPUS as u32).filter(|pu| self.contains(*pu))
    }

    /// The PUs of either mask.
    pub fn union(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// Bytes of the wire format up to the last one that is not zero, in whole words.
    pub fn length(&self) -> usize {
        let words = self.0.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        words * size_of::<u64>()
    }

    /// The wire format: PU `8 * i + b` is bit `b` of byte `i`.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        std::array::from_fn(|byte| self.0[byte / 8].to_le_bytes()[byte % 8])
    }

    /// Reads the wire format; PUs whose bytes are missing are not in the mask.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut mask = Self::EMPTY;
        for (word, bytes) in mask.0.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        mask
    }

    /// Whether all its PUs are in `other`.
    pub(super) fn is_subset_of(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(word, other)| word & !other == 0)
    }
}

impl FromIterator<u32> for CpuMask {
    fn from_iter<I: IntoIterator<Item = u32>>(pus: I) -> Self {
        let mut mask = Self::EMPTY;
        pus.into_iter().for_each(|pu| mask.insert(pu));
        mask
    }
}

impl std::fmt::Debug for CpuMask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

/// A kind of container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What goes into a socket.
    Package,
    /// PUs with the same nearest memories.
    NumaDomain,
    /// A cache of level 3.
    L3,
    /// A cache of level 2.
    L2,
}

impl Kind {
    /// The name in messages for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Package => "package",
            Self::NumaDomain => "NUMA domain",
            Self::L3 => "L3 cache",
            Self::L2 => "L2 cache",
        }
    }

    /// All, in the order in which they usually nest, outermost first.
    pub const ALL: [Self; 4] = [Self::Package, Self::NumaDomain, Self::L3, Self::L2];
}

/// The containers around each PU of a machine. The default is a machine of which nothing is known: all paths are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Containers {
    is_pretended: bool,
    /// Outermost first; kinds that the machine does not have are left out.
    kinds: Vec<Kind>,
    /// The PUs in the order of the machine: neighbours share the most containers.
    pus: Vec<u32>,
    /// Per PU, in the order of `pus`, one number for each of `kinds`.
    ids: Vec<u32>,
    caches: Caches,
}

/// Stands for a container that a PU does not have though others do, such as the L3 of an efficiency core.
const NO_CONTAINER: u32 = u32::MAX;

impl Containers {
    /// Makes containers from the PUs in the order of the machine: each one's number, and its container of each kind of
    /// [`Kind::ALL`]. A container is any number that differs between containers of one kind.
    ///
    /// Kinds with fewer containers become the outer ones. On one machine an L3 holds several NUMA domains (Intel's
    /// sub-NUMA clusters), on another a NUMA domain holds several L3 (AMD's core complexes).
    pub fn new(pus: &[(u32, [Option<u32>; Kind::ALL.len()])]) -> Self {
        let count = |kind: Kind| {
            let ids: std::collections::HashSet<_> = pus.iter().map(|(_, ids)| ids[kind as usize]).collect();
            ids.len()
        };
        let mut kinds = Kind::ALL.to_vec();
        kinds.retain(|kind| pus.iter().any(|(_, ids)| ids[*kind as usize].is_some()));
        kinds.sort_by_key(|kind| count(*kind));
        let id = |ids: &[Option<u32>], kind: &Kind| ids[*kind as usize].unwrap_or(NO_CONTAINER);
        Self {
            is_pretended: false,
            pus: pus.iter().map(|(pu, _)| *pu).collect(),
            ids: pus.iter().flat_map(|(_, ids)| kinds.iter().map(move |kind| id(ids, kind))).collect(),
            kinds,
            caches: Caches::default(),
        }
    }

    /// The same containers, with what is known of the caches.
    pub fn with_caches(self, caches: Caches) -> Self {
        Self { caches, ..self }
    }

    /// The same containers, marked as those of another machine than the one that runs us.
    pub fn pretended(self) -> Self {
        Self { is_pretended: true, ..self }
    }

    /// The smallest cache of each level.
    pub fn caches(&self) -> Caches {
        self.caches
    }

    /// How many kinds, outermost first, have one container that holds all PUs. Ranks that may run anywhere share these
    /// containers.
    pub fn trunk(&self) -> usize {
        let Some(first) = (!self.pus.is_empty()).then(|| self.path_at(0)) else {
            return 0;
        };
        let common = |at| first.iter().zip(self.path_at(at)).take_while(|(left, right)| left == right).count();
        (0..self.pus.len()).map(common).min().unwrap_or(0)
    }

    /// Whether this describes another machine than the one that runs us, so that masks say nothing about it.
    pub fn is_pretended(&self) -> bool {
        self.is_pretended
    }

    /// The kinds of container found, outermost first: the kinds of the entries of a full path.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Number of PUs.
    pub fn pus(&self) -> usize {
        self.pus.len()
    }

    /// How many containers there are of the kind at `index` of [`Containers::kinds`].
    pub fn count(&self, index: usize) -> usize {
        let ids: std::collections::HashSet<_> = (0..self.pus.len()).map(|at| self.path_at(at)[index]).collect();
        ids.len()
    }

    fn path_of(&self, mask: &CpuMask) -> Vec<u32> {
        let mut allowed = (0..self.pus.len()).filter(|&at| mask.contains(self.pus[at]));
        let Some(first) = allowed.next() else {
            return Vec::new();
        };
        let mut path = self.path_at(first);
        let mut count = 1;
        for at in allowed {
            let common = path.iter().zip(self.path_at(at)).take_while(|(left, right)| left == right).count();
            path = &path[..common];
            count += 1;
        }
        if count == self.pus.len() { Vec::new() } else { path.to_vec() }
    }

    /// The number of each PU and its containers, in the order of the machine.
    pub fn processors(&self) -> Vec<(u32, &[u32])> {
        self.pus.iter().enumerate().map(|(at, pu)| (*pu, self.path_at(at))).collect()
    }

    fn path_at(&self, at: usize) -> &[u32] {
        &self.ids[at * self.kinds.len()..][..self.kinds.len()]
    }

    /// The wire format: is_pretended, number of kinds, the kinds (a byte each); then, as little-endian u32, the caches,
    /// the number of PUs, all PUs, and the containers of each.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.is_pretended), self.kinds.len() as u8];
        bytes.extend(self.kinds.iter().map(|kind| *kind as u8));
        let (caches, count) = (self.caches.to_numbers(), [self.pus.len() as u32]);
        bytes.extend(
            caches.iter().chain(&count).chain(&self.pus).chain(&self.ids).flat_map(|number| number.to_le_bytes()),
        );
        bytes
    }

    /// Reads the wire format; the default for anything else, as where the leader found nothing and sent nothing.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self::parse(bytes).unwrap_or_default()
    }

    /// Reads the wire format; `None` for anything else.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (&[is_pretended, kinds], rest) = bytes.split_first_chunk::<2>()?;
        let (kinds, rest) = rest.split_at_checked(kinds.into())?;
        let kinds: Vec<Kind> =
            kinds.iter().map(|kind| Kind::ALL.get(usize::from(*kind)).copied()).collect::<Option<_>>()?;
        let (numbers, beyond) = rest.as_chunks::<4>();
        let mut numbers = numbers.iter().map(|number| u32::from_le_bytes(*number));
        let caches = [numbers.next()?, numbers.next()?, numbers.next()?, numbers.next()?];
        let count = numbers.next()? as usize;
        if is_pretended > 1 || !beyond.is_empty() || numbers.len() != count.checked_mul(kinds.len() + 1)? {
            return None;
        }
        let pus = numbers.by_ref().take(count).collect();
        let ids = numbers.collect();
        Some(Self { is_pretended: is_pretended == 1, kinds, pus, ids, caches: Caches::from_numbers(caches) })
    }
}

/// The path of each rank of the node, from the masks of all ranks. A path lists the containers that hold all PUs on
/// which the rank may run, outermost first, and ends before the first kind without such a container. It is empty for a
/// rank that may run on every PU of the machine, or on none that is known. PUs that are not part of the machine, such
/// as offline ones, are ignored.
///
/// On a pretended machine the masks don't count: rank `i` is placed on PU `i` in the order of the machine, and the
/// first PU follows the last.
pub fn paths(containers: &Containers, masks: &[CpuMask]) -> Vec<Vec<u32>> {
    if containers.is_pretended && !containers.pus.is_empty() {
        return paths_in_order(containers, masks.len());
    }
    masks.iter().map(|mask| containers.path_of(mask)).collect()
}

/// The paths of ranks that are placed on one PU each, in the order of the machine; the first PU follows the last.
pub fn paths_in_order(containers: &Containers, ranks: usize) -> Vec<Vec<u32>> {
    let pus = containers.pus.len();
    (0..ranks).map(|rank| if pus == 0 { Vec::new() } else { containers.path_at(rank % pus).to_vec() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two packages of two NUMA domains of two L3 of two cores (an L2 each) of two PUs; the second PUs of the cores
    /// have the numbers 16 to 31, as Linux counts.
    fn machine() -> Containers {
        let pu = |at: u32| (at / 2 + at % 2 * 16, [Some(at / 16), Some(at / 8), Some(at / 4), Some(at / 2)]);
        Containers::new(&(0..32).map(pu).collect::<Vec<_>>())
    }

    fn path(containers: &Containers, pus: &[u32]) -> Vec<u32> {
        paths(containers, &[pus.iter().copied().collect()]).remove(0)
    }

    #[test]
    fn masks_are_sets_that_survive_the_wire() {
        let mask: CpuMask = [0, 63, 64, 1500, 8191, 8192, u32::MAX].into_iter().collect();
        assert_eq!(mask.iter().collect::<Vec<_>>(), [0, 63, 64, 1500, 8191]);
        assert_eq!(mask.count(), 5);
        assert_eq!(CpuMask::from_bytes(&mask.to_bytes()), mask);
        let short = CpuMask::from_bytes(&mask.to_bytes()[..128]);
        assert_eq!(short.count(), 3);
        assert_eq!([&mask, &short, &CpuMask::EMPTY].map(CpuMask::length), [CpuMask::BYTES, 16, 0]);
        assert_eq!(mask.union(&[1].into_iter().collect()).count(), 6);
        assert!(CpuMask::of_this_process().count() > 0);
    }

    #[test]
    fn a_path_ends_where_the_mask_spans_several() {
        let machine = machine();
        assert_eq!(machine.kinds(), Kind::ALL);
        assert_eq!(path(&machine, &[5]), [0, 1, 2, 5]);
        assert_eq!(path(&machine, &[5, 21]), [0, 1, 2, 5], "both PUs of a core share its L2");
        assert_eq!(path(&machine, &[4, 5]), [0, 1, 2]);
        assert_eq!(path(&machine, &[4, 6]), [0, 1]);
        assert_eq!(path(&machine, &[0, 6]), [0]);
        assert_eq!(path(&machine, &[0, 8]), [0; 0]);
    }

    #[test]
    fn ranks_that_may_run_everywhere_or_nowhere_have_no_path() {
        let machine = machine();
        let masks = [(0..32).collect(), CpuMask::EMPTY, (0..100).collect()];
        assert_eq!(paths(&machine, &masks), [[0; 0], [0; 0], [0; 0]]);
        let one_package = Containers::new(&[(0, [Some(0); 4]), (1, [Some(0); 4])]);
        assert_eq!(path(&one_package, &[0, 1]), [0; 0]);
    }

    #[test]
    fn the_trunk_is_what_everyone_shares() {
        assert_eq!(machine().trunk(), 0, "two packages");
        let one_l3 =
            Containers::new(&[(0, [Some(0), Some(0), Some(0), Some(0)]), (1, [Some(0), Some(0), Some(0), Some(1)])]);
        assert_eq!(one_l3.trunk(), 3);
        assert_eq!(Containers::default().trunk(), 0);
    }

    #[test]
    fn a_cpuset_keeps_the_containers_around_it() {
        let (job, machine): (CpuMask, _) = ((8..12).collect(), machine());
        assert_eq!(paths(&machine, &[job.clone(), job]), [[1, 2], [1, 2]]);
    }

    #[test]
    fn offline_pus_are_ignored() {
        let online = Containers::new(&[(0, [Some(0); 4]), (2, [Some(1); 4]), (3, [Some(1); 4])]);
        assert_eq!(path(&online, &[1, 2]), [1; 4]);
        assert_eq!(path(&online, &[0, 1, 2]), [0; 0]);
        assert_eq!(path(&online, &[1]), [0; 0]);
    }

    #[test]
    fn ranks_are_placed_in_order_on_a_pretended_machine() {
        let (machine, masks) = (machine().pretended(), vec![CpuMask::EMPTY; 34]);
        let paths = paths(&machine, &masks);
        assert_eq!(paths[1], [0, 0, 0, 0], "rank 1 is the second PU of the first core");
        assert_eq!(paths[31], [1, 3, 7, 15]);
        assert_eq!(paths[33], paths[1]);
    }

    #[test]
    fn kinds_are_ordered_by_nesting_and_missing_ones_left_out() {
        let sub_numa = [(0, [Some(0), Some(0), Some(0), None]), (1, [Some(0), Some(1), Some(0), None])];
        let containers = Containers::new(&sub_numa);
        assert_eq!(containers.kinds(), [Kind::Package, Kind::L3, Kind::NumaDomain]);
        assert_eq!(path(&containers, &[1]), [0, 0, 1]);
        let hybrid = Containers::new(&[(0, [None, None, Some(0), Some(0)]), (1, [None, None, None, Some(1)])]);
        assert_eq!(path(&hybrid, &[1]), [NO_CONTAINER, 1]);
        assert_eq!(path(&Containers::new(&[]).pretended(), &[1]), [0; 0]);
    }

    #[test]
    fn containers_survive_the_wire_and_damage_is_noticed() {
        let machine = machine().pretended().with_caches(Caches { line: 64, l1: 1 << 15, l2: 0, l3: 1 << 25 });
        let bytes = machine.to_bytes();
        assert_eq!(Containers::from_bytes(&bytes), machine);
        for length in 0..bytes.len() {
            assert_eq!(Containers::from_bytes(&bytes[..length]), Containers::default(), "{length}");
        }
        assert_eq!(Containers::from_bytes(&[0, 1, 9]), Containers::default());
        assert_eq!(Containers::from_bytes(&[7, 0, 0, 0, 0, 0]), Containers::default());
    }
}
