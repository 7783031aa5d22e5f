// Ranks round in different directions, and trap division by zero, overflow and invalid operations: all calls are right,
// and raise none of these.
//
//   fenv WHEN     "before" or "after": when it is set, relative to MPI_Init
#include "check.h"

#include <fenv.h>

enum { LONGEST = 1 << 20, EXCEPTIONS = FE_DIVBYZERO | FE_OVERFLOW | FE_INVALID };

static int in[LONGEST], out[LONGEST];

static void set_environment(int rank) {
    static const int directions[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    feclearexcept(FE_ALL_EXCEPT);
    fesetround(directions[rank % 3]);
    feenableexcept(EXCEPTIONS);
}

static void check_all(int n, int salt) {
    int root = salt % world_size, block = n / world_size;
    for (int i = 0; i < n; i++) in[i] = i % 1000 + world_rank + salt;
    CHECK(MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    for (int i = 0; i < n; i++) CHECK(out[i] == world_size * (i % 1000 + salt) + world_size * (world_size - 1) / 2);
    MPI_Reduce(in, out, n, MPI_INT, MPI_MAX, root, MPI_COMM_WORLD);
    for (int i = 0; i < n && world_rank == root; i++) CHECK(out[i] == i % 1000 + salt + world_size - 1);
    MPI_Allgather(in, block, MPI_INT, out, block, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < block * world_size; i++) CHECK(out[i] == i % block % 1000 + i / block + salt);
    MPI_Scatter(out, block, MPI_INT, in, block, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < block; i++) CHECK(in[i] == i % 1000 + world_rank + salt);
    MPI_Bcast(in, n, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < block; i++) CHECK(in[i] == i % 1000 + root + salt);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int is_before = strcmp(argv[1], "before") == 0;
    if (is_before) set_environment(launched_rank());
    MPI_Init(&argc, &argv);
    look_around();
    if (!is_before) set_environment(world_rank);
    int direction = fegetround(), salt = 0;
    for (int n = world_size; n <= LONGEST; n += n / 4 + 1) check_all(n, salt++);
    CHECK(fegetround() == direction && fetestexcept(EXCEPTIONS) == 0);
    MPI_Finalize();
    say_ok("fenv");
    return 0;
}
