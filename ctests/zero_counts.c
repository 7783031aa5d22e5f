// Calls without data, done properly: count 0 with null buffers, datatypes of size 0 with a count, arguments that are
// not significant on a rank and hold rubbish. A call without data still counts as a call for its peers.
//   zero_counts ROUNDS apart        rank 0 makes calls without data before any other rank does, and does not wait for
//                                   the others; some libraries do
#include "check.h"

static void normal(int salt) {
    int sum = -1, value = world_rank + salt;
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == world_size * (world_size - 1) / 2 + world_size * salt);
}

static void nothing(int root, MPI_Comm comm) {
    CHECK(MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
    CHECK(MPI_Allreduce(MPI_IN_PLACE, NULL, 0, MPI_DOUBLE, MPI_MAX, comm) == MPI_SUCCESS);
    CHECK(MPI_Bcast(NULL, 0, MPI_INT, root, comm) == MPI_SUCCESS);
    CHECK(MPI_Reduce(NULL, NULL, 0, MPI_INT, MPI_SUM, root, comm) == MPI_SUCCESS);
    CHECK(MPI_Allgather(NULL, 0, MPI_INT, NULL, 0, MPI_INT, comm) == MPI_SUCCESS);
    CHECK(MPI_Scatter(NULL, 0, MPI_INT, NULL, 0, MPI_INT, root, comm) == MPI_SUCCESS);
}

static void empty_types(int root) {
    MPI_Datatype empty, holes;
    char byte = 7;
    MPI_Type_contiguous(0, MPI_INT, &empty);
    MPI_Type_create_resized(empty, -4, 4096, &holes);
    MPI_Type_commit(&empty);
    MPI_Type_commit(&holes);
    MPI_Bcast(&byte, 3, world_rank % 2 == 0 ? empty : holes, root, MPI_COMM_WORLD);
    MPI_Allgather(&byte, 2, empty, &byte, 1, holes, MPI_COMM_WORLD);
    MPI_Scatter(&byte, 2, holes, &byte, 5, empty, root, MPI_COMM_WORLD);
    CHECK(byte == 7);
    MPI_Type_free(&empty);
    MPI_Type_free(&holes);
}

// On ranks other than the root neither buffer, count nor datatype of the root's side is looked at.
static void rubbish(int root) {
    int value = -1, *all = NULL;
    bool is_root = world_rank == root;
    if (is_root) {
        all = malloc((size_t)world_size * sizeof(int));
        for (int i = 0; i < world_size; i++) all[i] = 50 + i;
    }
    MPI_Scatter(all, is_root ? 1 : -3, is_root ? MPI_INT : MPI_DATATYPE_NULL, &value, 1, MPI_INT, root, MPI_COMM_WORLD);
    CHECK(value == 50 + world_rank);
    value = world_rank;
    MPI_Reduce(&value, is_root ? all : NULL, 1, MPI_INT, MPI_MAX, root, MPI_COMM_WORLD);
    CHECK(!is_root || all[0] == world_size - 1);
    free(all);
    MPI_Scatter(&value, 1, MPI_INT, MPI_IN_PLACE, -8, MPI_DATATYPE_NULL, 0, MPI_COMM_SELF);
    MPI_Allgather(MPI_IN_PLACE, -8, MPI_DATATYPE_NULL, &value, 1, MPI_INT, MPI_COMM_SELF);
    CHECK(value == world_rank);
}

static void take_first(void *in, void *inout, int *n, MPI_Datatype *datatype) {
    (void)in, (void)inout, (void)n, (void)datatype;
}

// User-defined operations and datatypes, for which libraries have no short way.
static void nothing_of_ones_own(int root) {
    MPI_Op own;
    MPI_Datatype pair;
    MPI_Op_create(take_first, 0, &own);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    for (int again = 0; again < 3; again++) {
        CHECK(MPI_Allreduce(NULL, NULL, 0, MPI_INT, own, MPI_COMM_WORLD) == MPI_SUCCESS);
        CHECK(MPI_Allreduce(NULL, NULL, 0, pair, own, MPI_COMM_WORLD) == MPI_SUCCESS);
        CHECK(MPI_Reduce(NULL, NULL, 0, pair, own, root, MPI_COMM_WORLD) == MPI_SUCCESS);
        CHECK(MPI_Allgather(NULL, 0, pair, NULL, 0, MPI_INT, MPI_COMM_WORLD) == MPI_SUCCESS);
        CHECK(MPI_Scatter(NULL, 0, MPI_INT, NULL, 0, pair, root, MPI_COMM_WORLD) == MPI_SUCCESS);
    }
    MPI_Type_free(&pair);
    MPI_Op_free(&own);
}

static void nothing_apart(int root) {
    char token = 0;
    if (world_rank > 0) MPI_Recv(&token, 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    nothing(root, MPI_COMM_WORLD);
    nothing_of_ones_own(root);
    empty_types(root);
    for (int rank = 1; world_rank == 0 && rank < world_size; rank++) MPI_Send(&token, 1, MPI_CHAR, rank, 0, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int rounds = argument(argc, argv, 10);
    for (int round = 0; round < rounds; round++) {
        int root = round % world_size;
        nothing(root, MPI_COMM_WORLD);
        normal(round);
        nothing(0, MPI_COMM_SELF);
        empty_types(root);
        normal(round + 1);
        rubbish(root);
        normal(round + 2);
        if (argc > 2) nothing_apart(root);
        nothing_of_ones_own(root);
        normal(round + 3);
    }
    MPI_Finalize();
    say_ok("zero_counts");
    return 0;
}
