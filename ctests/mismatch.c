// An erroneous program: the last rank calls another collective than its peers. Several peers notice; huddle ends the
// job after one line of each node, instead of a hang or wrong data. With "leaves", the last rank alone notices, after
// its peers have left the call and compute for ever: then the job has to end without their help.
#include "check.h"
#include <sys/syscall.h>
#include <unistd.h>

// Writing the line takes a while: meanwhile no peer may end the job for another reason, which follows from the first.
ssize_t write(int file, const void *bytes, size_t n) {
    const char what[] = "erroneous program";
    if (file == STDERR_FILENO && memmem(bytes, n, what, sizeof what - 1)) usleep(30000);
    return syscall(SYS_write, file, bytes, n);
}

// Native traffic first, so that the library could send something to peers that don't call it any more. The root of the
// first Bcast waits for its peers, as memory has to be reserved; later roots leave at once.
static void leave(void) {
    char sent[4096] = {0}, received[4096];
    int n = 8, is_last = world_rank == world_size - 1;
    for (int call = 0; call < 3; call++) MPI_Alltoall(sent, n, MPI_CHAR, received, n, MPI_CHAR, MPI_COMM_WORLD);
    MPI_Bcast(sent, 4000, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (is_last) usleep(20000);
    MPI_Bcast(sent, 4000 + is_last, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (volatile bool computes = true; computes;) {}
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int sum = 0, value = 1;
    for (int call = 0; call < 5; call++) {
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(sum == world_size);
    }
    if (argc > 1 && strcmp(argv[1], "leaves") == 0) leave();
    if (world_rank == world_size - 1) MPI_Barrier(MPI_COMM_WORLD);
    else MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(!"the program goes on");
    MPI_Finalize();
    return 0;
}
