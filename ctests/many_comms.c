// Nearly as many communicators at a time as the MPI library can number: for a communicator of one node huddle uses none
// of these numbers. Most communicators are idle, some are used. Argument: how many.
#include "check.h"

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int n = argument(argc, argv, 1000), sum;
    MPI_Comm *comms = malloc((size_t)n * sizeof *comms);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < n; i++) {
        CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]) == MPI_SUCCESS);
        for (int call = 0; call < 4 && i % 100 == 0; call++) {
            MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, comms[i]);
            CHECK(sum == world_size * (world_size - 1) / 2);
        }
    }
    for (int i = 0; i < n; i++) MPI_Comm_free(&comms[i]);
    free(comms);
    MPI_Finalize();
    say_ok("many_comms");
    return 0;
}
