// An erroneous program: the last rank calls another collective than its peers. Several peers notice; huddle ends the
// job after one line, instead of a hang or wrong data.
#include "check.h"
#include <sys/syscall.h>
#include <unistd.h>

// Writing the line takes a while: meanwhile no peer may end the job for another reason, which follows from the first.
ssize_t write(int file, const void *bytes, size_t n) {
    const char what[] = "erroneous program";
    if (file == STDERR_FILENO && memmem(bytes, n, what, sizeof what - 1)) usleep(30000);
    return syscall(SYS_write, file, bytes, n);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int sum = 0, value = 1;
    for (int call = 0; call < 5; call++) {
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(sum == world_size);
    }
    if (world_rank == world_size - 1) MPI_Barrier(MPI_COMM_WORLD);
    else MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(!"the program goes on");
    MPI_Finalize();
    return 0;
}
