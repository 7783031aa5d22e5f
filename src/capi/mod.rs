//! The public C API: what `include/huddle.h` declares. cbindgen makes the header from this file.
//!
//! All functions may be called at any time, by any thread, before `MPI_Init` and after `MPI_Finalize`.

use crate::report::{self, Counters};
use std::ffi::{CStr, c_char, c_int};
use std::fmt::{self, Write};

/// The version, with its end as C strings have it.
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no zero byte"),
};

/// The version of huddle, such as "0.1.0". The string lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn huddle_version() -> *const c_char {
    VERSION.as_ptr()
}

/// 1 between MPI_Init and MPI_Finalize, but where huddle does nothing in the whole job, as its report says with a
/// reason; else 0.
#[unsafe(no_mangle)]
pub extern "C" fn huddle_is_active() -> c_int {
    c_int::from(report::is_active())
}

/// Copies the counters of this rank to `values`, as many as `capacity` allows, and returns how many there are.
///
/// With `capacity` 0 `values` may be NULL. Their number and order are those of this build: use
/// huddle_counter_name() to find one.
///
/// # Safety
/// `values` points to room for `capacity` values, unless `capacity` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn huddle_counters(values: *mut u64, capacity: usize) -> usize {
    if !values.is_null() {
        for index in 0..capacity.min(Counters::LENGTH) {
            // SAFETY: `index < capacity`, for which the caller's memory has room; nobody else writes it meanwhile.
            unsafe { values.add(index).write(report::value(index)) };
        }
    }
    Counters::LENGTH
}

/// Writes the name of the counter at `index` to `name`, such as "Allreduce.flat.<=64.calls" or
/// "Allreduce.declined.warm-up.<=64.bytes", and returns its length without the zero that ends it; 0 past the last
/// counter.
///
/// The part before the last is a range of sizes, in packed bytes as in HUDDLE_ALLREDUCE and its like, or "unread" for
/// calls that were left to the MPI library before their size was known: because MPI may reject the arguments, or with a
/// datatype that is not predefined early on a communicator, on one that stays native, or where nothing (HUDDLE_DISABLE)
/// or nothing of the collective (HUDDLE_BCAST=native and its like) is served. Their bytes are not counted.
///
/// Where the length is not less than `capacity` the name was cut to fit. With `capacity` 0 `name` may be NULL.
///
/// # Safety
/// `name` points to room for `capacity` characters, unless `capacity` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn huddle_counter_name(index: usize, name: *mut c_char, capacity: usize) -> usize {
    let mut text = Bounded { to: name, room: if name.is_null() { 0 } else { capacity }, length: 0 };
    if let Some(counter) = Counters::name(index) {
        // Nothing here fails: what does not fit is only counted.
        let _ = write!(text, "{counter}");
    }
    text.close();
    text.length
}

/// A string that is written to a caller's memory as far as there is room, and counted beyond.
struct Bounded {
    to: *mut c_char,
    /// Characters that may be written to `to`, its end included.
    room: usize,
    length: usize,
}

impl Bounded {
    /// Ends the string after what fits.
    fn close(&mut self) {
        if self.room > 0 {
            let end = self.length.min(self.room - 1);
            // SAFETY: `end < room`, for which the caller's memory has room.
            unsafe { self.to.add(end).write(0) };
        }
    }
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.length < self.room {
                // SAFETY: `length < room`, for which the caller's memory has room.
                unsafe { self.to.add(self.length).write(byte as c_char) };
            }
            self.length += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coll;
    use crate::report::Outcome;
    use crate::types::{Bytes, Collective};

    fn name_of(index: usize, capacity: usize) -> (String, usize) {
        let mut name = vec![b'x' as c_char; capacity + 1];
        // SAFETY: `name` has room for more than `capacity` characters.
        let length = unsafe { huddle_counter_name(index, name.as_mut_ptr(), capacity) };
        assert_eq!(name[capacity], b'x' as c_char, "nothing is written beyond the capacity");
        // SAFETY: the function has ended the string within `name`.
        let text = unsafe { CStr::from_ptr(name.as_ptr()) };
        (text.to_str().unwrap().to_owned(), length)
    }

    #[test]
    fn the_version_is_that_of_the_crate() {
        // SAFETY: the string is a constant that ends with a zero.
        let version = unsafe { CStr::from_ptr(huddle_version()) };
        assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn names_fit_or_are_cut() {
        let (name, length) = name_of(0, 100);
        assert_eq!(name.len(), length);
        assert_eq!(name_of(0, length + 1), (name.clone(), length));
        assert_eq!(name_of(0, length), (name[..length - 1].to_owned(), length));
        assert_eq!(name_of(Counters::LENGTH, 100), (String::new(), 0));
        // SAFETY: without capacity there is nothing to write.
        assert_eq!(unsafe { huddle_counter_name(0, std::ptr::null_mut(), 0) }, length);
    }

    #[test]
    fn counters_are_found_by_name() {
        let row = coll::find(Collective::Barrier, "flat").unwrap();
        report::counters().record(Outcome::Accelerated(row), Bytes::ZERO);
        // SAFETY: without capacity there is nothing to write.
        let count = unsafe { huddle_counters(std::ptr::null_mut(), 0) };
        let mut values = vec![u64::MAX; count];
        // SAFETY: `values` has room for `count` values.
        assert_eq!(unsafe { huddle_counters(values.as_mut_ptr(), count) }, count);
        let at = (0..count).find(|index| name_of(*index, 100).0 == "Barrier.flat.0.calls").unwrap();
        assert!(values[at] >= 1);
        let mut few = [7; 3];
        // SAFETY: the first two of three values are offered.
        assert_eq!(unsafe { huddle_counters(few.as_mut_ptr(), 2) }, count);
        assert_eq!(few[2], 7);
    }
}
