// The C half of mixed.f90.
#include "../check.h"

typedef struct { int a, b; } Map;

void use_from_c(MPI_Fint f_op, MPI_Fint f_pair, MPI_Fint n);
void make_in_c(MPI_Fint *f_op);

static Map map_of(int rank, int i) { return (Map){1 + (rank * 13 + i) % 97, 1 + (rank + i * 3) % 89}; }

void use_from_c(MPI_Fint f_op, MPI_Fint f_pair, MPI_Fint n) {
    MPI_Op op = MPI_Op_f2c(f_op);
    MPI_Datatype pair = MPI_Type_f2c(f_pair);
    look_around();
    Map *mine = malloc((size_t)n * sizeof *mine), *got = malloc((size_t)n * sizeof *got), *expected = malloc((size_t)n * sizeof *expected);
    for (int i = 0; i < n; i++) {
        mine[i] = map_of(world_rank, i), expected[i] = map_of(world_size - 1, i);
        for (int r = world_size - 2; r >= 0; r--) {
            Map left = map_of(r, i);
            expected[i] = (Map){left.a * expected[i].a % 10007, (left.a * expected[i].b + left.b) % 10007};
        }
    }
    MPI_Allreduce(mine, got, n, pair, op, MPI_COMM_WORLD);
    CHECK(memcmp(got, expected, (size_t)n * sizeof *got) == 0);
    for (int root = 0; root < world_size; root++) {
        memset(got, 0, (size_t)n * sizeof *got);
        MPI_Reduce(mine, got, n, pair, op, root, MPI_COMM_WORLD);
        CHECK(world_rank != root || memcmp(got, expected, (size_t)n * sizeof *got) == 0);
    }
    free(mine), free(got), free(expected);
}

static void keep_right(void *in, void *inout, int *n, MPI_Datatype *type) { (void)in, (void)inout, (void)n, (void)type; }

void make_in_c(MPI_Fint *f_op) {
    MPI_Op op;
    MPI_Op_create(keep_right, 0, &op);
    *f_op = MPI_Op_c2f(op);
}
