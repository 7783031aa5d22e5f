//! Layouts of datatypes that were made last, for others that are made alike.
//!
//! Programs that make a datatype for each call mostly make the same one. What its constructor was and with which arguments the library tells in two
//! calls; sizes, extents and layout follow from these, and take several times as long to find out. Where a program makes another one each time, few
//! are remembered ([`Habit`]).

use super::constructor::Constructor;
use super::datatype::{TypeLayout, TypeMap};
use super::habit::Habit;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// So many are remembered, as programs need more than one for each step.
const SOME: usize = 4;
/// Constructors of more arguments are not remembered: they are not likely to come again, and to compare them takes time.
const MOST_ARGUMENTS: usize = 64;
/// Nor are layouts of more runs, which take up to some megabytes.
const MOST_RUNS: usize = 1 << 10;

/// What a constructor made, of which handles are no longer known.
struct Entry {
    constructor: Constructor,
    layout: Arc<TypeLayout>,
    has_served: Cell<bool>,
}

/// What was made last.
#[derive(Default)]
struct Made {
    entries: [Option<Entry>; SOME],
    /// The one that is the oldest.
    oldest: usize,
    habit: Habit,
}

impl Made {
    fn find(&self, constructor: &Constructor) -> Option<Arc<TypeLayout>> {
        let entry = self.entries.iter().flatten().find(|entry| entry.constructor == *constructor)?;
        entry.has_served.set(true);
        Some(Arc::clone(&entry.layout))
    }

    /// In place of the oldest one.
    fn add(&mut self, constructor: Constructor, layout: Arc<TypeLayout>) {
        let entry = Entry { constructor, layout, has_served: Cell::new(false) };
        if let Some(forgotten) = self.entries[self.oldest].replace(entry) {
            self.habit.note_freed(forgotten.has_served.get());
        }
        self.oldest = (self.oldest + 1) % SOME;
    }
}

thread_local! {
    static MADE: RefCell<Made> = RefCell::default();
}

/// The layout of what `constructor` makes: a remembered one, or what `read` finds out. At the end of a thread nothing is remembered.
#[inline]
pub(super) fn find_or(
    mut constructor: Constructor,
    read: impl FnOnce(&Constructor) -> Option<Arc<TypeLayout>>,
) -> Option<Arc<TypeLayout>> {
    if let Ok(Some(found)) = MADE.try_with(|made| made.borrow().find(&constructor)) {
        return Some(found);
    }
    let layout = read(&constructor)?;
    _ = MADE.try_with(|made| {
        let mut made = made.borrow_mut();
        if made.habit.keeps_next() && is_worth(&constructor, &layout) {
            constructor.let_go();
            made.add(constructor, Arc::clone(&layout));
        }
    });
    Some(layout)
}

fn is_worth(constructor: &Constructor, layout: &TypeLayout) -> bool {
    let runs = match &layout.type_map {
        TypeMap::Segments { segments, .. } => segments.runs(),
        _ => 0,
    };
    runs <= MOST_RUNS && constructor.arguments().is_some_and(|arguments| arguments <= MOST_ARGUMENTS)
}
