// Sessions (MPI 4): communicators that have nothing to do with COMM_WORLD, beside it or (argument 1) without
// any MPI_Init. They stay native.
#include "check.h"

#if MPI_VERSION >= 4
static void in_a_session(void) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    int rank, size, sum = -1;
    CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session) == MPI_SUCCESS);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "ctests.sessions", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    if (world_rank < 0) world_rank = rank;
    for (int i = 0; i < 6; i++) {
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
        CHECK(sum == size * (size - 1) / 2);
        int value = rank == i % size ? i : -1;
        MPI_Bcast(&value, 1, MPI_INT, i % size, comm);
        CHECK(value == i);
        MPI_Barrier(comm);
    }
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
}

int main(int argc, char **argv) {
    int sum = -1;
    if (argument(argc, argv, 0) == 1) {
        in_a_session();
        say_ok("sessions");
        return 0;
    }
    MPI_Init(&argc, &argv);
    look_around();
    MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == world_size * (world_size - 1) / 2);
    in_a_session();
    MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    CHECK(sum == world_size - 1);
    MPI_Finalize();
    say_ok("sessions");
    return 0;
}
#else
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    MPI_Finalize();
    if (world_rank == 0) printf("sessions: skipped, this MPI has none\n");
    return 0;
}
#endif
