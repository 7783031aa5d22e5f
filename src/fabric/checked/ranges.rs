//! What is known of the bytes of a memory, as runs of bytes of which the same is known.

use std::ops::Range;

/// A value for some of the positions of a line, in sorted, disjoint runs.
#[derive(Clone, Debug)]
pub(super) struct RangeMap<T> {
    runs: Vec<(Range<usize>, T)>,
}

impl<T> Default for RangeMap<T> {
    fn default() -> Self {
        Self { runs: Vec::new() }
    }
}

impl<T: Copy + PartialEq> RangeMap<T> {
    /// One run.
    pub(super) fn of(range: Range<usize>, value: T) -> Self {
        let mut map = Self::default();
        map.set(range, value);
        map
    }

    /// Forgets what was known of `range`.
    pub(super) fn clear(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let from = self.runs.partition_point(|(run, _)| run.end <= range.start);
        let to = self.runs.partition_point(|(run, _)| run.start < range.end);
        if from == to {
            return;
        }
        let (first, left) = &self.runs[from];
        let (last, right) = &self.runs[to - 1];
        let kept = [(first.start..range.start, *left), (range.end..last.end, *right)];
        self.runs.splice(from..to, kept.into_iter().filter(|(run, _)| run.start < run.end));
    }

    /// Sets the value of all of `range`.
    pub(super) fn set(&mut self, range: Range<usize>, value: T) {
        if range.is_empty() {
            return;
        }
        self.clear(range.clone());
        let at = self.runs.partition_point(|(run, _)| run.start < range.start);
        let mut merged = range;
        let mut replaced = at..at;
        if let Some((before, _)) =
            at.checked_sub(1).map(|i| &self.runs[i]).filter(|(r, v)| r.end == merged.start && *v == value)
        {
            merged.start = before.start;
            replaced.start -= 1;
        }
        if let Some((after, _)) = self.runs.get(at).filter(|(run, v)| run.start == merged.end && *v == value) {
            merged.end = after.end;
            replaced.end += 1;
        }
        self.runs.splice(replaced, [(merged, value)]);
    }

    /// The runs that overlap `range`, cut to it, in order.
    pub(super) fn overlapping(&self, range: Range<usize>) -> impl Iterator<Item = (Range<usize>, T)> + '_ {
        let from = self.runs.partition_point(|(run, _)| run.end <= range.start);
        let (start, end) = (range.start, range.end);
        self.runs[from..]
            .iter()
            .take_while(move |(run, _)| run.start < end)
            .map(move |(run, value)| (run.start.max(start)..run.end.min(end), *value))
            .filter(|(run, _)| !run.is_empty())
    }

    /// The first position of `range` that has no value.
    pub(super) fn first_gap(&self, range: Range<usize>) -> Option<usize> {
        let mut next = range.start;
        for (run, _) in self.overlapping(range.clone()) {
            if run.start > next {
                break;
            }
            next = run.end;
        }
        (next < range.end).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::checked::Random;

    #[test]
    fn runs_agree_with_an_array_of_bytes() {
        let mut random = Random::new(1);
        let (mut map, mut array) = (RangeMap::default(), [None; 40]);
        for _ in 0..20_000 {
            let start = random.below(40);
            let range = start..random.between(start, 40);
            if random.one_in(3) {
                map.clear(range.clone());
                array[range].fill(None);
            } else {
                let value = random.below(3);
                map.set(range.clone(), value);
                array[range].fill(Some(value));
            }
            let start = random.below(40);
            let asked = start..random.between(start, 40);
            let mut seen = [None; 40];
            map.overlapping(asked.clone()).for_each(|(run, value)| seen[run].fill(Some(value)));
            assert_eq!(seen[asked.clone()], array[asked.clone()]);
            assert_eq!(map.first_gap(asked.clone()), asked.into_iter().find(|at| array[*at].is_none()));
            assert!(map.runs.windows(2).all(|pair| pair[0].0.end <= pair[1].0.start));
        }
    }
}
