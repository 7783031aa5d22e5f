// Arguments that MPI rejects on all ranks. MPI_X must return the error class that PMPI_X returns, the error handler of
// the communicator must run once, with that communicator, and later calls must be right. Run it with HUDDLE_PMPI=0.
#include "check.h"
#include "functions.h"

static int a[64], b[64 * 64], size;
static MPI_Datatype uncommitted, pair;
static MPI_Op user_op;

static void add(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++) ((int *)inout)[i] += ((int *)in)[i];
}

// A case: name, where (ALL ranks, or ALONE on one rank because only the root looks at the argument), the call.
#define CASES(X) \
    /* Counts */ \
    X(bcast_negative, ALL, bcast(a, -1, MPI_INT, 0, c)) \
    X(allgather_negative, ALL, allgather(a, -1, MPI_INT, b, -1, MPI_INT, c)) \
    X(scatter_negative, ALL, scatter(b, -1, MPI_INT, a, -1, MPI_INT, 0, c)) \
    /* Datatypes */ \
    X(allreduce_null_type, ALL, allreduce(a, b, 1, MPI_DATATYPE_NULL, MPI_SUM, c)) \
    X(bcast_null_type, ALL, bcast(a, 1, MPI_DATATYPE_NULL, 0, c)) \
    X(reduce_null_type, ALL, reduce(a, b, 1, MPI_DATATYPE_NULL, MPI_SUM, 0, c)) \
    X(allgather_null_type, ALL, allgather(a, 1, MPI_DATATYPE_NULL, b, 1, MPI_DATATYPE_NULL, c)) \
    X(scatter_null_type, ALL, scatter(b, 1, MPI_DATATYPE_NULL, a, 1, MPI_DATATYPE_NULL, 0, c)) \
    X(bcast_uncommitted, ALL, bcast(a, 1, uncommitted, 0, c)) \
    X(allgather_uncommitted, ALL, allgather(a, 1, uncommitted, b, 1, uncommitted, c)) \
    X(allreduce_uncommitted, ALL, allreduce(a, b, 1, uncommitted, user_op, c)) \
    X(allreduce_empty_uncommitted, ALL, allreduce(a, b, 0, uncommitted, user_op, c)) \
    X(allreduce_empty_null_type, ALL, allreduce(a, b, 0, MPI_DATATYPE_NULL, user_op, c)) \
    X(scatter_uncommitted, ALL, scatter(b, 1, uncommitted, a, 1, uncommitted, 0, c)) \
    /* Roots */ \
    X(bcast_root_low, ALL, bcast(a, 1, MPI_INT, -5, c)) \
    X(bcast_root_high, ALL, bcast(a, 1, MPI_INT, size, c)) \
    X(bcast_root_null, ALL, bcast(a, 1, MPI_INT, MPI_PROC_NULL, c)) \
    X(bcast_empty_root_high, ALL, bcast(a, 0, MPI_INT, size + 3, c)) \
    X(scatter_empty_root_low, ALL, scatter(b, 0, MPI_INT, a, 0, MPI_INT, -7, c)) \
    X(reduce_root_high, ALL, reduce(a, b, 1, MPI_INT, MPI_SUM, size, c)) \
    X(scatter_root_low, ALL, scatter(b, 1, MPI_INT, a, 1, MPI_INT, -7, c)) \
    /* Operations */ \
    X(allreduce_null_op, ALL, allreduce(a, b, 1, MPI_INT, MPI_OP_NULL, c)) \
    X(reduce_null_op, ALL, reduce(a, b, 1, MPI_INT, MPI_OP_NULL, 0, c)) \
    X(allreduce_band_double, ALL, allreduce(a, b, 1, MPI_DOUBLE, MPI_BAND, c)) \
    X(allreduce_maxloc_int, ALL, allreduce(a, b, 1, MPI_INT, MPI_MAXLOC, c)) \
    X(allreduce_sum_byte, ALL, allreduce(a, b, 1, MPI_BYTE, MPI_SUM, c)) \
    X(allreduce_sum_derived, ALL, allreduce(a, b, 1, pair, MPI_SUM, c)) \
    X(reduce_max_complex, ALL, reduce(a, b, 1, MPI_C_DOUBLE_COMPLEX, MPI_MAX, 0, c)) \
    X(allreduce_empty_null_op, ALL, allreduce(a, b, 0, MPI_INT, MPI_OP_NULL, c)) \
    X(allreduce_empty_band_double, ALL, allreduce(a, b, 0, MPI_DOUBLE, MPI_BAND, c)) \
    X(reduce_empty_sum_derived, ALL, reduce(a, b, 0, pair, MPI_SUM, 0, c)) \
    X(allreduce_replace, ALL, allreduce(a, b, 1, MPI_INT, MPI_REPLACE, c)) \
    X(allreduce_no_op, ALL, allreduce(a, b, 1, MPI_INT, MPI_NO_OP, c)) \
    /* Buffers */ \
    X(allreduce_receive_in_place, ALL, allreduce(a, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, c)) \
    X(allreduce_empty_receive_in_place, ALL, allreduce(a, MPI_IN_PLACE, 0, MPI_INT, MPI_SUM, c)) \
    X(allgather_receive_in_place, ALL, allgather(a, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, c)) \
    X(allreduce_aliased, ALL, allreduce(a, a, 1, MPI_INT, MPI_SUM, c)) \
    /* Communicators */ \
    X(allreduce_null_comm, ALL, allreduce(a, b, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL)) \
    X(bcast_null_comm, ALL, bcast(a, 1, MPI_INT, 0, MPI_COMM_NULL)) \
    X(reduce_null_comm, ALL, reduce(a, b, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_NULL)) \
    X(scatter_null_comm, ALL, scatter(b, 1, MPI_INT, a, 1, MPI_INT, 0, MPI_COMM_NULL)) \
    X(barrier_null_comm, ALL, barrier(MPI_COMM_NULL)) \
    /* Wrong only on the root, so tried on one rank alone */ \
    X(scatter_send_in_place, ALONE, scatter(MPI_IN_PLACE, 1, MPI_INT, a, 1, MPI_INT, 0, c)) \
    X(bcast_null_buffer, ALONE, bcast(NULL, 1, MPI_INT, 0, c))
#ifdef OPEN_MPI  // MPICH 4.0 crashes natively in these
#define MORE_CASES(X) \
    X(allreduce_negative, ALL, allreduce(a, b, -1, MPI_INT, MPI_SUM, c)) \
    X(reduce_negative, ALL, reduce(a, b, -1, MPI_INT, MPI_SUM, 0, c)) \
    X(bcast_empty_null_type, ALL, bcast(a, 0, MPI_DATATYPE_NULL, 0, c))
#else  // and Open MPI 4.1 in these
#define MORE_CASES(X) \
    X(allreduce_null_buffers, ALL, allreduce(NULL, NULL, 1, MPI_INT, MPI_SUM, c)) \
    X(allgather_null_comm, ALL, allgather(a, 1, MPI_INT, b, 1, MPI_INT, MPI_COMM_NULL)) \
    X(scatter_send_negative, ALONE, scatter(b, -2, MPI_INT, a, 1, MPI_INT, 0, c))
#endif

#define FUNCTION(name, where, call) \
    static int name(const Functions *f, MPI_Comm c) { (void)c; return f->call; }
CASES(FUNCTION)
MORE_CASES(FUNCTION)

typedef struct {
    const char *name;
    enum { ALL, ALONE } where;
    int (*call)(const Functions *, MPI_Comm);
} Case;
#define ROW(name, where, call) {#name, where, name},
static const Case cases[] = {CASES(ROW) MORE_CASES(ROW)};

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
        if (cases[i].where == ALONE && !alone) continue;
        if (only != NULL && strstr(cases[i].name, only) == NULL) continue;
        int expected = class_of(cases[i].call(&native, comm)), got = class_of(cases[i].call(&tested, comm));
        if (got != expected) fprintf(stderr, "errors: %s: class %d, natively %d\n", cases[i].name, got, expected);
        CHECK(got == expected);
        check_normal(comm, (int)i);
        tried++;
    }
    return tried;
}

// ---- a user-defined handler

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

// The library may give the handle of a freed datatype to a new one, which is not committed. Empty calls that huddle
// remembers must not answer for the new datatype.
static void try_handle_again(MPI_Comm comm) {
    enum { MOST = 64 };
    MPI_Datatype committed, others[MOST];
    MPI_Type_contiguous(3, MPI_INT, &committed);
    MPI_Type_commit(&committed);
    for (int i = 0; i < 3; i++) CHECK(MPI_Allreduce(a, b, 0, committed, user_op, comm) == MPI_SUCCESS);
    MPI_Datatype handle = committed;
    MPI_Type_free(&committed);
    int n = 0;
    do MPI_Type_contiguous(3, MPI_INT, &others[n]);
    while (others[n++] != handle && n < MOST);
    if (others[n - 1] != handle && world_rank == 0) printf("errors: the library gave no handle again\n");
    handle = others[n - 1];
    int expected = class_of(PMPI_Allreduce(a, b, 0, handle, user_op, comm));
    CHECK(expected != MPI_SUCCESS);
    CHECK(class_of(MPI_Allreduce(a, b, 0, handle, user_op, comm)) == expected);
    while (n > 0) MPI_Type_free(&others[--n]);
    check_normal(comm, 1);
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
    try_handle_again(comm);
    MPI_Op_free(&user_op);
    MPI_Type_free(&uncommitted);
    MPI_Type_free(&pair);
    MPI_Comm_free(&alone);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    say_ok("errors");
    return 0;
}
