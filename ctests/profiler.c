// A profiler linked into the program: it defines MPI_X itself and calls PMPI_X. It must see every call of the
// program once, and what it passes on is accelerated too (both names are served).
#include "check.h"

static int calls, bytes;

int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
    int size;
    calls++;
    PMPI_Type_size(datatype, &size);
    bytes += count * size;
    return PMPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm);
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm) {
    calls++;
    return PMPI_Bcast(buffer, count, datatype, root, comm);
}

int MPI_Barrier(MPI_Comm comm) {
    calls++;
    return PMPI_Barrier(comm);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int rounds = argument(argc, argv, 100), before = calls;
    for (int i = 0; i < rounds; i++) {
        int value[20], sum[20];
        for (int j = 0; j < 20; j++) value[j] = world_rank + i + j;
        MPI_Allreduce(value, sum, 20, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int j = 0; j < 20; j++) CHECK(sum[j] == world_size * (world_size - 1) / 2 + world_size * (i + j));
        MPI_Allreduce(MPI_IN_PLACE, value, 20, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        for (int j = 0; j < 20; j++) CHECK(value[j] == i + j);
        value[0] = world_rank == i % world_size ? i : -1;
        MPI_Bcast(value, 1, MPI_INT, i % world_size, MPI_COMM_WORLD);
        CHECK(value[0] == i);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    CHECK(calls - before == 4 * rounds);
    CHECK(bytes == rounds * 160);
    MPI_Finalize();
    say_ok("profiler");
    return 0;
}
