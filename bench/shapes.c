// Shapes outside the grid of collectives.c, huddle against the native library: odd sizes, sizes between the grid's, other types, strided data,
// derived types, datatypes made for each call, counts in turn, one hot root, calls after barriers, skewed arrival, calls after computing and after
// exchanges of messages, many communicators, calls among others of the library, windows.
//
//   shapes [--only odd,…] [--rounds R] [--block MS]
//
// A call's time is from its entry to its exit on the slowest rank. Where arrival is skewed, or ranks compute before, it
// is from the last rank's entry to the last rank's exit. After a barrier it is from the barrier's entry, so that no
// barrier gains by how far apart it lets ranks go. Among other calls it is that of the whole loop. Exchanges of
// messages are left out where ranks share cores: there they settle which rank has the core, and calls that differ take
// equally long.
#include "calls.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHORT = 512, MANY = 32, DELAY = 10000, SWEPT = 1 << 20, BORDER = 2048, SMALL_BORDER = 512, COLUMN = 16 };

typedef enum { BYTES, INTS, FLOATS, DOUBLES, LONG_DOUBLES, PAIRS } Fill;
// What ranks do before a call, or around it. From DELAYED on, a call's time is from the last rank's entry.
typedef enum { NOTHING, A_BARRIER, A_NEW_TYPE, A_GATHER, MESSAGES, A_REDUCTION, DELAYED, COMPUTING, EXCHANGING, SHARING } Before;
typedef struct {
    double value;
    int index;
} Pair; // as MPI_DOUBLE_INT
typedef struct {
    double at[3];
    unsigned id;
} Point;
typedef struct {
    const char *group, *name;
    Collective collective;
    int count;
    MPI_Datatype type;
    MPI_Op op;
    Fill fill;
    int root;   // -1: it rotates
    Before before;
    int comms;
    int more;  // counts that take turns: so many beside the first one,
    int apart; // each longer than the last by so many elements; 0: by one
} Shape;
typedef struct {
    const Shape *shape;
    bool native;
} Way;

static char *in, *out, *images[2];
static MPI_Comm comms[MANY];
static MPI_Win window = MPI_WIN_NULL;
static double *entries, *exits, *last;

static int step(const Shape *s) { return s->apart ? s->apart : 1; }

// ---- data

static void fill(void *memory, Fill kind, size_t bytes, int seed) {
    for (size_t i = 0; i < bytes / sizeof(long double); i++) {
        int number = (int)((i * 7 + (size_t)seed) % 61) + 1;
        char *at = (char *)memory + i * sizeof(long double);
        if (kind == LONG_DOUBLES) *(long double *)at = number;
        else if (kind == DOUBLES) ((double *)at)[0] = number, ((double *)at)[1] = -number;
        else if (kind == FLOATS) for (int j = 0; j < 4; j++) ((float *)at)[j] = (float)(number + j);
        else if (kind == PAIRS) *(Pair *)at = (Pair){number, (int)i};
        else for (int j = 0; j < 4; j++) ((int *)at)[j] = number * (j + 1);
    }
}

static void user_sum(void *from, void *to, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++) ((double *)to)[i] += ((double *)from)[i];
}

static void sum_points(void *from, void *to, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++) {
        Point *x = (Point *)from + i, *y = (Point *)to + i;
        for (int j = 0; j < 3; j++) y->at[j] += x->at[j];
        y->id += x->id;
    }
}

// ---- one call

static MPI_Datatype vector(int blocks, int length, int stride) {
    MPI_Datatype type;
    MPI_Type_vector(blocks, length, stride, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

// Makes calls of the library itself before one of ours, or begins some that go on during it. Returns how many must be
// waited for.
static int call_others(Before which, int root, MPI_Request requests[2]) {
    static char borders[2][SMALL_BORDER];
    static double mine = 1, all;
    switch (which) {
    case A_GATHER: PMPI_Gather(borders[0], 1, MPI_INT, out, 1, MPI_INT, root, MPI_COMM_WORLD); return 0;
    case A_REDUCTION: PMPI_Iallreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, comms[1], requests); return 1;
    case MESSAGES:
        MPI_Irecv(borders[0], SMALL_BORDER, MPI_BYTE, (rank + size - 1) % size, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(borders[1], SMALL_BORDER, MPI_BYTE, (rank + 1) % size, 0, MPI_COMM_WORLD, &requests[1]);
        return 2;
    default: return 0;
    }
}

static void call(const Shape *s, bool native, int k) {
    // Each count comes with each root.
    int counts = 1 + s->more, count = s->count + k % counts * step(s), root = s->root >= 0 ? s->root : k / counts % size;
    MPI_Comm comm = comms[k % s->comms];
    MPI_Datatype type = s->before == A_NEW_TYPE ? vector(COLUMN, 1, 2) : s->type;
    if (s->before == A_BARRIER) (native ? PMPI_Barrier : MPI_Barrier)(comm);
    MPI_Request others[2];
    int begun = call_others(s->before, root, others);
    switch (s->collective) {
    case ALLREDUCE: (native ? PMPI_Allreduce : MPI_Allreduce)(in, out, count, type, s->op, comm); break;
    case BCAST: (native ? PMPI_Bcast : MPI_Bcast)(in, count, type, root, comm); break;
    case REDUCE: (native ? PMPI_Reduce : MPI_Reduce)(in, out, count, type, s->op, root, comm); break;
    case ALLGATHER: (native ? PMPI_Allgather : MPI_Allgather)(in, count, type, out, count, type, comm); break;
    case SCATTER: (native ? PMPI_Scatter : MPI_Scatter)(in, count, type, out, count, type, root, comm); break;
    default: (native ? PMPI_Barrier : MPI_Barrier)(comm);
    }
    if (begun > 0) MPI_Waitall(begun, others, MPI_STATUSES_IGNORE);
    if (s->before == A_NEW_TYPE) MPI_Type_free(&type);
}

static size_t spanned(const Shape *s) {
    MPI_Aint lb, extent, span;
    PMPI_Type_get_extent(s->type, &lb, &extent);
    PMPI_Type_get_true_extent(s->type, &lb, &span);
    int elements = (s->count + s->more * step(s)) * (s->collective == SCATTER ? size : 1);
    return elements == 0 ? 0 : (size_t)(span + (elements - 1) * extent);
}

static void delay(int k) {
    static unsigned state = 1;
    state = state * 1664525 + 1013904223; // the same sequence on all ranks
    double until = now() + (k % size == rank ? state % DELAY : 0);
    while (now() < until) {}
}

// Goes once through memory that takes a good part of a second-level cache.
static void compute(void) {
    static volatile char memory[SWEPT];
    for (size_t i = 0; i < SWEPT; i += 64) memory[i]++;
}

// Exchanges borders with the neighbours in a row of ranks, as programs on grids do, and computes.
static void exchange(void) {
    static char borders[4][BORDER];
    int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    MPI_Request requests[4];
    MPI_Irecv(borders[0], BORDER, MPI_BYTE, left, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(borders[1], BORDER, MPI_BYTE, right, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(borders[2], BORDER, MPI_BYTE, right, 0, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(borders[3], BORDER, MPI_BYTE, left, 1, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    compute();
}

// Writes into memory that ranks share by a window, as programs do that keep one copy of their tables on a node, and computes.
static void share(void) {
    static volatile char *mine;
    if (window == MPI_WIN_NULL) {
        MPI_Win_allocate_shared(BORDER, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &window);
        MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
        // Wait until that was long ago, as in a program that runs for minutes.
        for (int i = 0; i < 60; i++) usleep(10000), MPI_Barrier(MPI_COMM_WORLD);
    }
    mine[0]++;
    MPI_Win_sync(window);
    compute();
}

static void free_window(void) {
    if (window == MPI_WIN_NULL) return;
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
}

static bool is_timed_from_last(const Shape *s) { return s->before >= DELAYED; }

// Both ends are taken on all ranks, and the latest of each counts.
static double skewed_time(int calls) {
    double sum = 0;
    PMPI_Allreduce(entries, last, calls, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int k = 0; k < calls; k++) sum -= last[k];
    PMPI_Allreduce(exits, last, calls, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int k = 0; k < calls; k++) sum += last[k];
    return sum;
}

static double block(const void *state, int calls) {
    const Way *way = state;
    const Shape *s = way->shape;
    size_t bytes = spanned(s);
    double sum = 0, start = now();
    if (bytes <= SHORT && !is_timed_from_last(s)) {
        for (int k = 0; k < calls; k++) memcpy(in, images[k % 2], bytes), call(s, way->native, k);
        return now() - start;
    }
    if (calls > MOST_CALLS + size) fail("too many calls");
    for (int k = 0; k < calls; k++) {
        memcpy(in, images[k % 2], bytes);
        if (s->before == DELAYED) delay(k);
        if (s->before == COMPUTING) compute();
        if (s->before == EXCHANGING) exchange();
        if (s->before == SHARING) share();
        entries[k] = now();
        call(s, way->native, k);
        exits[k] = now();
        sum += exits[k] - entries[k];
    }
    return is_timed_from_last(s) ? skewed_time(calls) : sum;
}

static void compare(const Shape *s) {
    size_t bytes = (spanned(s) / 16 + 1) * 16;
    for (int i = 0; i < 2; i++) fill(images[i], s->fill, bytes, rank + i);
    memcpy(in, images[0], bytes);
    for (int k = 0; k < WARM_UP * s->comms; k++) call(s, false, k);
    Way ways[2] = {{s, false}, {s, true}};
    Subject subjects[2] = {{"huddle", block, &ways[0], is_timed_from_last(s)}, {"native", block, &ways[1], is_timed_from_last(s)}};
    char members[256];
    snprintf(members, sizeof members, "\"group\": \"%s\", \"shape\": \"%s %s\"", s->group, collective_names[s->collective], s->name);
    measure(members, subjects, 2);
}

// ---- the list

static MPI_Datatype column(int rows, int columns) {
    MPI_Datatype plain = vector(rows, 1, columns), resized;
    MPI_Type_create_resized(plain, 0, sizeof(double), &resized);
    MPI_Type_free(&plain);
    MPI_Type_commit(&resized);
    return resized;
}

static MPI_Datatype of_points(void) {
    int lengths[2] = {3, 1};
    MPI_Aint at[2] = {0, offsetof(Point, id)};
    MPI_Datatype types[2] = {MPI_DOUBLE, MPI_UNSIGNED}, fields, resized;
    MPI_Type_create_struct(2, lengths, at, types, &fields);
    MPI_Type_create_resized(fields, 0, sizeof(Point), &resized);
    MPI_Type_free(&fields);
    MPI_Type_commit(&resized);
    return resized;
}

static MPI_Datatype of_three(void) {
    MPI_Datatype type;
    MPI_Type_contiguous(3, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

static void free_if_made(MPI_Datatype type) {
    int numbers[3], combiner;
    MPI_Type_get_envelope(type, &numbers[0], &numbers[1], &numbers[2], &combiner);
    if (combiner != MPI_COMBINER_NAMED) MPI_Type_free(&type);
}

static void compare_listed(const Shape *shapes, size_t n, const char *only) {
    for (size_t i = 0; i < n; i++) {
        bool is_left_out = shapes[i].before == EXCHANGING && size > sysconf(_SC_NPROCESSORS_ONLN);
        if (!is_left_out && is_listed(only, shapes[i].group)) compare(&shapes[i]);
        free_if_made(shapes[i].type);
    }
}

// Shapes that differ in their data.
static void compare_data(const char *only) {
    MPI_Op sum, points;
    MPI_Op_create(user_sum, 1, &sum);
    MPI_Op_create(sum_points, 1, &points);
    const MPI_Op none = MPI_OP_NULL;
    const Shape shapes[] = {
        {"odd sizes", "1 INT SUM", ALLREDUCE, 1, MPI_INT, MPI_SUM, INTS, -1, NOTHING, 1},
        {"odd sizes", "1001 SIGNED_CHAR MAX", ALLREDUCE, 1001, MPI_SIGNED_CHAR, MPI_MAX, BYTES, -1, NOTHING, 1},
        {"odd sizes", "12347 DOUBLE SUM", ALLREDUCE, 12347, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, NOTHING, 1},
        {"odd sizes", "333 FLOAT SUM", REDUCE, 333, MPI_FLOAT, MPI_SUM, FLOATS, -1, NOTHING, 1},
        {"odd sizes", "77777 BYTE", BCAST, 77777, MPI_BYTE, none, BYTES, -1, NOTHING, 1},
        {"odd sizes", "5003 BYTE", ALLGATHER, 5003, MPI_BYTE, none, BYTES, -1, NOTHING, 1},
        {"odd sizes", "100003 BYTE", SCATTER, 100003, MPI_BYTE, none, BYTES, -1, NOTHING, 1},
        {"between the grid's sizes", "24 KiB", BCAST, 3072, MPI_DOUBLE, none, DOUBLES, -1, NOTHING, 1},
        {"between the grid's sizes", "384 KiB", BCAST, 49152, MPI_DOUBLE, none, DOUBLES, -1, NOTHING, 1},
        {"between the grid's sizes", "320 KiB", ALLREDUCE, 40960, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, NOTHING, 1},
        {"between the grid's sizes", "640 KiB", REDUCE, 81920, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, NOTHING, 1},
        {"between the grid's sizes", "136 KiB", ALLGATHER, 17408, MPI_DOUBLE, none, DOUBLES, -1, NOTHING, 1},
        {"between the grid's sizes", "384 KiB", SCATTER, 49152, MPI_DOUBLE, none, DOUBLES, -1, NOTHING, 1},
        {"other types", "4096 FLOAT MIN", ALLREDUCE, 4096, MPI_FLOAT, MPI_MIN, FLOATS, -1, NOTHING, 1},
        {"other types", "65536 INT BXOR", ALLREDUCE, 65536, MPI_INT, MPI_BXOR, INTS, -1, NOTHING, 1},
        {"other types", "1 DOUBLE_INT MAXLOC", ALLREDUCE, 1, MPI_DOUBLE_INT, MPI_MAXLOC, PAIRS, -1, NOTHING, 1},
        {"other types", "64 DOUBLE_INT MINLOC", ALLREDUCE, 64, MPI_DOUBLE_INT, MPI_MINLOC, PAIRS, -1, NOTHING, 1},
        {"other types", "2048 C_DOUBLE_COMPLEX PROD", REDUCE, 2048, MPI_C_DOUBLE_COMPLEX, MPI_PROD, DOUBLES, -1, NOTHING, 1},
        {"other types", "100 LONG_DOUBLE SUM", ALLREDUCE, 100, MPI_LONG_DOUBLE, MPI_SUM, LONG_DOUBLES, -1, NOTHING, 1},
        {"other types", "1000 DOUBLE, user-defined", ALLREDUCE, 1000, MPI_DOUBLE, sum, DOUBLES, -1, NOTHING, 1},
        {"other types", "16000 DOUBLE, user-defined", ALLREDUCE, 16000, MPI_DOUBLE, sum, DOUBLES, -1, NOTHING, 1},
        {"other types", "4000 DOUBLE, user-defined", REDUCE, 4000, MPI_DOUBLE, sum, DOUBLES, -1, NOTHING, 1},
        {"strided data", "2048 DOUBLE, every 4th", BCAST, 1, vector(2048, 1, 4), none, DOUBLES, -1, NOTHING, 1},
        {"strided data", "16384 DOUBLE in blocks of 8", BCAST, 1, vector(2048, 8, 16), none, DOUBLES, -1, NOTHING, 1},
        {"strided data", "512 DOUBLE, every 2nd", ALLGATHER, 1, vector(512, 1, 2), none, DOUBLES, -1, NOTHING, 1},
        {"strided data", "8 columns of 256 DOUBLE", SCATTER, 8, column(256, 64), none, DOUBLES, -1, NOTHING, 1},
        {"derived types", "1 struct", BCAST, 1, of_points(), none, DOUBLES, -1, NOTHING, 1},
        {"derived types", "1 contiguous of 3 DOUBLE", ALLGATHER, 1, of_three(), none, DOUBLES, -1, NOTHING, 1},
        {"derived types", "4 structs", SCATTER, 4, of_points(), none, DOUBLES, -1, NOTHING, 1},
        {"derived types", "4 structs, user-defined", ALLREDUCE, 4, of_points(), points, DOUBLES, -1, NOTHING, 1},
        {"datatypes made for each call", "16 DOUBLE, every 2nd", BCAST, 1, vector(COLUMN, 1, 2), none, DOUBLES, -1, A_NEW_TYPE, 1},
        {"datatypes made for each call", "16 DOUBLE, every 2nd", ALLGATHER, 1, vector(COLUMN, 1, 2), none, DOUBLES, -1, A_NEW_TYPE, 1},
        {"counts in turn", "1 to 4 DOUBLE SUM", ALLREDUCE, 1, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, NOTHING, 1, 3},
        {"counts in turn", "1 to 4 DOUBLE", BCAST, 1, MPI_DOUBLE, none, DOUBLES, -1, NOTHING, 1, 3},
        {"counts in turn", "1 to 16 DOUBLE", BCAST, 1, MPI_DOUBLE, none, DOUBLES, -1, NOTHING, 1, 15},
        {"counts in turn", "1 to 100 DOUBLE SUM", ALLREDUCE, 1, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, NOTHING, 1, 99},
        {"counts in turn", "8 B to 240 KB", BCAST, 1, MPI_DOUBLE, none, DOUBLES, -1, NOTHING, 1, 15, 2000},
        {"counts in turn", "8 B to 240 KB from one root", BCAST, 1, MPI_DOUBLE, none, DOUBLES, 0, NOTHING, 1, 15, 2000},
        {"counts in turn", "8 and 64 KiB SUM", ALLREDUCE, 1024, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, NOTHING, 1, 1, 7168},
    };
    compare_listed(shapes, sizeof shapes / sizeof *shapes, only);
    MPI_Op_free(&sum);
    MPI_Op_free(&points);
}

// Shapes that differ in what is done around calls.
static void compare_programs(const char *only) {
    const MPI_Op none = MPI_OP_NULL;
    const Shape shapes[] = {
        {"one hot root", "8 B", BCAST, 1, MPI_DOUBLE, none, DOUBLES, 0, NOTHING, 1},
        {"one hot root", "32 KiB", BCAST, 4096, MPI_DOUBLE, none, DOUBLES, 0, NOTHING, 1},
        {"one hot root", "256 KiB", BCAST, 32 << 10, MPI_DOUBLE, none, DOUBLES, 0, NOTHING, 1},
        {"one hot root", "1 MiB", BCAST, 128 << 10, MPI_DOUBLE, none, DOUBLES, 0, NOTHING, 1},
        {"one hot root", "8 B", REDUCE, 1, MPI_DOUBLE, MPI_SUM, DOUBLES, 0, NOTHING, 1},
        {"one hot root", "32 KiB", REDUCE, 4096, MPI_DOUBLE, MPI_SUM, DOUBLES, 0, NOTHING, 1},
        {"one hot root", "256 KiB", REDUCE, 32 << 10, MPI_DOUBLE, MPI_SUM, DOUBLES, 0, NOTHING, 1},
        {"one hot root", "8 B", SCATTER, 1, MPI_DOUBLE, none, DOUBLES, 0, NOTHING, 1},
        {"one hot root", "16 KiB", SCATTER, 2048, MPI_DOUBLE, none, DOUBLES, 0, NOTHING, 1},
        {"one hot root", "32 KiB", SCATTER, 4096, MPI_DOUBLE, none, DOUBLES, 0, NOTHING, 1},
        {"one hot root", "256 KiB", SCATTER, 32 << 10, MPI_DOUBLE, none, DOUBLES, 0, NOTHING, 1},
        {"after a barrier", "8 B", BCAST, 1, MPI_DOUBLE, none, DOUBLES, 0, A_BARRIER, 1},
        {"after a barrier", "4 KiB", BCAST, 512, MPI_DOUBLE, none, DOUBLES, 0, A_BARRIER, 1},
        {"after a barrier", "32 KiB", BCAST, 4096, MPI_DOUBLE, none, DOUBLES, 0, A_BARRIER, 1},
        {"after a barrier", "8 B", SCATTER, 1, MPI_DOUBLE, none, DOUBLES, 0, A_BARRIER, 1},
        {"after a barrier", "4 KiB", SCATTER, 512, MPI_DOUBLE, none, DOUBLES, 0, A_BARRIER, 1},
        {"skewed arrival", "8 B", ALLREDUCE, 1, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, DELAYED, 1},
        {"skewed arrival", "4 KiB", ALLREDUCE, 512, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, DELAYED, 1},
        {"skewed arrival", "32 KiB", BCAST, 4096, MPI_DOUBLE, none, DOUBLES, -1, DELAYED, 1},
        {"skewed arrival", "", BARRIER, 0, MPI_DOUBLE, none, DOUBLES, -1, DELAYED, 1},
        {"after computing", "8 B", ALLREDUCE, 1, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, COMPUTING, 1},
        {"after computing", "4 KiB", ALLREDUCE, 512, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, COMPUTING, 1},
        {"after computing", "8 B", BCAST, 1, MPI_DOUBLE, none, DOUBLES, -1, COMPUTING, 1},
        {"after computing", "", BARRIER, 0, MPI_DOUBLE, none, DOUBLES, -1, COMPUTING, 1},
        {"many communicators", "8 B", ALLREDUCE, 1, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, NOTHING, MANY},
        {"many communicators", "4 KiB", BCAST, 512, MPI_DOUBLE, none, DOUBLES, -1, NOTHING, MANY},
        {"many communicators", "", BARRIER, 0, MPI_DOUBLE, none, DOUBLES, -1, NOTHING, MANY},
        {"after exchanges", "8 B", ALLREDUCE, 1, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, EXCHANGING, 1},
        {"after exchanges", "4 KiB", ALLREDUCE, 512, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, EXCHANGING, 1},
        {"after exchanges", "8 B", BCAST, 1, MPI_DOUBLE, none, DOUBLES, -1, EXCHANGING, 1},
        {"after exchanges", "", BARRIER, 0, MPI_DOUBLE, none, DOUBLES, -1, EXCHANGING, 1},
        {"among other calls", "8 B after a gather", BCAST, 1, MPI_DOUBLE, none, DOUBLES, 0, A_GATHER, 1},
        {"among other calls", "4 KiB after a gather", BCAST, 512, MPI_DOUBLE, none, DOUBLES, 0, A_GATHER, 1},
        {"among other calls", "8 B during messages", ALLREDUCE, 1, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, MESSAGES, 1},
        {"among other calls", "8 B during messages", BCAST, 1, MPI_DOUBLE, none, DOUBLES, -1, MESSAGES, 1},
        {"among other calls", "8 B during a reduction", ALLREDUCE, 1, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, A_REDUCTION, 1},
        // These come last: huddle does not forget that a process has had windows.
        {"with a shared window", "8 B", ALLREDUCE, 1, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, SHARING, 1},
        {"with a shared window", "4 KiB", ALLREDUCE, 512, MPI_DOUBLE, MPI_SUM, DOUBLES, -1, SHARING, 1},
        {"with a shared window", "8 B", BCAST, 1, MPI_DOUBLE, none, DOUBLES, -1, SHARING, 1},
        {"with a shared window", "", BARRIER, 0, MPI_DOUBLE, none, DOUBLES, -1, SHARING, 1},
    };
    compare_listed(shapes, sizeof shapes / sizeof *shapes, only);
    free_window();
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    argc = measure_start(argc, argv);
    const size_t room = ((size_t)1 << 20) * (size_t)size;
    in = calloc(room, 1), out = calloc(room, 1);
    for (int i = 0; i < 2; i++) images[i] = calloc(room, 1);
    const size_t kept = (size_t)(MOST_CALLS + size) * sizeof(double);
    entries = malloc(kept), exits = malloc(kept), last = malloc(kept);
    if (!in || !out || !images[0] || !images[1] || !entries || !exits || !last) fail("no memory");
    comms[0] = MPI_COMM_WORLD;
    for (int i = 1; i < MANY; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    const char *only = option(argc, argv, "--only", NULL);
    compare_data(only);
    compare_programs(only);
    MPI_Finalize();
    return 0;
}
