// A barrier synchronises: no rank leaves before all have entered, and what was written before it is visible after it.
// Each rank stamps its own place in a shared window, without any other synchronisation.
#include "check.h"

#include <stdatomic.h>

enum { LINE = 16 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int rounds = argument(argc, argv, 3000), size, rank, unit;
    MPI_Comm node;
    MPI_Win window;
    MPI_Aint bytes;
    _Atomic int *mine, *first;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &size);
    MPI_Comm_rank(node, &rank);
    MPI_Win_allocate_shared(LINE * sizeof(int), sizeof(int), MPI_INFO_NULL, node, &mine, &window);
    MPI_Win_shared_query(window, 0, &bytes, &unit, &first);
    MPI_Win_lock_all(0, window);
    mine = first + rank * LINE;
    for (int i = 0; i < LINE; i++) atomic_store_explicit(&mine[i], 0, memory_order_relaxed);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 1; round <= rounds; round++) {
        unsigned seed = (unsigned)(round * 31 + world_rank * 7);
        if (next_number(&seed) % 97 == 0) sleep_micros(300);
        atomic_store_explicit(&mine[0], round, memory_order_relaxed);
        MPI_Barrier(round % 5 == 4 ? node : MPI_COMM_WORLD);
        for (int i = 0; i < size; i++) {
            int stamp = atomic_load_explicit(&first[i * LINE], memory_order_relaxed);
            CHECK(stamp == round || stamp == round + 1);
        }
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Comm_free(&node);
    MPI_Finalize();
    say_ok("barrier_order");
    return 0;
}
