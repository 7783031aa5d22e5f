// Datatypes whose size isn't their extent: 12 of 16 bytes for MPI_DOUBLE_INT, 6 of 8 for MPI_SHORT_INT, 20 of 32 for
// MPI_LONG_DOUBLE_INT. The padding bytes belong to the program. They may change only where the native call, PMPI_X,
// changes them as well.
#include "check.h"

#include <stddef.h>

enum { N = 3000, MARK = 0xA5 };
typedef struct { double value; int index; } DoubleInt;
typedef struct { short value; int index; } ShortInt;
typedef struct { long double value; int index; } LongDoubleInt;
typedef struct {
    MPI_Datatype type;
    size_t extent, value_bytes, index_at;
} Pair;

static bool is_data(const Pair *pair, size_t byte) {
    byte %= pair->extent;
    return byte < pair->value_bytes || (byte >= pair->index_at && byte < pair->index_at + sizeof(int));
}

static void fill(const Pair *pair, unsigned char *at, int n, int salt) {
    memset(at, MARK, (size_t)n * pair->extent);
    for (int i = 0; i < n; i++, at += pair->extent) {
        int index = world_rank, number = (i * 7 + world_rank * 13 + salt) % 50;
        DoubleInt a = {.value = number};
        ShortInt b = {.value = (short)number};
        LongDoubleInt c = {.value = number};
        if (pair->type == MPI_DOUBLE_INT) memcpy(at, &a.value, sizeof a.value);
        else if (pair->type == MPI_SHORT_INT) memcpy(at, &b.value, sizeof b.value);
        else memset(at, 0, pair->value_bytes), memcpy(at, &c.value, 10);
        memcpy(at + pair->index_at, &index, sizeof index);
    }
}

// Compares x, the result of MPI_X, with y, the result of PMPI_X.
static void compare(const Pair *pair, const unsigned char *x, const unsigned char *y, int n) {
    for (size_t i = 0; i < (size_t)n * pair->extent; i++) {
        bool is_loose = pair->type == MPI_LONG_DOUBLE_INT && i % pair->extent >= 10 && i % pair->extent < 16;
        if (is_loose) continue;
        if (is_data(pair, i)) CHECK(x[i] == y[i]);
        else CHECK(x[i] == MARK || y[i] != MARK);
    }
}

static void try_pair(const Pair *pair, int n, int salt) {
    size_t bytes = (size_t)n * pair->extent, all = bytes * (size_t)world_size;
    unsigned char *send = malloc(all), *x = malloc(all), *y = malloc(all);
    MPI_Op op = salt % 2 == 0 ? MPI_MAXLOC : MPI_MINLOC;
    int root = salt % world_size;
    CHECK(send != NULL && x != NULL && y != NULL);
    fill(pair, send, n * world_size, salt);

    // The second and later calls repeat the first one. Natively MPICH 4.0 crashes in place at roots other than 0.
    for (int call = 0; call < 4; call++) {
        bool in_place = call == 2, at_root = in_place && world_rank == root && root == 0;
        memset(x, MARK, all), memset(y, MARK, all);
        fill(pair, send, n * world_size, salt + call);
        if (in_place) memcpy(x, send, bytes), memcpy(y, send, bytes);
        MPI_Allreduce(in_place ? MPI_IN_PLACE : send, x, n, pair->type, op, MPI_COMM_WORLD);
        PMPI_Allreduce(in_place ? MPI_IN_PLACE : send, y, n, pair->type, op, MPI_COMM_WORLD);
        compare(pair, x, y, n);

        memset(x, MARK, all), memset(y, MARK, all);
        if (at_root) memcpy(x, send, bytes), memcpy(y, send, bytes);
        MPI_Reduce(at_root ? MPI_IN_PLACE : send, x, n, pair->type, op, root, MPI_COMM_WORLD);
        PMPI_Reduce(at_root ? MPI_IN_PLACE : send, y, n, pair->type, op, root, MPI_COMM_WORLD);
        compare(pair, x, y, n);
    }

    memset(x, MARK, all), memset(y, MARK, all);
    if (world_rank == root) memcpy(x, send, bytes), memcpy(y, send, bytes);
    MPI_Bcast(x, n, pair->type, root, MPI_COMM_WORLD);
    PMPI_Bcast(y, n, pair->type, root, MPI_COMM_WORLD);
    compare(pair, x, y, n);

    memset(x, MARK, all), memset(y, MARK, all);
    MPI_Allgather(send, n, pair->type, x, n, pair->type, MPI_COMM_WORLD);
    PMPI_Allgather(send, n, pair->type, y, n, pair->type, MPI_COMM_WORLD);
    compare(pair, x, y, n * world_size);

    memset(x, MARK, all), memset(y, MARK, all);
    MPI_Scatter(send, n, pair->type, x, n, pair->type, root, MPI_COMM_WORLD);
    PMPI_Scatter(send, n, pair->type, y, n, pair->type, root, MPI_COMM_WORLD);
    compare(pair, x, y, n);
    free(send), free(x), free(y);
}

// More data than a communicator keeps memory for in its packed copies, in so many calls that it checks that memory.
static void often_and_long(void) {
    enum { LONG = 120000, CALLS = 17 };
    DoubleInt *in = calloc(LONG, sizeof *in), *out = calloc(LONG, sizeof *out);
    for (int call = 0; call < CALLS; call++) {
        for (int i = 0; i < LONG; i++) in[i] = (DoubleInt){(world_rank + i + call) % world_size, world_rank};
        MPI_Allreduce(in, out, LONG, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
        for (int i = 0; i < LONG; i++)
            CHECK(out[i].value == world_size - 1 && (out[i].index + i + call) % world_size == world_size - 1);
    }
    free(in), free(out);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    Pair pairs[] = {{MPI_DOUBLE_INT, sizeof(DoubleInt), sizeof(double), offsetof(DoubleInt, index)},
                    {MPI_SHORT_INT, sizeof(ShortInt), sizeof(short), offsetof(ShortInt, index)},
                    {MPI_LONG_DOUBLE_INT, sizeof(LongDoubleInt), sizeof(long double), offsetof(LongDoubleInt, index)}};
    int counts[] = {1, 3, 4, 5, 40, 500, N}, rounds = argument(argc, argv, 7);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < rounds && j < 7; j++) {
            // MPICH 4.0 cuts native messages of SHORT_INT above 8 KiB wrongly.
            int n = counts[j] * 6 > 8192 && pairs[i].type == MPI_SHORT_INT ? 1300 : counts[j];
            try_pair(&pairs[i], n, i + j);
        }
    often_and_long();
    MPI_Finalize();
    say_ok("padding");
    return 0;
}
