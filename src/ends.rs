//! What is done when a thread ends, in an order that huddle sets.
//!
//! A thread-local of Rust's with a destructor registers it with the dynamic linker. Another thread holds the linker's
//! lock while it runs the constructors of a library that it loads. So a thread's first call would wait for these
//! constructors, and hang if they wait for that thread. What is registered here has a key of pthreads, which takes no
//! lock. Destructors of keys run after those of C++'s thread-locals, in which programs may call MPI.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::from_ref;
use std::sync::OnceLock;

/// What a thread may have, in the order in which it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Layouts that are remembered for datatypes made alike.
    Layouts,
    /// What is remembered of declined calls, which count in the counters.
    Permits,
    /// The set of counters in which the thread counts.
    Counters,
}

/// The functions that give the parts up.
type Ways = [Option<fn()>; 3];

thread_local! {
    static WAYS: Cell<Ways> = const { Cell::new([None; 3]) };
}

/// Registers `go`, which gives `part` up. It is called once when this thread ends, in the order of the parts. If the
/// thread has the part anew after that, `go` is called once more, unless destructors of the thread make calls without
/// end. Nothing is called at the end of the process, nor where there is no memory for it or no key of the system's
/// left: what the thread had stays then.
pub fn when_thread_ends(part: Part, go: fn()) {
    let mut ways = WAYS.get();
    ways[part as usize] = Some(go);
    WAYS.set(ways);
    if let Some(key) = key() {
        // SAFETY: a key that was made and is never deleted. Any address but null has `end` called, which does not use
        // it.
        unsafe { libc::pthread_setspecific(key, from_ref(&WAYS).cast()) };
    }
}

/// The key of the process; `None` if the system has none left.
fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: writes one number; the library that `end` is in is never unloaded.
        let error = unsafe { libc::pthread_key_create(&raw mut key, Some(end)) };
        (error == 0).then_some(key)
    })
}

/// Runs when a thread ends. Its thread-locals are there until the destructors of all keys have run.
extern "C" fn end(_: *mut c_void) {
    WAYS.take().into_iter().flatten().for_each(|go| go());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::thread;

    static GONE: Mutex<Vec<Part>> = Mutex::new(Vec::new());

    fn note(part: Part) {
        GONE.lock().unwrap().push(part);
    }

    /// Like the destructor of a thread-local that makes a call: the thread has counters again.
    fn have_counters_again() {
        note(Part::Permits);
        when_thread_ends(Part::Counters, || note(Part::Counters));
    }

    #[test]
    fn parts_go_in_their_order_and_what_comes_late_goes_too() {
        let have_all = || {
            when_thread_ends(Part::Counters, || note(Part::Counters));
            when_thread_ends(Part::Counters, || note(Part::Counters));
            when_thread_ends(Part::Permits, have_counters_again);
            when_thread_ends(Part::Layouts, || note(Part::Layouts));
            assert!(GONE.lock().unwrap().is_empty());
        };
        thread::spawn(have_all).join().expect("it ends");
        let gone = GONE.lock().unwrap();
        assert_eq!(*gone, [Part::Layouts, Part::Permits, Part::Counters, Part::Counters]);
    }
}
