// What huddle costs besides the time of the six collectives themselves.
//
//   limits overhead          8-byte Allreduce and Barrier, entry to exit, beside the bare exchange of two lines
//   limits loops             the grid beside hand-written loops (loops.c); 2 ranks
//   limits kernel            64 KiB to 4 MiB beside single copies by the kernel (kernel.c); 2 ranks
//   limits declined          calls that huddle leaves to the native library, and empty ones, beside the same call by PMPI; run it with
//                            HUDDLE_ALLREDUCE='<=1K:native' HUDDLE_BARRIER=native
//   limits threads           like declined, with MPI_THREAD_MULTIPLE
//   limits init              MPI_Init, and the time until the first calls have ended; run it bare and preloaded
//   limits communicators     the first calls on a further communicator, new or in place of a freed one, and longer ones on a new one
//   limits memory            shared memory of huddle's, after use of all collectives, then with further communicators
//
// It takes the options of measure.h too.
#include "calls.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    FURTHER = 8, // communicators: as many as huddle keeps of freed ones (MOST in src/mpi/pool.rs)
    BATCH = 256, // new communicators at a time, freed when the clock has stopped
};

// ---- overhead

// Nothing happens between the calls: the time is from entry to exit.
static double bare_block(const void *state, int calls) {
    const Work *work = state;
    double number = rank, sum, start = now();
    if (work->collective == BARRIER)
        for (int k = 0; k < calls; k++) (work->by == NATIVE ? PMPI_Barrier : MPI_Barrier)(work->comm);
    else
        for (int k = 0; k < calls; k++) (work->by == NATIVE ? PMPI_Allreduce : MPI_Allreduce)(&number, &sum, work->n, MPI_DOUBLE, MPI_SUM, work->comm);
    return now() - start;
}

static void compare_bare(const char *what, Collective collective, int n, MPI_Comm comm) {
    Work works[2] = {{collective, HUDDLE, n, -1, comm}, {collective, NATIVE, n, -1, comm}};
    Subject subjects[2] = {{"huddle", bare_block, &works[0], false}, {"native", bare_block, &works[1], false}};
    char members[128];
    snprintf(members, sizeof members, "\"what\": \"%s\", \"collective\": \"%s\"", what, collective_names[collective]);
    measure(members, subjects, 2);
}

static void overhead(void) {
    compare_bare("overhead", ALLREDUCE, 1, MPI_COMM_WORLD);
    compare_bare("overhead", BARRIER, 0, MPI_COMM_WORLD);
}

// ---- declined

enum { MOST_COMMS = 8, NUMBERS = 64 };

typedef int Allreduce(const void *in, void *out, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm);

// Shows what any function takes that stands between a program and its library: it counts, and calls on. Where the
// library exchanges messages, its time changes by more than that: a rank that is at another place when its peer looks
// waits longer.
static int forward(const void *in, void *out, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
    static volatile unsigned long calls, returns;
    calls++;
    int result = PMPI_Allreduce(in, out, count, datatype, op, comm);
    returns++;
    return result;
}

// Declined calls: on these communicators in turn, with these counts and operations in turn.
typedef struct {
    MPI_Datatype datatype;
    MPI_Op ops[2];
    int counts[2];
    MPI_Comm comms[MOST_COMMS];
    int n; // communicators
    Allreduce *allreduce;
} Declined;

static double declined_block(const void *state, int calls) {
    const Declined *declined = state;
    double in[NUMBERS] = {0}, out[NUMBERS], start = now();
    for (int k = 0; k < calls; k++)
        declined->allreduce(in, out, declined->counts[k & 1], declined->datatype, declined->ops[k & 1], declined->comms[k % declined->n]);
    return now() - start;
}

static void compare_declined(const char *what, Declined declined) {
    static Allreduce *const ways[3] = {MPI_Allreduce, PMPI_Allreduce, forward};
    static const char *const names[3] = {"huddle", "native", "forwarding"};
    Declined each[3];
    Subject subjects[3];
    for (int way = 0; way < 3; way++) {
        each[way] = declined, each[way].allreduce = ways[way];
        subjects[way] = (Subject){names[way], declined_block, &each[way], false};
    }
    char members[128];
    snprintf(members, sizeof members, "\"what\": \"declined: %s\", \"collective\": \"Allreduce\"", what);
    measure(members, subjects, 3);
}

static void first(void *in, void *inout, int *n, MPI_Datatype *datatype) {
    (void)datatype;
    memcpy(inout, in, (size_t)*n * sizeof(double));
}

static void declined(void) {
    MPI_Comm world = MPI_COMM_WORLD;
    Declined alone = {MPI_DOUBLE, {MPI_SUM, MPI_SUM}, {1, 1}, {MPI_COMM_SELF}, 1};
    for (int i = 1; i < MOST_COMMS; i++) MPI_Comm_dup(MPI_COMM_SELF, &alone.comms[i]);
    MPI_Op user;
    MPI_Op_create(first, 0, &user);
    MPI_Datatype derived;
    MPI_Type_contiguous(1, MPI_DOUBLE, &derived);
    MPI_Type_commit(&derived);
    compare_bare("declined: for all sizes", BARRIER, 0, world);
    compare_declined("by size", (Declined){MPI_DOUBLE, {MPI_SUM, MPI_SUM}, {1, 1}, {world}, 1});
    compare_declined("by size, two sizes", (Declined){MPI_DOUBLE, {MPI_SUM, MPI_SUM}, {1, 2}, {world}, 1});
    compare_declined("by size, two operations", (Declined){MPI_DOUBLE, {MPI_SUM, MPI_MAX}, {1, 1}, {world}, 1});
    compare_declined("no elements", (Declined){MPI_DOUBLE, {MPI_SUM, MPI_SUM}, {0, 0}, {world}, 1});
    compare_declined("no elements, user's operation", (Declined){MPI_DOUBLE, {user, user}, {0, 0}, {world}, 1});
    compare_declined("no elements, derived datatype", (Declined){derived, {user, user}, {0, 0}, {world}, 1});
    compare_declined("one rank", alone);
    compare_bare("declined: one rank", BARRIER, 0, MPI_COMM_SELF);
    alone.n = 4;
    compare_declined("one rank, 4 communicators in turn", alone);
    alone.n = MOST_COMMS;
    compare_declined("one rank, 8 communicators in turn", alone);
}

// ---- loops

// Nanoseconds per call on the slower rank.
static double slower(const Work *work, int calls) {
    double mine = work_block(work, calls) / calls, most;
    PMPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

// The way in which the loop is fastest.
static LoopWay best_way(const Work *work) {
    int bytes = work->n * 8, calls = bytes <= 4096 ? 256 : bytes <= 64 << 10 ? 64 : 8;
    LoopWay best = {64 << 10, 4 << 20, false};
    double least = 0;
    if (bytes <= SHORT_BYTES) return best;
    for (int chunk = 1 << 10; chunk <= 256 << 10; chunk *= 4)
        for (int ring = 16 << 10; ring <= 4 << 20; ring *= 4)
            for (int whole = 0; whole <= (work->collective == ALLREDUCE); whole++) {
                // A rank has up to three chunks of an Allreduce under way. For long messages few lengths of chunks are
                // tried, since each takes long.
                if (chunk * 4 > ring || chunk < bytes / 256 || (chunk > 16 * bytes && chunk > 1 << 10)) continue;
                LoopWay way = {chunk, ring, whole};
                loop_way(way);
                slower(work, calls);
                for (int sample = 0; sample < 3; sample++) {
                    double took = slower(work, calls);
                    if (least == 0 || took < least) least = took, best = way;
                }
            }
    return best;
}

static void loops(void) {
    static const int sizes[] = {8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20};
    loops_start();
    calls_start(4 << 20 >> 3, 0);
    for (int which = 0; which < COLLECTIVES; which++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes && (which != BARRIER || i == 0); i++) {
            int bytes = which == BARRIER ? 0 : sizes[i];
            Work works[3];
            const char *names[3] = {"huddle", "native", "loop"};
            Subject subjects[3];
            for (int by = 0; by < 3; by++) {
                works[by] = (Work){which, by, bytes >> 3, -1, MPI_COMM_WORLD};
                subjects[by] = (Subject){names[by], work_block, &works[by], false};
            }
            LoopWay way = best_way(&works[LOOP]);
            loop_way(way);
            for (int by = 0; by < 3; by++)
                for (int k = 0; k < WARM_UP; k++) work_check(&works[by]);
            char members[192];
            const char *format = "\"what\": \"loop\", \"collective\": \"%s\", \"bytes\": %d, \"chunk\": %d, \"ring\": %d, \"whole\": %d";
            snprintf(members, sizeof members, format, collective_names[which], bytes, way.chunk, way.ring, way.whole);
            measure(members, subjects, 3);
        }
}

// ---- kernel

static void kernels(void) {
    static const Collective moving[] = {BCAST, ALLGATHER, SCATTER};
    static const By by[] = {HUDDLE, NATIVE, KERNEL};
    static const char *const names[] = {"huddle", "native", "kernel"};
    if (!kernel_start()) {
        if (rank == 0) fprintf(stderr, "limits: the kernel lets no rank read another's memory\n");
        return;
    }
    calls_start(4 << 20 >> 3, 0);
    for (int i = 0; i < 3; i++)
        for (int bytes = 64 << 10; bytes <= 4 << 20; bytes *= 4) {
            Work works[3];
            Subject subjects[3];
            for (int s = 0; s < 3; s++) {
                works[s] = (Work){moving[i], by[s], bytes >> 3, -1, MPI_COMM_WORLD};
                subjects[s] = (Subject){names[s], work_block, &works[s], false};
                for (int k = 0; k < WARM_UP; k++) work_check(&works[s]);
            }
            char members[128];
            snprintf(members, sizeof members, "\"what\": \"kernel\", \"collective\": \"%s\", \"bytes\": %d", collective_names[moving[i]], bytes);
            measure(members, subjects, 3);
        }
}

// ---- communicators

enum { MOST_NUMBERS = 1 << 15 };

// What the first calls on a communicator are, and who makes them.
typedef struct {
    int n; // numbers
    bool native;
} First;

static void first_calls(MPI_Comm comm, const First *first) {
    static double numbers[MOST_NUMBERS], sums[MOST_NUMBERS];
    for (int k = 0; k < WARM_UP; k++) (first->native ? PMPI_Allreduce : MPI_Allreduce)(numbers, sums, first->n, MPI_DOUBLE, MPI_SUM, comm);
}

static double recycled_block(const void *first, int calls) {
    double sum = 0;
    for (int k = 0; k < calls; k++) {
        MPI_Comm comm;
        double start = now();
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        first_calls(comm, first);
        MPI_Comm_free(&comm);
        sum += now() - start;
    }
    return sum;
}

static void add_communicators(MPI_Comm *comms, int n, const First *first) {
    for (int k = 0; k < n; k++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[k]);
        first_calls(comms[k], first);
    }
}

// Communicators that are really new: what huddle keeps of the last freed ones is already in use.
static double new_block(const void *first, int calls) {
    MPI_Comm comms[BATCH], others[FURTHER];
    double sum = 0;
    add_communicators(others, FURTHER, first);
    for (int done = 0; done < calls; done += BATCH) {
        int n = calls - done < BATCH ? calls - done : BATCH;
        double start = now();
        add_communicators(comms, n, first);
        sum += now() - start;
        for (int k = 0; k < n; k++) MPI_Comm_free(&comms[k]);
    }
    for (int k = 0; k < FURTHER; k++) MPI_Comm_free(&others[k]);
    return sum;
}

static void communicators(void) {
    static const First one[2] = {{1, false}, {1, true}};
    Subject recycled[2] = {{"huddle", recycled_block, &one[0], false}, {"native", recycled_block, &one[1], false}};
    measure("\"what\": \"communicator, recycled\"", recycled, 2);
    Subject fresh[2] = {{"huddle", new_block, &one[0], false}, {"native", new_block, &one[1], false}};
    measure("\"what\": \"communicator, new\"", fresh, 2);
    for (int kib = 4; kib <= 256; kib *= 64) {
        First many[2] = {{kib << 10 >> 3, false}, {kib << 10 >> 3, true}};
        Subject longer[2] = {{"huddle", new_block, &many[0], false}, {"native", new_block, &many[1], false}};
        char members[64];
        snprintf(members, sizeof members, "\"what\": \"first calls, %d KiB\"", kib);
        measure(members, longer, 2);
    }
}

// ---- memory

enum { PAGE = 4096, MOST_PAGES = 1 << 16 };

// Bytes of a mapping that are in memory, whoever has touched them.
static long present(unsigned long begin, unsigned long end) {
    static unsigned char pages[MOST_PAGES];
    long n = 0;
    unsigned long count = (end - begin) / PAGE;
    if (count > MOST_PAGES || mincore((void *)(uintptr_t)begin, end - begin, pages) != 0) fail("mincore");
    for (unsigned long i = 0; i < count; i++) n += pages[i] & 1;
    return n * PAGE;
}

// Bytes that are reserved of the distinct huddle segments that this process maps, and bytes that it has touched.
static void look(long *reserved, long *touched) {
    unsigned long seen[1024], inode = 0;
    int n = 0;
    bool counts = false;
    char line[PATH_MAX + 128], name[PATH_MAX];
    unsigned long begin, end;
    long kib;
    FILE *maps = fopen("/proc/self/smaps", "r");
    if (!maps) fail("no /proc/self/smaps");
    *reserved = *touched = 0;
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %*s %*s %*s %lu %4095[^\n]", &begin, &end, &inode, name) == 4) {
            counts = strstr(name, "memfd:huddle") != NULL;
            for (int i = 0; i < n && counts; i++) counts = seen[i] != inode;
            if (counts && n < 1024) seen[n++] = inode, *reserved += present(begin, end);
        } else if (sscanf(line, "%lx-%lx", &begin, &end) == 2) {
            counts = false;
        } else if (counts && sscanf(line, "Rss: %ld", &kib) == 1) {
            *touched += kib * 1024;
        }
    }
    fclose(maps);
}

static void print_memory(int comms) {
    long reserved, touched;
    look(&reserved, &touched);
    if (rank == 0) printf("{\"what\": \"memory\", \"communicators\": %d, \"reserved\": %ld, \"touched\": %ld}\n", comms, reserved, touched);
}

static void memory(void) {
    calls_start(4 << 20 >> 3, 0);
    print_memory(0);
    for (int which = 0; which < COLLECTIVES; which++)
        for (int k = 0; k < WARM_UP; k++) work_check(&(Work){which, HUDDLE, which == BARRIER ? 0 : 4 << 20 >> 3, -1, MPI_COMM_WORLD});
    print_memory(1);
    MPI_Comm comms[FURTHER];
    add_communicators(comms, FURTHER, &(First){1, false});
    print_memory(1 + FURTHER);
    for (int i = 0; i < FURTHER; i++) MPI_Comm_free(&comms[i]);
    print_memory(1);
}

// ---- init

// Prints the times since `begin`, before MPI_Init: until MPI_Init had ended, and until the first calls on
// MPI_COMM_WORLD had, in which huddle builds what it holds for that communicator.
static void init(double begin) {
    double took[2] = {monotonic() - begin}, slowest[2];
    for (int k = 0; k < WARM_UP; k++) MPI_Barrier(MPI_COMM_WORLD);
    took[1] = monotonic() - begin;
    PMPI_Allreduce(took, slowest, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    const char *names[2] = {"MPI_Init", "MPI_Init and four Barriers"};
    for (int k = 0; k < 2 && rank == 0; k++) printf("{\"what\": \"%s\", \"ns\": %.0f}\n", names[k], slowest[k]);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    int wanted = !strcmp(what, "threads") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, provided;
    double begin = monotonic();
    MPI_Init_thread(&argc, &argv, wanted, &provided);
    if (!strcmp(what, "init")) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        init(begin);
        MPI_Finalize();
        return 0;
    }
    measure_start(argc, argv);
    if (!strcmp(what, "overhead")) overhead();
    else if (!strcmp(what, "loops")) loops();
    else if (!strcmp(what, "kernel")) kernels();
    else if (!strcmp(what, "declined") || !strcmp(what, "threads")) declined();
    else if (!strcmp(what, "communicators")) communicators();
    else if (!strcmp(what, "memory")) memory();
    else fail("limits overhead|loops|kernel|declined|threads|init|communicators|memory");
    MPI_Finalize();
    return 0;
}
