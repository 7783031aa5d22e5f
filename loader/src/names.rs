//! The one table of names: what this library exports, and what becomes of a call.
//!
//! | kind      | exported as        | a call goes to                                                     |
//! |-----------|--------------------|--------------------------------------------------------------------|
//! | `Served`  | `MPI_X`, `PMPI_X`  | the engine where it has an entry, else the native function         |
//! | `Counted` | `MPI_X`, `PMPI_X`  | the native function, after its counter went up by one              |
//! | `Opens`   | `MPI_X`, `PMPI_X`  | the native function, after the number of open requests went up by one |
//! | `Begun`   | `MPI_X`, `PMPI_X`  | the same, after both                                               |
//! | `Followed`| `MPI_X`, `PMPI_X`  | the native function, and that number by as many requests as it starts or completes (`requests`) |
//! | `Noted`   | `MPI_X`, `PMPI_X`  | the native function, after the note that the process has traffic whose end nobody sees |
//! | `Window`  | `MPI_X`, `PMPI_X`  | the native function, after the note that others may reach into its memory |
//! | `OneSided`| `MPI_X`, `PMPI_X`  | the native function, after that note, and a notice, which processes share, that one-sided communication is under way |
//! | `OneSidedBegun` | `MPI_X`, `PMPI_X` | the native function, after that notice, and the number of open requests went up by one; a lock came before, and noted the window |
//! | `Api`     | `huddle_x`         | the engine; without one it returns 0                               |
//!
//! So the engine knows whether the process may have traffic that goes on between its calls. What no request tells the end of is `Noted`: buffered
//! sends. Calls by `Window` names get windows, or are made by any target too, whatever made its window: mpi4py sets an error handler on each. Who
//! reaches into memory of others waits for that in a call by a `OneSided` name, or completes a request that a `OneSidedBegun` one began. Fences
//! raise no notice: all processes of the window are in them, and make progress there. More is completed than was begun where it was begun by other
//! names (`MPI_Isendrecv`, `MPI_File_iread`): that is noted too, but not before, and hides as many requests as are completed so. Blocking calls
//! leave nothing behind that somebody waits for.
//!
//! An `MPI_X` goes to a profiler first where one comes after this library (`chain`); the profiler calls `PMPI_X`.
//!
//! Programs find out what an MPI library can do by looking for names: mpi4py calls `MPI_Gatherv_c` where a weak reference
//! to it isn't null, and its own replacement otherwise. A name that is exported here is present under every MPI, so the
//! table holds only names that all of them have, or that `narrow` can hand on. Left out for that reason are the
//! persistent forms (`MPI_X_init`), and the `_c` forms with arrays of counts that are nonblocking or of a neighborhood.

/// Gives the table to the macro `$with`, as `Kind: name name …;`, a row for each operation.
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
