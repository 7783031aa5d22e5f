// Helpers of the small programs. A program that finds something wrong prints the condition and aborts the job;
// otherwise rank 0 prints "<name>: ok" at the end.
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int world_rank = -1, world_size = -1;

__attribute__((unused)) static void look_around(void) {
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
}

// The rank that the launcher gives before MPI_Init; 0 without a launcher.
__attribute__((unused)) static int launched_rank(void) {
    const char *rank = getenv("PMI_RANK") != NULL ? getenv("PMI_RANK") : getenv("OMPI_COMM_WORLD_RANK");
    return rank == NULL ? 0 : atoi(rank);
}

__attribute__((unused)) static void fail(const char *file, int line, const char *condition) {
    fprintf(stderr, "%s:%d: rank %d: not true: %s\n", file, line, world_rank, condition);
    fflush(stderr);
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized && !finalized) MPI_Abort(MPI_COMM_WORLD, 1);
    _Exit(1);
}

#define CHECK(condition)                                         \
    do {                                                         \
        if (!(condition)) fail(__FILE__, __LINE__, #condition); \
    } while (0)

// The number given as the first argument, or `otherwise`.
__attribute__((unused)) static int argument(int argc, char **argv, int otherwise) { return argc > 1 ? atoi(argv[1]) : otherwise; }

__attribute__((unused)) static void sleep_micros(long micros) {
    struct timespec time = {micros / 1000000, micros % 1000000 * 1000};
    nanosleep(&time, NULL);
}

// A small generator: the same numbers on all ranks for the same seed.
__attribute__((unused)) static unsigned next_number(unsigned *state) {
    *state = *state * 1103515245u + 12345u;
    return *state >> 8 & 0xffffff;
}

__attribute__((unused)) static void say_ok(const char *name) {
    if (world_rank == 0) printf("%s: ok\n", name);
    fflush(stdout);
}

#endif
