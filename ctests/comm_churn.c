// Communicators are made and freed in loops, so handles and ids are used again at once (no MPI object per context,
// regions freed by count). Arguments: loops, communicators alive at the same time.
#include "check.h"

static void use(MPI_Comm comm, int salt) {
    int rank, size, sum = -1, value;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int call = 0; call < 3; call++) {
        value = rank + salt + call;
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm);
        CHECK(sum == size * (size - 1) / 2 + size * (salt + call));
    }
    value = rank == salt % size ? salt : -1;
    MPI_Bcast(&value, 1, MPI_INT, salt % size, comm);
    CHECK(value == salt);
}

static void sums(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++) ((int *)inout)[i] += ((int *)in)[i];
}

static void largest(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++)
        if (((int *)in)[i] > ((int *)inout)[i]) ((int *)inout)[i] = ((int *)in)[i];
}

// Uses counts, roots, an operation and a datatype that differ from those on the communicator before, whose memory this
// one may have taken over. The handles are equal to the ones used there, because they were freed.
static void use_all(MPI_Comm comm, int salt) {
    enum { MOST = 8, STRIDES = 3 };
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    const int n = 1 + salt % MOST, root = salt % size, stride = 1 + salt % STRIDES;
    const bool adds = salt % 2 == 0;
    int mine[MOST], result[MOST], part[MOST], holed[MOST * STRIDES], all[MOST * size];
    MPI_Op op;
    MPI_Datatype type;
    MPI_Op_create(adds ? sums : largest, 1, &op);
    MPI_Type_vector(n, 1, stride, MPI_INT, &type);
    MPI_Type_commit(&type);
    for (int call = 0; call < 3; call++) {
        const int first = salt + call;
        for (int i = 0; i < n; i++) mine[i] = 100 * rank + first + i;
        MPI_Allgather(mine, n, MPI_INT, all, n, MPI_INT, comm);
        for (int i = 0; i < n * size; i++) CHECK(all[i] == 100 * (i / n) + first + i % n);
        MPI_Reduce(mine, result, n, MPI_INT, op, root, comm);
        for (int i = 0; i < n && rank == root; i++) {
            const int ranks = adds ? 50 * size * (size - 1) : 100 * (size - 1);
            CHECK(result[i] == ranks + (adds ? size : 1) * (first + i));
        }
        MPI_Scatter(all, n, MPI_INT, part, n, MPI_INT, root, comm);
        for (int i = 0; i < n; i++) CHECK(part[i] == mine[i]);
        for (int i = 0; i < MOST * STRIDES; i++) holed[i] = rank == root && i % stride == 0 ? first + i : -1;
        MPI_Bcast(holed, 1, type, root, comm);
        for (int i = 0; i < MOST * STRIDES && rank != root; i++)
            CHECK(holed[i] == (i % stride == 0 && i / stride < n ? first + i : -1));
        MPI_Barrier(comm);
    }
    MPI_Type_free(&type);
    MPI_Op_free(&op);
}

static void churn(int loops) {
    for (int i = 0; i < loops; i++) {
        MPI_Comm dup, split, child;
        MPI_Comm_dup(MPI_COMM_WORLD, &dup);
        use(dup, i);
        use_all(dup, i);
        if (i % 3 == 0) {
            MPI_Comm_split(dup, world_rank % 2, -world_rank, &split);
            MPI_Comm_free(&dup);  // before its child
            use(split, i + 1);
            use_all(split, i + 1);
            MPI_Comm_dup(split, &child);
            MPI_Comm_free(&split);
            use(child, i + 2);
            MPI_Comm_free(&child);
        } else {
            MPI_Comm_free(&dup);
        }
    }
}

// The first of two communicators is freed while the second stays in use; the third one gets the handle of the first.
static void reuse(int loops) {
    MPI_Comm first, second, third;
    MPI_Comm_dup(MPI_COMM_WORLD, &second);
    for (int i = 0; i < loops; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &first);
        use(first, i);
        MPI_Comm_free(&first);
        MPI_Comm_split(MPI_COMM_WORLD, i % 2 == 0 ? 0 : world_rank, 0, &third);
        use(third, i);
        use(second, i);
        MPI_Comm_free(&third);
    }
    MPI_Comm_free(&second);
}

// The root runs far ahead of the other ranks, so it goes round in all lines that the communicator has.
static void use_long(MPI_Comm comm, int salt) {
    use(comm, salt);
    int rank;
    MPI_Comm_rank(comm, &rank);
    for (int call = 0; call < 300; call++) {
        int value = rank == 0 ? salt + call : -1;
        MPI_Bcast(&value, 1, MPI_INT, 0, comm);
        CHECK(value == salt + call);
    }
}

// Ranks that have more communicators than others build common ones with these. The leader is in turn a rank with many
// and a rank with few. The communicators are new in the first round, and use state of freed ones in the second.
static void uneven(void) {
    enum { MANY = 20 };
    MPI_Comm pair, dups[MANY], common;
    int many = world_rank < 2 ? MANY : 0;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank < 2, 0, &pair);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < many; i++) {
            MPI_Comm_dup(pair, &dups[i]);
            use(dups[i], i);
        }
        for (int i = 0; i < 4; i++) {
            MPI_Comm_split(MPI_COMM_WORLD, 0, i % 2 == 0 ? world_rank : -world_rank, &common);
            use_long(common, i);
            // From here on no rank has more communicators than others.
            if (i == 1)
                for (int k = 0; k < many; k++) MPI_Comm_free(&dups[k]);
            MPI_Comm_free(&common);
        }
    }
    MPI_Comm_free(&pair);
}

static void keep_alive(int n) {
    MPI_Comm *comms = malloc((size_t)n * sizeof *comms);
    for (int i = 0; i < n; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < n; i++) use(comms[(i * 7) % n], i + round);
    for (int i = 0; i < n; i += 2) MPI_Comm_free(&comms[i]);
    for (int i = 1; i < n; i += 2) use(comms[i], i);
    for (int i = 1; i < n - 4; i += 2) MPI_Comm_free(&comms[i]);  // the last ones are left to MPI_Finalize
    free(comms);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int loops = argument(argc, argv, 300), alive = argc > 2 ? atoi(argv[2]) : 50;
    churn(loops);
    reuse(loops / 3);
    uneven();
    keep_alive(alive);
    MPI_Finalize();
    say_ok("comm_churn");
    return 0;
}
