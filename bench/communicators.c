// Times programs that make and free communicators in loops: dup, a few 4-byte Allreduces, free. Run it bare and with huddle
// preloaded. Prints microseconds per communicator, the median over rounds.
//
//   communicators [CALLS]     Allreduces on each communicator, default 4
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 9, COMMUNICATORS = 100 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, calls = argc > 1 ? atoi(argv[1]) : 4;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double times[ROUNDS];
    for (int round = -1; round < ROUNDS; round++) { // the first warms up
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        for (int c = 0; c < COMMUNICATORS; c++) {
            MPI_Comm comm;
            MPI_Comm_dup(MPI_COMM_WORLD, &comm);
            for (int k = 0, x = rank, sum; k < calls; k++) MPI_Allreduce(&x, &sum, 1, MPI_INT, MPI_SUM, comm);
            MPI_Comm_free(&comm);
        }
        if (round >= 0) times[round] = 1e6 * (MPI_Wtime() - start) / COMMUNICATORS;
    }
    qsort(times, ROUNDS, sizeof *times, ascending);
    if (rank == 0) printf("%d calls on each: %.1f us per communicator\n", calls, times[ROUNDS / 2]);
    MPI_Finalize();
    return 0;
}
