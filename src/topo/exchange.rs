//! Exchanges of any radix: in each step ranks that differ in one digit of their position give each other all that they
//! have, so in the end every rank has everything.
//!
//! This is the dissemination of Li et al. 2014, section 2.3, but partners differ in a digit where the paper shifts by
//! `2^i`. It takes as many steps and partners as there, but all ranks combine the same operands in the same order and
//! get the same bits. Digits of the inner groups come first, so only the last steps cross the outermost level.

use super::Levels;
use crate::types::NodeRank;
use std::ops::Range;

/// One rank's part in an exchange of all ranks of its node.
///
/// Positions are cut into runs of nearly equal length, equally many in each group of the outermost level. The first
/// rank of a run is its head. Heads first take the operands of their run, then exchange with each other, and then give
/// their run the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// This rank's run by position, its head first.
    pub run: Box<[NodeRank]>,
    /// For each step, the ranks that exchange, by position, this rank among them. Ranks that are no heads have as many
    /// empty steps.
    pub steps: Box<[Box<[NodeRank]>]>,
    /// Ranks in the longest run.
    pub longest_run: usize,
    /// How many ranks exchange in each step.
    pub widths: Box<[usize]>,
}

impl Exchange {
    /// Whether some run is longer than one rank.
    pub fn has_runs(&self) -> bool {
        self.longest_run > 1
    }

    /// Whether `me`, the rank for which this part was found, takes part in the steps.
    pub fn is_head(&self, me: NodeRank) -> bool {
        self.run[0] == me
    }

    /// The part of `me` in an exchange with up to `radix` (at least 2) ranks in a step.
    pub(super) fn find(levels: &Levels, radix: u32, me: NodeRank) -> Self {
        let groups = groups(levels, radix as usize);
        let heads_per_group = smooth(groups.iter().map(Range::len).min().unwrap_or(1), radix as usize);
        let runs: Vec<Range<usize>> = groups
            .iter()
            .flat_map(|group| {
                let cut = move |run: usize| group.start + run * group.len() / heads_per_group;
                (0..heads_per_group).map(move |run| cut(run)..cut(run + 1))
            })
            .collect();
        let rank_at = |position: usize| levels.rank_at(position as u32);
        let position = levels.position_of(me) as usize;
        let mine = runs.iter().position(|run| run.contains(&position)).unwrap_or(0);
        let mut widths = factors(heads_per_group, radix as usize);
        widths.extend(factors(groups.len(), radix as usize));
        let is_head = runs[mine].start == position;
        let mut weight = 1;
        let steps = widths
            .iter()
            .map(|&factor| {
                let first = mine - mine / weight % factor * weight;
                let partners =
                    (0..if is_head { factor } else { 0 }).map(|digit| rank_at(runs[first + digit * weight].start));
                let partners = partners.collect();
                weight *= factor;
                partners
            })
            .collect();
        Self {
            run: runs[mine].clone().map(rank_at).collect(),
            steps,
            longest_run: runs.iter().map(Range::len).max().unwrap_or(1),
            widths: widths.into(),
        }
    }
}

/// The groups of the outermost level by position, if steps of `radix` can cross it; else one group of all ranks.
fn groups(levels: &Levels, radix: usize) -> Vec<Range<usize>> {
    let all = 0..levels.size();
    match levels.groups().first() {
        Some(starts) if smooth(starts.len() - 1, radix) == starts.len() - 1 => {
            starts.windows(2).map(|pair| pair[0] as usize..pair[1] as usize).collect()
        }
        _ => vec![all],
    }
}

/// The largest number up to `most` that is a product of factors up to `radix`.
fn smooth(most: usize, radix: usize) -> usize {
    let is_smooth = |number: &usize| factors(*number, radix).iter().product::<usize>() == *number;
    (1..=most).rev().find(is_smooth).unwrap_or(1)
}

/// Factors of `number` from 2 to `radix`, the largest first. Their product is less than `number` where it has larger
/// prime factors.
fn factors(number: usize, radix: usize) -> Vec<usize> {
    let mut rest = number;
    let mut found = Vec::new();
    for factor in (2..=radix.min(number)).rev() {
        while rest.is_multiple_of(factor) && rest > 1 {
            rest /= factor;
            found.push(factor);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exchanges(paths: &[Vec<u32>], radix: u32) -> Vec<Exchange> {
        let ranks = (0..paths.len() as u32).map(NodeRank);
        ranks.map(|me| Exchange::find(&Levels::from_paths(paths, me), radix, me)).collect()
    }

    fn ranks(numbers: &[u32]) -> Box<[NodeRank]> {
        numbers.iter().copied().map(NodeRank).collect()
    }

    #[test]
    fn only_the_last_step_crosses_two_sockets() {
        let paths: Vec<Vec<u32>> = (0..8).map(|rank| vec![rank / 4]).collect();
        let all = exchanges(&paths, 2);
        assert_eq!(*all[5].steps, [ranks(&[4, 5]), ranks(&[5, 7]), ranks(&[1, 5])]);
        assert_eq!(all[5].longest_run, 1);
    }

    #[test]
    fn two_sockets_of_six_have_four_heads_each() {
        let paths: Vec<Vec<u32>> = (0..12).map(|rank| vec![rank / 6]).collect();
        let all = exchanges(&paths, 2);
        assert_eq!(all[1].run, ranks(&[1, 2]));
        assert_eq!(*all[0].steps, [ranks(&[0, 1]), ranks(&[0, 3]), ranks(&[0, 6])]);
        assert_eq!(all[2].run, ranks(&[1, 2]));
        assert!(all[2].steps.iter().all(|step| step.is_empty()));
        assert_eq!(all[2].steps.len(), 3);
        // Six is three times two.
        let all = exchanges(&paths, 3);
        assert_eq!(*all[0].steps, [ranks(&[0, 1, 2]), ranks(&[0, 3]), ranks(&[0, 6])]);
        assert_eq!(all[0].longest_run, 1);
    }

    proptest! {
        #[test]
        fn everyone_gets_everything_once_and_in_one_order(
            places in proptest::collection::vec((0u32..3, 0u32..3), 1..40), radix in 2u32..6,
        ) {
            let paths: Vec<Vec<u32>> = places.iter().map(|(outer, inner)| vec![*outer, *inner]).collect();
            let all = exchanges(&paths, radix);
            let mut have: Vec<Vec<NodeRank>> = all.iter().map(|exchange| exchange.run.to_vec()).collect();
            for step in 0..all[0].steps.len() {
                let before = have.clone();
                for (me, exchange) in all.iter().enumerate().filter(|(_, exchange)| !exchange.steps[step].is_empty()) {
                    prop_assert!(exchange.steps[step].len() <= radix as usize);
                    have[me] = exchange.steps[step].iter().flat_map(|rank| before[rank.index()].clone()).collect();
                }
            }
            let order: Vec<NodeRank> = {
                let levels = Levels::from_paths(&paths, NodeRank(0));
                (0..paths.len() as u32).map(|position| levels.rank_at(position)).collect()
            };
            for (me, exchange) in all.iter().enumerate() {
                prop_assert_eq!(exchange.steps.len(), all[0].steps.len());
                prop_assert_eq!(exchange.longest_run, all[0].longest_run);
                prop_assert_eq!(&exchange.widths, &all[0].widths);
                if exchange.run[0].index() == me {
                    prop_assert_eq!(&have[me], &order);
                }
            }
        }
    }
}
