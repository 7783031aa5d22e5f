// The library's MPI_Allgather fails on one rank, after it has exchanged its data, where huddle's ranks agree on a communicator's
// memory with it: the job ends, since the other ranks have agreed. The library's functions are looked up by the `dlsym` of this program.
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <string.h>

static int (*real)(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);
static int fails;

static int allgather(const void *from, int n, MPI_Datatype type, void *to, int m, MPI_Datatype other, MPI_Comm comm) {
    int code = real(from, n, type, to, m, other, comm);
    if (code != MPI_SUCCESS || !fails) return code;
    memset(to, 0, (size_t)m);
    return MPI_ERR_OTHER;
}

void *dlsym(void *handle, const char *name) {
    static void *(*next)(void *, const char *);
    // The version of that name on each processor.
    const char *versions[] = {"GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.34"};
    for (int i = 0; next == NULL && i < 3; i++) next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    void *found = next(handle, name);
    if (strcmp(name, "PMPI_Allgather") != 0 || handle == RTLD_NEXT || handle == RTLD_DEFAULT) return found;
    *(void **)&real = found;
    return (void *)allgather;
}

static void call(MPI_Comm comm, int times) {
    for (int i = 0; i < times; i++) {
        int mine = world_rank + i, sum = -1;
        CHECK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
        CHECK(sum == world_size * i + world_size * (world_size - 1) / 2);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    MPI_Comm served, failing;
    MPI_Comm_dup(MPI_COMM_WORLD, &served);
    MPI_Comm_dup(MPI_COMM_WORLD, &failing);
    call(served, 20);
    fails = world_rank == world_size - 1;
    call(failing, 20);
    say_ok("failing");
    MPI_Comm_free(&served);
    MPI_Comm_free(&failing);
    MPI_Finalize();
    return 0;
}
