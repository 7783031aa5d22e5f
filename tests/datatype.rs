//! Datatypes, buffers and operations against the MPI library itself, on one process that starts without a launcher.
//!
//! One test function: MPI is initialised once per process.
#![cfg(feature = "mpi")]

#[path = "datatype/constructors.rs"]
mod constructors;
#[path = "datatype/ops.rs"]
mod ops;
#[path = "datatype/types.rs"]
mod types;
#[path = "datatype/views.rs"]
mod views;

use huddle::mpi::handles::{self, constants};
use huddle::mpi::native::{self, Native, native};
use mpi_sys::MPI_Comm;
use std::ffi::{CString, c_void};

/// A small generator of random numbers (xorshift64*).
pub struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    /// A number from `low` to `high`.
    pub fn between(&mut self, low: isize, high: isize) -> isize {
        low + self.below((high - low + 1) as usize) as isize
    }

    /// Random bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Loads the MPI library whose handles this test is built for.
pub fn library() -> *mut c_void {
    let is_open_mpi = size_of::<MPI_Comm>() == 8;
    let names: &[&str] = if is_open_mpi { &["libmpi.so.40"] } else { &["libmpich.so.12", "libmpi.so.12"] };
    for name in names {
        let name = CString::new(*name).expect("no NUL");
        // SAFETY: loading the MPI library runs its initialisers only.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if !handle.is_null() {
            return handle;
        }
    }
    panic!("none of {names:?} can be loaded");
}

/// Starts MPI; returns a private communicator of this process, whose errors return.
fn start(handle: *mut c_void) -> MPI_Comm {
    // SAFETY: the handle is the MPI library's; calls follow MPI's rules.
    unsafe {
        native::install(Native::load(handle).expect("all functions"));
        let mut provided = 0;
        let multiple = constants().thread_multiple;
        assert_eq!(native().init_thread(std::ptr::null_mut(), std::ptr::null_mut(), multiple, &mut provided), 0);
        handles::fill(native()).expect("the layout of the constants");
        let mut comm = constants().comm_null;
        assert_eq!(native().comm_dup(constants().comm_self, &mut comm), 0);
        assert_eq!(native().comm_set_errhandler(comm, constants().errors_return), 0);
        assert_eq!(native().comm_set_errhandler(constants().comm_world, constants().errors_return), 0);
        assert_eq!(native().comm_set_errhandler(constants().comm_self, constants().errors_return), 0);
        comm
    }
}

#[test]
fn datatypes_and_operations_agree_with_the_library() {
    let handle = library();
    let comm = start(handle);
    let make = constructors::Constructors::load(handle);
    types::predefined_datatypes_are_known();
    types::uncommitted_datatypes_are_rejected(&make, comm);
    types::layouts_follow_their_datatype(&make, comm);
    types::layouts_of_one_call_are_hardly_ever_kept(&make, comm);
    types::in_new_thread(&make, comm, types::layouts_serve_for_what_is_made_alike);
    types::threads_may_look_at_once(&make, comm);
    views::random_datatypes_read_and_write_as_the_library_does(&make, comm);
    views::crowded_datatypes_work(&make, comm);
    types::in_new_thread(&make, comm, views::arguments_in_other_places_make_others);
    views::absolute_addresses_work(&make, comm);
    views::unknown_constructors_work(&make, comm);
    views::large_counts_work(&make, comm);
    views::many_pieces_work(&make, comm);
    ops::numbers_of_fortran_are_as_others(&make, comm);
    ops::predefined_operations_agree(comm);
    ops::user_operations_keep_their_order(&make, comm);
    ops::illegal_operations_are_rejected(&make, comm);
    // SAFETY: all handles are valid, and no call of MPI follows.
    unsafe {
        let mut comm = comm;
        native().comm_free(&mut comm);
        native().finalize();
    }
}
