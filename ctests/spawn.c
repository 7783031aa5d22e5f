// MPI_Comm_spawn and merge: groups beyond the process's own COMM_WORLD stay native, while WORLD, on both sides,
// works as usual. The program spawns itself.
#include "check.h"

static void use(MPI_Comm comm) {
    int rank, size, sum = -1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < 5; i++) {
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
        CHECK(sum == size * (size - 1) / 2);
        int value = rank == i % size ? 10 + i : -1;
        MPI_Bcast(&value, 1, MPI_INT, i % size, comm);
        CHECK(value == 10 + i);
        MPI_Barrier(comm);
    }
}

int main(int argc, char **argv) {
    MPI_Comm parent, inter, merged;
    int size, children = 2;
    MPI_Init(&argc, &argv);
    look_around();
    use(MPI_COMM_WORLD);
    MPI_Comm_get_parent(&parent);
    bool is_child = parent != MPI_COMM_NULL;
    if (is_child) inter = parent;
    else MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, children, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
    MPI_Intercomm_merge(inter, is_child, &merged);
    MPI_Comm_size(merged, &size);
    CHECK(size == (is_child ? size : world_size + children));
    use(merged);
    use(MPI_COMM_WORLD);
    use(merged);
    MPI_Barrier(inter);
    MPI_Comm_free(&merged);
    MPI_Comm_disconnect(&inter);
    use(MPI_COMM_WORLD);
    MPI_Finalize();
    if (!is_child) say_ok("spawn");
    return 0;
}
