#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT = 64, DOUBLES_PER_LINE = 8 };
const char *const collective_names[COLLECTIVES] = {"Allreduce", "Bcast", "Reduce", "Allgather", "Scatter", "Barrier"};
static double *in, *out, sink;

static double *buffer(size_t bytes, int offset) {
    char *memory = aligned_alloc(4096, (bytes + (size_t)offset + 4095) / 4096 * 4096);
    if (!memory) fail("no memory");
    return memset(memory + offset, 0, bytes);
}

void calls_start(int most, int offset) {
    size_t bytes = ((size_t)most * (size_t)size + DOUBLES_PER_LINE) * sizeof *in;
    in = buffer(bytes, offset), out = buffer(bytes, offset);
}

static void call(const Work *work, int root) {
    int n = work->n;
    MPI_Comm comm = work->comm;
    if (work->by == LOOP) {
        loop(work->collective, in, out, n, root);
        return;
    }
    if (work->by == KERNEL) {
        kernel(work->collective, in, out, n, root);
        return;
    }
    bool native = work->by == NATIVE;
    switch (work->collective) {
    case ALLREDUCE: (native ? PMPI_Allreduce : MPI_Allreduce)(in, out, n, MPI_DOUBLE, MPI_SUM, comm); break;
    case BCAST: (native ? PMPI_Bcast : MPI_Bcast)(in, n, MPI_DOUBLE, root, comm); break;
    case REDUCE: (native ? PMPI_Reduce : MPI_Reduce)(in, out, n, MPI_DOUBLE, MPI_SUM, root, comm); break;
    case ALLGATHER: (native ? PMPI_Allgather : MPI_Allgather)(in, n, MPI_DOUBLE, out, n, MPI_DOUBLE, comm); break;
    case SCATTER: (native ? PMPI_Scatter : MPI_Scatter)(in, n, MPI_DOUBLE, out, n, MPI_DOUBLE, root, comm); break;
    default: (native ? PMPI_Barrier : MPI_Barrier)(comm);
    }
}

static int root_of(const Work *work, int k) { return work->root >= 0 ? work->root : k % size; }

// The number of doubles that a call reads on some rank.
static int elements_of(const Work *work) {
    return work->collective == BARRIER ? 0 : work->collective == SCATTER ? work->n * size : work->n;
}

// Writes the input, as a program does that has computed something new, and reads some of the output. Messages too short
// for a clock around each call get one double of each line; the time for that is part of what is measured.
static void compute(int elements, int step) {
    if (elements <= SHORT)
        for (int i = 0; i < elements; i += DOUBLES_PER_LINE) in[i] = step & 1023;
    else
        for (int i = 0; i < elements; i++) in[i] = (i + step) & 1023;
    sink += out[step % (elements + 1)];
}

double work_block(const void *state, int calls) {
    const Work *work = state;
    int elements = elements_of(work);
    double sum = 0, start = now();
    if (elements <= SHORT) {
        for (int k = 0; k < calls; k++) compute(elements, k), call(work, root_of(work, k));
        return now() - start;
    }
    for (int k = 0; k < calls; k++) {
        compute(elements, k);
        start = now();
        call(work, root_of(work, k));
        sum += now() - start;
    }
    return sum;
}

// ---- results

static double value(int from, int i) { return (from * 31 + i) & 1023; }

static double sum_at(int i) {
    double sum = 0;
    for (int from = 0; from < size; from++) sum += value(from, i);
    return sum;
}

static double expected(const Work *work, int root, int i) {
    switch (work->collective) {
    case ALLREDUCE: case REDUCE: return sum_at(i);
    case BCAST: return value(root, i);
    case ALLGATHER: return value(i / work->n, i % work->n);
    default: return value(root, rank * work->n + i);
    }
}

void work_check(const Work *work) {
    int root = work->root >= 0 ? work->root : size - 1;
    int results = work->collective == BARRIER || (work->collective == REDUCE && rank != root) ? 0
                  : work->collective == ALLGATHER                                             ? work->n * size
                                                                                              : work->n;
    for (int i = 0; i < elements_of(work); i++) in[i] = value(rank, i);
    for (int i = 0; i < results; i++) out[i] = -1;
    call(work, root);
    const double *found = work->collective == BCAST ? in : out;
    for (int i = 0; i < results; i++)
        if (found[i] != expected(work, root, i)) {
            fprintf(stderr, "bench[%d]: %s of %d: element %d is %g, not %g\n", rank, collective_names[work->collective], work->n, i, found[i], expected(work, root, i));
            fail("a wrong result");
        }
}
