#define _GNU_SOURCE
#include "measure.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum { MOST_ROUNDS = 101, MOST_RANKS = 512, LINE = 128, FIRST_CALLS = 8 };
int rank, size;
bool crowded;
static int rounds = 15;
static double block_nanoseconds = 2e6;

// ---- time

double monotonic(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

#if defined(__x86_64__)
// A clock around calls of some hundred nanoseconds must not take tens itself.
static double nanoseconds_per_tick;

// The cores of a node count the same ticks. If each rank found the length of a tick itself, their clocks would be
// seconds apart after a day.
static void start_clock(void) {
    double begin = monotonic();
    unsigned long long first = __rdtsc();
    while (monotonic() - begin < 2e7) {}
    nanoseconds_per_tick = (monotonic() - begin) / (double)(__rdtsc() - first);
    PMPI_Bcast(&nanoseconds_per_tick, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

double now(void) { return (double)__rdtsc() * nanoseconds_per_tick; }
#else
static void start_clock(void) {}
double now(void) { return monotonic(); }
#endif

void relax(void) {
    if (crowded) sched_yield();
#if defined(__x86_64__)
    else _mm_pause();
#endif
}

// ---- arguments and errors

void fail(const char *what) {
    fprintf(stderr, "bench[%d]: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

const char *option(int argc, char **argv, const char *name, const char *otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], name)) return argv[i + 1];
    return otherwise;
}

bool is_listed(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (!strncmp(at, name, length) && (at[length] == ',' || at[length] == '\0')) return true;
    }
    return list == NULL;
}

// ---- shared memory

void *shared_memory(size_t bytes) {
    int where[2] = {getpid(), -1};
    if (rank == 0) {
        where[1] = memfd_create("bench", 0);
        if (where[1] < 0 || ftruncate(where[1], (off_t)bytes) != 0) fail("no shared memory");
    }
    PMPI_Bcast(where, 2, MPI_INT, 0, MPI_COMM_WORLD);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", where[0], where[1]);
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *memory = file < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    if (memory == MAP_FAILED) fail("cannot map the shared memory");
    PMPI_Barrier(MPI_COMM_WORLD);
    close(file);
    if (rank == 0) close(where[1]);
    return memory;
}

typedef struct {
    _Alignas(LINE) _Atomic uint64_t count;
} Flag;
static Flag *lines;
static uint64_t exchanged;

static double exchange_block(const void *state, int calls) {
    (void)state;
    double start = now();
    for (int k = 0; k < calls; k++) {
        atomic_store_explicit(&lines[rank].count, ++exchanged, memory_order_release);
        for (int peer = 0; peer < size; peer++)
            while (atomic_load_explicit(&lines[peer].count, memory_order_acquire) < exchanged) relax();
    }
    return now() - start;
}

// ---- rounds

static double most_of_all(double mine) {
    double most;
    PMPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

// Runs a block. Returns its nanoseconds on this rank; `began` is when it began here, by a clock that all ranks share.
static double run(const Subject *subject, int calls, double *began) {
    PMPI_Barrier(MPI_COMM_WORLD);
    *began = monotonic();
    return subject->block(subject->state, calls);
}

static double per_call(const Subject *subject, int calls) {
    double began, took = run(subject, calls, &began);
    double first = -most_of_all(-began);
    return most_of_all(subject->is_of_all ? took : took + began - first) / calls;
}

// Finds how many calls, as many of each root, take about the time of a block. Blocks get longer until one lasts, since
// the first calls take longer than those that count: with the very first ones huddle builds what it holds for the
// communicator, and memory is new for thousands. How late each rank began doesn't count here, or few calls would seem
// to take long. Nor does a block in which a rank lost its core: the shortest of three counts. Otherwise blocks of some
// short calls might have ten of them, and show what it takes to begin.
static int calls_of(const Subject *subject) {
    double began, took;
    int calls = FIRST_CALLS;
    run(subject, calls, &began);
    for (;;) {
        took = most_of_all(run(subject, calls, &began));
        for (int more = 0; more < 2; more++) {
            double again = most_of_all(run(subject, calls, &began));
            if (again < took) took = again;
        }
        double wanted = block_nanoseconds / (took / calls + 1);
        int next = ((wanted > MOST_CALLS ? MOST_CALLS : (int)wanted) / size + 1) * size;
        if (took >= block_nanoseconds / 2 || next <= calls) return next;
        calls = next;
    }
}

static void print(const char *members, const Subject *subjects, int n, double times[][MOST_ROUNDS]) {
    if (rank != 0) return;
    printf("{%s, \"ns\": {", members);
    for (int i = 0; i < n; i++) {
        printf("%s\"%s\": [", i ? ", " : "", subjects[i].name);
        for (int r = 0; r < rounds; r++) printf("%s%.1f", r ? ", " : "", times[i][r]);
        printf("]");
    }
    printf("}}\n");
    fflush(stdout);
}

// Draws the next round's order of n subjects, the same on all ranks. A subject finds what the one before it leaves
// behind. So each comes as often after each other one, and none after itself.
static void shuffle(int *order, int n) {
    static unsigned state = 1;
    int last = order[n - 1];
    do {
        for (int k = n - 1; k > 0; k--) {
            state = state * 1664525 + 1013904223;
            int other = (int)((state >> 16) % (unsigned)(k + 1)), kept = order[k];
            order[k] = order[other], order[other] = kept;
        }
    } while (n > 1 && order[0] == last);
}

void measure(const char *members, const Subject *subjects, int n) {
    static double times[MOST_SUBJECTS + 1][MOST_ROUNDS];
    Subject all[MOST_SUBJECTS + 1];
    int calls[MOST_SUBJECTS + 1], order[MOST_SUBJECTS + 1];
    memcpy(all, subjects, (size_t)n * sizeof *subjects);
    all[n] = (Subject){"bare", exchange_block, NULL, false};
    for (int i = 0; i <= n; i++) calls[i] = calls_of(&all[i]), order[i] = i;
    if (calls[n] > 2000) calls[n] = 2000;
    for (int r = 0; r < rounds; r++) {
        shuffle(order, n + 1);
        for (int k = 0; k <= n; k++) times[order[k]][r] = per_call(&all[order[k]], calls[order[k]]);
    }
    print(members, all, n + 1, times);
}

int measure_start(int argc, char **argv) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    crowded = size > sysconf(_SC_NPROCESSORS_ONLN); // one rank's affinity may be one core: launchers bind
    if (size > MOST_RANKS) fail("too many ranks");
    start_clock();
    lines = shared_memory(MOST_RANKS * sizeof *lines);
    int kept = 1;
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && !strcmp(argv[i], "--rounds")) rounds = atoi(argv[++i]);
        else if (i + 1 < argc && !strcmp(argv[i], "--block")) block_nanoseconds = 1e6 * atof(argv[++i]);
        else argv[kept++] = argv[i];
    }
    if (rounds < 1 || rounds > MOST_ROUNDS) fail("--rounds takes 1 to 101");
    return kept;
}
