// Collectives one after the other without barriers between them, with roots that change, data that change,
// and ranks that arrive late or run far ahead: a root may be many calls ahead of its
// receivers, leaves of a reduction many calls ahead of the root. Argument: calls.
#include "check.h"

enum { MOST = 20000 };
static int *in, *out, *all, rounds;

static int pick_count(unsigned *seed) {
    static const int counts[] = {1, 2, 11, 12, 13, 15, 17, 100, 1000, 2047, 2048, 2049, 5000, 16384, MOST};
    unsigned r = next_number(seed);
    return r % 3 == 0 ? counts[r / 3 % 15] : 1 + (int)(r / 3 % 300);
}

static void sometimes_late(int call) {
    unsigned own = (unsigned)(call * 131 + world_rank * 7919);
    unsigned r = next_number(&own);
    if (r % 64 == 0) sleep_micros(r / 64 % 500);
}

static void bcast(int n, int root, int salt) {
    for (int i = 0; i < n; i++) in[i] = world_rank == root ? salt * 31 + i : -1;
    MPI_Bcast(in, n, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(in[i] == salt * 31 + i);
}

static void reduce(int n, int root, int salt) {
    for (int i = 0; i < n; i++) in[i] = world_rank * 3 + salt + i, out[i] = -1;
    MPI_Reduce(in, out, n, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    int sum = 3 * world_size * (world_size - 1) / 2 + world_size * salt;
    for (int i = 0; i < n; i++) CHECK(out[i] == (world_rank == root ? sum + world_size * i : -1));
}

static void allreduce(int n, int salt) {
    for (int i = 0; i < n; i++) in[i] = world_rank * 3 + salt + i;
    MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    int sum = 3 * world_size * (world_size - 1) / 2 + world_size * salt;
    for (int i = 0; i < n; i++) CHECK(out[i] == sum + world_size * i);
}

static void scatter(int n, int root, int salt) {
    if (world_rank == root)
        for (int i = 0; i < n * world_size; i++) all[i] = salt * 17 + i;
    MPI_Scatter(all, n, MPI_INT, out, n, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(out[i] == salt * 17 + world_rank * n + i);
}

static void allgather(int n, int salt) {
    for (int i = 0; i < n; i++) in[i] = world_rank * 100000 + salt + i;
    MPI_Allgather(in, n, MPI_INT, all, n, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < n * world_size; i++) CHECK(all[i] == i / n * 100000 + salt + i % n);
}

static void mixed(void) {
    unsigned seed = 12345;
    for (int call = 0; call < rounds; call++) {
        int kind = (int)(next_number(&seed) % 11), root = (int)(next_number(&seed) % (unsigned)world_size), n = pick_count(&seed);
        sometimes_late(call);
        if (kind < 3) bcast(n, root, call);
        else if (kind < 5) reduce(n, root, call);
        else if (kind < 7) allreduce(n, call);
        else if (kind < 9) scatter(n, root, call);
        else if (kind < 10) allgather(n, call);
        else MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void rotating_bcasts(void) {
    unsigned seed = 99;
    for (int call = 0; call < rounds; call++) {
        sometimes_late(call * 3);
        bcast(pick_count(&seed), call % world_size, call);
    }
}

// In these calls the root never waits for anybody; every receiver sleeps now and then.
static void root_far_ahead(int n) {
    for (int root = 0; root < world_size && root < 3; root++)
        for (int call = 0; call < rounds / 4; call++) {
            if (world_rank != root && call % 50 == 10) sleep_micros(1000);
            bcast(n, root, call);
            if (call % 4 == 0) scatter(n, root, call);
        }
}

static void leaves_far_ahead(int n) {
    for (int call = 0; call < rounds / 4; call++) {
        if (world_rank == 0 && call % 50 == 10) sleep_micros(1000);
        reduce(n, 0, call);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    rounds = argument(argc, argv, 1000);
    in = malloc(MOST * sizeof(int)), out = malloc(MOST * sizeof(int)), all = malloc((size_t)MOST * (size_t)world_size * sizeof(int));
    CHECK(in != NULL && out != NULL && all != NULL);
    mixed();
    rotating_bcasts();
    root_far_ahead(3);
    root_far_ahead(3000);
    leaves_far_ahead(2);
    leaves_far_ahead(2500);
    free(in), free(out), free(all);
    MPI_Finalize();
    say_ok("storms");
    return 0;
}
