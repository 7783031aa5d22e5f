// Some ranks leave at once, through MPI_Finalize and exit, while others have not yet read what these sent: the shared
// memory must outlive the rank that leaves first. The argument selects the last collective.
#include "check.h"

enum { N = 1500 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int which = argument(argc, argv, 0) % 4, root = world_size - 1, value = -1;
    int *data = malloc(N * sizeof(int)), *all = malloc((size_t)N * (size_t)world_size * sizeof(int));
    for (int warm = 0; warm < 5; warm++) MPI_Allreduce(&world_rank, &value, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    CHECK(value == world_size - 1);
    // The other ranks enter the last collective late, rank 0 of three last, when the root may already have left.
    if (world_rank != root) sleep_micros(20000 * (1 + (world_size - world_rank) % 4));
    for (int i = 0; i < N; i++) data[i] = world_rank == root ? i : world_rank;
    for (int i = 0; i < N * world_size; i++) all[i] = i;
    switch (which) {
    case 0:
        MPI_Bcast(data, N, MPI_INT, root, MPI_COMM_WORLD);
        for (int i = 0; i < N; i++) CHECK(data[i] == i);
        break;
    case 1:
        MPI_Scatter(all, N, MPI_INT, data, N, MPI_INT, root, MPI_COMM_WORLD);
        for (int i = 0; i < N; i++) CHECK(data[i] == world_rank * N + i);
        break;
    case 2:
        MPI_Reduce(data, all, N, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
        for (int i = 0; i < N && world_rank == 0; i++) CHECK(all[i] == (world_size == 1 ? i : i + root * (root - 1) / 2));
        break;
    default:
        MPI_Allgather(data, N, MPI_INT, all, N, MPI_INT, MPI_COMM_WORLD);
        for (int i = 0; i < N; i++) CHECK(all[root * N + i] == i);
    }
    MPI_Finalize();
    say_ok("early_exit");
    free(data), free(all);
    return 0;
}
