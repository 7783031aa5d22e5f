// The six collectives, plainly: every size class, every root, in place and not. The first program to run.
#include "check.h"

enum { MOST = 1 << 17 };
static int *in, *out, *all;

static void try_size(int n, int root) {
    bool is_root = world_rank == root;
    for (int i = 0; i < n; i++) in[i] = world_rank * 3 + i % 1000, out[i] = -1;
    int ranks = world_size * (world_size - 1) / 2 * 3;

    MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(out[i] == ranks + world_size * (i % 1000));
    memcpy(out, in, (size_t)n * sizeof(int));
    MPI_Allreduce(MPI_IN_PLACE, out, n, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(out[i] == (world_size - 1) * 3 + i % 1000);

    for (int i = 0; i < n; i++) out[i] = is_root ? root - i : -1;
    MPI_Bcast(out, n, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(out[i] == root - i);

    for (int i = 0; i < n; i++) out[i] = -1;
    MPI_Reduce(in, out, n, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(out[i] == (is_root ? ranks + world_size * (i % 1000) : -1));

    MPI_Barrier(MPI_COMM_WORLD);

    MPI_Allgather(in, n, MPI_INT, all, n, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < n * world_size; i++) CHECK(all[i] == i / n * 3 + i % n % 1000);

    for (int i = 0; i < n * world_size; i++) all[i] = is_root ? i : -1;
    MPI_Scatter(all, n, MPI_INT, is_root ? MPI_IN_PLACE : out, n, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < n && !is_root; i++) CHECK(out[i] == world_rank * n + i);
    for (int i = 0; i < n * world_size; i++) CHECK(all[i] == (is_root ? i : -1));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    in = malloc(MOST * sizeof(int)), out = malloc(MOST * sizeof(int)), all = malloc((size_t)MOST * (size_t)world_size * sizeof(int));
    CHECK(in != NULL && out != NULL && all != NULL);
    int sizes[] = {1, 2, 12, 13, 16, 100, 1024, 2048, 2049, 10000, 40000, MOST}, rounds = argument(argc, argv, 3);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < 12; i++) try_size(sizes[i], (i + round) % world_size);
    free(in), free(out), free(all);
    MPI_Finalize();
    say_ok("six");
    return 0;
}
