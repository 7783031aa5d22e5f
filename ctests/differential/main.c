// differential [--calls N] [--seed S] [--max-bytes B] [--only Allreduce,…] [--contiguous] [--traffic PERCENT]
//              [--oracle] [--bold] [--sabotage N] [--trace STEP]
//
// A step sometimes changes the pool and sometimes starts traffic. It draws a communicator and a burst of calls. It
// makes them all by MPI_X, then all by PMPI_X (so that MPI_X follows MPI_X without a native call between), and
// compares.
#include "differential.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BURST = 12 };
Settings settings = {.seed = 1, .max_bytes = 1 << 20, .enabled = {true, true, true, true, true, true}};
static int64_t wanted_calls = 2000, sabotaged_call = -1, traced_step = -1;
static int traffic_percent = 10, change_percent = 8;

static void usage(const char *wrong) {
    fprintf(stderr, "differential: I do not understand %s\n", wrong);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static void enable_only(const char *names) {
    for (int i = 0; i < COLLECTIVES; i++) {
        const char *found = strstr(names, collective_names[i]);
        bool is_tail = found != NULL && found != names && found[-1] != ',';
        settings.enabled[i] = found != NULL && !is_tail;
    }
    for (int i = 0; i < COLLECTIVES; i++)
        if (settings.enabled[i]) return;
    usage(names);
}

static void parse(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(name, "--contiguous") == 0) settings.contiguous = true;
        else if (strcmp(name, "--oracle") == 0) settings.oracle = true;
        else if (strcmp(name, "--bold") == 0) settings.oracle = settings.bold = true;
        else if (i++, strcmp(name, "--calls") == 0) wanted_calls = atoll(value);
        else if (strcmp(name, "--seed") == 0) settings.seed = strtoull(value, NULL, 0);
        else if (strcmp(name, "--max-bytes") == 0) settings.max_bytes = atoll(value);
        else if (strcmp(name, "--traffic") == 0) traffic_percent = atoi(value);
        else if (strcmp(name, "--sabotage") == 0) sabotaged_call = atoll(value);
        else if (strcmp(name, "--trace") == 0) traced_step = atoll(value);
        else if (strcmp(name, "--only") == 0) enable_only(value);
        else usage(name);
    }
}

// Spoils one byte of a result: the test must find it.
static void sabotage(const Call *call) {
    const Side *side = &call->recv;
    if (side->present && side->bytes > 0) arena[TESTED][side->region + side->bytes / 2] ^= 1;
}

static void make_burst(Call *calls, int n, int64_t before, Random *local, int pending) {
    memory_distribute();
    for (int i = 0; i < n; i++) {
        skew(local);
        if (traced_step >= 0 && settings.step >= traced_step) call_describe(&calls[i], i, "trace", traffic_name(pending));
        call_make(&calls[i], TESTED);
    }
    // In some steps traffic stays pending during the native calls too, in others it is completed first.
    bool early = pending != 0 && settings.step % 2 == 0;
    if (early) traffic_complete(pending);
    for (int i = 0; i < n; i++) {
        if (settings.oracle) oracle(&calls[i]);
        else call_make(&calls[i], NATIVE);
    }
    if (sabotaged_call >= before && sabotaged_call < before + n) sabotage(&calls[sabotaged_call - before]);
    if (!memory_is_equal())
        for (int i = 0; i < n; i++) call_compare(&calls[i], i, traffic_name(pending));
    if (pending != 0 && !early) traffic_complete(pending);
}

static int step(int64_t before) {
    uint64_t number = (uint64_t)settings.step;
    int world;
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    Random shared = random_stream(settings.seed, number, 0, 0), local = random_stream(settings.seed, number, 0, 1 + (uint64_t)world);
    if (random_chance(&shared, change_percent)) pool_change(&shared);
    const Communicator *comm = pool_choose(&shared);
    bool large = random_chance(&shared, 15);
    int n = (int)random_between(&shared, 1, large ? 2 : random_chance(&shared, 50) ? 4 : BURST);
    int64_t limit = large || settings.max_bytes < 65536 ? settings.max_bytes : 65536;
    int pending = random_chance(&shared, traffic_percent) ? traffic_begin(&shared) : 0;

    if (comm->comm == MPI_COMM_NULL) {
        if (pending != 0) traffic_complete(pending);
        return n;
    }
    Call calls[BURST];
    for (int i = 0; i < n; i++) {
        Random agreed = random_stream(settings.seed, number, 1 + (uint64_t)i, 0);
        calls[i] = call_draw(&agreed, &local, comm, limit);
    }
    make_burst(calls, n, before, &local, pending);
    for (int i = 0; i < n; i++) call_release(&calls[i]);
    memory_reset();
    return n;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    parse(argc, argv);
    quirks_look();
    basics_probe();
    memory_start();
    layouts_start();
    user_operations_start();
    if (size == 1) traffic_percent = 0;
    if (traffic_percent > 0) traffic_start(); // makes a window, which Open MPI 4 can't between hosts on TCP
    pool_start(settings.seed);
    int64_t calls = 0;
    for (settings.step = 0; calls < wanted_calls; settings.step++) calls += step(calls);
    pool_end();
    if (traffic_percent > 0) traffic_end();
    user_operations_end();
    MPI_Finalize();
    if (rank == 0) printf("differential: %ld calls, 0 differences\n", (long)calls);
    return 0;
}
