// A job in which perhaps not all ranks have huddle. It makes collectives of all kinds in an order in which a collective
// that only some ranks insert would be noticed. With "threads" it asks for MPI_THREAD_MULTIPLE. With "blocking" no
// nonblocking collective comes first, which an MPI may mistake for the Iallreduce with which huddle waits for all
// ranks. With "build ENGINE" it opens that engine, as a loader that counts no calls would; then huddle must not be
// loaded here.
#include "../../loader/tests/fake/loader.h"
#include "../check.h"
#include <dlfcn.h>

enum { CALLS = 20 };

static uint64_t no_calls(const char *name) {
    (void)name;
    return 0;
}

static const char *no_name(size_t index) {
    (void)index;
    return NULL;
}

// MPI_Init of the engine: all that its ranks agree on there and in MPI_Finalize is its own.
static void init_by(const char *engine, int *argc, char ***argv) {
    static uint32_t notice;
    static struct huddle_traffic no_traffic = {.notice = &notice};
    static struct huddle_loader loader = {HUDDLE_LOADER_ABI, NULL, "", "", no_calls, no_name, &no_traffic};
    loader.mpi = dlopen(NULL, RTLD_LAZY);
    void *opened = dlopen(engine, RTLD_NOW | RTLD_LOCAL);
    CHECK(loader.mpi != NULL && opened != NULL);
    int (*open)(const struct huddle_loader *);
    void *(*entry)(const char *);
    int (*init)(int *, char ***);
    *(void **)&open = dlsym(opened, "huddle_engine_open");
    *(void **)&entry = dlsym(opened, "huddle_engine_entry");
    CHECK(open != NULL && entry != NULL && open(&loader) == 0);
    *(void **)&init = entry("MPI_Init");
    CHECK(init != NULL && init(argc, argv) == MPI_SUCCESS);
}

int main(int argc, char **argv) {
    int provided;
    if (argc > 1 && strcmp(argv[1], "threads") == 0) MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    else if (argc > 2 && strcmp(argv[1], "build") == 0) init_by(argv[2], &argc, &argv);
    else MPI_Init(&argc, &argv);
    look_around();
    int sum, one = 1, data[4];
    MPI_Request request;
    if (argc < 2 || strcmp(argv[1], "blocking") != 0) {
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(sum == world_size);
    }
    for (int call = 0; call < CALLS; call++) {
        int root = call % world_size;
        for (int i = 0; i < 4; i++) data[i] = world_rank == root ? call + i : -1;
        MPI_Bcast(data, 4, MPI_INT, root, MPI_COMM_WORLD);
        for (int i = 0; i < 4; i++) CHECK(data[i] == call + i);
        MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(sum == world_size * (world_size - 1) / 2);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, 0, &half);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, half);
    CHECK(sum == (world_size + (world_rank + 1) % 2) / 2);
    MPI_Comm_free(&half);
    MPI_Finalize();
    say_ok("partial");
    return 0;
}
