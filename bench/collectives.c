// Times MPI_X against PMPI_X in one process, in turn: run with HUDDLE_PMPI=0 and huddle preloaded, so that PMPI_X is the
// native library. Prints a line per collective and size, then the geometric means of native/accelerated.
//
//   collectives [--rounds R] [--from B] [--to B] [--step F] [--only Bcast,...] [--at-least G]
//
// Each round times a block of calls of either kind, one after the other, the order changing from round to round; the
// slowest rank counts; the median over rounds is shown with its quartiles. Buffers are modified between calls and roots
// rotate. With --at-least the exit code is 1 if a collective's geometric mean is below G.
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 101, COLLECTIVES = 6 };
static const char *const names[COLLECTIVES] = {"Allreduce", "Bcast", "Reduce", "Allgather", "Scatter", "Barrier"};
static int rank, size;
static double *in, *out, sink;

static void call(int which, int native, int n, int root) {
    switch (which) {
    case 0: (native ? PMPI_Allreduce : MPI_Allreduce)(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); break;
    case 1: (native ? PMPI_Bcast : MPI_Bcast)(in, n, MPI_DOUBLE, root, MPI_COMM_WORLD); break;
    case 2: (native ? PMPI_Reduce : MPI_Reduce)(in, out, n, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD); break;
    case 3: (native ? PMPI_Allgather : MPI_Allgather)(in, n, MPI_DOUBLE, out, n, MPI_DOUBLE, MPI_COMM_WORLD); break;
    case 4: (native ? PMPI_Scatter : MPI_Scatter)(in, n, MPI_DOUBLE, out, n, MPI_DOUBLE, root, MPI_COMM_WORLD); break;
    default: (native ? PMPI_Barrier : MPI_Barrier)(MPI_COMM_WORLD);
    }
}

// Writes all of the input, as a program does that has computed something new, and reads some of the output.
static void compute(int elements, int step) {
    for (int i = 0; i < elements; i++) in[i] = (i + step) & 1023;
    sink += out[step % (elements + 1)];
}

// Seconds per call of the slowest rank.
static double block(int which, int native, int n, int calls) {
    int elements = which == 4 ? n * size : which == 5 ? 0 : n;
    double seconds = 0;
    PMPI_Barrier(MPI_COMM_WORLD);
    if (elements <= 64) { // too short for a clock around each call
        double start = MPI_Wtime();
        for (int k = 0; k < calls; k++) compute(elements, k), call(which, native, n, k % size);
        seconds = MPI_Wtime() - start;
    } else {
        for (int k = 0; k < calls; k++) {
            compute(elements, k);
            double start = MPI_Wtime();
            call(which, native, n, k % size);
            seconds += MPI_Wtime() - start;
        }
    }
    double slowest;
    PMPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest / calls;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Median of native/accelerated over the rounds; its quartiles and the medians of both times in microseconds.
static double compare(int which, int n, int rounds, double quartiles[2], double times[2]) {
    double ratio[MOST_ROUNDS], both[2][MOST_ROUNDS], once;
    for (int kind = 0; kind < 2; kind++) block(which, kind, n, 4); // warm-up
    once = block(which, 1, n, 4);
    int calls = once > 0 ? (int)(2e-3 / once) : 1000;
    calls = calls < 3 ? 3 : calls > 5000 ? 5000 : calls;
    PMPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int r = 0; r < rounds; r++) {
        for (int k = 0; k < 2; k++) both[(k + r) % 2][r] = block(which, (k + r) % 2, n, calls);
        ratio[r] = both[1][r] / both[0][r];
    }
    qsort(ratio, rounds, sizeof *ratio, ascending);
    for (int kind = 0; kind < 2; kind++) {
        qsort(both[kind], rounds, sizeof **both, ascending);
        times[kind] = 1e6 * both[kind][rounds / 2];
    }
    quartiles[0] = ratio[rounds / 4], quartiles[1] = ratio[rounds - 1 - rounds / 4];
    return ratio[rounds / 2];
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = 9, from = 8, to = 4 << 20, step = 4;
    double least = 0;
    const char *only = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--rounds")) rounds = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--from")) from = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--to")) to = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--step")) step = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--only")) only = argv[i + 1];
        else if (!strcmp(argv[i], "--at-least")) least = atof(argv[i + 1]);
    }
    if (rounds > MOST_ROUNDS) rounds = MOST_ROUNDS;
    in = calloc((size_t)to * size + 64, 1), out = calloc((size_t)to * size + 64, 1);
    int failed = 0;
    for (int which = 0; which < COLLECTIVES; which++) {
        if (only && !strstr(only, names[which])) continue;
        double sum = 0;
        int cases = 0;
        for (long bytes = from; bytes <= to; bytes *= step) {
            double quartiles[2], times[2];
            double ratio = compare(which, (int)(bytes / 8), rounds, quartiles, times);
            sum += log(ratio), cases++;
            if (rank == 0) {
                printf("%-9s %8ld  huddle %10.3f us  native %10.3f us  ratio %6.2f  (%.2f … %.2f)\n", names[which],
                       which == 5 ? 0 : bytes, times[0], times[1], ratio, quartiles[0], quartiles[1]);
                fflush(stdout);
            }
            if (which == 5) break;
        }
        double mean = exp(sum / cases);
        failed |= mean < least;
        if (rank == 0) printf("%-9s geometric mean %.2f%s\n", names[which], mean, mean < least ? "  TOO SLOW" : "");
    }
    MPI_Bcast(&failed, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return failed;
}
