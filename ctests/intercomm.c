// Intercommunicators: their collectives mean something else (MPI_ROOT, MPI_PROC_NULL, results of the other
// group) and stay native; the intracommunicator that a merge gives works as usual.
#include "check.h"

static MPI_Comm inter;
static int group, mine, remote;

static void reductions(void) {
    int sum = -1, other = world_size * (world_size - 1) / 2;
    for (int i = 0; i < world_size; i++)
        if (i % 2 == group) other -= i;
    MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, inter);
    CHECK(sum == other);
    sum = -1;
    int root = group == 1 ? 0 : mine == 0 ? MPI_ROOT : MPI_PROC_NULL;
    MPI_Reduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, root, inter);
    CHECK(sum == (root == MPI_ROOT ? other : -1));
}

static void movements(void) {
    int root = group == 0 ? (mine == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0;
    int value = root == MPI_ROOT ? 77 : -1, *all = malloc((size_t)world_size * sizeof *all);
    MPI_Bcast(&value, 1, MPI_INT, root, inter);
    CHECK(value == (group == 1 || root == MPI_ROOT ? 77 : -1));
    MPI_Allgather(&world_rank, 1, MPI_INT, all, 1, MPI_INT, inter);
    for (int i = 0; i < remote; i++) CHECK(all[i] == 2 * i + 1 - group);
    for (int i = 0; i < remote; i++) all[i] = 100 + i;
    value = -1;
    MPI_Scatter(all, 1, MPI_INT, &value, 1, MPI_INT, root, inter);
    CHECK(value == (group == 1 ? 100 + mine : -1));
    MPI_Barrier(inter);
    free(all);
}

static void merged(void) {
    MPI_Comm both;
    int rank, size, sum = -1;
    MPI_Intercomm_merge(inter, group, &both);
    MPI_Comm_rank(both, &rank);
    MPI_Comm_size(both, &size);
    CHECK(size == world_size);
    for (int i = 0; i < 5; i++) {
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, both);
        CHECK(sum == size * (size - 1) / 2);
        sum = rank == i % size ? i : -1;
        MPI_Bcast(&sum, 1, MPI_INT, i % size, both);
        CHECK(sum == i);
    }
    MPI_Comm_free(&both);
}

int main(int argc, char **argv) {
    MPI_Comm half;
    MPI_Init(&argc, &argv);
    look_around();
    CHECK(world_size >= 2);
    group = world_rank % 2;
    MPI_Comm_split(MPI_COMM_WORLD, group, 0, &half);
    MPI_Comm_rank(half, &mine);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - group, 3, &inter);
    MPI_Comm_remote_size(inter, &remote);
    int loops = argument(argc, argv, 5);
    for (int i = 0; i < loops; i++) {
        reductions();
        movements();
    }
    merged();
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
    MPI_Finalize();
    say_ok("intercomm");
    return 0;
}
