// The length of a slot's cell depends on the ranks of a communicator's largest node. Two communicators with different
// largest nodes have the same members on one node, and the second takes over the segment that the first has left there:
// its elements must fit. Run on virtual nodes of 2 and 5 ranks, with so many slots that cells of 2 ranks are longer
// than cells of 5.
#include "check.h"

enum { N = 12 << 10 };
static unsigned char in[N], out[N];
static MPI_Datatype wide;
static MPI_Op op;

static void add(void *left, void *right, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n * N; i++) ((unsigned char *)right)[i] += ((unsigned char *)left)[i];
}

static void use(MPI_Comm comm) {
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int call = 0; call < 4; call++) {
        for (int i = 0; i < N; i++) in[i] = (unsigned char)(rank + i + call), out[i] = 0;
        MPI_Allreduce(in, out, 1, wide, op, comm);
        for (int i = 0; i < N; i++) CHECK(out[i] == (unsigned char)(size * (size - 1) / 2 + size * (i + call)));
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    MPI_Type_contiguous(N, MPI_BYTE, &wide);
    MPI_Type_commit(&wide);
    MPI_Op_create(add, 1, &op);
    for (int round = 0; round < 3; round++) {
        MPI_Comm all, some;
        MPI_Comm_dup(MPI_COMM_WORLD, &all);
        use(all);
        MPI_Comm_free(&all);
        MPI_Comm_split(MPI_COMM_WORLD, world_rank < 4 ? 0 : MPI_UNDEFINED, 0, &some);
        if (some == MPI_COMM_NULL) continue;
        use(some);
        MPI_Comm_free(&some);
    }
    MPI_Op_free(&op);
    MPI_Type_free(&wide);
    MPI_Finalize();
    say_ok("cell_lengths");
    return 0;
}
