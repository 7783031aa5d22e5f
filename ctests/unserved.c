// Collectives that huddle does not serve, between others that it does: they work, and the report counts them.
#include "check.h"

static int *in, *out, *counts, *places;

static void served(int salt) {
    int sum = -1, value = world_rank + salt;
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == world_size * (world_size - 1) / 2 + world_size * salt);
}

static void gathers(int root) {
    for (int i = 0; i < world_size; i++) counts[i] = 1, places[i] = i, out[i] = -1;
    MPI_Gather(&world_rank, 1, MPI_INT, out, 1, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < world_size && world_rank == root; i++) CHECK(out[i] == i);
    MPI_Gatherv(&world_rank, 1, MPI_INT, out, counts, places, MPI_INT, root, MPI_COMM_WORLD);
    served(1);
    MPI_Allgatherv(&world_rank, 1, MPI_INT, out, counts, places, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < world_size; i++) CHECK(out[i] == i);
    int got = -1;
    MPI_Scatterv(out, counts, places, MPI_INT, &got, 1, MPI_INT, root, MPI_COMM_WORLD);
    CHECK(got == world_rank);
}

static void exchanges(void) {
    for (int i = 0; i < world_size; i++) in[i] = world_rank * 100 + i, counts[i] = 1, places[i] = i;
    MPI_Alltoall(in, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < world_size; i++) CHECK(out[i] == i * 100 + world_rank);
    served(2);
    MPI_Alltoallv(in, counts, places, MPI_INT, out, counts, places, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < world_size; i++) CHECK(out[i] == i * 100 + world_rank);
}

static void reductions(void) {
    int got = -1, sum = world_size * (world_size - 1) / 2;
    for (int i = 0; i < world_size; i++) in[i] = world_rank, counts[i] = 1;
    MPI_Reduce_scatter_block(in, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(got == sum);
    MPI_Reduce_scatter(in, &got, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(got == sum);
    MPI_Scan(&world_rank, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(got == world_rank * (world_rank + 1) / 2);
    served(3);
    MPI_Exscan(&world_rank, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(world_rank == 0 || got == world_rank * (world_rank - 1) / 2);
}

static void nonblocking(int root) {
    MPI_Request requests[3];
    int value = world_rank == root ? 9 : -1, sum = -1;
    MPI_Iallreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    MPI_Ibcast(&value, 1, MPI_INT, root, MPI_COMM_WORLD, &requests[1]);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[2]);
    served(4);  // blocking calls between the start and the end of nonblocking ones
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    CHECK(value == 9 && sum == world_size * (world_size - 1) / 2);
}

static void persistent(void) {
#if MPI_VERSION >= 4
    MPI_Request request;
    int sum = -1;
    MPI_Allreduce_init(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int i = 0; i < 3; i++) {
        sum = -1;
        MPI_Start(&request);
        served(i);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(sum == world_size * (world_size - 1) / 2);
    }
    MPI_Request_free(&request);
#endif
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    size_t bytes = (size_t)world_size * sizeof(int);
    in = malloc(bytes), out = malloc(bytes), counts = malloc(bytes), places = malloc(bytes);
    int rounds = argument(argc, argv, 5);
    for (int round = 0; round < rounds; round++) {
        gathers(round % world_size);
        exchanges();
        reductions();
        nonblocking(round % world_size);
    }
    persistent();
    free(in), free(out), free(counts), free(places);
    MPI_Finalize();
    say_ok("unserved");
    return 0;
}
