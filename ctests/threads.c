// MPI_THREAD_MULTIPLE: threads of one rank are in collectives of different communicators at the same time, and
// even ranks enter them in the opposite order from odd ranks. The communicators are congruent, so nothing but
// the communicator itself tells their calls apart (contexts share neither flags nor slots).
#include "check.h"

#include <pthread.h>

enum { THREADS = 3, MOST = 3000 };
static MPI_Comm comms[THREADS];
static int rounds;

static void one_round(MPI_Comm comm, int thread, int round, int *in, int *out) {
    int n = 1 + (round * 37 + thread * 11) % MOST, root = (round + thread) % world_size;
    for (int i = 0; i < n; i++) in[i] = world_rank + thread * 1000 + round + i;
    MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, comm);
    int expected = world_size * (world_size - 1) / 2 + world_size * (thread * 1000 + round);
    for (int i = 0; i < n; i++) CHECK(out[i] == expected + world_size * i);

    MPI_Bcast(in, n, MPI_INT, root, comm);
    for (int i = 0; i < n; i++) CHECK(in[i] == root + thread * 1000 + round + i);

    out[0] = -1;
    MPI_Reduce(&world_rank, out, 1, MPI_INT, MPI_MAX, root, comm);
    CHECK(out[0] == (world_rank == root ? world_size - 1 : -1));
    MPI_Barrier(comm);
}

static void *run(void *which) {
    int thread = *(int *)which;
    int *in = malloc(MOST * sizeof(int)), *out = malloc(MOST * sizeof(int));
    for (int round = 0; round < rounds; round++) {
        if ((round + thread + world_rank) % 7 == 0) sleep_micros(200);
        one_round(comms[thread], thread, round, in, out);
    }
    free(in), free(out);
    return NULL;
}

// The main thread and this one call on two communicators, in an order that differs between even and odd ranks.
static void *enter_second(void *unused) {
    (void)unused;
    if (world_rank % 2 == 0) sleep_micros(3000);
    int sum = 0;
    MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, comms[1]);
    CHECK(sum == world_size * (world_size - 1) / 2);
    return NULL;
}

static void opposite_order(void) {
    pthread_t other;
    int most = -1;
    pthread_create(&other, NULL, enter_second, NULL);
    if (world_rank % 2 == 1) sleep_micros(3000);
    MPI_Allreduce(&world_rank, &most, 1, MPI_INT, MPI_MAX, comms[0]);
    CHECK(most == world_size - 1);
    pthread_join(other, NULL);
}

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    look_around();
    rounds = argument(argc, argv, 200);
    if (provided < MPI_THREAD_MULTIPLE) {
        MPI_Finalize();
        if (world_rank == 0) printf("threads: skipped, this MPI gives no MPI_THREAD_MULTIPLE\n");
        return 0;
    }
    pthread_t threads[THREADS];
    int which[THREADS];
    for (int i = 0; i < THREADS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < 5; i++) opposite_order();
    for (int i = 0; i < THREADS; i++) {
        // Odd ranks start the threads the other way round.
        which[i] = world_rank % 2 == 0 ? i : THREADS - 1 - i;
        pthread_create(&threads[i], NULL, run, &which[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) MPI_Comm_free(&comms[i]);
    MPI_Finalize();
    say_ok("threads");
    return 0;
}
