// A job in which perhaps not all ranks have huddle: collectives of all kinds in an order in which one that was inserted by
// only some ranks would be noticed. With "threads" as its argument it asks for them; with "blocking" no nonblocking one comes first, which an MPI may take for
// the Ibarrier with which huddle waits for all ranks. With "build" it takes part in huddle's agreement as a build would that
// does and counts other things; then huddle must not be loaded here.
#include "../check.h"

enum { CALLS = 20 };

static void agree(int *values, int n) { MPI_Allreduce(MPI_IN_PLACE, values, n, MPI_INT, MPI_MIN, MPI_COMM_WORLD); }

static int at_finalize(MPI_Comm comm, int keyval, void *value, void *extra) {
    (void)comm, (void)keyval, (void)value, (void)extra;
    int counters[2] = {7, -7};
    agree(counters, 2);
    return MPI_SUCCESS;
}

// As in src/mpi/init.rs and finish.rs.
static void be_another_build(void) {
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    int length = -1, protocol = 1;
    MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
    char *environment = malloc(length);
    MPI_Bcast(environment, length, MPI_BYTE, 0, MPI_COMM_WORLD);
    free(environment);
    int facts[5] = {0x7fffffff, protocol, -protocol, 1, 1};
    agree(facts, 5);
    CHECK(facts[1] != -facts[2]);
    int keyval;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
}

int main(int argc, char **argv) {
    int provided;
    if (argc > 1 && strcmp(argv[1], "threads") == 0) MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    else MPI_Init(&argc, &argv);
    look_around();
    if (argc > 1 && strcmp(argv[1], "build") == 0) be_another_build();
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
