//! The functions that programs call in place of MPI's.

use crate::callers;
use crate::capi;
use crate::mpi::native::native;
use crate::mpi::serve::{self, Served};
use crate::mpi::{again, collectives, permits};
use crate::types::Collective;
use mpi_sys::{MPI_Comm, MPI_Count, MPI_Datatype, MPI_Op};
use std::ffi::{CStr, c_char, c_int, c_void};

type In = *const c_void;
type Out = *mut c_void;

/// The address of an entry.
pub struct Address(pub *const c_void);

// SAFETY: the address of a function, never written through.
unsafe impl Sync for Address {}

/// All entries by name.
pub static TABLE: &[(&CStr, Address)] = &[
    (c"MPI_Init", Address(init as *const c_void)),
    (c"MPI_Init_thread", Address(init_thread as *const c_void)),
    (c"MPI_Comm_free", Address(comm_free as *const c_void)),
    (c"MPI_Comm_disconnect", Address(comm_disconnect as *const c_void)),
    (c"MPI_Allgather", Address(allgather as *const c_void)),
    (c"MPI_Allgather_c", Address(allgather_c as *const c_void)),
    (c"MPI_Allreduce", Address(allreduce as *const c_void)),
    (c"MPI_Allreduce_c", Address(allreduce_c as *const c_void)),
    (c"MPI_Barrier", Address(barrier as *const c_void)),
    (c"MPI_Bcast", Address(bcast as *const c_void)),
    (c"MPI_Bcast_c", Address(bcast_c as *const c_void)),
    (c"MPI_Reduce", Address(reduce as *const c_void)),
    (c"MPI_Reduce_c", Address(reduce_c as *const c_void)),
    (c"MPI_Scatter", Address(scatter as *const c_void)),
    (c"MPI_Scatter_c", Address(scatter_c as *const c_void)),
    (c"huddle_version", Address(capi::huddle_version as *const c_void)),
    (c"huddle_is_active", Address(capi::huddle_is_active as *const c_void)),
    (c"huddle_counters", Address(capi::huddle_counters as *const c_void)),
    (c"huddle_counter_name", Address(capi::huddle_counter_name as *const c_void)),
];

unsafe extern "C-unwind" fn init(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
    let announcement = serve::initialising();
    // SAFETY: the program's arguments.
    let code = unsafe { native().init(argc, argv) };
    // SAFETY: MPI has just returned from its initialisation with this code.
    unsafe { serve::initialised(code, announcement) };
    code
}

unsafe extern "C-unwind" fn init_thread(
    argc: *mut c_int,
    argv: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) -> c_int {
    let announcement = serve::initialising();
    // SAFETY: the program's arguments.
    let code = unsafe { native().init_thread(argc, argv, required, provided) };
    // SAFETY: MPI has just returned from its initialisation with this code.
    unsafe { serve::initialised(code, announcement) };
    code
}

unsafe extern "C-unwind" fn comm_free(comm: *mut MPI_Comm) -> c_int {
    // SAFETY: the program's arguments, under MPI's contract.
    unsafe { serve::freeing(comm, |comm| native().comm_free(comm)) }
}

unsafe extern "C-unwind" fn comm_disconnect(comm: *mut MPI_Comm) -> c_int {
    // SAFETY: the program's arguments, under MPI's contract.
    unsafe { serve::freeing(comm, |comm| native().comm_disconnect(comm)) }
}

/// The error code of a call. `$found` is what its permit says: the call is done, or `$native` makes it. Without a
/// permit `$anew` serves it.
macro_rules! conclude {
    ($found:expr, $native:expr, $anew:expr) => {
        match $found {
            Some(Served::Done(code)) => code,
            // SAFETY: the program's arguments, under MPI's contract.
            Some(Served::Native) => unsafe { $native },
            // SAFETY: as above.
            None => unsafe { $anew },
        }
    };
}

/// An entry. Each way is a function of its own. So the entry needs no frame, and the ways of calls that are declined
/// again need only a small one.
macro_rules! entry {
    ($collective:ident: $name:ident ($($arg:ident: $type:ty),*) as $function:ident ($($wide:expr),*), $native:expr) => {
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
            #[inline(never)]
            unsafe extern "C-unwind" fn anew($($arg: $type),*) -> c_int {
                // SAFETY: the program's arguments, under MPI's contract; the same holds for all calls here.
                match unsafe { collectives::$function($($wide),*) } {
                    Served::Done(code) => code,
                    // SAFETY: as above.
                    Served::Native => unsafe { $native },
                }
            }
            #[inline(never)]
            unsafe extern "C-unwind" fn by_process($($arg: $type),*) -> c_int {
                // SAFETY: as above; the permits are this thread's, since the process belongs to it.
                let found = unsafe { again::$function(&permits::OF_PROCESS, $($wide),*) };
                conclude!(found, $native, anew($($arg),*))
            }
            #[inline(never)]
            unsafe extern "C-unwind" fn by_thread($($arg: $type),*) -> c_int {
                // SAFETY: as above; the permits are this thread's.
                let found = permits::of_thread(|permits| unsafe { again::$function(permits, $($wide),*) });
                conclude!(found, $native, anew($($arg),*))
            }
            if !permits::are_kept(Collective::$collective) {
                // SAFETY: as above.
                unsafe { anew($($arg),*) }
            } else if callers::is_owner() {
                // SAFETY: as above.
                unsafe { by_process($($arg),*) }
            } else {
                // SAFETY: as above.
                unsafe { by_thread($($arg),*) }
            }
        }
    };
}

/// Two entries that differ only in the type of counts, `int` and `MPI_Count`.
macro_rules! entries {
    ($(
        $collective:ident: $name:ident, $name_c:ident ($($arg:ident: $type:ident),* $(,)?);
    )*) => {$(
        entry! {
            $collective: $name ($($arg: entries!(@int $type)),*) as $name ($(entries!(@widen $arg $type)),*),
            native().$name($($arg),*)
        }
        entry! {
            $collective: $name_c ($($arg: entries!(@count $type)),*) as $name ($($arg),*),
            match native().$name_c {
                Some(call) => call($($arg),*),
                None => unreachable!("the loader asks only for names that the library has"),
            }
        }
    )*};
    (@int Count) => { c_int };
    (@int $type:ident) => { $type };
    (@count Count) => { MPI_Count };
    (@count $type:ident) => { $type };
    (@widen $arg:ident Count) => { MPI_Count::from($arg) };
    (@widen $arg:ident $type:ident) => { $arg };
}

entries! {
    Allreduce: allreduce, allreduce_c (sendbuf: In, recvbuf: Out, count: Count, datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm);
    Reduce: reduce, reduce_c (
        sendbuf: In, recvbuf: Out, count: Count, datatype: MPI_Datatype, op: MPI_Op, root: c_int, comm: MPI_Comm
    );
    Bcast: bcast, bcast_c (buffer: Out, count: Count, datatype: MPI_Datatype, root: c_int, comm: MPI_Comm);
    Allgather: allgather, allgather_c (
        sendbuf: In, sendcount: Count, sendtype: MPI_Datatype,
        recvbuf: Out, recvcount: Count, recvtype: MPI_Datatype, comm: MPI_Comm
    );
    Scatter: scatter, scatter_c (
        sendbuf: In, sendcount: Count, sendtype: MPI_Datatype,
        recvbuf: Out, recvcount: Count, recvtype: MPI_Datatype, root: c_int, comm: MPI_Comm
    );
}

entry! { Barrier: barrier (comm: MPI_Comm) as barrier (comm), native().barrier(comm) }
