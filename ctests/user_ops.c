// User-defined operations: created, used and freed at once (the handle comes back for another function), with datatypes
// that are freed right after the call, commutative and not, on types with holes. The function must be called with the
// caller's own datatype: what huddle remembers under a handle must not outlive its meaning. Operands keep rank order.
#include "check.h"

#include <stdint.h>

enum { N = 3000 };
typedef struct { uint32_t a, b, c, d; } Matrix;  // modulo 2^32
typedef struct {
    double value;
    int32_t rank;
    char comment[20];  // a hole as far as MPI is concerned
} Record;

static MPI_Datatype expected_type;
static int elements;

static void note(int n, MPI_Datatype type) {
    elements += n;
    CHECK(type == expected_type);
    CHECK(n > 0);
}

static void multiply(void *in, void *inout, int *n, MPI_Datatype *type) {
    const Matrix *x = in;
    Matrix *y = inout;
    note(*n, *type);
    for (int i = 0; i < *n; i++) {
        Matrix m = {x[i].a * y[i].a + x[i].b * y[i].c, x[i].a * y[i].b + x[i].b * y[i].d,
                    x[i].c * y[i].a + x[i].d * y[i].c, x[i].c * y[i].b + x[i].d * y[i].d};
        y[i] = m;
    }
}

static void add(void *in, void *inout, int *n, MPI_Datatype *type) {
    const Matrix *x = in;
    Matrix *y = inout;
    note(*n, *type);
    for (int i = 0; i < *n; i++) y[i].a += x[i].a, y[i].b += x[i].b, y[i].c += x[i].c, y[i].d += x[i].d;
}

static void keep_best(void *in, void *inout, int *n, MPI_Datatype *type) {
    const Record *x = in;
    Record *y = inout;
    note(*n, *type);
    for (int i = 0; i < *n; i++)
        if (x[i].value > y[i].value || (x[i].value == y[i].value && x[i].rank < y[i].rank)) y[i].value = x[i].value, y[i].rank = x[i].rank;
}

static void add_ints(void *in, void *inout, int *n, MPI_Datatype *type) {
    note(*n, *type);
    for (int i = 0; i < *n; i++) ((int *)inout)[i] += ((int *)in)[i];
}

static Matrix matrix_of(int rank, int i) {
    return (Matrix){(uint32_t)(rank * 17 + i), (uint32_t)(i * 3 + 1), (uint32_t)(rank + 2), (uint32_t)(i ^ rank)};
}

static void matrices(int n, int round) {
    static Matrix mine[N], got[N], expected[N];
    bool ordered = round % 2 == 0;
    MPI_User_function *function = ordered ? multiply : add;
    MPI_Op op;
    MPI_Datatype type;
    MPI_Type_contiguous(4, MPI_UINT32_T, &type);
    MPI_Type_commit(&type);
    expected_type = type;
    for (int i = 0; i < n; i++) mine[i] = matrix_of(world_rank, i), expected[i] = matrix_of(world_size - 1, i);
    for (int r = world_size - 2; r >= 0; r--) {
        for (int i = 0; i < n; i++) got[i] = matrix_of(r, i);
        function(got, expected, &n, &type);
    }
    MPI_Op_create(function, !ordered, &op);
    MPI_Allreduce(mine, got, n, type, op, MPI_COMM_WORLD);
    MPI_Op_free(&op);
    CHECK(memcmp(got, expected, (size_t)n * sizeof(Matrix)) == 0);
    memset(got, 0, sizeof got);
    int root = round % world_size;
    MPI_Op_create(function, !ordered, &op);
    MPI_Reduce(mine, got, n, type, op, root, MPI_COMM_WORLD);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    if (world_rank == root) CHECK(memcmp(got, expected, (size_t)n * sizeof(Matrix)) == 0);
}

static MPI_Datatype record_type(void) {
    MPI_Datatype fields, type;
    int lengths[2] = {1, 1};
    MPI_Aint at[2] = {0, sizeof(double)};
    MPI_Datatype types[2] = {MPI_DOUBLE, MPI_INT32_T};
    MPI_Type_create_struct(2, lengths, at, types, &fields);
    MPI_Type_create_resized(fields, 0, sizeof(Record), &type);
    MPI_Type_free(&fields);
    MPI_Type_commit(&type);
    return type;
}

static void records(int n, int round) {
    static Record best[N];
    MPI_Op op;
    MPI_Op_create(keep_best, 1, &op);
    MPI_Datatype type = record_type();
    expected_type = type;
    for (int i = 0; i < n; i++) {
        best[i].value = (i * 7 + world_rank * 3 + round) % 5, best[i].rank = world_rank;
        memset(best[i].comment, 'a' + world_rank % 26, sizeof best[i].comment);
    }
    MPI_Allreduce(MPI_IN_PLACE, best, n, type, op, MPI_COMM_WORLD);
    MPI_Type_free(&type);
    MPI_Op_free(&op);
    for (int i = 0; i < n; i++) {
        int winner = 0;
        for (int r = 1; r < world_size; r++)
            if ((i * 7 + r * 3 + round) % 5 > (i * 7 + winner * 3 + round) % 5) winner = r;
        CHECK(best[i].rank == winner && best[i].value == (i * 7 + winner * 3 + round) % 5);
        for (size_t j = 0; j < sizeof best[i].comment; j++) CHECK(best[i].comment[j] == 'a' + world_rank % 26);
    }
}

static void take_left(void *in, void *inout, int *n, MPI_Datatype *type) {
    note(*n, *type);
    memcpy(inout, in, (size_t)*n * sizeof(int));
}

// Several equal calls in a row on a predefined datatype. A freed handle may come back for an operation that commutes
// where the old one did not, or the other way round.
static void predefined(int n) {
    static int mine[N], got[N];
    expected_type = MPI_INT;
    for (int k = 0; k < 6; k++) {
        bool adds = k % 4 != 1;
        MPI_Op op;
        int commutes = -1;
        MPI_Op_create(adds ? add_ints : take_left, adds, &op);
        MPI_Op_commutative(op, &commutes);
        CHECK(commutes == adds);
        for (int call = 0; call < 3; call++) {
            for (int i = 0; i < n; i++) mine[i] = world_rank + i + call + 1, got[i] = -1;
            int sum = world_size * (world_size - 1) / 2, root = call % world_size;
            MPI_Allreduce(mine, got, n, MPI_INT, op, MPI_COMM_WORLD);
            for (int i = 0; i < n; i++) CHECK(got[i] == (adds ? sum + world_size * (i + call + 1) : i + call + 1));
            for (int i = 0; i < n; i++) got[i] = -1;
            MPI_Reduce(mine, got, n, MPI_INT, op, root, MPI_COMM_WORLD);
            for (int i = 0; i < n && world_rank == root; i++) CHECK(got[i] == (adds ? sum + world_size * (i + call + 1) : i + call + 1));
        }
        MPI_Op_free(&op);
        CHECK(op == MPI_OP_NULL);
    }
}

// Sums that the library computes, in repeated calls, in place and not.
static void extended(int n) {
    static long double mine[N], got[N];
    for (int call = 0; call < 4; call++) {
        for (int i = 0; i < n; i++) mine[i] = got[i] = (long double)(world_rank + 1) * (i + call) + 0.25L;
        MPI_Allreduce(call % 2 ? MPI_IN_PLACE : mine, got, n, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        long double factor = world_size * (world_size + 1) / 2;
        for (int i = 0; i < n; i++) CHECK(got[i] == factor * (i + call) + 0.25L * world_size);
    }
}

// Open MPI and MPICH 5 write beyond the end of elements that they allocate themselves.
#if defined MPICH_NUMVERSION && MPICH_NUMVERSION < 50000000
typedef struct {
    double value;
    char hidden[248]; // the datatype covers it by its extent alone
} Whole;

static void add_wholes(void *from, void *to, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++) {
        Whole sum = ((Whole *)from)[i];
        sum.value += ((Whole *)to)[i].value;
        ((Whole *)to)[i] = sum;
    }
}

static void wholes(int n) {
    static Whole mine[N], got[N];
    MPI_Datatype type;
    MPI_Op op;
    MPI_Type_create_resized(MPI_DOUBLE, 0, sizeof(Whole), &type);
    MPI_Type_commit(&type);
    MPI_Op_create(add_wholes, 1, &op);
    for (int call = 0; call < 4; call++) {
        for (int i = 0; i < n; i++) mine[i].value = world_rank + i + call, memset(mine[i].hidden, world_rank + 1, sizeof mine[i].hidden);
        MPI_Allreduce(mine, got, n, type, op, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++) CHECK(got[i].value == world_size * (world_size - 1) / 2 + world_size * (i + call));
        // Damage to the heap shows here.
        void *memory[8];
        for (int i = 0; i < 8; i++) memset(memory[i] = malloc(16u << i), i, 16u << i);
        for (int i = 0; i < 8; i++) free(memory[i]);
    }
    MPI_Op_free(&op);
    MPI_Type_free(&type);
}
#else
static void wholes(int n) { (void)n; }
#endif

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int counts[] = {1, 2, 3, 4, 5, 100, 511, 513, N}, rounds = argument(argc, argv, 8);
    for (int round = 0; round < rounds; round++)
        for (int i = round % 3; i < 9; i += rounds < 3 ? 4 : 1) {
            matrices(counts[i], round);
            records(counts[i], round);
            predefined(counts[i]);
            extended(counts[i]);
            wholes(counts[i]);
        }
    MPI_Allreduce(MPI_IN_PLACE, &elements, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(world_size == 1 || elements > 0);
    MPI_Finalize();
    say_ok("user_ops");
    return 0;
}
