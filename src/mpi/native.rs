//! The functions of the MPI library itself, found by `dlsym` under their `PMPI_` names.
//!
//! Nothing in the engine names an MPI function in any other way: a direct reference would be bound to huddle's own
//! loader, which exports the same names, and recurse. `mpi-sys` provides the types, and the signatures that the
//! compiler compares with this table. Everything is `C-unwind`, since user code that the library calls (operations,
//! error handlers) may throw C++ exceptions or jump out.

use mpi_sys::*;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

type In = *const c_void;
type Out = *mut c_void;

/// Turns the table of functions into [`Native`], its loader, one method per function, and a comparison of each
/// signature with the one in the `mpi.h` of the build.
macro_rules! table {
    (
        required { $($name:ident $symbol:ident ($($arg:ident: $type:ty),*) -> $ret:ty;)* }
        optional { $($o_name:ident $o_symbol:ident ($($o_arg:ident: $o_type:ty),*) -> $o_ret:ty;)* }
    ) => {
        /// Pointers to the functions of the MPI library. Methods of the same names call them.
        #[derive(Clone, Copy)]
        pub struct Native {
            $(
                #[doc = concat!("`", stringify!($symbol), "`")]
                pub $name: unsafe extern "C-unwind" fn($($type),*) -> $ret,
            )*
            $(
                #[doc = concat!("`", stringify!($o_symbol), "`, where the library has it")]
                pub $o_name: Option<unsafe extern "C-unwind" fn($($o_type),*) -> $o_ret>,
            )*
        }

        impl Native {
            /// Looks all functions up in the library of `handle`.
            ///
            /// # Errors
            /// Names the first function that the library lacks.
            ///
            /// # Safety
            /// `handle` is an open handle of `dlopen` on an MPI library of the family that this engine was built for.
            /// The library stays loaded for the rest of the process.
            pub unsafe fn load(handle: *mut c_void) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the handle is open as the caller vouches; the name is a C string.
                        let address = unsafe { find(handle, concat!(stringify!($symbol), "\0")) };
                        if address.is_null() {
                            return Err(format!("the MPI library has no {}", stringify!($symbol)));
                        }
                        // SAFETY: the library was built against an mpi.h that gives the function this signature.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) -> $ret>(address)
                        }
                    },)*
                    $($o_name: {
                        // SAFETY: as above; a null address becomes `None`.
                        unsafe {
                            std::mem::transmute::<*mut c_void, Option<unsafe extern "C-unwind" fn($($o_type),*) -> $o_ret>>(
                                find(handle, concat!(stringify!($o_symbol), "\0")),
                            )
                        }
                    },)*
                })
            }

            $(
                #[doc = concat!("Calls `", stringify!($symbol), "`.")]
                ///
                /// # Safety
                /// As MPI demands of its callers.
                #[inline(always)]
                #[allow(clippy::too_many_arguments)]
                pub unsafe fn $name(&self $(, $arg: $type)*) -> $ret {
                    // SAFETY: the caller keeps MPI's contract.
                    unsafe { (self.$name)($($arg),*) }
                }
            )*
        }

        // Never evaluated at run time, so no reference to the functions reaches the object code.
        $(const _: unsafe extern "C" fn($($type),*) -> $ret = $symbol;)*
    };
}

table! {
    required {
        init PMPI_Init(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int;
        init_thread PMPI_Init_thread(argc: *mut c_int, argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int) -> c_int;
        finalize PMPI_Finalize() -> c_int;
        query_thread PMPI_Query_thread(provided: *mut c_int) -> c_int;
        abort PMPI_Abort(comm: MPI_Comm, code: c_int) -> c_int;
        error_string PMPI_Error_string(code: c_int, text: *mut c_char, length: *mut c_int) -> c_int;

        allreduce PMPI_Allreduce(sendbuf: In, recvbuf: Out, count: c_int, datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm) -> c_int;
        reduce PMPI_Reduce(sendbuf: In, recvbuf: Out, count: c_int, datatype: MPI_Datatype, op: MPI_Op, root: c_int, comm: MPI_Comm) -> c_int;
        bcast PMPI_Bcast(buffer: Out, count: c_int, datatype: MPI_Datatype, root: c_int, comm: MPI_Comm) -> c_int;
        barrier PMPI_Barrier(comm: MPI_Comm) -> c_int;
        allgather PMPI_Allgather(sendbuf: In, sendcount: c_int, sendtype: MPI_Datatype, recvbuf: Out, recvcount: c_int, recvtype: MPI_Datatype, comm: MPI_Comm) -> c_int;
        scatter PMPI_Scatter(sendbuf: In, sendcount: c_int, sendtype: MPI_Datatype, recvbuf: Out, recvcount: c_int, recvtype: MPI_Datatype, root: c_int, comm: MPI_Comm) -> c_int;

        ibarrier PMPI_Ibarrier(comm: MPI_Comm, request: *mut MPI_Request) -> c_int;
        iallreduce PMPI_Iallreduce(sendbuf: In, recvbuf: Out, count: c_int, datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm, request: *mut MPI_Request) -> c_int;
        ireduce PMPI_Ireduce(sendbuf: In, recvbuf: Out, count: c_int, datatype: MPI_Datatype, op: MPI_Op, root: c_int, comm: MPI_Comm, request: *mut MPI_Request) -> c_int;
        ibcast PMPI_Ibcast(buffer: Out, count: c_int, datatype: MPI_Datatype, root: c_int, comm: MPI_Comm, request: *mut MPI_Request) -> c_int;
        iallgather PMPI_Iallgather(sendbuf: In, sendcount: c_int, sendtype: MPI_Datatype, recvbuf: Out, recvcount: c_int, recvtype: MPI_Datatype, comm: MPI_Comm, request: *mut MPI_Request) -> c_int;
        igather PMPI_Igather(sendbuf: In, sendcount: c_int, sendtype: MPI_Datatype, recvbuf: Out, recvcount: c_int, recvtype: MPI_Datatype, root: c_int, comm: MPI_Comm, request: *mut MPI_Request) -> c_int;
        iallgatherv PMPI_Iallgatherv(sendbuf: In, sendcount: c_int, sendtype: MPI_Datatype, recvbuf: Out, recvcounts: *const c_int, displs: *const c_int, recvtype: MPI_Datatype, comm: MPI_Comm, request: *mut MPI_Request) -> c_int;
        iscatterv PMPI_Iscatterv(sendbuf: In, sendcounts: *const c_int, displs: *const c_int, sendtype: MPI_Datatype, recvbuf: Out, recvcount: c_int, recvtype: MPI_Datatype, root: c_int, comm: MPI_Comm, request: *mut MPI_Request) -> c_int;

        cancel PMPI_Cancel(request: *mut MPI_Request) -> c_int;
        test PMPI_Test(request: *mut MPI_Request, flag: *mut c_int, status: *mut MPI_Status) -> c_int;
        wait PMPI_Wait(request: *mut MPI_Request, status: *mut MPI_Status) -> c_int;
        iprobe PMPI_Iprobe(source: c_int, tag: c_int, comm: MPI_Comm, flag: *mut c_int, status: *mut MPI_Status) -> c_int;
        recv PMPI_Recv(buf: Out, count: c_int, datatype: MPI_Datatype, source: c_int, tag: c_int, comm: MPI_Comm, status: *mut MPI_Status) -> c_int;
        isend PMPI_Isend(buf: In, count: c_int, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm, request: *mut MPI_Request) -> c_int;
        irecv PMPI_Irecv(buf: Out, count: c_int, datatype: MPI_Datatype, source: c_int, tag: c_int, comm: MPI_Comm, request: *mut MPI_Request) -> c_int;

        comm_dup PMPI_Comm_dup(comm: MPI_Comm, newcomm: *mut MPI_Comm) -> c_int;
        comm_idup PMPI_Comm_idup(comm: MPI_Comm, newcomm: *mut MPI_Comm, request: *mut MPI_Request) -> c_int;
        comm_split_type PMPI_Comm_split_type(comm: MPI_Comm, split_type: c_int, key: c_int, info: MPI_Info, newcomm: *mut MPI_Comm) -> c_int;
        comm_create_group PMPI_Comm_create_group(comm: MPI_Comm, group: MPI_Group, tag: c_int, newcomm: *mut MPI_Comm) -> c_int;
        comm_free PMPI_Comm_free(comm: *mut MPI_Comm) -> c_int;
        comm_disconnect PMPI_Comm_disconnect(comm: *mut MPI_Comm) -> c_int;
        comm_rank PMPI_Comm_rank(comm: MPI_Comm, rank: *mut c_int) -> c_int;
        comm_size PMPI_Comm_size(comm: MPI_Comm, size: *mut c_int) -> c_int;
        comm_group PMPI_Comm_group(comm: MPI_Comm, group: *mut MPI_Group) -> c_int;
        comm_test_inter PMPI_Comm_test_inter(comm: MPI_Comm, flag: *mut c_int) -> c_int;
        comm_set_errhandler PMPI_Comm_set_errhandler(comm: MPI_Comm, errhandler: MPI_Errhandler) -> c_int;
        comm_call_errhandler PMPI_Comm_call_errhandler(comm: MPI_Comm, code: c_int) -> c_int;
        comm_create_keyval PMPI_Comm_create_keyval(copy: MPI_Comm_copy_attr_function, delete: MPI_Comm_delete_attr_function, keyval: *mut c_int, extra: *mut c_void) -> c_int;
        comm_set_attr PMPI_Comm_set_attr(comm: MPI_Comm, keyval: c_int, value: *mut c_void) -> c_int;
        comm_get_attr PMPI_Comm_get_attr(comm: MPI_Comm, keyval: c_int, value: *mut c_void, flag: *mut c_int) -> c_int;

        group_incl PMPI_Group_incl(group: MPI_Group, n: c_int, ranks: *const c_int, newgroup: *mut MPI_Group) -> c_int;
        group_translate_ranks PMPI_Group_translate_ranks(first: MPI_Group, n: c_int, ranks: *const c_int, second: MPI_Group, translated: *mut c_int) -> c_int;
        group_free PMPI_Group_free(group: *mut MPI_Group) -> c_int;

        type_create_keyval PMPI_Type_create_keyval(copy: MPI_Type_copy_attr_function, delete: MPI_Type_delete_attr_function, keyval: *mut c_int, extra: *mut c_void) -> c_int;
        type_set_attr PMPI_Type_set_attr(datatype: MPI_Datatype, keyval: c_int, value: *mut c_void) -> c_int;
        type_get_attr PMPI_Type_get_attr(datatype: MPI_Datatype, keyval: c_int, value: *mut c_void, flag: *mut c_int) -> c_int;
        type_size PMPI_Type_size(datatype: MPI_Datatype, size: *mut c_int) -> c_int;
        type_size_x PMPI_Type_size_x(datatype: MPI_Datatype, size: *mut MPI_Count) -> c_int;
        type_get_extent_x PMPI_Type_get_extent_x(datatype: MPI_Datatype, lb: *mut MPI_Count, extent: *mut MPI_Count) -> c_int;
        type_get_true_extent_x PMPI_Type_get_true_extent_x(datatype: MPI_Datatype, lb: *mut MPI_Count, extent: *mut MPI_Count) -> c_int;
        type_get_envelope PMPI_Type_get_envelope(datatype: MPI_Datatype, integers: *mut c_int, addresses: *mut c_int, datatypes: *mut c_int, combiner: *mut c_int) -> c_int;
        type_get_contents PMPI_Type_get_contents(datatype: MPI_Datatype, max_integers: c_int, max_addresses: c_int, max_datatypes: c_int, integers: *mut c_int, addresses: *mut MPI_Aint, datatypes: *mut MPI_Datatype) -> c_int;
        type_commit PMPI_Type_commit(datatype: *mut MPI_Datatype) -> c_int;
        type_free PMPI_Type_free(datatype: *mut MPI_Datatype) -> c_int;
        pack PMPI_Pack(inbuf: In, incount: c_int, datatype: MPI_Datatype, outbuf: Out, outsize: c_int, position: *mut c_int, comm: MPI_Comm) -> c_int;
        unpack PMPI_Unpack(inbuf: In, insize: c_int, position: *mut c_int, outbuf: Out, outcount: c_int, datatype: MPI_Datatype, comm: MPI_Comm) -> c_int;

        reduce_local PMPI_Reduce_local(inbuf: In, inoutbuf: Out, count: c_int, datatype: MPI_Datatype, op: MPI_Op) -> c_int;
        op_commutative PMPI_Op_commutative(op: MPI_Op, commute: *mut c_int) -> c_int;
        op_create PMPI_Op_create(function: MPI_User_function, commute: c_int, op: *mut MPI_Op) -> c_int;
        op_free PMPI_Op_free(op: *mut MPI_Op) -> c_int;
    }
    optional {
        allreduce_c PMPI_Allreduce_c(sendbuf: In, recvbuf: Out, count: MPI_Count, datatype: MPI_Datatype, op: MPI_Op, comm: MPI_Comm) -> c_int;
        reduce_c PMPI_Reduce_c(sendbuf: In, recvbuf: Out, count: MPI_Count, datatype: MPI_Datatype, op: MPI_Op, root: c_int, comm: MPI_Comm) -> c_int;
        bcast_c PMPI_Bcast_c(buffer: Out, count: MPI_Count, datatype: MPI_Datatype, root: c_int, comm: MPI_Comm) -> c_int;
        allgather_c PMPI_Allgather_c(sendbuf: In, sendcount: MPI_Count, sendtype: MPI_Datatype, recvbuf: Out, recvcount: MPI_Count, recvtype: MPI_Datatype, comm: MPI_Comm) -> c_int;
        scatter_c PMPI_Scatter_c(sendbuf: In, sendcount: MPI_Count, sendtype: MPI_Datatype, recvbuf: Out, recvcount: MPI_Count, recvtype: MPI_Datatype, root: c_int, comm: MPI_Comm) -> c_int;
        pack_c PMPI_Pack_c(inbuf: In, incount: MPI_Count, datatype: MPI_Datatype, outbuf: Out, outsize: MPI_Count, position: *mut MPI_Count, comm: MPI_Comm) -> c_int;
        unpack_c PMPI_Unpack_c(inbuf: In, insize: MPI_Count, position: *mut MPI_Count, outbuf: Out, outcount: MPI_Count, datatype: MPI_Datatype, comm: MPI_Comm) -> c_int;
        type_get_envelope_c PMPI_Type_get_envelope_c(datatype: MPI_Datatype, integers: *mut MPI_Count, addresses: *mut MPI_Count, large: *mut MPI_Count, datatypes: *mut MPI_Count, combiner: *mut c_int) -> c_int;
        type_get_contents_c PMPI_Type_get_contents_c(datatype: MPI_Datatype, max_integers: MPI_Count, max_addresses: MPI_Count, max_large: MPI_Count, max_datatypes: MPI_Count, integers: *mut c_int, addresses: *mut MPI_Aint, large: *mut MPI_Count, datatypes: *mut MPI_Datatype) -> c_int;
    }
}

/// The address of `name` (ending in NUL) in a library, or null.
///
/// # Safety
/// `handle` is open.
unsafe fn find(handle: *mut c_void, name: &'static str) -> *mut c_void {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or(c"");
    // SAFETY: the handle is open as the caller vouches; the name ends in NUL.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

/// The table that [`install`] has set. Never freed.
static NATIVE: AtomicPtr<Native> = AtomicPtr::new(std::ptr::null_mut());

/// Makes `table` the one that [`native`] returns. The engine does this before its entry points can be reached.
pub fn install(table: Native) {
    // [native] release: pairs with the acquire in `native`.
    NATIVE.store(Box::into_raw(Box::new(table)), Ordering::Release);
}

/// The functions of the MPI library.
///
/// # Panics
/// If [`install`] has not run.
#[inline(always)]
pub fn native() -> &'static Native {
    // [native] acquire: pairs with the release in `install`.
    let table = NATIVE.load(Ordering::Acquire);
    // SAFETY: a non-null pointer is the leaked box of `install`, complete before it was stored.
    match unsafe { table.as_ref() } {
        Some(table) => table,
        None => absent(),
    }
}

#[cold]
fn absent() -> ! {
    panic!("huddle: the functions of the MPI library are used before they were looked up")
}
