// The module that host.c loads.
#include "../check.h"

int local_load_run(void);

int local_load_run(void) {
    MPI_Init(NULL, NULL);
    look_around();
    for (int i = 0; i < 20; i++) {
        int sum = -1, value = world_rank == i % world_size ? i : -1;
        MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(sum == world_size * (world_size - 1) / 2);
        MPI_Bcast(&value, 1, MPI_INT, i % world_size, MPI_COMM_WORLD);
        CHECK(value == i);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    say_ok("local_load");
    return 0;
}
