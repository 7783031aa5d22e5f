// One rank comes seconds after the others, which wait all the time: nothing may break, and with HUDDLE_STALL_SECONDS=1
// the waiting ranks say which rank they wait for. Argument: milliseconds.
#include "check.h"

int main(int argc, char **argv) {
    int sum = -1;
    MPI_Init(&argc, &argv);
    look_around();
    long late = argument(argc, argv, 2500);
    for (int i = 0; i < 4; i++) MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (world_rank == world_size - 1) sleep_micros(late * 1000);
    MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == world_size * (world_size - 1) / 2);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    say_ok("late_rank");
    return 0;
}
