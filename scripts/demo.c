// Conjugate gradients on the one-dimensional Laplacian, rows in blocks over the ranks: a program like many others, which
// knows nothing of huddle. Prints the time of the iterations in milliseconds, their number and the residual.
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 512, SOLVES = 40, SAMPLE = 64 };

static double dot(const double *x, const double *y) {
    double mine = 0, all;
    for (int i = 0; i < ROWS; i++) mine += x[i] * y[i];
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

// q = A p, where A has 2.001 on its diagonal and -1 beside it; ghost cells come from the neighbours.
static void multiply(double *p, double *q, int rank, int size) {
    int below = rank > 0 ? rank - 1 : MPI_PROC_NULL, above = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    p[-1] = p[ROWS] = 0;
    MPI_Sendrecv(&p[0], 1, MPI_DOUBLE, below, 0, &p[ROWS], 1, MPI_DOUBLE, above, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&p[ROWS - 1], 1, MPI_DOUBLE, above, 1, &p[-1], 1, MPI_DOUBLE, below, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 0; i < ROWS; i++) q[i] = 2.001 * p[i] - p[i - 1] - p[i + 1];
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double *x = calloc(ROWS, sizeof *x), *r = malloc(ROWS * sizeof *r), *q = malloc(ROWS * sizeof *q);
    double *p = (double *)calloc(ROWS + 2, sizeof *p) + 1, *sample = malloc((size_t)size * SAMPLE * sizeof *sample);
    int iterations = 0;
    double seconds, norm = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int solve = 1; solve <= SOLVES; solve++) {
        int rows = ROWS * size; // rank 0's word counts, as in programs that read an input file
        MPI_Bcast(&rows, 1, MPI_INT, 0, MPI_COMM_WORLD);
        for (int i = 0; i < ROWS; i++) p[i] = r[i] = sin(3.0 * solve * (rank * ROWS + i) / rows), x[i] = 0;
        double first = dot(r, r), rho = first;
        for (; rho > 1e-16 * first; iterations++) {
            multiply(p, q, rank, size);
            double alpha = rho / dot(p, q), before = rho;
            for (int i = 0; i < ROWS; i++) x[i] += alpha * p[i], r[i] -= alpha * q[i];
            rho = dot(r, r);
            for (int i = 0; i < ROWS; i++) p[i] = r[i] + rho / before * p[i];
        }
        MPI_Allgather(x, SAMPLE, MPI_DOUBLE, sample, SAMPLE, MPI_DOUBLE, MPI_COMM_WORLD);
        MPI_Bcast(sample, SAMPLE, MPI_DOUBLE, solve % size, MPI_COMM_WORLD);
        norm += dot(x, x);
    }
    double mine = MPI_Wtime() - start;
    MPI_Reduce(&mine, &seconds, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%.1f |x|^2 = %.10g after %d iterations\n", 1e3 * seconds, norm, iterations);
    MPI_Finalize();
    return 0;
}
