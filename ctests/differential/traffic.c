// Traffic that a program has under way while it calls collectives: large messages, one-sided accesses and nonblocking
// collectives that complete only if the waiting ranks drive the MPI library.
#include "differential.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NOTHING, RING, SYNCHRONOUS, LATE_SENDER, IBARRIER, IALLREDUCE, IBCAST, FENCE, LOCK, KINDS };
enum { MOST = 1 << 20, WINDOW = 1 << 16 };

static MPI_Comm wires;
static int rank, size;
static MPI_Win window;
static unsigned char *out, *in, *exposed;
static MPI_Request pending_requests[2];
static int bytes, left, right;
static unsigned char stamp;

const char *traffic_name(int pending) {
    static const char *const names[KINDS] = {"nothing", "a large Isend", "an Issend", "a large Isend to a rank that is late",
                                             "an Ibarrier", "an Iallreduce", "an Ibcast", "a fence epoch", "passive targets"};
    return names[pending];
}

static void fail(const char *what) {
    fprintf(stderr, "differential: step %ld: pending traffic arrived wrong: %s\n", (long)settings.step, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

void traffic_start(void) {
    MPI_Comm_dup(MPI_COMM_WORLD, &wires);
    MPI_Comm_rank(wires, &rank);
    MPI_Comm_size(wires, &size);
    left = (rank + size - 1) % size, right = (rank + 1) % size;
    out = malloc(MOST), in = malloc(MOST), exposed = calloc(1, WINDOW);
    if (out == NULL || in == NULL || exposed == NULL) fail("no memory");
    MPI_Win_create(exposed, WINDOW, 1, MPI_INFO_NULL, wires, &window);
}

void traffic_end(void) {
    MPI_Win_free(&window);
    MPI_Comm_free(&wires);
    free(out), free(in), free(exposed);
}

static void check(const unsigned char *received, int n, unsigned char expected, const char *what) {
    for (int i = 0; i < n; i++)
        if (received[i] != expected) fail(what);
}

static void post_ring(void) {
    MPI_Irecv(in, bytes, MPI_BYTE, left, 1, wires, &pending_requests[0]);
    MPI_Isend(out, bytes, MPI_BYTE, right, 1, wires, &pending_requests[1]);
}

// Rank 0 sends and goes on to the collectives; the last rank has to receive before it gets there.
static void post_late(void) {
    pending_requests[0] = MPI_REQUEST_NULL;
    if (rank == 0) MPI_Isend(out, bytes, MPI_BYTE, size - 1, 2, wires, &pending_requests[0]);
    if (rank != size - 1) return;
    MPI_Recv(in, bytes, MPI_BYTE, 0, 2, wires, MPI_STATUS_IGNORE);
}

static void put_under_lock(void) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, window);
    MPI_Put(out, bytes, MPI_BYTE, right, 0, bytes, MPI_BYTE, window);
    MPI_Win_unlock(right, window);
}

int traffic_begin(Random *shared) {
    int kind = (int)random_between(shared, 1, KINDS - 1);
    bytes = (int)random_between(shared, 1 << 14, random_chance(shared, 50) ? MOST : 1 << 17);
    stamp = (unsigned char)random_bits(shared);
    if (kind >= IBARRIER && bytes > WINDOW) bytes = WINDOW;
    memset(out, stamp, (size_t)bytes);
    switch (kind) {
    case RING: post_ring(); break;
    case SYNCHRONOUS: MPI_Issend(out, bytes, MPI_BYTE, right, 3, wires, &pending_requests[0]); break;
    case LATE_SENDER: post_late(); break;
    case IBARRIER: MPI_Ibarrier(wires, &pending_requests[0]); break;
    case IALLREDUCE: MPI_Iallreduce(out, in, bytes, MPI_UNSIGNED_CHAR, MPI_MAX, wires, &pending_requests[0]); break;
    case IBCAST: MPI_Ibcast(out, bytes, MPI_BYTE, size - 1, wires, &pending_requests[0]); break;
    case FENCE:
        MPI_Win_fence(0, window);
        MPI_Put(out, bytes, MPI_BYTE, right, 0, bytes, MPI_BYTE, window);
        break;
    case LOCK:
        if (rank % 2 == 0) put_under_lock();
        break;
    }
    return kind;
}

void traffic_complete(int pending) {
    switch (pending) {
    case RING:
        MPI_Waitall(2, pending_requests, MPI_STATUSES_IGNORE);
        check(in, bytes, stamp, "Isend");
        break;
    case SYNCHRONOUS:
        MPI_Recv(in, bytes, MPI_BYTE, left, 3, wires, MPI_STATUS_IGNORE);
        MPI_Wait(&pending_requests[0], MPI_STATUS_IGNORE);
        check(in, bytes, stamp, "Issend");
        break;
    case LATE_SENDER:
        MPI_Wait(&pending_requests[0], MPI_STATUS_IGNORE);
        if (rank == size - 1) check(in, bytes, stamp, "Isend to a late rank");
        break;
    case IBARRIER: case IALLREDUCE: case IBCAST:
        MPI_Wait(&pending_requests[0], MPI_STATUS_IGNORE);
        if (pending == IALLREDUCE) check(in, bytes, stamp, "Iallreduce");
        if (pending == IBCAST) check(out, bytes, stamp, "Ibcast");
        break;
    case FENCE:
        MPI_Win_fence(0, window);
        check(exposed, bytes, stamp, "Put in a fence epoch");
        MPI_Win_fence(0, window);
        break;
    }
}

// Ranks arrive at different times: some of them sleep, some of them compute.
void skew(Random *local) {
    int64_t kind = random_below(local, 24), micros = random_below(local, 300);
    if (kind == 0) {
        struct timespec time = {0, micros * 1000};
        nanosleep(&time, NULL);
    } else if (kind == 1) {
        double until = MPI_Wtime() + (double)micros * 1e-6;
        while (MPI_Wtime() < until) {}
    }
}
