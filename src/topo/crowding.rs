//! How many ranks share a core.

use super::CpuMask;

/// Ranks per core of a node, in hundredths, rounded up: 100 where each has one for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crowding(u32);

impl Crowding {
    /// Nobody shares a core.
    pub const NONE: Self = Self(100);

    /// The crowding of `ranks` ranks on `cores` cores, or on a quota of as much processor time.
    pub fn new(ranks: usize, cores: f64) -> Self {
        let hundredths = (100.0 * ranks as f64 / cores).ceil();
        // No machine has enough ranks to overflow. Without cores nothing is known.
        Self(if hundredths.is_finite() { hundredths as u32 } else { 100 }).max(Self::NONE)
    }

    /// The worst crowding of the ranks of a node: of all ranks on the PUs that they may use together, of the ranks that
    /// are confined to the mask of one (two bound to one PU, say), and of all ranks on the quota of their cgroup. Ranks
    /// of unknown mask are counted only for the quota.
    pub fn of(masks: &[CpuMask], quota: Option<f64>) -> Self {
        let known: Vec<&CpuMask> = masks.iter().filter(|mask| **mask != CpuMask::EMPTY).collect();
        let all = known.iter().fold(CpuMask::EMPTY, |all, mask| all.union(mask));
        let within = |mask: &CpuMask| {
            let ranks = known.iter().filter(|inner| inner.is_subset_of(mask)).count();
            Self::new(ranks, mask.count() as f64)
        };
        let by_quota = quota.map_or(Self::NONE, |quota| Self::new(masks.len(), quota));
        known.iter().map(|mask| within(mask)).fold(by_quota.max(within(&all)), Self::max)
    }

    /// Whether ranks outnumber cores.
    pub fn is_shared(self) -> bool {
        self > Self::NONE
    }

    /// Ranks per core, at least 1.
    pub fn ranks_per_core(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// The wire format.
    pub const fn to_number(self) -> u32 {
        self.0
    }

    /// The inverse of [`Crowding::to_number`]; any other number counts as no sharing.
    pub fn from_number(number: u32) -> Self {
        Self(number).max(Self::NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_against_the_pus_that_they_may_use() {
        let crowding = |masks: &[&[u32]], quota| {
            let masks: Vec<CpuMask> = masks.iter().map(|pus| pus.iter().copied().collect()).collect();
            Crowding::of(&masks, quota).ranks_per_core()
        };
        assert_eq!(crowding(&[&[0, 1], &[0, 1]], None), 1.0);
        assert_eq!(crowding(&[&[0, 1], &[0, 1], &[0, 1]], None), 1.5);
        assert_eq!(crowding(&[&[3], &[3], &[0, 1, 2, 3]], None), 2.0, "two are bound to PU 3");
        assert_eq!(crowding(&[&[0, 1], &[1, 2], &[2], &[0]], None), 1.34, "together they have three");
        assert_eq!(crowding(&[&[0], &[1]], Some(1.5)), 1.34);
        assert_eq!(crowding(&[&[0], &[1]], Some(2.0)), 1.0);
        assert_eq!(crowding(&[&[], &[]], None), 1.0, "nothing is known");
    }

    #[test]
    fn one_rank_too_many_is_noticed_on_a_large_node() {
        assert!(Crowding::new(513, 512.0).is_shared());
        assert!(!Crowding::new(512, 512.0).is_shared());
        assert!(!Crowding::new(0, 0.0).is_shared());
        let crowding = Crowding::new(7, 2.0);
        assert_eq!(Crowding::from_number(crowding.to_number()), crowding);
        assert_eq!(Crowding::from_number(0), Crowding::NONE);
    }
}
