//! What is done when a thread ends, in an order of huddle's own.
//!
//! Thread-locals of Rust's with something to drop register with the dynamic linker, whose lock another thread holds as long as it is in the
//! constructors of a library that it loads. So a thread's first call would wait for these, and hang where they wait for it. What is registered
//! here has a key of pthreads, which takes no lock; and these run after the destructors of C++'s thread-locals, in which programs may call MPI.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::from_ref;
use std::sync::OnceLock;

/// What threads have, in the order in which it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Layouts that are remembered for datatypes made alike.
    Layouts,
    /// Calls that were declined, which are counted in the counters.
    Permits,
    /// The set that it counts in.
    Counters,
}

/// How each of them goes.
type Ways = [Option<fn()>; 3];

thread_local! {
    static WAYS: Cell<Ways> = const { Cell::new([None; 3]) };
}

/// `go` is called when this thread ends, once, in the order of the parts. What the thread has anew after that goes once more, but for a
/// thread whose destructors call without end. Nothing is called at the end of the process, nor where there is no memory for it or no key left
/// of the system's: what the thread had stays then.
pub fn when_thread_ends(part: Part, go: fn()) {
    let mut ways = WAYS.get();
    ways[part as usize] = Some(go);
    WAYS.set(ways);
    if let Some(key) = key() {
        // SAFETY: a key that was made and is never deleted. Any address but null has `end` called, which does not use it.
        unsafe { libc::pthread_setspecific(key, from_ref(&WAYS).cast()) };
    }
}

/// The process has one.
fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: writes one number; the library that `end` is in is never unloaded.
        let error = unsafe { libc::pthread_key_create(&raw mut key, Some(end)) };
        (error == 0).then_some(key)
    })
}

/// Thread-locals are there until all keys have been seen to.
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

    /// As a destructor that counts.
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
