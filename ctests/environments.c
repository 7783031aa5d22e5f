// The ranks' environments differ: rank 0's counts, also if it disables huddle.
//
//   environments first|others       which ranks set HUDDLE_DISABLE=1
#include "check.h"

int main(int argc, char **argv) {
    CHECK(argc == 2);
    bool is_first = launched_rank() == 0;
    if (is_first == (strcmp(argv[1], "first") == 0)) setenv("HUDDLE_DISABLE", "1", 1);
    MPI_Init(&argc, &argv);
    look_around();
    for (int i = 0; i < 20; i++) {
        int mine = world_rank + i, sum = -1;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(sum == world_size * (world_size - 1) / 2 + world_size * i);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    say_ok("environments");
    return 0;
}
