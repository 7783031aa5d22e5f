// Calls that huddle leaves to the MPI library before it looks at their arguments. They are counted by size if the size
// is known without asking MPI. huddle asks MPI nothing that could end the program where MPI rejects the arguments.
//
//   counted REASON      why the calls are left to the library
#include "check.h"

#include <dlfcn.h>

static const char *reason;

static unsigned long long counter(const char *collective, const char *class, const char *quantity) {
    static size_t (*counters)(unsigned long long *, size_t), (*name)(size_t, char *, size_t);
    *(void **)&counters = dlsym(RTLD_DEFAULT, "huddle_counters");
    *(void **)&name = dlsym(RTLD_DEFAULT, "huddle_counter_name");
    CHECK(counters != NULL && name != NULL);
    char wanted[200], text[200];
    snprintf(wanted, sizeof wanted, "%s.declined.%s.%s.%s", collective, reason, class, quantity);
    size_t n = counters(NULL, 0);
    unsigned long long *values = malloc(n * sizeof *values), value = ~0ull;
    counters(values, n);
    for (size_t i = 0; i < n; i++) {
        name(i, text, sizeof text);
        if (strcmp(text, wanted) == 0) value = values[i];
    }
    CHECK(value != ~0ull);
    free(values);
    return value;
}

static unsigned long long calls_before, bytes_before;

static MPI_Comm fresh(const char *collective, const char *class) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    calls_before = counter(collective, class, "calls"), bytes_before = counter(collective, class, "bytes");
    return comm;
}

static void counted(const char *collective, const char *class, unsigned long long bytes, MPI_Comm comm) {
    CHECK(counter(collective, class, "calls") == calls_before + 1);
    CHECK(counter(collective, class, "bytes") == bytes_before + bytes);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    reason = argv[1];
    MPI_Init(&argc, &argv);
    look_around();
    static char in[20000], out[40000];
    bool is_root = world_rank == 0;
    MPI_Comm comm = fresh("Allreduce", "<=1K");
    MPI_Allreduce(in, out, 100, MPI_INT, MPI_SUM, comm);
    counted("Allreduce", "<=1K", 400, comm);
    comm = fresh("Reduce", "<=64");
    MPI_Reduce(in, out, 8, MPI_DOUBLE, MPI_SUM, 0, comm);
    counted("Reduce", "<=64", 64, comm);
    comm = fresh("Bcast", "0");
    MPI_Bcast(in, 0, MPI_BYTE, 0, comm);
    counted("Bcast", "0", 0, comm);
    comm = fresh("Allgather", "<=8K");
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, 2000, MPI_SHORT, comm);
    counted("Allgather", "<=8K", 4000, comm);
    comm = fresh("Scatter", "<=64K");
    MPI_Scatter(out, 9000, MPI_BYTE, is_root ? MPI_IN_PLACE : (void *)in, 9000, MPI_BYTE, 0, comm);
    counted("Scatter", "<=64K", 9000, comm);
    comm = fresh("Barrier", "0");
    MPI_Barrier(comm);
    counted("Barrier", "0", 0, comm);

    MPI_Datatype derived;
    MPI_Type_vector(3, 1, 2, MPI_INT, &derived);
    MPI_Type_commit(&derived);
    comm = fresh("Bcast", "unread");
    MPI_Bcast(in, 2, derived, 0, comm);
    counted("Bcast", "unread", 0, comm);
    MPI_Type_free(&derived);
    comm = fresh("Bcast", "unread");
    CHECK(MPI_Bcast(in, 1, MPI_DATATYPE_NULL, 0, comm) != MPI_SUCCESS);
    counted("Bcast", "unread", 0, comm);
    comm = fresh("Bcast", "unread");
    CHECK(MPI_Bcast(in, -1, MPI_INT, 0, comm) != MPI_SUCCESS);
    counted("Bcast", "unread", 0, comm);
    MPI_Finalize();
    say_ok("counted");
    return 0;
}
