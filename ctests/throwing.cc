// An error handler that throws, as C++ programs have them. The exception passes through huddle to the program, whose
// later calls are right.
#define MPICH_SKIP_MPICXX // bindings of MPI-2, in libraries that are not linked
#define OMPI_SKIP_MPICXX
#include "check.h"

#include <functional>
#include <stdexcept>

static void throw_error(MPI_Comm *, int *, ...) { throw std::runtime_error("thrown"); }

static int own, all[64];

static void expect_error(const std::function<void()> &call) {
    bool has_thrown = false;
    try {
        call();
    } catch (const std::runtime_error &) {
        has_thrown = true;
    }
    CHECK(has_thrown);
    int sum = -1;
    MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == world_size * (world_size - 1) / 2);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    CHECK(world_size <= 64);
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(throw_error, &handler);
    for (MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF}) MPI_Comm_set_errhandler(comm, handler);
    for (int round = 0, rounds = argument(argc, argv, 20); round < rounds; round++) {
        expect_error([] { MPI_Allreduce(&own, all, 1, MPI_DATATYPE_NULL, MPI_SUM, MPI_COMM_WORLD); });
        expect_error([] { MPI_Bcast(&own, -1, MPI_INT, 0, MPI_COMM_WORLD); });
        expect_error([] { MPI_Bcast(&own, 1, MPI_INT, world_size, MPI_COMM_WORLD); });
        expect_error([] { MPI_Reduce(&own, all, 1, MPI_INT, MPI_OP_NULL, 0, MPI_COMM_WORLD); });
        expect_error([] { MPI_Allgather(&own, -1, MPI_INT, all, -1, MPI_INT, MPI_COMM_WORLD); });
        expect_error([] { MPI_Scatter(all, 1, MPI_INT, &own, 1, MPI_INT, -7, MPI_COMM_WORLD); });
        // Calls without a communicator.
        expect_error([] { MPI_Wait(nullptr, MPI_STATUS_IGNORE); });
        expect_error([] { MPI_Waitall(-1, nullptr, MPI_STATUSES_IGNORE); });
        expect_error([] { MPI_Test(nullptr, &own, MPI_STATUS_IGNORE); });
    }
    for (MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF}) MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
    MPI_Finalize();
    say_ok("throwing");
    return 0;
}
