// Too little shared memory: a rank that can't make or map huddle's segment. All ranks agree to stay native on
// that communicator, one line says so, nothing is lost, and communicators that come later are served again.
//
//   shortage create|map     the leader can't create the segment | another rank can't map it
#include "check.h"
#include <sys/resource.h>

// Lowers a limit of this process to `most`, and returns what it was.
static rlim_t limit(int which, rlim_t most) {
    struct rlimit now;
    getrlimit(which, &now);
    rlim_t before = now.rlim_cur;
    now.rlim_cur = most;
    setrlimit(which, &now);
    return before;
}

// Bytes of address space that this process has.
static rlim_t mapped(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file) {
        if (fscanf(file, "%lu", &pages) != 1) pages = 0;
        fclose(file);
    }
    return (rlim_t)pages * 4096;
}

static void sums(MPI_Comm comm, int rank, int size) {
    for (int k = 0; k < 20; k++) {
        double x = rank + k, y = 0;
        MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, comm);
        CHECK(y == size * k + size * (size - 1) / 2);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int rank = world_rank, size = world_size;
    bool is_map = argc > 1 && !strcmp(argv[1], "map");
    MPI_Comm tight, roomy;
    MPI_Comm_dup(MPI_COMM_WORLD, &tight);
    MPI_Comm_dup(MPI_COMM_WORLD, &roomy);
    // So little room that the library's own small allocations still fit.
    int which = is_map ? RLIMIT_AS : RLIMIT_FSIZE, victim = is_map ? size - 1 : 0;
    rlim_t before = 0;
    if (rank == victim) before = limit(which, is_map ? mapped() + (64 << 10) : 4096);
    sums(tight, rank, size);
    if (rank == victim) limit(which, before);
    sums(roomy, rank, size);
    sums(tight, rank, size);
    MPI_Comm_free(&tight);
    MPI_Comm_free(&roomy);
    say_ok("shortage");
    MPI_Finalize();
    return 0;
}
