// The MPI library has no communicator left for the steps between nodes: the program's communicator stays native, and
// nothing is lost. HUDDLE_BRIDGES allows one communicator with such steps; the next one gets that place.
#include "check.h"

enum { MOST = 5000 };

static void sums(MPI_Comm comm) {
    for (int k = 0; k < 5; k++) {
        int mine = world_rank + k, sum = -1;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
        CHECK(sum == world_size * (world_size - 1) / 2 + world_size * k);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    static MPI_Comm own[MOST];
    MPI_Comm tight, roomy;
    MPI_Comm_dup(MPI_COMM_WORLD, &tight);
    MPI_Comm_dup(MPI_COMM_WORLD, &roomy);
    // Take all communicators that the library can number.
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int n = 0;
    while (n < MOST && MPI_Comm_dup(MPI_COMM_SELF, &own[n]) == MPI_SUCCESS) n++;
    CHECK(n < MOST);
    sums(tight);
    for (int i = 0; i < n; i++) MPI_Comm_free(&own[i]);
    sums(roomy);
    sums(tight);
    MPI_Comm_free(&tight);
    MPI_Comm_free(&roomy);
    say_ok("bridge_place");
    MPI_Finalize();
    return 0;
}
