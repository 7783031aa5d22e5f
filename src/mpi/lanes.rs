//! The last lanes of one collective of a communicator, found by what a call must share with them.

/// What [`Lanes`] need to know of a lane.
pub(super) trait Keyed {
    type Key: PartialEq;

    /// What a call must share with the one that opened it.
    fn key(&self) -> &Self::Key;

    /// Whether its key may mean something else by now.
    fn is_over(&self) -> bool;
}

/// Solvers call with the counts of some dot products in turn. Each takes some 300 bytes, for each collective of a communicator that is called so.
const LANES: usize = 8;

/// See the module.
pub(super) struct Lanes<L> {
    /// The first is the one that was used last.
    lanes: [Option<Box<L>>; LANES],
    /// How many places were taken so far, the first ones: calls that are declined look in vain.
    taken: usize,
    /// Where the next one goes: round all places but the first.
    next: usize,
    /// How many datatypes had been freed when the last call came with one of the program's.
    freed: Option<u64>,
}

impl<L> Default for Lanes<L> {
    fn default() -> Self {
        Self { lanes: Default::default(), taken: 0, next: 0, freed: None }
    }
}

impl<L: Keyed> Lanes<L> {
    /// The lane with that key, if there is one that is not over; it is the first one now.
    #[inline(always)]
    pub fn find(&mut self, key: &L::Key) -> Option<&L> {
        let is_first = self.lanes[0].as_ref().is_some_and(|lane| lane.key() == key);
        if !is_first {
            if self.taken < 2 {
                return None;
            }
            let at = self.position(key)?;
            self.lanes.swap(0, at);
        }
        self.lanes[0].as_deref().filter(|lane| !lane.is_over())
    }

    /// Apart, so that calls like the last one are short.
    #[inline(never)]
    fn position(&self, key: &L::Key) -> Option<usize> {
        self.lanes[..self.taken].iter().position(|lane| lane.as_ref().is_some_and(|lane| lane.key() == key))
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

    /// Takes the place of the lane with its key, or else of one that was not used last.
    pub fn open(&mut self, lane: L) {
        let at = self.position(lane.key()).unwrap_or_else(|| {
            let next = self.next;
            self.next = if next + 1 < LANES { next + 1 } else { 1 };
            self.taken = self.taken.max(next + 1);
            next
        });
        self.lanes[at] = Some(Box::new(lane));
        self.lanes.swap(0, at);
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
        (0..LANES).for_each(|key| lanes.open(lane(key, key)));
        for key in (0..LANES).chain([3, 1, 3, 3, 0, 7]) {
            assert_eq!(lanes.find(&key).map(|lane| lane.1), Some(key));
        }
        // One more takes the place of another one, not of that which was used last.
        lanes.open(lane(LANES, LANES));
        assert!(lanes.find(&LANES).is_some() && lanes.find(&7).is_some());
        assert_eq!((0..=LANES).filter(|key| lanes.find(key).is_none()).count(), 1);
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
