// Logistic regression by stochastic gradient descent, samples spread over the ranks: a program like many others, which
// knows nothing of huddle. Each step sums a gradient of 32 KiB over all ranks. Prints the time of the steps in
// milliseconds, then the loss and the norm of the weights.
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { FEATURES = 4096, BATCH = 2, STEPS = 10000, EVERY = 500 };

// A number in [-1, 1] that depends on a counter only, so that all runs see the same data.
static float sample_at(unsigned long n) {
    unsigned long x = n * 6364136223846793005ul + 1442695040888963407ul;
    x ^= x >> 33;
    return (float)((double)(x & 0xffffff) / 0x7fffff - 1.0);
}

// Adds the gradient of one sample, whose label is the sign of its first feature, and returns its loss.
static double add_gradient(const float *x, const double *weights, double *gradient) {
    double activation = 0, label = x[0] > 0 ? 1 : -1;
    for (int f = 0; f < FEATURES; f++) activation += weights[f] * x[f];
    double slope = -label / (1 + exp(label * activation));
    for (int f = 0; f < FEATURES; f++) gradient[f] += slope * x[f];
    return log1p(exp(-label * activation));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    float *data = malloc(64 * FEATURES * sizeof *data); // 64 samples of this rank
    for (long i = 0; i < 64L * FEATURES; i++) data[i] = sample_at(rank * 64L * FEATURES + i);
    double *weights = calloc(FEATURES, sizeof *weights), *gradient = malloc(FEATURES * sizeof *gradient);
    double *mine = malloc(FEATURES * sizeof *mine), *losses = malloc(size * sizeof *losses), rate = 0.1, loss = 0;
    MPI_Bcast(&rate, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD); // rank 0 decides, as in programs that read an input file
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int step = 0; step < STEPS; step++) {
        double mean = 0;
        for (int f = 0; f < FEATURES; f++) mine[f] = 0;
        for (int b = 0; b < BATCH; b++) {
            mean += add_gradient(data + (step * BATCH + b) % 64 * FEATURES, weights, mine) / BATCH;
        }
        MPI_Allreduce(mine, gradient, FEATURES, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int f = 0; f < FEATURES; f++) weights[f] -= rate / (BATCH * size) * gradient[f] / (1 + 1e-3 * step);
        if (step % EVERY == 0) {
            MPI_Allgather(&mean, 1, MPI_DOUBLE, losses, 1, MPI_DOUBLE, MPI_COMM_WORLD);
            for (int r = 0; r < size; r++) loss += losses[r];
            MPI_Bcast(weights, FEATURES, MPI_DOUBLE, step / EVERY % size, MPI_COMM_WORLD); // no drift between ranks
        }
    }
    double milliseconds = 1e3 * (MPI_Wtime() - start), slowest, norm = 0;
    MPI_Reduce(&milliseconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    for (int f = 0; f < FEATURES; f++) norm += weights[f] * weights[f];
    if (rank == 0) printf("%.1f loss %.10g, |w|^2 = %.10g after %d steps\n", slowest, loss, norm, STEPS);
    MPI_Finalize();
    return 0;
}
