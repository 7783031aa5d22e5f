// One thread loads and unloads a plugin whose constructor makes collective calls; the dynamic linker lets no other thread load anything
// meanwhile. Another thread goes on with collectives of its own.
//
//   constructor DIRECTORY   of libplugin.so
#include "../check.h"
#include <dlfcn.h>
#include <pthread.h>

#define LOADS 30

static MPI_Comm in_constructors, elsewhere;
static int loads, is_done;

// Lasts, so that calls of the other thread take place meanwhile.
static void during_load(void) {
    for (int i = 0; i < 3; i++) {
        sleep_micros(1000);
        int mine = world_rank + loads + i, sum = -1;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, in_constructors);
        CHECK(sum == world_size * (loads + i) + world_size * (world_size - 1) / 2);
    }
    loads++;
}

static void *call(void *unused) {
    (void)unused;
    for (int i = 0, all_are_done = 0; !all_are_done; i++) {
        int mine[2] = {__atomic_load_n(&is_done, __ATOMIC_RELAXED), i}, least[2];
        MPI_Allreduce(mine, least, 2, MPI_INT, MPI_MIN, elsewhere);
        CHECK(least[1] == i);
        all_are_done = least[0];
    }
    return NULL;
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
    char path[4096], body[32];
    snprintf(path, sizeof path, "%s/libplugin.so", argv[1]);
    snprintf(body, sizeof body, "%p", (void *)during_load);
    setenv("DURING_LOAD", body, 1);
    MPI_Comm_dup(MPI_COMM_WORLD, &in_constructors);
    MPI_Comm_dup(MPI_COMM_WORLD, &elsewhere);

    pthread_t other;
    CHECK(pthread_create(&other, NULL, call, NULL) == 0);
    for (int i = 0; i < LOADS; i++) {
        void *plugin = dlopen(path, RTLD_NOW);
        CHECK(plugin != NULL);
        dlclose(plugin);
        CHECK(loads == i + 1);
    }
    __atomic_store_n(&is_done, 1, __ATOMIC_RELAXED);
    pthread_join(other, NULL);
    say_ok("constructor");
    MPI_Comm_free(&in_constructors);
    MPI_Comm_free(&elsewhere);
    MPI_Finalize();
    return 0;
}
