// Wrong arguments on one rank only, on a communicator over two nodes of two ranks each. The job goes on if no other
// node depends on that rank; otherwise it ends at once with a line, whatever comes after the call. Data are never
// wrong.
//
//   nodes_error WHO WHAT     WHO: the rank; WHAT: "bcast" from rank 2, "allreduce", or "all": all ranks are wrong, so the job goes on
#include "check.h"

static void check_normal(int salt) {
    int mine = world_rank + salt, sum = -1, value = world_rank == 1 ? salt : -1;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == world_size * (world_size - 1) / 2 + world_size * salt);
    MPI_Bcast(&value, 1, MPI_INT, 1, MPI_COMM_WORLD);
    CHECK(value == salt);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    MPI_Init(&argc, &argv);
    look_around();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    bool is_all = strcmp(argv[2], "all") == 0, is_wrong = is_all || world_rank == atoi(argv[1]);
    for (int i = 0; i < 5; i++) check_normal(i);
    int value = world_rank == 2 ? 77 : -1, sum = -1, code;
    if (strcmp(argv[2], "bcast") == 0) {
        code = MPI_Bcast(&value, is_wrong ? -1 : 1, MPI_INT, 2, MPI_COMM_WORLD);
        CHECK(is_wrong ? code != MPI_SUCCESS : code != MPI_SUCCESS || value == 77);
    } else {
        code = MPI_Allreduce(&value, &sum, 1, MPI_INT, is_wrong ? MPI_OP_NULL : MPI_SUM, MPI_COMM_WORLD);
        CHECK(code != MPI_SUCCESS);
    }
    for (int i = 0; i < 50; i++) check_normal(i);
    MPI_Finalize();
    say_ok("nodes_error");
    return 0;
}
