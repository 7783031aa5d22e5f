// What belongs to the program stays as it was: names, attributes, error handlers, topologies, TAG_UB. On COMM_WORLD a
// receive by MPI_ANY_SOURCE and MPI_ANY_TAG never sees a message that is not the program's (huddle makes its own MPI
// objects).
#include "check.h"

static void collectives(MPI_Comm comm, int salt) {
    int rank, size, value, sum = -1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    value = rank + salt;
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == size * (size - 1) / 2 + size * salt);
    MPI_Bcast(&value, 1, MPI_INT, salt % size, comm);
    CHECK(value == salt % size + salt);
    MPI_Barrier(comm);
}

static void check_name(MPI_Comm comm, const char *expected) {
    char name[MPI_MAX_OBJECT_NAME];
    int length;
    MPI_Comm_get_name(comm, name, &length);
    CHECK(strcmp(name, expected) == 0);
}

static void names_and_attributes(int rounds) {
    MPI_Comm comm;
    int key, found, value = 5, *got, *tag_bound, before;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_bound, &found);
    CHECK(found);
    before = *tag_bound;
    check_name(MPI_COMM_WORLD, "MPI_COMM_WORLD");
    check_name(MPI_COMM_SELF, "MPI_COMM_SELF");
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_name(comm, "mine");
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(comm, key, &value);
    for (int i = 0; i < rounds; i++) {
        collectives(comm, i);
        collectives(MPI_COMM_WORLD, i);
    }
    check_name(comm, "mine");
    check_name(MPI_COMM_WORLD, "MPI_COMM_WORLD");
    MPI_Comm_get_attr(comm, key, &got, &found);
    CHECK(found && got == &value);
    MPI_Comm_get_attr(MPI_COMM_WORLD, key, &got, &found);
    CHECK(!found);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_bound, &found);
    CHECK(found && *tag_bound == before);
    int relation;
    MPI_Comm_compare(comm, MPI_COMM_WORLD, &relation);
    CHECK(relation == MPI_CONGRUENT);
    MPI_Comm_free(&comm);
    MPI_Comm_free_keyval(&key);
}

static void handlers(int rounds) {
    MPI_Errhandler handler;
    MPI_Comm dup;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
    CHECK(handler == MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < rounds; i++) collectives(MPI_COMM_WORLD, i);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    collectives(dup, 3);
    MPI_Comm_get_errhandler(dup, &handler);
    CHECK(handler == MPI_ERRORS_RETURN);
    MPI_Comm_free(&dup);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void topology(int rounds) {
    MPI_Comm cart;
    int size = world_size, periods = 1, status, dims, coords, left, right;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periods, 0, &cart);
    for (int i = 0; i < rounds; i++) collectives(cart, i);
    MPI_Topo_test(cart, &status);
    CHECK(status == MPI_CART);
    MPI_Cart_get(cart, 1, &dims, &periods, &coords);
    CHECK(dims == world_size && periods == 1 && coords == world_rank);
    MPI_Cart_shift(cart, 0, 1, &left, &right);
    CHECK(right == (world_rank + 1) % world_size);
    MPI_Comm_free(&cart);
}

// Receives from any source with any tag get exactly the messages that were sent.
static void messages(int rounds) {
    int flag = -1, got, tag = 0, sum = 0;
    for (int i = 0; i < rounds; i++) {
        collectives(MPI_COMM_WORLD, i);
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        CHECK(!flag);
        collectives(MPI_COMM_WORLD, i);
        MPI_Request request;
        MPI_Isend(&world_rank, 1, MPI_INT, (world_rank + 1) % world_size, i, MPI_COMM_WORLD, &request);
        collectives(MPI_COMM_WORLD, i);
        MPI_Status from;
        MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &from);
        CHECK(got == (world_rank + world_size - 1) % world_size && from.MPI_SOURCE == got && from.MPI_TAG == i);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        tag += from.MPI_TAG, sum += got;
        MPI_Barrier(MPI_COMM_WORLD);  // the next Iprobe must not see a message of the next round
    }
    CHECK(tag == rounds * (rounds - 1) / 2);
    (void)sum;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int rounds = argument(argc, argv, 50);
    names_and_attributes(rounds);
    handlers(rounds);
    topology(rounds);
    messages(rounds);
    MPI_Finalize();
    say_ok("untouched");
    return 0;
}
