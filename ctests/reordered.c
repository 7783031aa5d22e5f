// Communicators whose ranks are not those of COMM_WORLD: reversed, shuffled, every second one, single ranks,
// cartesian; with a non-commutative operation, whose result shows the order of the ranks.
#include "check.h"

enum { N = 2600, PRIME = 10007 };
typedef struct { int a, b; } Map;  // x -> a·x + b

static void compose(void *in, void *inout, int *n, MPI_Datatype *type) {
    const Map *left = in;
    Map *right = inout;
    (void)type;
    for (int i = 0; i < *n; i++) {
        Map m = {(int)((long)left[i].a * right[i].a % PRIME), (int)(((long)left[i].a * right[i].b + left[i].b) % PRIME)};
        right[i] = m;
    }
}

static Map map_of(int rank, int i) { return (Map){2 + (rank * 31 + i) % 900, 1 + (rank * 57 + i * 3) % 900}; }

static void use(MPI_Comm comm, MPI_Datatype type, MPI_Op op, int n) {
    static Map in[N], out[N], expected[N];
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < n; i++) expected[i] = map_of(size - 1, i);
    for (int r = size - 2; r >= 0; r--) {
        for (int i = 0; i < n; i++) in[i] = map_of(r, i);
        compose(in, expected, &n, &type);
    }
    for (int i = 0; i < n; i++) in[i] = map_of(rank, i);
    MPI_Allreduce(in, out, n, type, op, comm);
    CHECK(memcmp(out, expected, (size_t)n * sizeof(Map)) == 0);
    for (int root = 0; root < size; root++) {
        memset(out, 0, sizeof out);
        MPI_Reduce(in, out, n, type, op, root, comm);
        CHECK(rank != root || memcmp(out, expected, (size_t)n * sizeof(Map)) == 0);
        int value = rank == root ? root + n : -1;
        MPI_Bcast(&value, 1, MPI_INT, root, comm);
        CHECK(value == root + n);
    }
    int *all = malloc((size_t)size * sizeof *all), mine = -1;
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, comm);
    for (int i = 0; i < size; i++) CHECK(all[i] == i);
    MPI_Scatter(all, 1, MPI_INT, &mine, 1, MPI_INT, size - 1, comm);
    CHECK(mine == rank);
    free(all);
}

static MPI_Comm make(int kind) {
    MPI_Comm comm;
    int size = world_size, around = 1;
    switch (kind) {
    case 0: MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comm); break;
    case 1: MPI_Comm_split(MPI_COMM_WORLD, 0, (world_rank * 5 + 3) % 7, &comm); break;
    case 2: MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, -world_rank, &comm); break;
    case 3: MPI_Comm_split(MPI_COMM_WORLD, world_rank, 0, &comm); break;
    case 4: MPI_Comm_split(MPI_COMM_WORLD, world_rank == 0 ? MPI_UNDEFINED : 1, world_size - world_rank, &comm); break;
    case 5: MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &around, 1, &comm); break;
    default: MPI_Comm_dup(MPI_COMM_WORLD, &comm); break;
    }
    return comm;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int counts[] = {1, 2, 5, 6, 7, 700, N}, rounds = argument(argc, argv, 3);
    MPI_Datatype type;
    MPI_Op op;
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(compose, 0, &op);
    for (int kind = 0; kind < 7; kind++) {
        MPI_Comm comm = make(kind);
        if (comm == MPI_COMM_NULL) continue;
        for (int round = 0; round < rounds; round++)
            for (int i = 0; i < 7; i++)
                if (rounds > 1 || i % 3 == 0) use(comm, type, op, counts[i]);
        MPI_Comm_free(&comm);
    }
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    MPI_Finalize();
    say_ok("reordered");
    return 0;
}
