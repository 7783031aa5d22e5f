// Arguments that MPI rejects, on all ranks: MPI_X gives the class that PMPI_X gives, the error handler of the
// communicator runs once, with that communicator, and the calls afterwards are right (DESIGN §4). Run it with
// HUDDLE_PMPI=0.
#include "check.h"

typedef struct {
    int (*allreduce)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
    int (*bcast)(void *, int, MPI_Datatype, int, MPI_Comm);
    int (*reduce)(const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm);
    int (*allgather)(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);
    int (*scatter)(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm);
    int (*barrier)(MPI_Comm);
} Functions;
static const Functions tested = {MPI_Allreduce, MPI_Bcast, MPI_Reduce, MPI_Allgather, MPI_Scatter, MPI_Barrier};
static const Functions native = {PMPI_Allreduce, PMPI_Bcast, PMPI_Reduce, PMPI_Allgather, PMPI_Scatter, PMPI_Barrier};

static int a[64], b[64 * 64], size;
static MPI_Datatype uncommitted, pair;
static MPI_Op user_op;

static void add(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++) ((int *)inout)[i] += ((int *)in)[i];
}

#define CASE(name, call) \
    static int name(const Functions *f, MPI_Comm c) { (void)c; return f->call; }
// Counts
CASE(allreduce_negative, allreduce(a, b, -1, MPI_INT, MPI_SUM, c))
CASE(bcast_negative, bcast(a, -1, MPI_INT, 0, c))
CASE(reduce_negative, reduce(a, b, -1, MPI_INT, MPI_SUM, 0, c))
CASE(allgather_negative, allgather(a, -1, MPI_INT, b, -1, MPI_INT, c))
CASE(scatter_negative, scatter(b, -1, MPI_INT, a, -1, MPI_INT, 0, c))
// Datatypes
CASE(allreduce_null_type, allreduce(a, b, 1, MPI_DATATYPE_NULL, MPI_SUM, c))
CASE(bcast_null_type, bcast(a, 1, MPI_DATATYPE_NULL, 0, c))
CASE(reduce_null_type, reduce(a, b, 1, MPI_DATATYPE_NULL, MPI_SUM, 0, c))
CASE(allgather_null_type, allgather(a, 1, MPI_DATATYPE_NULL, b, 1, MPI_DATATYPE_NULL, c))
CASE(scatter_null_type, scatter(b, 1, MPI_DATATYPE_NULL, a, 1, MPI_DATATYPE_NULL, 0, c))
CASE(bcast_uncommitted, bcast(a, 1, uncommitted, 0, c))
CASE(allgather_uncommitted, allgather(a, 1, uncommitted, b, 1, uncommitted, c))
CASE(allreduce_uncommitted, allreduce(a, b, 1, uncommitted, user_op, c))
CASE(scatter_uncommitted, scatter(b, 1, uncommitted, a, 1, uncommitted, 0, c))
// Roots
CASE(bcast_root_low, bcast(a, 1, MPI_INT, -5, c))
CASE(bcast_root_high, bcast(a, 1, MPI_INT, size, c))
CASE(bcast_root_null, bcast(a, 1, MPI_INT, MPI_PROC_NULL, c))
CASE(bcast_empty_root_high, bcast(a, 0, MPI_INT, size + 3, c))
CASE(reduce_root_high, reduce(a, b, 1, MPI_INT, MPI_SUM, size, c))
CASE(scatter_root_low, scatter(b, 1, MPI_INT, a, 1, MPI_INT, -7, c))
// Operations
CASE(allreduce_null_op, allreduce(a, b, 1, MPI_INT, MPI_OP_NULL, c))
CASE(reduce_null_op, reduce(a, b, 1, MPI_INT, MPI_OP_NULL, 0, c))
CASE(allreduce_band_double, allreduce(a, b, 1, MPI_DOUBLE, MPI_BAND, c))
CASE(allreduce_maxloc_int, allreduce(a, b, 1, MPI_INT, MPI_MAXLOC, c))
CASE(allreduce_sum_byte, allreduce(a, b, 1, MPI_BYTE, MPI_SUM, c))
CASE(allreduce_sum_derived, allreduce(a, b, 1, pair, MPI_SUM, c))
CASE(reduce_max_complex, reduce(a, b, 1, MPI_C_DOUBLE_COMPLEX, MPI_MAX, 0, c))
CASE(allreduce_replace, allreduce(a, b, 1, MPI_INT, MPI_REPLACE, c))
CASE(allreduce_no_op, allreduce(a, b, 1, MPI_INT, MPI_NO_OP, c))
// Buffers
CASE(allreduce_receive_in_place, allreduce(a, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, c))
CASE(allgather_receive_in_place, allgather(a, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, c))
CASE(allreduce_null_buffers, allreduce(NULL, NULL, 1, MPI_INT, MPI_SUM, c))
// Communicators
CASE(allreduce_null_comm, allreduce(a, b, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL))
CASE(bcast_null_comm, bcast(a, 1, MPI_INT, 0, MPI_COMM_NULL))
CASE(reduce_null_comm, reduce(a, b, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_NULL))
CASE(allgather_null_comm, allgather(a, 1, MPI_INT, b, 1, MPI_INT, MPI_COMM_NULL))
CASE(scatter_null_comm, scatter(b, 1, MPI_INT, a, 1, MPI_INT, 0, MPI_COMM_NULL))
CASE(barrier_null_comm, barrier(MPI_COMM_NULL))
// Wrong only on the root, so tried on one rank alone
CASE(scatter_send_in_place, scatter(MPI_IN_PLACE, 1, MPI_INT, a, 1, MPI_INT, 0, c))
CASE(scatter_send_negative, scatter(b, -2, MPI_INT, a, 1, MPI_INT, 0, c))
CASE(bcast_null_buffer, bcast(NULL, 1, MPI_INT, 0, c))

typedef struct {
    const char *name;
    int (*call)(const Functions *, MPI_Comm);
    bool alone;
} Case;
#define EVERYWHERE(name) {#name, name, false}
#define ALONE(name) {#name, name, true}
static const Case cases[] = {
    EVERYWHERE(allreduce_negative), EVERYWHERE(bcast_negative), EVERYWHERE(reduce_negative), EVERYWHERE(allgather_negative),
    EVERYWHERE(scatter_negative), EVERYWHERE(allreduce_null_type), EVERYWHERE(bcast_null_type), EVERYWHERE(reduce_null_type),
    EVERYWHERE(allgather_null_type), EVERYWHERE(scatter_null_type), EVERYWHERE(bcast_uncommitted), EVERYWHERE(allgather_uncommitted),
    EVERYWHERE(allreduce_uncommitted), EVERYWHERE(scatter_uncommitted), EVERYWHERE(bcast_root_low), EVERYWHERE(bcast_root_high),
    EVERYWHERE(bcast_root_null), EVERYWHERE(bcast_empty_root_high), EVERYWHERE(reduce_root_high), EVERYWHERE(scatter_root_low),
    EVERYWHERE(allreduce_null_op), EVERYWHERE(reduce_null_op), EVERYWHERE(allreduce_band_double), EVERYWHERE(allreduce_maxloc_int),
    EVERYWHERE(allreduce_sum_byte), EVERYWHERE(allreduce_sum_derived), EVERYWHERE(reduce_max_complex), EVERYWHERE(allreduce_replace),
    EVERYWHERE(allreduce_no_op), EVERYWHERE(allreduce_receive_in_place), EVERYWHERE(allgather_receive_in_place),
    EVERYWHERE(allreduce_null_buffers), EVERYWHERE(allreduce_null_comm), EVERYWHERE(bcast_null_comm), EVERYWHERE(reduce_null_comm),
    EVERYWHERE(allgather_null_comm), EVERYWHERE(scatter_null_comm), EVERYWHERE(barrier_null_comm), ALONE(scatter_send_in_place),
    ALONE(scatter_send_negative), ALONE(bcast_null_buffer),
};

static int class_of(int code) {
    int class = MPI_SUCCESS;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
    return class;
}

static void check_normal(MPI_Comm comm, int salt) {
    int rank, members, sum = -1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &members);
    int value = rank == salt % members ? salt : -1, mine = rank + salt;
    CHECK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
    CHECK(sum == members * (members - 1) / 2 + members * salt);
    CHECK(MPI_Bcast(&value, 1, MPI_INT, salt % members, comm) == MPI_SUCCESS);
    CHECK(value == salt);
    CHECK(MPI_Barrier(comm) == MPI_SUCCESS);
}

static int try_cases(MPI_Comm comm, bool alone, const char *only) {
    int tried = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].alone && !alone) continue;
        if (only != NULL && strstr(cases[i].name, only) == NULL) continue;
        if (getenv("TRACE")) fprintf(stderr, "%s native\n", cases[i].name);
        int expected = class_of(cases[i].call(&native, comm)); if (getenv("TRACE")) fprintf(stderr, "%s class %d\n", cases[i].name, expected); int got = class_of(cases[i].call(&tested, comm));
        if (got != expected) fprintf(stderr, "errors: %s: class %d, natively %d\n", cases[i].name, got, expected);
        CHECK(got == expected);
        check_normal(comm, (int)i);
        tried++;
    }
    return tried;
}

// ---- a handler of the program

static int handled, handled_class;
static MPI_Comm handled_comm;

static void handler(MPI_Comm *comm, int *code, ...) {
    handled++;
    handled_comm = *comm;
    handled_class = class_of(*code);
}

static void try_handler(MPI_Comm comm) {
    MPI_Errhandler own;
    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_set_errhandler(comm, own);
    for (int i = 0; i < 5; i++) {
        handled = 0;
        int code = i % 2 == 0 ? bcast_root_high(&tested, comm) : reduce_null_op(&tested, comm);
        CHECK(code != MPI_SUCCESS && handled == 1 && handled_comm == comm);
        CHECK(handled_class == class_of(code));
        check_normal(comm, i);
        CHECK(handled == 1);
    }
    MPI_Errhandler_free(&own);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    size = world_size;
    MPI_Comm comm, alone;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_dup(MPI_COMM_SELF, &alone);
    MPI_Type_contiguous(2, MPI_INT, &uncommitted);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(add, 1, &user_op);
    for (int i = 0; i < 4; i++) check_normal(comm, i);
    try_cases(comm, false, argc > 1 ? argv[1] : NULL);
    size = 1;
    try_cases(alone, true, argc > 1 ? argv[1] : NULL);
    size = world_size;
    try_handler(comm);
    MPI_Op_free(&user_op);
    MPI_Type_free(&uncommitted);
    MPI_Type_free(&pair);
    MPI_Comm_free(&alone);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    say_ok("errors");
    return 0;
}
