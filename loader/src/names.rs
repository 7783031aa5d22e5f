//! The one table of names: what this library exports, and where a call of each name goes.
//!
//! | kind      | exported as        | a call goes to                                                     |
//! |-----------|--------------------|--------------------------------------------------------------------|
//! | `Served`  | `MPI_X`, `PMPI_X`  | the engine if it has an entry, else the native function            |
//! | `Counted` | `MPI_X`, `PMPI_X`  | the native function, after its counter went up by one              |
//! | `Opens`   | `MPI_X`, `PMPI_X`  | the native function, after the number of open requests went up by one |
//! | `Begun`   | `MPI_X`, `PMPI_X`  | the native function, after what `Counted` and `Opens` do           |
//! | `Followed`| `MPI_X`, `PMPI_X`  | the native function; the number of open requests changes by those that it starts or completes |
//! | `Noted`   | `MPI_X`, `PMPI_X`  | the native function, after a note that the process has traffic whose end nobody sees |
//! | `Window`  | `MPI_X`, `PMPI_X`  | the native function, after a note that other processes may access this process's memory |
//! | `OneSided`| `MPI_X`, `PMPI_X`  | the native function, after the note of `Window` and after raising the notice |
//! | `OneSidedBegun` | `MPI_X`, `PMPI_X` | the native function, after raising the notice and what `Opens` does; a lock noted the window before |
//! | `Api`     | `huddle_x`         | the engine; without one it returns 0                               |
//!
//! From these notes and numbers the engine knows whether the process may have traffic that goes on between its calls.
//! `requests` counts for the `Followed` names. Buffered sends are `Noted`, because no request tells when they end.
//! `Window` names create windows, or are called by every target of a window, however it was created: mpi4py sets an
//! error handler on each window. The notice is a word, shared by processes, that says that one-sided communication is
//! under way. A process that accesses memory of others waits for the access in a call of a `OneSided` name, or
//! completes a request begun by a `OneSidedBegun` name. Fences raise no notice: all processes of the window call them,
//! and make progress there. Some requests are begun by names that are not in the table (`MPI_Isendrecv`,
//! `MPI_File_iread`). When these complete, more requests complete than were begun. The process notes that too, but only
//! then, and each such completion hides one open request. Blocking calls leave no traffic behind that a peer waits for.
//!
//! A call of `MPI_X` goes first to a profiler that comes after this library (`chain`); the profiler calls `PMPI_X`.
//!
//! Programs find out what an MPI library can do by looking up names: mpi4py calls `MPI_Gatherv_c` if a weak reference
//! to it isn't null, and its own replacement otherwise. A name that is exported here is present under every MPI, so the
//! table holds only names that all MPIs have, or that `narrow` can forward. For that reason the persistent forms
//! (`MPI_X_init`) are left out, and the `_c` forms with arrays of counts that are nonblocking or of a neighborhood.

/// Passes the table to the macro `$with`, as `Kind: name name …;`, a row for each operation.
macro_rules! names {
    ($with:ident) => {
        $with! {
            Served: MPI_Init MPI_Init_thread;
            Served: MPI_Comm_free;
            Served: MPI_Comm_disconnect;
            Served: MPI_Allgather MPI_Allgather_c;
            Served: MPI_Allreduce MPI_Allreduce_c;
            Served: MPI_Barrier;
            Served: MPI_Bcast MPI_Bcast_c;
            Served: MPI_Reduce MPI_Reduce_c;
            Served: MPI_Scatter MPI_Scatter_c;

            Counted: MPI_Allgatherv MPI_Allgatherv_c;
            Counted: MPI_Alltoall MPI_Alltoall_c;
            Counted: MPI_Alltoallv MPI_Alltoallv_c;
            Counted: MPI_Alltoallw MPI_Alltoallw_c;
            Counted: MPI_Exscan MPI_Exscan_c;
            Counted: MPI_Gather MPI_Gather_c;
            Counted: MPI_Gatherv MPI_Gatherv_c;
            Counted: MPI_Reduce_scatter MPI_Reduce_scatter_c;
            Counted: MPI_Reduce_scatter_block MPI_Reduce_scatter_block_c;
            Counted: MPI_Scan MPI_Scan_c;
            Counted: MPI_Scatterv MPI_Scatterv_c;

            Begun: MPI_Iallgather MPI_Iallgather_c;
            Begun: MPI_Iallgatherv;
            Begun: MPI_Iallreduce MPI_Iallreduce_c;
            Begun: MPI_Ialltoall MPI_Ialltoall_c;
            Begun: MPI_Ialltoallv;
            Begun: MPI_Ialltoallw;
            Begun: MPI_Ibarrier;
            Begun: MPI_Ibcast MPI_Ibcast_c;
            Begun: MPI_Iexscan MPI_Iexscan_c;
            Begun: MPI_Igather MPI_Igather_c;
            Begun: MPI_Igatherv;
            Begun: MPI_Ireduce MPI_Ireduce_c;
            Begun: MPI_Ireduce_scatter;
            Begun: MPI_Ireduce_scatter_block MPI_Ireduce_scatter_block_c;
            Begun: MPI_Iscan MPI_Iscan_c;
            Begun: MPI_Iscatter MPI_Iscatter_c;
            Begun: MPI_Iscatterv;

            Counted: MPI_Neighbor_allgather MPI_Neighbor_allgather_c;
            Counted: MPI_Neighbor_allgatherv;
            Counted: MPI_Neighbor_alltoall MPI_Neighbor_alltoall_c;
            Counted: MPI_Neighbor_alltoallv;
            Counted: MPI_Neighbor_alltoallw;
            Begun: MPI_Ineighbor_allgather MPI_Ineighbor_allgather_c;
            Begun: MPI_Ineighbor_allgatherv;
            Begun: MPI_Ineighbor_alltoall MPI_Ineighbor_alltoall_c;
            Begun: MPI_Ineighbor_alltoallv;
            Begun: MPI_Ineighbor_alltoallw;

            Opens: MPI_Isend MPI_Isend_c;
            Opens: MPI_Irsend MPI_Irsend_c;
            Opens: MPI_Issend MPI_Issend_c;
            Opens: MPI_Irecv MPI_Irecv_c;
            Opens: MPI_Imrecv MPI_Imrecv_c;
            Opens: MPI_Comm_idup;
            Followed: MPI_Start;
            Followed: MPI_Startall;
            Followed: MPI_Wait;
            Followed: MPI_Waitall;
            Followed: MPI_Waitany;
            Followed: MPI_Waitsome;
            Followed: MPI_Test;
            Followed: MPI_Testall;
            Followed: MPI_Testany;
            Followed: MPI_Testsome;
            Noted: MPI_Bsend MPI_Bsend_c;
            Noted: MPI_Ibsend MPI_Ibsend_c;
            Noted: MPI_Buffer_attach MPI_Buffer_attach_c;
            Window: MPI_Win_create;
            Window: MPI_Win_create_dynamic;
            Window: MPI_Win_allocate;
            Window: MPI_Win_allocate_shared;
            Window: MPI_Win_set_errhandler;
            Window: MPI_Win_get_group;
            Window: MPI_Win_fence;
            Window: MPI_Win_free;
            OneSided: MPI_Win_lock;
            OneSided: MPI_Win_lock_all;
            OneSided: MPI_Win_unlock;
            OneSided: MPI_Win_unlock_all;
            OneSided: MPI_Win_flush;
            OneSided: MPI_Win_flush_all;
            OneSided: MPI_Win_flush_local;
            OneSided: MPI_Win_flush_local_all;
            OneSided: MPI_Win_post;
            OneSided: MPI_Win_start;
            OneSided: MPI_Win_complete;
            OneSided: MPI_Win_wait;
            OneSided: MPI_Win_test;
            OneSidedBegun: MPI_Rput;
            OneSidedBegun: MPI_Rget;
            OneSidedBegun: MPI_Raccumulate;
            OneSidedBegun: MPI_Rget_accumulate;

            Api: huddle_version;
            Api: huddle_is_active;
            Api: huddle_counters;
            Api: huddle_counter_name;
        }
    };
}
pub(crate) use names;
