// Loops as programs have them, with huddle's collectives against the native library's: several calls that depend on each other, lengths and
// roots drawn at random, data written before and read after each call, subcommunicators, messages and computations between calls.
//
//   programs [--only lengths,…] [--rounds R] [--block MS]
//
// A step's time is that of the whole step on the slowest rank. So it shows the gain that a program sees, which is less
// than that of its calls. All ranks draw the same numbers, and both ways draw numbers that are spread alike, however
// many steps they take.
#include "measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1 << 17, MATRIX = 96, USES = 20, SUMS = 16, DRAWS = 12, FIRST_STEPS = 32 };

// The calls of one way.
typedef struct {
    int (*allreduce)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
    int (*bcast)(void *, int, MPI_Datatype, int, MPI_Comm);
    int (*reduce)(const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm);
    int (*allgather)(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);
    int (*scatter)(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm);
    int (*barrier)(MPI_Comm);
    int (*gather)(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm);
    int (*irecv)(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
    int (*isend)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
    int (*waitall)(int, MPI_Request *, MPI_Status *);
    int (*sendrecv)(const void *, int, MPI_Datatype, int, int, void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
    int (*split)(MPI_Comm, int, int, MPI_Comm *);
    int (*release)(MPI_Comm *);
} Library;
static const Library huddle = {MPI_Allreduce, MPI_Bcast, MPI_Reduce, MPI_Allgather, MPI_Scatter, MPI_Barrier, MPI_Gather,
                               MPI_Irecv, MPI_Isend, MPI_Waitall, MPI_Sendrecv, MPI_Comm_split, MPI_Comm_free};
static const Library native = {PMPI_Allreduce, PMPI_Bcast, PMPI_Reduce, PMPI_Allgather, PMPI_Scatter, PMPI_Barrier, PMPI_Gather,
                               PMPI_Irecv, PMPI_Isend, PMPI_Waitall, PMPI_Sendrecv, PMPI_Comm_split, PMPI_Comm_free};

typedef struct {
    const char *group, *name;
    void (*step)(const Library *mpi, int n, int k); // the k-th of a loop
    int n;                                          // mostly the doubles of a message, or the most of them
} Program;
typedef struct {
    const Program *program;
    const Library *mpi;
    int *steps; // so far
} Way;

static double *a, *b;
static MPI_Comm row, column, others[3];
static volatile double result;

// ---- what steps are made of

// The k-th number, from 0 to below `below`, of one of several unrelated sequences: multiples of the square roots of
// primes, whose fractions are spread evenly over any few steps.
static int draw(int which, int k, int below) {
    static const int primes[DRAWS] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
    double multiple = (k + 1) * sqrt(primes[which % DRAWS]);
    return (int)((multiple - floor(multiple)) * below);
}
// 1 to `most`, equally often between each power of two and the next.
static int draw_length(int most, int k) {
    int bits = 0;
    while (most >> bits > 1) bits++;
    int least = 1 << draw(0, k, bits + 1), length = least + draw(1, k, least);
    return length < most ? length : most;
}

static void produce(double *data, int n, int k) {
    for (int i = 0; i < n; i++) data[i] = k % 61 + i;
}
// Adds up several sums side by side: additions one after the other would take longer than calls do.
static void consume(const double *data, int n) {
    double sums[SUMS] = {0};
    int i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int k = 0; k < SUMS; k++) sums[k] += data[i + k];
    for (; i < n; i++) sums[0] += data[i];
    for (int k = 1; k < SUMS; k++) sums[0] += sums[k];
    result = sums[0];
}
// Does as much work as takes so many nanoseconds on a core that does nothing else.
static double units_per_nanosecond;
static void work(double units) {
    volatile double sum = 0;
    for (long i = 0; i < (long)units; i++) sum += 1;
}
static void compute(double nanoseconds) { work(nanoseconds * units_per_nanosecond); }
static void start_computing(void) {
    const double units = 100000;
    double least = 1e18;
    for (int i = 0; i < 20; i++) {
        double start = now();
        work(units);
        double took = now() - start;
        if (took < least) least = took;
    }
    PMPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    units_per_nanosecond = units / least;
}
static double sum_of_all(const Library *mpi, double mine, MPI_Comm comm) {
    double sum;
    mpi->allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
    return sum;
}
static int left(void) { return (rank + size - 1) % size; }
static int right(void) { return (rank + 1) % size; }

// ---- steps: lengths as they come

static void bcast_of(const Library *mpi, int n, int root, int k) {
    if (rank == root) produce(a, n, k);
    mpi->bcast(a, n, MPI_DOUBLE, root, MPI_COMM_WORLD);
    if (rank != root) consume(a, n);
}
static void any_bcast(const Library *mpi, int most, int k) { bcast_of(mpi, 1 + draw(0, k, most), 0, k); }
static void any_bcast_any_root(const Library *mpi, int most, int k) {
    bcast_of(mpi, 1 + draw(0, k, most), draw(1, k, size), k);
}
static void allreduce_of(const Library *mpi, int n, int k) {
    produce(a, n, k);
    mpi->allreduce(a, b, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    consume(b, n);
}
static void any_allreduce(const Library *mpi, int most, int k) { allreduce_of(mpi, 1 + draw(0, k, most), k); }
static void reduce_of(const Library *mpi, int n, int root, int k) {
    produce(a, n, k);
    mpi->reduce(a, b, n, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD);
    if (rank == root) consume(b, n);
}
static void any_reduce(const Library *mpi, int most, int k) {
    reduce_of(mpi, 1 + draw(0, k, most), draw(1, k, size), k);
}
static void allgather_of(const Library *mpi, int n, int k) {
    produce(a, n, k);
    mpi->allgather(a, n, MPI_DOUBLE, b, n, MPI_DOUBLE, MPI_COMM_WORLD);
    consume(b, n * size);
}
static void any_allgather(const Library *mpi, int most, int k) { allgather_of(mpi, 1 + draw(0, k, most), k); }
static void scatter_of(const Library *mpi, int n, int root, int k) {
    if (rank == root) produce(a, n * size, k);
    mpi->scatter(a, n, MPI_DOUBLE, b, n, MPI_DOUBLE, root, MPI_COMM_WORLD);
    consume(b, n);
}
static void any_scatter(const Library *mpi, int most, int k) { scatter_of(mpi, 1 + draw(0, k, most), 0, k); }

// Any collective, of any length up to the most, to or from any rank.
static void any_call(const Library *mpi, int most, int k) {
    int n = draw_length(most, k), root = draw(2, k, size);
    switch (draw(3, k, 6)) {
    case 0: allreduce_of(mpi, n, k); break;
    case 1: bcast_of(mpi, n, root, k); break;
    case 2: reduce_of(mpi, n, root, k); break;
    case 3: allgather_of(mpi, n, k); break;
    case 4: scatter_of(mpi, n, root, k); break;
    default: mpi->barrier(MPI_COMM_WORLD);
    }
}

// ---- steps: one root

// Sends the length first, and then the message.
static void header(const Library *mpi, int n, int k) {
    int length = n;
    mpi->bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
    bcast_of(mpi, length, 0, k);
}
// Sends a name, numbers, and flags.
static void parameters(const Library *mpi, int n, int k) {
    char name[64] = "";
    int flags[3] = {k, n, 1};
    if (rank == 0) snprintf(name, sizeof name, "%d", k);
    mpi->bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    produce(a, n, k);
    mpi->bcast(a, n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    mpi->bcast(flags, 3, MPI_INT, 0, MPI_COMM_WORLD);
}
static void reduce_bcast(const Library *mpi, int n, int k) {
    produce(a, n, k);
    mpi->reduce(a, b, n, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    mpi->bcast(b, n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    consume(b, n);
}
static void reduce_in_place(const Library *mpi, int n, int k) {
    produce(a, n, k);
    mpi->reduce(rank ? a : MPI_IN_PLACE, rank ? NULL : a, n, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
}
// Work is dealt, done, and brought back by a gather, which huddle leaves to the library.
static void deal(const Library *mpi, int n, int k) {
    scatter_of(mpi, n, 0, k);
    for (int i = 0; i < n; i++) b[i] *= 2;
    mpi->gather(b, n, MPI_DOUBLE, a, n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}
// A state goes to all ranks, and a number comes from each.
static void evaluate(const Library *mpi, int n, int k) {
    bcast_of(mpi, n, 0, k);
    double sum;
    mpi->reduce(a, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
}

// ---- steps: solvers and grids

// The two scalar products of an iteration, each of what the one before gave.
static void products(const Library *mpi, int n, int k) {
    a[0] = sum_of_all(mpi, k, MPI_COMM_WORLD);
    consume(a, n);
    b[0] = sum_of_all(mpi, result, MPI_COMM_WORLD);
    consume(b, n);
}
static void halo(const Library *mpi, int n, int k) {
    MPI_Request requests[2];
    mpi->irecv(b, n, MPI_DOUBLE, left(), 0, MPI_COMM_WORLD, &requests[0]);
    mpi->isend(a, n, MPI_DOUBLE, right(), 0, MPI_COMM_WORLD, &requests[1]);
    mpi->waitall(2, requests, MPI_STATUSES_IGNORE);
    result = sum_of_all(mpi, b[0] + k, MPI_COMM_WORLD);
}
static void phases(const Library *mpi, int n, int k) {
    (void)k;
    mpi->barrier(MPI_COMM_WORLD);
    mpi->sendrecv(a, n, MPI_DOUBLE, right(), 0, b, n, MPI_DOUBLE, left(), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    mpi->barrier(MPI_COMM_WORLD);
}
// Finds where the worst value is, and whether all ranks are content.
static void convergence(const Library *mpi, int n, int k) {
    struct {
        double value;
        int rank;
    } mine = {k % 7 + rank, rank}, worst;
    int content = k & n, all;
    mpi->allreduce(&mine, &worst, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    mpi->allreduce(&content, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    result = worst.value + all;
}
// Finds the length of the next time step, after a computation that takes each rank a random time.
static void time_step(const Library *mpi, int most, int k) {
    compute(draw(rank, k, most));
    double mine = k + rank, least;
    mpi->allreduce(&mine, &least, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
}
static void in_place(const Library *mpi, int n, int k) {
    produce(a, n, k);
    mpi->allreduce(MPI_IN_PLACE, a, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    consume(a, n);
}
// Gradients or densities in single precision, in parts of different lengths, one after the other through a large array.
static void parts(const Library *mpi, int most, int k) {
    float *data = (float *)a;
    int part = 0;
    for (int at = 0, n; at < most; at += n) {
        n = most / 8 + draw(part++, k, most / 4);
        if (n > most - at) n = most - at;
        for (int i = 0; i < n; i++) data[at + i] = (float)(k % 61);
        mpi->allreduce(MPI_IN_PLACE, data + at, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
}
static void histogram(const Library *mpi, int bins, int k) {
    int *counts = (int *)a;
    for (int i = 0; i < bins; i += 16) counts[i] = k + i;
    mpi->allreduce(counts, b, bins, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}
// Each rank tells how many elements it has, and then all gather that many of each.
static void counts(const Library *mpi, int n, int k) {
    static int all[1024];
    mpi->allgather(&n, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    allgather_of(mpi, n, k);
}
// Gathers the parts of an eigenvector, and computes its norm.
static void power(const Library *mpi, int n, int k) {
    allgather_of(mpi, n, k);
    double norm = sum_of_all(mpi, result, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) a[i] = b[i] / norm;
}
// Sends each row of a matrix to all ranks from the rank that has it: one root for many calls, each with other memory.
static void matrix_rows(const Library *mpi, int n, int k) {
    int index = k % MATRIX, owner = index * size / MATRIX;
    double *of_matrix = a + (size_t)index * (size_t)n;
    if (rank == owner) produce(of_matrix, n, k);
    mpi->bcast(of_matrix, n, MPI_DOUBLE, owner, MPI_COMM_WORLD);
    consume(of_matrix, n);
}
// Sends blocks along the rows and columns of a grid of ranks.
static void grid(const Library *mpi, int n, int k) {
    MPI_Comm comms[2] = {row, column};
    for (int i = 0; i < 2; i++) {
        int ranks;
        MPI_Comm_size(comms[i], &ranks);
        if (ranks == 1) continue; // two, three and five ranks have no other grid
        mpi->bcast(a, n, MPI_DOUBLE, k % ranks, comms[i]);
        consume(a, n);
    }
}
static void libraries(const Library *mpi, int n, int k) {
    double sum = k + n;
    for (int i = 0; i < 3; i++) sum = sum_of_all(mpi, sum, others[i]);
    mpi->barrier(MPI_COMM_WORLD);
}
// Makes a communicator for some calls, as libraries do in each of their own calls.
static void short_lived(const Library *mpi, int n, int k) {
    MPI_Comm comm;
    mpi->split(MPI_COMM_WORLD, 0, rank, &comm);
    produce(a, n, k);
    for (int i = 0; i < USES; i++) mpi->allreduce(a, b, n, MPI_DOUBLE, MPI_SUM, comm);
    mpi->release(&comm);
}

// ---- measuring

static double block(const void *of, int calls) {
    const Way *way = of;
    double start = now();
    for (int k = 0; k < calls; k++) way->program->step(way->mpi, way->program->n, (*way->steps)++);
    return now() - start;
}

static void compare(const Program *program) {
    int steps[2] = {0};
    Way ways[2] = {{program, &huddle, &steps[0]}, {program, &native, &steps[1]}};
    Subject subjects[2] = {{"huddle", block, &ways[0], false}, {"native", block, &ways[1], false}};
    block(&ways[0], FIRST_STEPS); // huddle builds what it holds with the first calls
    char members[256];
    snprintf(members, sizeof members, "\"group\": \"%s\", \"shape\": \"%s\"", program->group, program->name);
    measure(members, subjects, 2);
}

static const Program programs[] = {
    {"lengths at random", "Bcast up to 3000 DOUBLE", any_bcast, 3000},
    {"lengths at random", "Bcast up to 60000 DOUBLE", any_bcast, 60000},
    {"lengths at random", "Bcast up to 30000 DOUBLE, any root", any_bcast_any_root, 30000},
    {"lengths at random", "Allreduce up to 200 DOUBLE", any_allreduce, 200},
    {"lengths at random", "Allreduce up to 3000 DOUBLE", any_allreduce, 3000},
    {"lengths at random", "Allreduce up to 30000 DOUBLE", any_allreduce, 30000},
    {"lengths at random", "Reduce up to 200 DOUBLE", any_reduce, 200},
    {"lengths at random", "Reduce up to 30000 DOUBLE", any_reduce, 30000},
    {"lengths at random", "Allgather up to 200 DOUBLE", any_allgather, 200},
    {"lengths at random", "Allgather up to 10000 DOUBLE", any_allgather, 10000},
    {"lengths at random", "Scatter up to 200 DOUBLE", any_scatter, 200},
    {"lengths at random", "Scatter up to 10000 DOUBLE", any_scatter, 10000},
    {"any collective at random", "up to 8 DOUBLE", any_call, 8},
    {"any collective at random", "up to 512 DOUBLE", any_call, 512},
    {"any collective at random", "up to 16384 DOUBLE", any_call, 16384},
    {"from and to one rank", "header, then Bcast of 10 DOUBLE", header, 10},
    {"from and to one rank", "header, then Bcast of 3000 DOUBLE", header, 3000},
    {"from and to one rank", "three kinds of parameters", parameters, 4},
    {"from and to one rank", "Reduce, then Bcast of 4 DOUBLE", reduce_bcast, 4},
    {"from and to one rank", "Reduce, then Bcast of 4000 DOUBLE", reduce_bcast, 4000},
    {"from and to one rank", "Reduce in place of 400 DOUBLE", reduce_in_place, 400},
    {"from and to one rank", "Reduce in place of 40000 DOUBLE", reduce_in_place, 40000},
    {"from and to one rank", "Scatter and MPI_Gather of 4 DOUBLE", deal, 4},
    {"from and to one rank", "Scatter and MPI_Gather of 400 DOUBLE", deal, 400},
    {"from and to one rank", "Scatter and MPI_Gather of 4000 DOUBLE", deal, 4000},
    {"from and to one rank", "Bcast of 1000 DOUBLE, Reduce of one", evaluate, 1000},
    {"solvers", "two scalar products", products, 100},
    {"solvers", "halo of 500 DOUBLE, scalar product", halo, 500},
    {"solvers", "MPI_Sendrecv of 1000 DOUBLE between Barriers", phases, 1000},
    {"solvers", "MAXLOC and LAND", convergence, 1},
    {"solvers", "MIN after up to 2 us", time_step, 2000},
    {"solvers", "MIN after up to 100 us", time_step, 100000},
    {"solvers", "MIN after up to 1 ms", time_step, 1000000},
    {"solvers", "Allreduce in place of 50 DOUBLE", in_place, 50},
    {"solvers", "Allreduce in place of 20000 DOUBLE", in_place, 20000},
    {"solvers", "parts of 200000 FLOAT in place", parts, 200000},
    {"solvers", "histogram of 1000 INT", histogram, 1000},
    {"solvers", "histogram of 65536 INT", histogram, 65536},
    {"solvers", "counts, then Allgather of 200 DOUBLE", counts, 200},
    {"solvers", "Allgather of 500 DOUBLE, norm", power, 500},
    {"solvers", "rows of a matrix, 1000 DOUBLE", matrix_rows, 1000},
    {"solvers", "rows and columns of ranks, 512 DOUBLE", grid, 512},
    {"solvers", "rows and columns of ranks, 32768 DOUBLE", grid, 32768},
    {"several communicators", "scalar products on three, Barrier", libraries, 1},
    {"several communicators", "one made for 20 calls of 8 DOUBLE", short_lived, 8},
};

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    argc = measure_start(argc, argv);
    start_computing();
    const size_t room = (size_t)MOST * (size_t)size;
    a = calloc(room, sizeof *a), b = calloc(room, sizeof *b);
    if (!a || !b) fail("no memory");
    int columns = size % 2 ? 1 : 2;
    MPI_Comm_split(MPI_COMM_WORLD, rank / columns, rank, &row);
    MPI_Comm_split(MPI_COMM_WORLD, rank % columns, rank, &column);
    for (int i = 0; i < 3; i++) MPI_Comm_dup(MPI_COMM_WORLD, &others[i]);
    const char *only = option(argc, argv, "--only", NULL);
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (is_listed(only, programs[i].group)) compare(&programs[i]);
    MPI_Finalize();
    return 0;
}
