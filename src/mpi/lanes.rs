//! The last lanes of one collective of a communicator, found by what a call must share with them.

use std::ops::Range;

/// What [`Lanes`] need to know of a lane.
pub(super) trait Keyed {
    type Key: PartialEq;

    /// What a call must share with the one that opened it.
    fn key(&self) -> &Self::Key;

    /// A number that tells most keys apart which programs call with in turn.
    fn number(key: &Self::Key) -> u64;

    /// Whether its key may mean something else by now.
    fn is_over(&self) -> bool;
}

/// Which one of so many places, a power of two, is that of a number: neighbours and powers of two lie apart.
#[inline(always)]
pub(super) fn spread(number: u64, places: usize) -> usize {
    /// 2^64 over the golden ratio.
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    (number.wrapping_mul(FACTOR) >> (u64::BITS - places.ilog2())) as usize
}

/// Where keys go, by their numbers; of those that share a set the last ones are remembered.
const SETS: usize = 8;
const WAYS: usize = 4;
/// Solvers call with the counts of some dot products in turn, and others with counts that vary. Each takes some 300 bytes, for each collective
/// of a communicator that is called so.
const LANES: usize = SETS * WAYS;

/// See the module.
pub(super) struct Lanes<L> {
    lanes: [Option<Box<L>>; LANES],
    /// Where the one is that was used last.
    last: usize,
    /// How many were opened in free places: calls that are declined look in vain.
    taken: usize,
    /// Which one of its set the next one replaces, if that was not used last.
    next: usize,
    /// How many datatypes had been freed when the last call came with one of the program's.
    freed: Option<u64>,
}

impl<L> Default for Lanes<L> {
    fn default() -> Self {
        Self { lanes: Default::default(), last: 0, taken: 0, next: 0, freed: None }
    }
}

impl<L: Keyed> Lanes<L> {
    /// The lane with that key, if there is one that is not over; it is the last one now.
    #[inline(always)]
    pub fn find(&mut self, key: &L::Key) -> Option<&L> {
        // The remainder is no change: it spares the check of the bound.
        let is_last = self.lanes[self.last % LANES].as_ref().is_some_and(|lane| lane.key() == key);
        if !is_last {
            if self.taken < 2 {
                return None;
            }
            self.last = self.position(key)?;
        }
        self.lanes[self.last % LANES].as_deref().filter(|lane| !lane.is_over())
    }

    /// Apart, so that calls like the last one are short.
    #[inline(never)]
    fn position(&self, key: &L::Key) -> Option<usize> {
        Self::set(key).find(|at| self.lanes[*at].as_ref().is_some_and(|lane| lane.key() == key))
    }

    /// The places for that key.
    fn set(key: &L::Key) -> Range<usize> {
        let first = WAYS * spread(L::number(key), SETS);
        first..first + WAYS
    }

    /// Whether calls with that key have a lane, though they may not go by it: their addresses may forbid it.
    pub fn has(&self, key: &L::Key) -> bool {
        self.position(key).is_some_and(|at| self.lanes[at].as_ref().is_some_and(|lane| !lane.is_over()))
    }

    /// A call came with a datatype of the program's, after so many had been freed. -> whether none was since the last such call: else a lane
    /// would not last either
    pub fn note_freed(&mut self, freed: u64) -> bool {
        self.freed.replace(freed) == Some(freed)
    }

    /// Takes the place of the lane with its key, or else a free one or that of one that was not used last.
    pub fn open(&mut self, lane: L) {
        let at = self.position(lane.key()).unwrap_or_else(|| self.place_for(lane.key()));
        self.lanes[at] = Some(Box::new(lane));
        self.last = at;
    }

    fn place_for(&mut self, key: &L::Key) -> usize {
        let mut set = Self::set(key);
        if let Some(free) = set.clone().find(|at| self.lanes[*at].is_none()) {
            self.taken += 1;
            return free;
        }
        let next = set.start + self.next;
        self.next = (self.next + 1) % WAYS;
        if next == self.last { set.find(|at| *at != next).unwrap_or(next) } else { next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a key, opened as the how manieth.
    struct Numbered(usize, usize, bool);

    impl Keyed for Numbered {
        type Key = usize;

        fn key(&self) -> &usize {
            &self.0
        }

        fn number(key: &usize) -> u64 {
            *key as u64
        }

        fn is_over(&self) -> bool {
            self.2
        }
    }

    fn lane(key: usize, ordinal: usize) -> Numbered {
        Numbered(key, ordinal, false)
    }

    #[test]
    fn the_last_ones_are_found_in_any_order() {
        let mut lanes = Lanes::default();
        assert!(lanes.find(&0).is_none());
        // Sixteen neighbours have a place each.
        (0..16).for_each(|key| lanes.open(lane(key, key)));
        for key in (0..16).chain([3, 1, 3, 3, 0, 7]) {
            assert_eq!(lanes.find(&key).map(|lane| lane.1), Some(key));
        }
    }

    #[test]
    fn a_full_set_keeps_the_one_that_was_used_last() {
        let of_set = |set| move |key: &usize| Lanes::<Numbered>::set(key).start == set * WAYS;
        for used in 0..WAYS {
            let mut lanes = Lanes::default();
            let keys: Vec<usize> = (0..).filter(of_set(0)).take(3 * WAYS).collect();
            keys[..WAYS].iter().for_each(|key| lanes.open(lane(*key, *key)));
            // Those of other sets are no matter.
            (0..).filter(of_set(1)).take(WAYS).for_each(|key| lanes.open(lane(key, key)));
            for key in &keys[WAYS..] {
                assert!(lanes.find(&keys[used]).is_some());
                lanes.open(lane(*key, *key));
                assert!(lanes.find(key).is_some());
            }
            assert_eq!(keys.iter().filter(|key| lanes.find(key).is_some()).count(), WAYS);
            assert_eq!(lanes.lanes.iter().flatten().count(), 2 * WAYS);
        }
    }

    #[test]
    fn more_keys_in_turn_than_there_are_places_still_find_their_own_lane() {
        let mut lanes = Lanes::<Numbered>::default();
        for ordinal in 0..200 {
            let key = ordinal * 7 % (LANES + 3);
            match lanes.find(&key) {
                Some(found) => assert_eq!(found.0, key),
                None => lanes.open(lane(key, ordinal)),
            }
            assert_eq!(lanes.find(&key).map(|lane| lane.0), Some(key));
        }
    }

    #[test]
    fn a_lane_that_is_over_makes_room_for_one_with_its_key() {
        let mut lanes = Lanes::default();
        lanes.open(Numbered(5, 1, true));
        assert!(lanes.find(&5).is_none() && !lanes.has(&5));
        lanes.open(lane(5, 2));
        assert!(lanes.has(&5));
        assert_eq!(lanes.find(&5).map(|lane| lane.1), Some(2));
        assert_eq!(lanes.lanes.iter().flatten().count(), 1);
    }

    #[test]
    fn datatypes_count_once_two_calls_came_with_none_freed_between() {
        let mut lanes = Lanes::<Numbered>::default();
        assert_eq!([0, 0, 1, 2, 2, 2].map(|freed| lanes.note_freed(freed)), [false, true, false, false, true, true]);
    }
}
