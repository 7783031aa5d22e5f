//! The one table of names: what this library exports, and what becomes of a call.
//!
//! | kind      | exported as        | a call goes to                                                     |
//! |-----------|--------------------|--------------------------------------------------------------------|
//! | `Served`  | `MPI_X`, `PMPI_X`  | the engine where it has an entry, else the native function         |
//! | `Counted` | `MPI_X`, `PMPI_X`  | the native function, after its counter went up by one              |
//! | `Noted`   | `MPI_X`, `PMPI_X`  | the native function, after the note that the process has traffic that goes on between its calls |
//! | `Api`     | `huddle_x`         | the engine; without one it returns 0                               |
//!
//! `Noted` are the calls that begin such traffic or complete it: whoever begins it by another name (`MPI_Isend_c`, a nonblocking
//! collective) completes it by one of these.
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

            Counted: MPI_Iallgather MPI_Iallgather_c;
            Counted: MPI_Iallgatherv;
            Counted: MPI_Iallreduce MPI_Iallreduce_c;
            Counted: MPI_Ialltoall MPI_Ialltoall_c;
            Counted: MPI_Ialltoallv;
            Counted: MPI_Ialltoallw;
            Counted: MPI_Ibarrier;
            Counted: MPI_Ibcast MPI_Ibcast_c;
            Counted: MPI_Iexscan MPI_Iexscan_c;
            Counted: MPI_Igather MPI_Igather_c;
            Counted: MPI_Igatherv;
            Counted: MPI_Ireduce MPI_Ireduce_c;
            Counted: MPI_Ireduce_scatter;
            Counted: MPI_Ireduce_scatter_block MPI_Ireduce_scatter_block_c;
            Counted: MPI_Iscan MPI_Iscan_c;
            Counted: MPI_Iscatter MPI_Iscatter_c;
            Counted: MPI_Iscatterv;

            Counted: MPI_Neighbor_allgather MPI_Neighbor_allgather_c;
            Counted: MPI_Neighbor_allgatherv;
            Counted: MPI_Neighbor_alltoall MPI_Neighbor_alltoall_c;
            Counted: MPI_Neighbor_alltoallv;
            Counted: MPI_Neighbor_alltoallw;
            Counted: MPI_Ineighbor_allgather MPI_Ineighbor_allgather_c;
            Counted: MPI_Ineighbor_allgatherv;
            Counted: MPI_Ineighbor_alltoall MPI_Ineighbor_alltoall_c;
            Counted: MPI_Ineighbor_alltoallv;
            Counted: MPI_Ineighbor_alltoallw;

            Noted: MPI_Isend;
            Noted: MPI_Ibsend;
            Noted: MPI_Irsend;
            Noted: MPI_Issend;
            Noted: MPI_Bsend;
            Noted: MPI_Irecv;
            Noted: MPI_Imrecv;
            Noted: MPI_Start;
            Noted: MPI_Startall;
            Noted: MPI_Wait;
            Noted: MPI_Waitall;
            Noted: MPI_Waitany;
            Noted: MPI_Waitsome;
            Noted: MPI_Test;
            Noted: MPI_Testall;
            Noted: MPI_Testany;
            Noted: MPI_Testsome;
            Noted: MPI_Request_free;
            Noted: MPI_Win_create;
            Noted: MPI_Win_create_dynamic;
            Noted: MPI_Win_allocate;
            Noted: MPI_Win_allocate_shared;

            Api: huddle_version;
            Api: huddle_is_active;
            Api: huddle_counters;
            Api: huddle_counter_name;
        }
    };
}
pub(crate) use names;
