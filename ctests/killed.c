// A rank is killed while its peers wait for it: the launcher ends the job, and ctests/run finds nothing of huddle's
// left in /dev/shm. Memory held under a name would stay there.
#include "check.h"
#include <signal.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int sum = 0, value = 1;
    for (int call = 0; call < 5; call++) {
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(sum == world_size);
    }
    if (world_rank == world_size - 1) {
        sleep_micros(50000);
        raise(SIGKILL);
    }
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(!"the program goes on");
    MPI_Finalize();
    return 0;
}
