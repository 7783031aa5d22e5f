//! The hierarchy of a node's ranks in numbers: what costs depend on, small enough to be exchanged.

use super::{Kind, Levels};

/// One level of a [`Hierarchy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The most groups that one group of the level above has; of the innermost level, the most ranks in a group.
    pub fan: u16,
    /// The innermost kind of container that is shared by ranks that part here; `None` where they share the node alone.
    pub shares: Option<Kind>,
}

/// The levels of a node's hierarchy, outermost first; the last one parts single ranks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hierarchy {
    steps: [Step; Self::MOST],
    depth: u8,
}

impl Hierarchy {
    /// One level for each kind of container, and one for the ranks in the innermost container.
    const MOST: usize = Kind::ALL.len() + 1;

    const NOTHING: Step = Step { fan: 1, shares: None };

    /// `ranks` without structure, which share a container of kind `shares`.
    pub const fn flat(ranks: usize, shares: Option<Kind>) -> Self {
        let mut steps = [Self::NOTHING; Self::MOST];
        let most = u16::MAX as usize;
        steps[0] = Step { fan: if ranks > most { u16::MAX } else { ranks as u16 }, shares };
        Self { steps, depth: if ranks > 1 { 1 } else { 0 } }
    }

    /// A hierarchy of `steps`, the outermost first. Levels of one group are left out, and levels beyond the maximum.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        let mut hierarchy = Self { steps: [Self::NOTHING; Self::MOST], depth: 0 };
        for (step, to) in steps.into_iter().filter(|step| step.fan > 1).zip(&mut hierarchy.steps) {
            *to = step;
            hierarchy.depth += 1;
        }
        hierarchy
    }

    /// The hierarchy of the ranks in `levels`, whose paths consist of containers of `kinds`. All ranks share the first
    /// `trunk` of these.
    pub fn of(levels: &Levels, kinds: &[Kind], trunk: usize) -> Self {
        let most = |fans: &mut dyn Iterator<Item = usize>| fans.max().unwrap_or(1).min(u16::MAX.into()) as u16;
        let size = levels.size() as u32;
        let mut outer: Vec<u32> = vec![0, size];
        let singles: Vec<u32> = (0..=size).collect();
        let mut steps = Vec::new();
        for (groups, shared) in levels.groups().iter().map(|groups| &**groups).chain([&*singles]).zip(levels.shared()) {
            let starts_in = |pair: &[u32]| groups.iter().filter(|start| (pair[0]..pair[1]).contains(*start)).count();
            let fan = most(&mut outer.windows(2).map(starts_in));
            let shares = (*shared).max(trunk).checked_sub(1).and_then(|index| kinds.get(index)).copied();
            steps.push(Step { fan, shares });
            outer = groups.to_vec();
        }
        Self::new(steps)
    }

    /// The levels, outermost first; none for a single rank.
    pub fn steps(&self) -> &[Step] {
        &self.steps[..self.depth.into()]
    }

    /// The wire format: three bytes for each level.
    pub fn to_words(self) -> [u64; 2] {
        let bits = self.steps().iter().rev().fold(0_u128, |bits, step| {
            let shares = step.shares.map_or(0, |kind| 1 + kind as u128);
            bits << 24 | shares << 16 | u128::from(step.fan)
        });
        [bits as u64, (bits >> 64) as u64]
    }

    /// The inverse of [`Hierarchy::to_words`].
    pub fn from_words(words: [u64; 2]) -> Self {
        let mut bits = u128::from(words[0]) | u128::from(words[1]) << 64;
        Self::new(std::iter::from_fn(|| {
            let shares = (bits >> 16 & 0xff) as usize;
            let step =
                Step { fan: bits as u16, shares: shares.checked_sub(1).and_then(|kind| Kind::ALL.get(kind)).copied() };
            bits >>= 24;
            (step.fan > 0).then_some(step)
        }))
    }
}

impl std::fmt::Debug for Hierarchy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.steps()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::NodeRank;

    fn hierarchy(paths: &[Vec<u32>], trunk: usize) -> Vec<(u16, Option<Kind>)> {
        let levels = Levels::from_paths(paths, NodeRank(0));
        let hierarchy = Hierarchy::of(&levels, &Kind::ALL, trunk);
        assert_eq!(Hierarchy::from_words(hierarchy.to_words()), hierarchy);
        hierarchy.steps().iter().map(|step| (step.fan, step.shares)).collect()
    }

    #[test]
    fn two_packages_of_six() {
        let paths: Vec<Vec<u32>> = (0..12).map(|rank| vec![rank / 6, rank / 6, rank / 6, rank]).collect();
        assert_eq!(hierarchy(&paths, 0), [(2, None), (6, Some(Kind::L3))]);
    }

    #[test]
    fn the_largest_groups_count_where_they_are_uneven() {
        let paths = [vec![0, 0], vec![0, 1], vec![0, 1], vec![0, 2], vec![1, 3]];
        assert_eq!(hierarchy(&paths, 0), [(2, None), (3, Some(Kind::Package)), (2, Some(Kind::NumaDomain))]);
    }

    #[test]
    fn ranks_that_may_run_anywhere_share_the_trunk() {
        assert_eq!(hierarchy(&[vec![], vec![]], 3), [(2, Some(Kind::L3))]);
        assert_eq!(hierarchy(&[vec![], vec![]], 0), [(2, None)]);
        assert_eq!(hierarchy(&[vec![0]], 0), []);
    }

    #[test]
    fn ranks_of_one_core_share_its_cache() {
        let paths: Vec<Vec<u32>> = (0..4).map(|rank| vec![0, 0, 0, rank / 2]).collect();
        assert_eq!(hierarchy(&paths, 3), [(2, Some(Kind::L3)), (2, Some(Kind::L2))]);
        assert_eq!(hierarchy(&[vec![0, 0, 0, 1], vec![0, 0, 0, 1]], 3), [(2, Some(Kind::L2))]);
    }

    #[test]
    fn large_nodes_and_empty_words() {
        assert_eq!(Hierarchy::flat(100_000, None).steps()[0].fan, u16::MAX);
        assert_eq!(Hierarchy::from_words([0, 0]).steps(), []);
        assert_eq!(Hierarchy::flat(1, None).steps(), []);
    }
}
