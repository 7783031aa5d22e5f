// Functions that may be called before MPI_Init and after MPI_Finalize, by both names; and collectives on one rank.
#include "check.h"

static void ask(int expect_initialized, int expect_finalized) {
    int flag = -1, version, subversion, length;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Initialized(&flag);
    CHECK(flag == expect_initialized);
    PMPI_Initialized(&flag);
    CHECK(flag == expect_initialized);
    MPI_Finalized(&flag);
    CHECK(flag == expect_finalized);
    CHECK(MPI_Get_version(&version, &subversion) == MPI_SUCCESS && version >= 3);
    CHECK(MPI_Get_library_version(text, &length) == MPI_SUCCESS && length > 0);
}

static void alone(void) {
    int mine = 42, got = -1;
    MPI_Allreduce(&mine, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    CHECK(got == 42);
    MPI_Reduce(&mine, &got, 1, MPI_INT, MPI_PROD, 0, MPI_COMM_SELF);
    CHECK(got == 42);
    MPI_Bcast(&mine, 1, MPI_INT, 0, MPI_COMM_SELF);
    CHECK(mine == 42);
    got = -1;
    MPI_Allgather(&mine, 1, MPI_INT, &got, 1, MPI_INT, MPI_COMM_SELF);
    CHECK(got == 42);
    got = -1;
    MPI_Scatter(&mine, 1, MPI_INT, &got, 1, MPI_INT, 0, MPI_COMM_SELF);
    CHECK(got == 42);
    MPI_Allreduce(MPI_IN_PLACE, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    CHECK(got == 42);
    MPI_Barrier(MPI_COMM_SELF);
}

int main(void) {
    ask(0, 0);
    MPI_Init(NULL, NULL);
    look_around();
    ask(1, 0);
    for (int i = 0; i < 10; i++) alone();
    MPI_Finalize();
    ask(1, 1);
    say_ok("outside_init");
    return 0;
}
