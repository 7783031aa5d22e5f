// Collectives inside attribute callbacks: in the delete callback of an attribute on COMM_SELF, which runs in
// MPI_Finalize while MPI still works (HDF5 does so), in the delete callback of a communicator that is being freed, and
// in a copy callback during Comm_dup. (The callback of huddle's own attribute must run last.)
#include "check.h"

static MPI_Comm kept;
static int deletes, copies, finalizing;

static void use(MPI_Comm comm, int salt) {
    int size, rank, sum, value;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    int *all = malloc((size_t)size * sizeof *all);
    value = rank + salt;
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == size * (size - 1) / 2 + size * salt);
    MPI_Allgather(&value, 1, MPI_INT, all, 1, MPI_INT, comm);
    for (int i = 0; i < size; i++) CHECK(all[i] == i + salt);
    MPI_Barrier(comm);
    free(all);
}

static int on_delete(MPI_Comm comm, int key, void *value, void *extra) {
    (void)key, (void)value, (void)extra;
    deletes++;
    use(MPI_COMM_WORLD, 5);
    use(kept, 7);
    if (!finalizing) use(comm, 9);  // the communicator that is being freed still works
    return MPI_SUCCESS;
}

static int on_copy(MPI_Comm comm, int key, void *extra, void *value, void *copied, int *flag) {
    (void)key, (void)extra;
    copies++;
    use(comm, 11);
    *(void **)copied = value;
    *flag = 1;
    return MPI_SUCCESS;
}

int main(int argc, char **argv) {
    int key, loops;
    MPI_Comm comm, copy;
    MPI_Init(&argc, &argv);
    look_around();
    loops = argument(argc, argv, 20);
    MPI_Comm_dup(MPI_COMM_WORLD, &kept);
    MPI_Comm_create_keyval(on_copy, on_delete, &key, NULL);
    for (int i = 0; i < loops; i++) {
        MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comm);
        MPI_Comm_set_attr(comm, key, &deletes);
        use(comm, i);
        MPI_Comm_dup(comm, &copy);
        use(copy, i);
        MPI_Comm_free(&comm);
        MPI_Comm_free(&copy);
    }
    CHECK(deletes == 2 * loops && copies == loops);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, &deletes);
    use(kept, 1);
    MPI_Comm_free_keyval(&key);
    finalizing = 1;
    MPI_Finalize();
    CHECK(deletes == 2 * loops + 1);
    say_ok("finalize_callbacks");
    return 0;
}
