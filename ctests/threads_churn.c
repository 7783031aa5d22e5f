// MPI_THREAD_MULTIPLE: threads make, use and free communicators of the same members at the same time, so each gets what
// another thread's communicator has just left. A communicator in use keeps its memory, and no call stays native because
// a thread took what another one was about to use. Argument: rounds.
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>

enum { THREADS = 3, CALLS = 2 };
static MPI_Comm base[THREADS];
static int rounds;

static void use(MPI_Comm comm, int salt) {
    for (int call = 0; call < CALLS; call++) {
        int mine = world_rank + salt + call, sum = -1;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
        CHECK(sum == world_size * (world_size - 1) / 2 + world_size * (salt + call));
    }
}

static void *churn(void *which) {
    int thread = *(int *)which;
    for (int round = 0; round < rounds; round++) {
        MPI_Comm comm;
        MPI_Comm_dup(base[thread], &comm);
        use(comm, round * THREADS + thread);
        MPI_Comm_free(&comm);
    }
    return NULL;
}

// Calls of Allreduce that huddle declined for want of shared memory; 0 without huddle.
static uint64_t calls_without_memory(void) {
    size_t (*counters)(uint64_t *, size_t) = (size_t (*)(uint64_t *, size_t))dlsym(RTLD_DEFAULT, "huddle_counters");
    size_t (*name_of)(size_t, char *, size_t) = (size_t (*)(size_t, char *, size_t))dlsym(RTLD_DEFAULT, "huddle_counter_name");
    if (counters == NULL || name_of == NULL) return 0;
    size_t n = counters(NULL, 0);
    uint64_t *values = calloc(n + 1, sizeof *values), sum = 0;
    counters(values, n);
    for (size_t i = 0; i < n; i++) {
        char name[200];
        name_of(i, name, sizeof name);
        if (strstr(name, "Allreduce.declined.no-shared-memory") && strstr(name, ".calls")) sum += values[i];
    }
    free(values);
    return sum;
}

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    look_around();
    rounds = argument(argc, argv, 400);
    if (provided < MPI_THREAD_MULTIPLE) rounds = 0;
    pthread_t threads[THREADS];
    int which[THREADS];
    for (int i = 0; i < THREADS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &base[i]);
    for (int i = 0; i < THREADS; i++) {
        which[i] = i;
        pthread_create(&threads[i], NULL, churn, &which[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK(calls_without_memory() == 0);
    use(MPI_COMM_WORLD, 1);
    for (int i = 0; i < THREADS; i++) MPI_Comm_free(&base[i]);
    MPI_Finalize();
    say_ok("threads_churn");
    return 0;
}
