// Allgathers whose input begins where their output does, without MPI_IN_PLACE. MPI forbids that, Open MPI lets it pass. Each rank's block must
// be what the input was when the call began: ranks other than the first overwrite their input with the first one's block.
#include "check.h"

static const int counts[] = {1, 3, 24, 64, 1000, 20000, 300000, 700000};

static int value(int rank, int call, int i) { return rank * 1000003 + call * 17 + i; }

// The elements are `type`, of which each has one int at its beginning and takes `stride` ints.
static void gather(int count, MPI_Datatype type, int stride, int call) {
    size_t block = (size_t)count * stride;
    int *all = malloc(sizeof(int) * block * world_size);
    for (size_t i = 0; i < block * world_size; i++) all[i] = -1;
    for (int i = 0; i < count; i++) all[(size_t)i * stride] = value(world_rank, call, i);
    CHECK(MPI_Allgather(all, count, type, all, count, type, MPI_COMM_WORLD) == MPI_SUCCESS);
    for (int rank = 0; rank < world_size; rank++) {
        for (int i = 0; i < count; i++) {
            const int *element = all + rank * block + (size_t)i * stride;
            CHECK(element[0] == value(rank, call, i));
            for (int j = 1; j < stride; j++) CHECK(element[j] == -1);
        }
    }
    free(all);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    MPI_Datatype spaced;
    MPI_Type_create_resized(MPI_INT, 0, 3 * sizeof(int), &spaced);
    MPI_Type_commit(&spaced);
    for (int call = 0; call < 6; call++) {
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            gather(counts[i], MPI_INT, 1, call);
            if (counts[i] <= 20000) gather(counts[i], spaced, 3, call);
        }
    }
    say_ok("aliased");
    MPI_Type_free(&spaced);
    MPI_Finalize();
    return 0;
}
