// Mixes calls that huddle serves with several kinds of calls that are empty or that it leaves to the MPI library.
// Results must be right, and each call must be counted once, with its reason and its size.
//
//   declined ROUNDS [cyclic|threads]    cyclic: nodes hold no contiguous ranks; threads: two, under MPI_THREAD_MULTIPLE
//
// With HUDDLE_ALLREDUCE=<=1K:native,flat HUDDLE_BCAST=native HUDDLE_REDUCE=flat HUDDLE_ALLGATHER=flat HUDDLE_BARRIER=flat
// HUDDLE_SCATTER=<=64:native,flat HUDDLE_WARMUP=1. Without huddle only the results are checked.
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>

enum { MOST = 400, NAMES = 100, COMMS = 6, KINDS = 21, REJECTED = 7 };
typedef struct {
    char name[120];
    unsigned long long calls, bytes;
} Expected;
// The communicators and parameters of one thread, and the counters that it expects.
typedef struct {
    int rounds, salt, names;
    MPI_Comm world, comms[COMMS], alone, self, inter; // self: a duplicate of alone, which only this thread has
    Expected expected[NAMES];
} Work;
static bool is_cyclic;
static MPI_Datatype block, strided; // block: four ints; strided: two of three ints
static MPI_Op left;                 // gives the first of two operands, in rank order

// ---- what is counted

static size_t (*counters)(unsigned long long *, size_t), (*counter_name)(size_t, char *, size_t);

static const char *class_of(long bytes) {
    static const long largest[] = {0, 64, 1 << 10, 8 << 10};
    static const char *const names[] = {"0", "<=64", "<=1K", "<=8K"};
    for (int i = 0; i < 4; i++)
        if (bytes <= largest[i]) return names[i];
    return "<=64K";
}

// Expects one more call of this outcome. If `bytes` is negative, huddle does not read the call's size.
static void expect(Work *work, const char *outcome, long bytes) {
    char name[120];
    snprintf(name, sizeof name, "%s.%s", outcome, bytes < 0 ? "unread" : class_of(bytes));
    int at = 0;
    while (at < work->names && strcmp(work->expected[at].name, name) != 0) at++;
    CHECK(at < NAMES);
    if (at == work->names) strcpy(work->expected[work->names++].name, name);
    work->expected[at].calls++;
    work->expected[at].bytes += bytes < 0 ? 0 : (unsigned long long)bytes;
}

static unsigned long long expected_of(Work *works, int n, const char *name) {
    unsigned long long sum = 0;
    char quantity[140];
    for (int i = 0; i < n; i++)
        for (int at = 0; at < works[i].names; at++) {
            Expected *one = &works[i].expected[at];
            snprintf(quantity, sizeof quantity, "%s.calls", one->name);
            if (strcmp(quantity, name) == 0) sum += one->calls;
            snprintf(quantity, sizeof quantity, "%s.bytes", one->name);
            if (strcmp(quantity, name) == 0) sum += one->bytes;
        }
    return sum;
}

// Checks all counters, also those that must not have changed.
static void check_counters(const unsigned long long *before, Work *works, int n) {
    size_t length = counters(NULL, 0);
    unsigned long long *now = malloc(length * sizeof *now);
    char name[200];
    counters(now, length);
    for (size_t i = 0; i < length; i++) {
        counter_name(i, name, sizeof name);
        unsigned long long expected = expected_of(works, n, name);
        if (now[i] - before[i] != expected) {
            fprintf(stderr, "rank %d: %s: %llu, not %llu\n", world_rank, name, now[i] - before[i], expected);
            CHECK(!"a counter is right");
        }
    }
    free(now);
}

// ---- the calls

static void take_left(void *in, void *inout, int *n, MPI_Datatype *datatype) {
    (void)datatype;
    memcpy(inout, in, (size_t)*n * sizeof(int));
}

static void allreduce(Work *work, MPI_Comm comm, int n) {
    double in[MOST] = {0}, out[MOST];
    for (int i = 0; i < n; i++) in[i] = world_rank + i + work->salt, out[i] = -1;
    MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; i < n; i++) CHECK(out[i] == world_size * (world_size - 1) / 2 + world_size * (i + work->salt));
    expect(work, n == 0 ? "Allreduce.declined.empty" : n <= 128 ? "Allreduce.declined.forced-native" : "Allreduce.flat", 8L * n);
}

static void reduce_in_order(Work *work, MPI_Comm comm, int n, int root) {
    int in[MOST] = {0}, out[MOST];
    for (int i = 0; i < n; i++) in[i] = world_rank + i, out[i] = -7;
    MPI_Reduce(in, out, n, MPI_INT, left, root, comm);
    for (int i = 0; i < n; i++) CHECK(out[i] == (world_rank == root ? i : -7));
    expect(work, n == 0 ? "Reduce.declined.empty" : is_cyclic ? "Reduce.declined.order-across-nodes" : "Reduce.flat", 4L * n);
}

// Some ranks other than the root describe the same data by a derived datatype.
static void scatter(Work *work, MPI_Comm comm, int blocks, int root, bool in_place) {
    int from[MOST] = {0}, to[MOST];
    for (int i = 0; i < world_size * blocks * 4; i++) from[i] = i + work->salt;
    for (int i = 0; i < blocks * 4; i++) to[i] = -1;
    bool is_root = world_rank == root, is_derived = !is_root && world_rank % 2 == 1;
    MPI_Scatter(from, 4 * blocks, MPI_INT, is_root && in_place ? MPI_IN_PLACE : to, is_derived ? blocks : 4 * blocks, is_derived ? block : MPI_INT, root, comm);
    for (int i = 0; i < blocks * 4 && !(is_root && in_place); i++) CHECK(to[i] == world_rank * blocks * 4 + i + work->salt);
    expect(work, blocks == 0 ? "Scatter.declined.empty" : blocks <= 4 ? "Scatter.declined.forced-native" : "Scatter.flat", 16L * blocks);
}

static void allgather(Work *work, MPI_Comm comm, int n, bool in_place) {
    int all[MOST] = {0}, mine[MOST] = {0};
    for (int i = 0; i < n; i++) mine[i] = all[world_rank * n + i] = world_rank * n + i;
    MPI_Allgather(in_place ? MPI_IN_PLACE : mine, n, MPI_INT, all, n, MPI_INT, comm);
    for (int i = 0; i < n * world_size; i++) CHECK(all[i] == i);
    expect(work, n == 0 ? "Allgather.declined.empty" : "Allgather.flat", 4L * n);
}

static void bcast(Work *work, MPI_Comm comm, int n, MPI_Datatype datatype, int root) {
    int data[12];
    int size = datatype == MPI_INT ? 4 : -1;
    for (int i = 0; i < 12; i++) data[i] = world_rank == root ? i : -1;
    MPI_Bcast(data, n, datatype, root, comm);
    for (int i = 0; i < 3 * n; i++) CHECK(world_rank == root || data[i] == (datatype == MPI_INT ? (i < n ? i : -1) : i % 3 < 2 ? i : -1));
    expect(work, "Bcast.declined.forced-native", size < 0 ? -1 : (long)size * n);
}

static void barrier(Work *work, MPI_Comm comm) {
    MPI_Barrier(comm);
    expect(work, "Barrier.flat", 0);
}

// Empty calls in all their forms.
static void empty(Work *work, MPI_Comm comm, int form) {
    int number = 5;
    switch (form) {
    case 0: MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_MAX, comm); expect(work, "Allreduce.declined.empty", 0); break;
    case 1: MPI_Allreduce(MPI_IN_PLACE, &number, 0, MPI_INT, left, comm); expect(work, "Allreduce.declined.empty", 0); break;
    case 2: MPI_Reduce(&number, &number, 0, MPI_FLOAT_INT, MPI_MINLOC, 0, comm); expect(work, "Reduce.declined.empty", 0); break;
    case 3: MPI_Allgather(NULL, 0, strided, NULL, 0, strided, comm); expect(work, "Allgather.declined.empty", 0); break;
    case 4: MPI_Allgather(NULL, 0, MPI_INT, NULL, 0, strided, comm); expect(work, "Allgather.declined.empty", 0); break;
    default: MPI_Scatter(NULL, 0, MPI_INT, NULL, 0, strided, world_size - 1, comm); expect(work, "Scatter.declined.empty", 0); break;
    }
    CHECK(number == 5);
}

// MPI rejects these calls on all ranks and returns an error, whatever huddle would have done with them.
static void rejected(Work *work, MPI_Comm comm, int form) {
    double in = 1, out = 2;
    switch (form) {
    case 0:
        CHECK(MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_OP_NULL, comm) != MPI_SUCCESS);
        expect(work, "Allreduce.declined.rejected-arguments", -1);
        break;
    case 1:
        CHECK(MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_BAND, comm) != MPI_SUCCESS);
        expect(work, "Allreduce.declined.rejected-arguments", -1);
        break;
    case 2:
        CHECK(MPI_Scatter(&in, -1, MPI_INT, &out, -1, MPI_INT, 0, comm) != MPI_SUCCESS);
        expect(work, "Scatter.declined.rejected-arguments", -1);
        break;
    case 3: // native by HUDDLE_BCAST, so huddle does not look at the arguments
        CHECK(MPI_Bcast(&in, 1, MPI_DOUBLE, world_size, comm) != MPI_SUCCESS);
        expect(work, "Bcast.declined.forced-native", 8);
        break;
    // Each of these calls differs from a declined one in one argument.
    case 4:
        CHECK(MPI_Reduce(&in, &out, 0, MPI_DOUBLE, MPI_SUM, 0, comm) == MPI_SUCCESS);
        expect(work, "Reduce.declined.empty", 0);
        CHECK(MPI_Reduce(&in, &out, 0, MPI_DOUBLE, MPI_SUM, world_size, comm) != MPI_SUCCESS);
        expect(work, "Reduce.declined.rejected-arguments", -1);
        break;
    case 5:
        CHECK(MPI_Scatter(&in, 0, MPI_INT, &out, 0, MPI_INT, 0, comm) == MPI_SUCCESS);
        expect(work, "Scatter.declined.empty", 0);
        CHECK(MPI_Scatter(&in, 0, MPI_INT, &out, 0, MPI_INT, -7, comm) != MPI_SUCCESS);
        expect(work, "Scatter.declined.rejected-arguments", -1);
        break;
    default:
        allreduce(work, comm, 1);
        CHECK(MPI_Allreduce(&in, MPI_IN_PLACE, 1, MPI_DOUBLE, MPI_SUM, comm) != MPI_SUCCESS);
        expect(work, "Allreduce.declined.rejected-arguments", -1);
    }
    CHECK(out == 2);
}

static void without_context(Work *work) {
    double in = 4, out = 0;
    MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, work->self);
    CHECK(out == 4);
    expect(work, "Allreduce.declined.single-rank", 8);
    MPI_Barrier(work->inter);
    expect(work, "Barrier.declined.intercommunicator", 0);
}

static void one_call(Work *work, MPI_Comm comm, int kind, int root, int form) {
    switch (kind) {
    case 0: allreduce(work, comm, 1); break;
    case 1: allreduce(work, comm, 128); break;
    case 2: allreduce(work, comm, 129); break;
    case 3: allreduce(work, comm, 0); break;
    case 4: reduce_in_order(work, comm, 20, root); break;
    case 5: reduce_in_order(work, comm, 0, root); break;
    case 6: scatter(work, comm, 4, root, false); break;
    case 7: scatter(work, comm, 3, root, true); break;
    case 8: scatter(work, comm, 0, root, true); break;
    case 9: scatter(work, comm, 5, root, false); break;
    case 10: scatter(work, comm, 20, root, true); break;
    case 11: allgather(work, comm, 10, false); break;
    case 12: allgather(work, comm, 10, true); break;
    case 13: allgather(work, comm, 0, true); break;
    case 14: bcast(work, comm, 3, MPI_INT, root); break;
    case 15: bcast(work, comm, 2, strided, root); break;
    case 16: bcast(work, comm, 0, MPI_INT, root); break;
    case 17: barrier(work, comm); break;
    case 18: empty(work, comm, form % 6); break;
    case 19: rejected(work, comm, form % REJECTED); break;
    default: without_context(work);
    }
}

static void *run(void *state) {
    Work *work = state;
    unsigned random = (unsigned)work->salt;
    for (int round = 0; round < work->rounds; round++) {
        // Often repeats the communicator, and often the kind of call.
        MPI_Comm comm = next_number(&random) % 3 ? work->world : work->comms[next_number(&random) % COMMS];
        int kind = (int)(next_number(&random) % KINDS), times = 1 + (int)(next_number(&random) % 3);
        for (int k = 0; k < times; k++) {
            int root = (int)(next_number(&random) % (unsigned)world_size), form = (int)(next_number(&random) % 20);
            one_call(work, comm, kind, root, form);
        }
        if (next_number(&random) % 8 == 0) {
            int at = (int)(next_number(&random) % COMMS);
            MPI_Comm_free(&work->comms[at]);
            MPI_Comm_free(&work->self);
            // Either duplicate may get the handle that the other one had.
            MPI_Comm_dup(work->world, &work->comms[at]);
            MPI_Comm_dup(work->alone, &work->self);
            MPI_Comm_set_errhandler(work->comms[at], MPI_ERRORS_RETURN);
        }
    }
    return NULL;
}

// ---- the job

static void prepare(Work *work, int rounds, int salt) {
    *work = (Work){.rounds = rounds, .salt = salt};
    MPI_Comm half;
    MPI_Comm_dup(MPI_COMM_WORLD, &work->world);
    MPI_Comm_dup(MPI_COMM_SELF, &work->alone);
    MPI_Comm_dup(work->alone, &work->self);
    MPI_Comm_set_errhandler(work->world, MPI_ERRORS_RETURN);
    for (int i = 0; i < COMMS; i++) {
        MPI_Comm_dup(work->world, &work->comms[i]);
        MPI_Comm_set_errhandler(work->comms[i], MPI_ERRORS_RETURN);
    }
    MPI_Comm_split(MPI_COMM_WORLD, world_rank == 0, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, world_rank == 0, 1, &work->inter);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv) {
    bool has_threads = argc > 2 && strcmp(argv[2], "threads") == 0;
    int wanted = has_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, provided, n = has_threads ? 2 : 1;
    is_cyclic = argc > 2 && strcmp(argv[2], "cyclic") == 0;
    MPI_Init_thread(&argc, &argv, wanted, &provided);
    CHECK(provided >= wanted);
    look_around();
    // Open MPI reports some wrong arguments on MPI_COMM_WORLD.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Type_contiguous(4, MPI_INT, &block);
    MPI_Type_vector(1, 2, 3, MPI_INT, &strided);
    MPI_Type_create_resized(strided, 0, 3 * sizeof(int), &strided);
    MPI_Type_commit(&block), MPI_Type_commit(&strided);
    MPI_Op_create(take_left, 0, &left);
    *(void **)&counters = dlsym(RTLD_DEFAULT, "huddle_counters");
    *(void **)&counter_name = dlsym(RTLD_DEFAULT, "huddle_counter_name");
    static Work works[2];
    for (int i = 0; i < n; i++) prepare(&works[i], argument(argc, argv, 100), i + 1);
    unsigned long long *before = NULL;
    if (counters) before = calloc(counters(NULL, 0), sizeof *before), counters(before, counters(NULL, 0));
    pthread_t other;
    if (has_threads) pthread_create(&other, NULL, run, &works[1]);
    run(&works[0]);
    if (has_threads) pthread_join(other, NULL);
    if (counters) check_counters(before, works, n);
    MPI_Finalize();
    say_ok("declined");
    return 0;
}
