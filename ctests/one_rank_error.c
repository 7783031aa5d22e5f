// Wrong arguments on one rank only: most often rank 0 passes a count of -1 where the others pass valid ones. Natively
// its peers would wait for ever. With huddle the call of rank 0 reaches the native error handler, and peers that need
// something from rank 0 get an error too. The next calls are right, because the epoch is counted before validation.
// Only to be run with huddle.
#include "check.h"

enum { N = 4000 };
static int *in, *out, *all;

static void check_normal(MPI_Comm comm, int salt) {
    int sum = -1, mine = world_rank + salt, value = world_rank == salt % world_size ? salt : -1;
    CHECK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
    CHECK(sum == world_size * (world_size - 1) / 2 + world_size * salt);
    CHECK(MPI_Bcast(&value, 1, MPI_INT, salt % world_size, comm) == MPI_SUCCESS);
    CHECK(value == salt);
    for (int i = 0; i < N; i++) in[i] = world_rank + i;
    CHECK(MPI_Allreduce(in, out, N, MPI_INT, MPI_MAX, comm) == MPI_SUCCESS);
    for (int i = 0; i < N; i++) CHECK(out[i] == world_size - 1 + i);
    CHECK(MPI_Barrier(comm) == MPI_SUCCESS);
}

// `needs_rank_0`: whether this rank's result depends on rank 0.
static void check_code(int code, bool needs_rank_0) {
    int class;
    if (world_rank == 0) {
        CHECK(code != MPI_SUCCESS);
        MPI_Error_class(code, &class);
        CHECK(class == MPI_ERR_COUNT || class == MPI_ERR_ARG);
    } else if (needs_rank_0) {
        CHECK(code != MPI_SUCCESS);
    }
}

// Rank 0's own send and receive blocks differ in length.
static void try_truncated(MPI_Comm comm, int n) {
    int class, code = MPI_Allgather(in, world_rank == 0 ? n - 1 : n, MPI_INT, all, n, MPI_INT, comm);
    CHECK(code != MPI_SUCCESS);
    MPI_Error_class(code, &class);
    CHECK((class == MPI_ERR_TRUNCATE) == (world_rank == 0));
}

static void try_size(MPI_Comm comm, int n, int salt) {
    int count = world_rank == 0 ? -1 : n, last = world_size - 1;
    check_code(MPI_Bcast(in, count, MPI_INT, 0, comm), true);
    check_normal(comm, salt);
    check_code(MPI_Bcast(in, count, MPI_INT, last, comm), false);
    check_normal(comm, salt + 1);
    check_code(MPI_Allgather(in, count, MPI_INT, all, count, MPI_INT, comm), true);
    check_normal(comm, salt + 2);
    check_code(MPI_Scatter(all, count, MPI_INT, out, count, MPI_INT, 0, comm), true);
    check_normal(comm, salt + 3);
    check_code(MPI_Scatter(all, count, MPI_INT, out, count, MPI_INT, last, comm), false);
    check_normal(comm, salt + 4);
#ifdef OPEN_MPI  // MPICH 4.0 does not look at the count of these, and crashes
    check_code(MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm), true);
    check_normal(comm, salt + 5);
    check_code(MPI_Reduce(in, out, count, MPI_INT, MPI_SUM, last, comm), world_rank == last);
    check_normal(comm, salt + 6);
#endif
    try_truncated(comm, n);
    check_normal(comm, salt + 7);
    int op_is_wrong = world_rank == 0;
    int code = MPI_Allreduce(in, out, n, MPI_INT, op_is_wrong ? MPI_OP_NULL : MPI_SUM, comm);
    CHECK(code != MPI_SUCCESS);
    check_normal(comm, salt + 8);
}

// No rank needs anything from rank 0.
static void try_nothing(MPI_Comm comm) {
    int code = MPI_Allreduce(in, out, 0, MPI_INT, world_rank == 0 ? MPI_OP_NULL : MPI_SUM, comm);
    CHECK((code != MPI_SUCCESS) == (world_rank == 0));
    check_normal(comm, 40);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    CHECK(world_size >= 2);
    in = malloc(N * sizeof(int)), out = malloc(N * sizeof(int)), all = malloc((size_t)N * (size_t)world_size * sizeof(int));
    for (int i = 0; i < N * world_size; i++) all[i] = i;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < 4; i++) check_normal(comm, i);  // past the warm-up
    try_size(comm, 1, 10);
    try_size(comm, 300, 20);
    try_size(comm, N, 30);
    try_nothing(comm);
    MPI_Comm_free(&comm);
    free(in), free(out), free(all);
    MPI_Finalize();
    say_ok("one_rank_error");
    return 0;
}
