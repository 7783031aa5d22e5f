//! The remembered lanes of one collective of a communicator, found by the key that a call must share with them.

use crate::codegen::elsewhere;

/// The properties of a lane that [`Lanes`] need.
pub(super) trait Keyed {
    type Key: PartialEq + Copy;

    /// The arguments that a call must share with the one that opened the lane.
    fn key(&self) -> &Self::Key;

    /// A hash of a key: equal keys have equal tags, most others different ones.
    fn tag(key: &Self::Key) -> u32;

    /// Whether its key may come to mean something else.
    fn may_end(&self) -> bool;

    /// Whether its key may mean something else by now.
    fn is_over(&self) -> bool;
}

/// Lanes for each collective of a communicator. Solvers call with the counts of some dot products in turn, other
/// programs with counts that vary. Each lane takes some 300 bytes, and some KiB of scratch where the library combines
/// elements of the program's.
const LANES: usize = u64::BITS as usize;

/// Tags that are compared at once.
const TOGETHER: usize = 16;

/// See the module.
pub(super) struct Lanes<L> {
    /// The first `taken` places hold lanes.
    lanes: [Option<Box<L>>; LANES],
    /// The tags of their keys, side by side: to read the key of every lane would take a cache line each.
    tags: [u32; LANES],
    /// A bit for each lane whose key may come to mean something else.
    may_end: u64,
    /// The place of the lane that was used last.
    last: usize,
    /// The number of lanes. It ends the search early for calls that are declined, which never find one.
    taken: usize,
    /// The state of the pseudo-random sequence that says which lane is replaced when all places are taken.
    state: u32,
    /// How many datatypes had been freed at the last call with a datatype of the program's.
    freed: Option<u64>,
}

/// A place where a lane may be opened.
pub(super) struct Vacancy(usize);

impl<L> Default for Lanes<L> {
    fn default() -> Self {
        let (lanes, tags) = (std::array::from_fn(|_| None), [0; LANES]);
        Self { lanes, tags, may_end: 0, last: 0, taken: 0, state: 0, freed: None }
    }
}

impl<L> Lanes<L> {
    /// Makes all as new. It touches only the places that are taken: most communicators have few lanes, or none.
    pub fn clear(&mut self) {
        self.lanes[..self.taken].fill_with(|| None);
        self.tags[..self.taken].fill(0);
        (self.may_end, self.last, self.taken, self.state, self.freed) = (0, 0, 0, 0, None);
    }
}

impl<L: Keyed> Lanes<L> {
    /// The lane with this key, unless it is over. It becomes the last used one.
    #[inline(always)]
    pub fn find(&mut self, key: &L::Key) -> Option<&L> {
        // The remainder changes nothing: it spares the check of the bound.
        let is_last = self.lanes[self.last % LANES].as_ref().is_some_and(|lane| lane.key() == key);
        if !is_last {
            if self.taken < 2 {
                return None;
            }
            self.last = self.position(&elsewhere(*key))?;
        }
        self.lanes[self.last % LANES].as_deref().filter(|lane| !lane.is_over())
    }

    /// In a function of its own, so that calls like the last one are short.
    #[inline(never)]
    fn position(&self, key: &L::Key) -> Option<usize> {
        let tag = L::tag(key);
        let has_key = |at: &usize| self.lanes[*at].as_ref().is_some_and(|lane| lane.key() == key);
        let chunks = self.tags.chunks_exact(TOGETHER).enumerate().take(self.taken.div_ceil(TOGETHER));
        // All tags of a chunk, without a branch for each: the compiler compares several by one instruction.
        let with_tag = chunks.filter(|(_, tags)| tags.iter().fold(false, |found, other| found | (*other == tag)));
        let places = with_tag.flat_map(|(chunk, _)| chunk * TOGETHER..(chunk + 1) * TOGETHER);
        places.filter(|at| self.tags[*at] == tag).find(has_key)
    }

    fn is_over(&self, at: usize) -> bool {
        self.lanes[at].as_ref().is_some_and(|lane| lane.is_over())
    }

    /// Notes a call with a datatype of the program's, before which `freed` datatypes had been freed. Returns whether
    /// none was freed since the last such call; otherwise a lane would not last either.
    pub fn note_freed(&mut self, freed: u64) -> bool {
        self.freed.replace(freed) == Some(freed)
    }

    /// The place for a lane with a key that [`find`](Lanes::find) has just looked for: that of a lane with this key
    /// that is over; else a free one; else that of a lane that is over; else that of any lane but the last used one.
    /// `None` if the key has a lane, which the call could not take because of its addresses.
    pub fn vacancy(&mut self, key: &L::Key) -> Option<Vacancy> {
        // If the key has a lane, `find` has made it the last used one.
        match self.lanes[self.last % LANES].as_ref().filter(|lane| lane.key() == key) {
            Some(lane) => lane.is_over().then_some(Vacancy(self.last)),
            None => {
                debug_assert!(self.position(key).is_none(), "a key is looked for before its lane is opened");
                Some(Vacancy(self.place()))
            }
        }
    }

    /// Puts a lane in its place. It becomes the last used one.
    pub fn open(&mut self, Vacancy(at): Vacancy, lane: L) -> &L {
        self.tags[at] = L::tag(lane.key());
        self.may_end = self.may_end & !(1 << at) | u64::from(lane.may_end()) << at;
        self.taken = self.taken.max(at + 1);
        self.last = at;
        match &mut self.lanes[at] {
            // The box is reused: calls with many counts in turn open a lane each, and would allocate and free one each.
            Some(place) => {
                **place = lane;
                place
            }
            free => free.insert(Box::new(lane)),
        }
    }

    fn place(&mut self) -> usize {
        if self.taken < LANES {
            return self.taken;
        }
        let mut may_end = self.may_end;
        while may_end != 0 {
            let at = may_end.trailing_zeros() as usize;
            if self.is_over(at) {
                return at;
            }
            may_end &= may_end - 1;
        }
        // A random place (the upper bits of a linear congruential sequence). If lanes were replaced in turn or by age,
        // a program that cycles through one key too many would never find one.
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let any = (self.state >> (u32::BITS - LANES.ilog2())) as usize;
        if any == self.last { (any + 1) % LANES } else { any }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    /// A lane's key, its ordinal, and whether it is over.
    struct Numbered(usize, usize, bool);

    impl Keyed for Numbered {
        type Key = usize;

        fn key(&self) -> &usize {
            &self.0
        }

        /// Some keys share one.
        fn tag(key: &usize) -> u32 {
            (*key % 20) as u32
        }

        fn may_end(&self) -> bool {
            true
        }

        fn is_over(&self) -> bool {
            self.2
        }
    }

    fn open(lanes: &mut Lanes<Numbered>, lane: Numbered) {
        assert!(lanes.find(&lane.0).is_none());
        let Some(vacancy) = lanes.vacancy(&lane.0) else { unreachable!("there is none with that key") };
        lanes.open(vacancy, lane);
    }

    fn lane(key: usize, ordinal: usize) -> Numbered {
        Numbered(key, ordinal, false)
    }

    #[test]
    fn as_many_as_there_are_places_are_found_in_any_order() {
        let mut lanes = Lanes::default();
        assert!(lanes.find(&0).is_none());
        (0..LANES).for_each(|key| open(&mut lanes, lane(key, 100 + key)));
        for key in (0..LANES).chain([3, 1, 3, 3, 0, 7]) {
            assert_eq!(lanes.find(&key).map(|lane| lane.1), Some(100 + key));
        }
        // One more takes the place of any lane but the last used one.
        open(&mut lanes, lane(LANES, 0));
        assert!(lanes.find(&LANES).is_some() && lanes.find(&7).is_some());
        assert_eq!((0..=LANES).filter(|key| lanes.find(key).is_none()).count(), 1);
    }

    #[test]
    fn lanes_that_are_cleared_are_as_new() {
        let mut lanes = Lanes::default();
        for n in [0, 1, 2, 17, LANES, LANES + 5] {
            (0..n).for_each(|key| open(&mut lanes, lane(key, 0)));
            lanes.note_freed(3);
            lanes.clear();
            assert!((0..n).all(|key| lanes.find(&key).is_none()), "{n}");
            assert!(lanes.lanes.iter().all(Option::is_none) && lanes.tags == [0; LANES], "{n}");
            let Lanes { may_end, last, taken, state, freed, .. } = lanes;
            assert_eq!((may_end, last, taken, state, freed), (0, 0, 0, 0, None), "{n}");
        }
    }

    /// Makes a call with each of these keys in turn. Returns how many found their lane.
    fn turn(lanes: &mut Lanes<Numbered>, keys: Range<usize>) -> usize {
        let found = |key: &usize| match lanes.find(key) {
            Some(found) => {
                assert_eq!(found.0, *key);
                true
            }
            None => {
                open(lanes, lane(*key, 0));
                false
            }
        };
        keys.filter(found).count()
    }

    #[test]
    fn keys_that_are_no_longer_called_make_room() {
        let mut lanes = Lanes::default();
        turn(&mut lanes, 1000..1100);
        let turns = (0..100).position(|_| turn(&mut lanes, 0..LANES / 2) == LANES / 2);
        assert!(turns.is_some_and(|turns| turns < 20), "{turns:?}");
    }

    #[test]
    fn of_a_few_keys_too_many_some_are_found() {
        let mut lanes = Lanes::default();
        let found: usize = (0..100).map(|_| turn(&mut lanes, 0..LANES + 4)).sum();
        assert!(found > 100 * LANES / 4, "{found}");
    }

    #[test]
    fn a_lane_that_is_over_makes_room_for_one_with_its_key() {
        let mut lanes = Lanes::default();
        open(&mut lanes, Numbered(5, 1, true));
        assert!(lanes.find(&5).is_none());
        open(&mut lanes, lane(5, 2));
        assert_eq!(lanes.find(&5).map(|lane| lane.1), Some(2));
        assert!(lanes.vacancy(&5).is_none());
        assert_eq!(lanes.lanes.iter().flatten().count(), 1);
        // Where all places are taken, a lane that is over makes room for any key.
        (6..5 + LANES).for_each(|key| open(&mut lanes, Numbered(key, 1, key == 20)));
        assert!(lanes.find(&(LANES + 8)).is_none());
        open(&mut lanes, lane(LANES + 8, 1));
        assert!((5..5 + LANES).chain([LANES + 8]).all(|key| (key == 20) == lanes.find(&key).is_none()));
    }

    #[test]
    fn datatypes_count_once_two_calls_came_with_none_freed_between() {
        let mut lanes = Lanes::<Numbered>::default();
        assert_eq!([0, 0, 1, 2, 2, 2].map(|freed| lanes.note_freed(freed)), [false, true, false, false, true, true]);
    }
}
