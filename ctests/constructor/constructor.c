// One thread loads and unloads a plugin whose constructor makes collective calls; during a load the dynamic linker lets
// no other thread load anything. A second thread makes collectives meanwhile. At first all ranks have both threads;
// then the other ranks make the calls of rank 0's two threads in one.
//
//   constructor DIRECTORY   of libplugin.so
#include "../check.h"
#include <dlfcn.h>
#include <pthread.h>

#define LOADS 20

static MPI_Comm in_constructors, elsewhere;
static int loads, begun, is_done;
static char path[4096];

// Takes long enough that the other thread makes calls during the load.
static void during_load(void) {
    __atomic_add_fetch(&begun, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++) {
        sleep_micros(1000);
        int mine = world_rank + loads + i, sum = -1;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, in_constructors);
        CHECK(sum == world_size * (loads + i) + world_size * (world_size - 1) / 2);
    }
    loads++;
}

static void load_plugin(void) {
    int before = loads;
    void *plugin = dlopen(path, RTLD_NOW);
    CHECK(plugin != NULL);
    dlclose(plugin);
    CHECK(loads == before + 1);
}

static void call(int i) {
    int mine = i * world_rank, most = -1;
    MPI_Allreduce(&mine, &most, 1, MPI_INT, MPI_MAX, elsewhere);
    CHECK(most == i * (world_size - 1));
}

static void *call_until_all_are_done(void *unused) {
    (void)unused;
    for (int i = 0, all_are_done = 0; !all_are_done; i++) {
        int mine[2] = {__atomic_load_n(&is_done, __ATOMIC_RELAXED), i}, least[2];
        MPI_Allreduce(mine, least, 2, MPI_INT, MPI_MIN, elsewhere);
        CHECK(least[1] == i);
        all_are_done = least[0];
    }
    return NULL;
}

// These calls need memory of the thread's own: for counters, for declined calls, and for datatypes that are made alike.
static void call_with_datatypes(int i) {
    int none = 0, data[3] = {i, -1, i + 2}, own[3] = {0, -1, 0};
    MPI_Datatype apart;
    call(i);
    MPI_Bcast(&none, 0, MPI_INT, 0, elsewhere);
    MPI_Type_vector(2, 1, 2, MPI_INT, &apart);
    MPI_Type_commit(&apart);
    MPI_Bcast(world_rank == 0 ? data : own, 1, apart, 0, elsewhere);
    MPI_Type_free(&apart);
    if (world_rank != 0) CHECK(own[0] == i && own[1] == -1 && own[2] == i + 2);
}

// A new thread, so its first calls are made during a load too.
static void *call_in_each_load(void *before) {
    for (int i = 0; i < LOADS; i++) {
        while (__atomic_load_n(&begun, __ATOMIC_RELAXED) <= *(int *)before + i) sleep_micros(100);
        call_with_datatypes(i);
    }
    return NULL;
}

static void beside_calls(void) {
    pthread_t other;
    CHECK(pthread_create(&other, NULL, call_until_all_are_done, NULL) == 0);
    for (int i = 0; i < LOADS; i++) load_plugin();
    __atomic_store_n(&is_done, 1, __ATOMIC_RELAXED);
    pthread_join(other, NULL);
}

// Rank 0 is in a constructor while the other ranks still need a call of rank 0's second thread.
static void that_need_each_other(void) {
    if (world_rank == 0) {
        pthread_t other;
        int before = begun;
        CHECK(pthread_create(&other, NULL, call_in_each_load, &before) == 0);
        for (int i = 0; i < LOADS; i++) load_plugin();
        pthread_join(other, NULL);
    } else {
        for (int i = 0; i < LOADS; i++) {
            call_with_datatypes(i);
            load_plugin();
        }
    }
}

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    look_around();
    if (provided < MPI_THREAD_MULTIPLE) {
        if (world_rank == 0) printf("constructor: skipped, no MPI_THREAD_MULTIPLE\n");
        MPI_Finalize();
        return 0;
    }
    CHECK(argc == 2);
    char body[32];
    snprintf(path, sizeof path, "%s/libplugin.so", argv[1]);
    snprintf(body, sizeof body, "%p", (void *)during_load);
    setenv("DURING_LOAD", body, 1);
    MPI_Comm_dup(MPI_COMM_WORLD, &in_constructors);
    MPI_Comm_dup(MPI_COMM_WORLD, &elsewhere);

    beside_calls();
    that_need_each_other();
    say_ok("constructor");
    MPI_Comm_free(&in_constructors);
    MPI_Comm_free(&elsewhere);
    MPI_Finalize();
    return 0;
}
