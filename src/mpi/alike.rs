//! The layouts of the last datatypes that were made, for later datatypes that are made alike.
//!
//! Programs that make a datatype for each call mostly make the same one. The MPI library returns its constructor and
//! the arguments of that in two calls, and in three more for each derived datatype inside. Sizes, extents and layout
//! follow from these, but take several times as long to find out. Where a program makes a different datatype each time,
//! few layouts are remembered ([`Habit`]).

use super::constructor::{Arguments, Constructor};
use super::datatype::{TypeLayout, TypeMap};
use super::habit::Habit;
use crate::ends::{Part, when_thread_ends};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Layouts that are remembered: programs need more than one for each step.
const SOME: usize = 4;
/// Constructors with more arguments are not remembered: they are unlikely to recur, and comparing them takes time.
pub(super) const MOST_ARGUMENTS: usize = 64;
/// Layouts with more runs are not remembered either: they take up to some megabytes.
const MOST_RUNS: usize = 1 << 10;

/// The layout that a constructor makes of these arguments.
struct Entry {
    arguments: Arguments,
    layout: Arc<TypeLayout>,
    has_served: Cell<bool>,
}

/// The layouts that a thread has read last.
#[derive(Default)]
struct Remembered {
    entries: [Option<Entry>; SOME],
    /// The index of the entry that the next one replaces.
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

    /// Remembers a layout in place of the oldest one.
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

/// Frees what a thread remembers when it ends.
fn forget() {
    REMEMBERED.with(|remembered| remembered.take());
}

/// The remembered layout of a datatype that was `made` so. `None` if there is none, or if the library reports another
/// `size`.
#[inline]
pub(super) fn find<C>(made: &C, size: impl FnOnce() -> Option<usize>) -> Option<Arc<TypeLayout>>
where
    Arguments: PartialEq<C>,
{
    let found = REMEMBERED.with(|remembered| remembered.borrow().find(made));
    // The comparison of sizes guards against misread arguments, as it does for new layouts.
    found.filter(|layout| size() == Some(layout.size))
}

/// The layout of what `constructor` makes, as `read` finds it out. Remembers it if that is of use.
pub(super) fn remember(
    constructor: Constructor,
    read: impl FnOnce(&Constructor) -> Option<Arc<TypeLayout>>,
) -> Option<Arc<TypeLayout>> {
    let layout = read(&constructor)?;
    if may_be_remembered(&layout) && REMEMBERED.with(|remembered| remembered.borrow().habit.keeps_next()) {
        // `into_arguments` calls the library to free the datatypes inside, so nothing is borrowed meanwhile.
        if let Some(arguments) = constructor.into_arguments(MOST_ARGUMENTS) {
            REMEMBERED.with(|remembered| remembered.borrow_mut().add(arguments, Arc::clone(&layout)));
            when_thread_ends(Part::Layouts, forget);
        }
    }
    Some(layout)
}

/// Whether the layout takes little enough memory to be remembered.
pub(super) fn may_be_remembered(layout: &TypeLayout) -> bool {
    match &layout.type_map {
        TypeMap::Segments { segments, .. } => segments.runs() <= MOST_RUNS,
        TypeMap::Contiguous { .. } | TypeMap::Opaque => true,
    }
}
