//! Layouts of datatypes that were made last, for others that are made alike.
//!
//! Programs that make a datatype for each call mostly make the same one. What its constructor was and with which arguments the library
//! tells in two calls, and three for each derived datatype inside; sizes, extents and layout follow from these, and take several times as
//! long to find out. Where a program makes another one each time, few are remembered ([`Habit`]).

use super::constructor::{Arguments, Constructor};
use super::datatype::{TypeLayout, TypeMap};
use super::habit::Habit;
use crate::ends::{Part, when_thread_ends};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// So many are remembered, as programs need more than one for each step.
const SOME: usize = 4;
/// Constructors of more arguments are not remembered: they are not likely to come again, and to compare them takes time.
pub(super) const MOST_ARGUMENTS: usize = 64;
/// Nor are layouts of more runs, which take up to some megabytes.
const MOST_RUNS: usize = 1 << 10;

/// What a constructor makes of such arguments.
struct Entry {
    arguments: Arguments,
    layout: Arc<TypeLayout>,
    has_served: Cell<bool>,
}

/// What was made last.
#[derive(Default)]
struct Remembered {
    entries: [Option<Entry>; SOME],
    /// The one that is the oldest.
    oldest: usize,
    habit: Habit,
}

impl Remembered {
    fn find<C>(&self, made: &C) -> Option<Arc<TypeLayout>>
    where
        Arguments: PartialEq<C>,
    {
        let entry = self.entries.iter().flatten().find(|entry| entry.arguments == *made)?;
        entry.has_served.set(true);
        Some(Arc::clone(&entry.layout))
    }

    /// In place of the oldest one.
    fn add(&mut self, arguments: Arguments, layout: Arc<TypeLayout>) {
        let entry = Entry { arguments, layout, has_served: Cell::new(false) };
        if let Some(forgotten) = self.entries[self.oldest].replace(entry) {
            self.habit.note_freed(forgotten.has_served.get());
        }
        self.oldest = (self.oldest + 1) % SOME;
    }
}

thread_local! {
    /// Dropped by [`forget`].
    static REMEMBERED: ManuallyDrop<RefCell<Remembered>> = ManuallyDrop::default();
}

/// For a thread that ends.
fn forget() {
    REMEMBERED.with(|remembered| remembered.take());
}

/// The layout of what was `made` so, if that is remembered and the library tells that `size` too.
#[inline]
pub(super) fn find<C>(made: &C, size: impl FnOnce() -> Option<usize>) -> Option<Arc<TypeLayout>>
where
    Arguments: PartialEq<C>,
{
    let found = REMEMBERED.with(|remembered| remembered.borrow().find(made));
    // A check on the reading of arguments, as of layouts that are new.
    found.filter(|layout| size() == Some(layout.size))
}

/// The layout of what `constructor` makes, as `read` finds out; it is remembered, if that is of use.
pub(super) fn remember(
    constructor: Constructor,
    read: impl FnOnce(&Constructor) -> Option<Arc<TypeLayout>>,
) -> Option<Arc<TypeLayout>> {
    let layout = read(&constructor)?;
    if may_be_remembered(&layout) && REMEMBERED.with(|remembered| remembered.borrow().habit.keeps_next()) {
        // The library is called, to free what is inside, while nothing is borrowed.
        if let Some(arguments) = constructor.into_arguments(MOST_ARGUMENTS) {
            REMEMBERED.with(|remembered| remembered.borrow_mut().add(arguments, Arc::clone(&layout)));
            when_thread_ends(Part::Layouts, forget);
        }
    }
    Some(layout)
}

/// Whether it takes little enough memory for that.
pub(super) fn may_be_remembered(layout: &TypeLayout) -> bool {
    match &layout.type_map {
        TypeMap::Segments { segments, .. } => segments.runs() <= MOST_RUNS,
        TypeMap::Contiguous { .. } | TypeMap::Opaque => true,
    }
}
