// Calls whose arguments the library rejects on all ranks, among valid calls: all end as they do natively, however far
// apart ranks are.
//
//   refused late     a rank is in a call while another one has failed many, and is in a barrier a ring of lines further on
//   refused cells    like late, with calls that reserve memory for slots
//   refused freed    a rejected call is the last one on a communicator; it is freed then, and others are made
//   refused apart    ranks enter a rejected call 11 s apart
#include "check.h"

enum { LINES = 32, FAILED = 4, LONGEST = 150000 };

static void check_failed(MPI_Comm comm, int times) {
    int value = 0;
    for (int i = 0; i < times; i++) CHECK(MPI_Bcast(&value, -1, MPI_INT, 0, comm) != MPI_SUCCESS);
}

static void check_sum(MPI_Comm comm, int salt) {
    int mine = world_rank + salt, sum = -1;
    CHECK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
    CHECK(sum == world_size * (world_size - 1) / 2 + world_size * salt);
}

static void check_bcast(MPI_Comm comm, int root, int value) {
    int got = world_rank == root ? value : -1;
    CHECK(MPI_Bcast(&got, 1, MPI_INT, root, comm) == MPI_SUCCESS);
    CHECK(got == value);
}

static MPI_Comm duplicate(void) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return comm;
}

static void try_late(void) {
    MPI_Comm comm = duplicate();
    for (int i = 0; i < 8; i++) MPI_Barrier(comm);
    for (int i = 0; i < 10; i++) {
        int mine = world_rank + i, sum = -1;
        if (world_rank == 0) sleep_micros(10000);
        CHECK(MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_SUM, 0, comm) == MPI_SUCCESS);
        CHECK(world_rank != 0 || sum == world_size * (world_size - 1) / 2 + world_size * i);
        check_failed(comm, FAILED);
        for (int k = 0; k < LINES - 1 - FAILED; k++) check_bcast(comm, 1, i + k);
        CHECK(MPI_Barrier(comm) == MPI_SUCCESS);
    }
    MPI_Comm_free(&comm);
}

static void try_cells(void) {
    static const int lengths[] = {3000, 9000, 40000, LONGEST};
    static char data[LONGEST];
    unsigned state = (unsigned)world_rank * 77 + 5;
    for (int i = 0; i < 30; i++) {
        MPI_Comm comm = duplicate();
        for (int k = 0; k < 4; k++) MPI_Barrier(comm);
        for (int k = 0; k < 4; k++) {
            int root = world_size - 1;
            state = state * 1103515245 + 12345;
            if (world_rank != root && (state >> 16) % 2) sleep_micros((state >> 18) % 150);
            memset(data, world_rank == root ? i + k : -1, (size_t)lengths[k]);
            CHECK(MPI_Bcast(data, lengths[k], MPI_CHAR, root, comm) == MPI_SUCCESS);
            for (int at = 0; at < lengths[k]; at++) CHECK(data[at] == (char)(i + k));
            check_failed(comm, FAILED);
        }
        MPI_Comm_free(&comm);
    }
}

static void try_freed(void) {
    for (int i = 0; i < 20; i++) {
        MPI_Comm comm = duplicate();
        check_bcast(comm, i % world_size, i);
        for (int k = 0; k < 6 + i % 2 * 20; k++) check_sum(comm, i + k);
        // In one round these ranks are late, and the others do not wait for them.
        if (i == 4 && world_rank >= world_size / 2) sleep_micros(2000000);
        check_failed(comm, 1 - i % 2);
        MPI_Comm_free(&comm);
    }
}

static void try_apart(void) {
    MPI_Comm comm = duplicate();
    for (int i = 0; i < 10; i++) check_sum(comm, i);
    if (world_rank >= world_size / 2) sleep_micros(11000000);
    check_failed(comm, 1);
    check_sum(comm, 3);
    check_bcast(comm, 1, 5);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    MPI_Init(&argc, &argv);
    look_around();
    if (strcmp(argv[1], "late") == 0) try_late();
    else if (strcmp(argv[1], "cells") == 0) try_cells();
    else if (strcmp(argv[1], "freed") == 0) try_freed();
    else try_apart();
    MPI_Finalize();
    say_ok("refused");
    return 0;
}
