// A rank that waits in a collective, awake or asleep, must keep the MPI library's own traffic moving; so must a rank
// that hardly ever waits. In each scene but the last two rank 0 starts an operation and enters a collective at once.
// The last rank needs that operation to get through before it enters the collective itself.
#include "check.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

enum { BYTES = 8 << 20, WINDOW = 1 << 18, SCENES = 6 };
static unsigned char *buffer, *exposed;
static MPI_Comm wires;
static MPI_Win window;
static int last, *counts;

static void collective(int which, int salt) {
    int mine = world_rank + salt, got = -1;
    switch (which % 6) {
    case 0:
        MPI_Allreduce(&mine, &got, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        CHECK(got == last + salt);
        break;
    case 1:  // rank 0 waits for the late root
        got = world_rank == last ? salt : -1;
        MPI_Bcast(&got, 1, MPI_INT, last, MPI_COMM_WORLD);
        CHECK(got == salt);
        break;
    case 2:
        MPI_Reduce(&mine, &got, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
        CHECK(world_rank != 0 || got == last + salt);
        break;
    case 3:
        MPI_Allgather(&mine, 1, MPI_INT, counts, 1, MPI_INT, MPI_COMM_WORLD);
        CHECK(counts[last] == last + salt);
        break;
    case 4: MPI_Barrier(MPI_COMM_WORLD); break;
    default:
        for (int i = 0; i < world_size; i++) counts[i] = salt + i;
        MPI_Scatter(counts, 1, MPI_INT, &got, 1, MPI_INT, last, MPI_COMM_WORLD);
        CHECK(got == salt + world_rank);
    }
}

static void check_bytes(const unsigned char *bytes, int n, int value) {
    for (int i = 0; i < n; i += 997) CHECK(bytes[i] == value);
    CHECK(bytes[n - 1] == value);
}

static void large_message(int which, int salt, bool synchronous) {
    MPI_Request request = MPI_REQUEST_NULL;
    int n = synchronous ? 100 : BYTES;
    if (world_rank == 0) {
        memset(buffer, salt, (size_t)n);
        if (synchronous) MPI_Issend(buffer, n, MPI_BYTE, last, 1, wires, &request);
        else MPI_Isend(buffer, n, MPI_BYTE, last, 1, wires, &request);
    } else if (world_rank == last) {
        if (synchronous) sleep_micros(5000);
        MPI_Recv(buffer, n, MPI_BYTE, 0, 1, wires, MPI_STATUS_IGNORE);
        check_bytes(buffer, n, salt);
    }
    collective(which, salt);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// The last rank completes a nonblocking collective before it enters the blocking one, in which the others already wait.
static void pending_collective(int which, int salt, bool bcast) {
    MPI_Request request;
    int mine = world_rank == 0 ? salt : -1, got = -1;
    if (bcast) MPI_Ibcast(&mine, 1, MPI_INT, 0, wires, &request);
    else MPI_Iallreduce(&mine, &got, 1, MPI_INT, MPI_MAX, wires, &request);
    if (world_rank == last) MPI_Wait(&request, MPI_STATUS_IGNORE);
    collective(which, salt);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK((bcast ? mine : got) == salt);
}

// Rank 0, the target, makes no call for it.
static void passive_target(int which, int salt, bool get) {
    if (world_rank == last) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        memset(buffer, salt, WINDOW);
        MPI_Put(buffer, WINDOW, MPI_BYTE, 0, 0, WINDOW, MPI_BYTE, window);
        MPI_Win_flush(0, window);
        if (get) {
            memset(buffer, 0, WINDOW);
            MPI_Get(buffer, WINDOW, MPI_BYTE, 0, 0, WINDOW, MPI_BYTE, window);
        }
        MPI_Win_unlock(0, window);
        check_bytes(buffer, WINDOW, salt);
    }
    collective(which, salt);
    if (world_rank != 0) return;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    check_bytes(exposed, WINDOW, salt);
    MPI_Win_unlock(0, window);
}

static void compute(double seconds) {
    double start = MPI_Wtime();
    while (MPI_Wtime() - start < seconds) {}
}

// Ranks compute between collectives and enter them together. A message in pieces gets through in these calls alone, a
// part of it in each: natively in 3 to 17 of them. Returns the number of calls.
static int sparse_collectives(int salt) {
    enum { CALLS = 100 };
    MPI_Request request = MPI_REQUEST_NULL;
    volatile unsigned char *end = buffer + BYTES - 1;
    memset(buffer, world_rank == 0 ? salt : 0, BYTES);
    MPI_Barrier(wires);
    if (world_rank == 0) MPI_Isend(buffer, BYTES, MPI_BYTE, last, 1, wires, &request);
    if (world_rank == last) MPI_Irecv(buffer, BYTES, MPI_BYTE, 0, 1, wires, &request);
    int calls = 0;
    for (int has_come = 0; !has_come; calls++) {
        CHECK(calls < CALLS);
        compute(1e-4);
        int mine = world_rank != last || *end == salt;
        MPI_Allreduce(&mine, &has_come, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (world_rank == last) check_bytes(buffer, BYTES, salt);
    return calls;
}

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// Nobody has accessed memory of others for so long that windows no longer count as traffic (src/mpi/windows.rs). Then
// rank 0 is the root of calls far apart; they are fewer than the lines of its ring, so it never waits. Meanwhile the
// last rank accesses rank 0's memory. Returns whether that access ended before the last call.
static bool passive_target_of_root(int salt) {
    enum { QUIET = 600, CALLS = 24 };
    for (int millisecond = 0; millisecond < QUIET; millisecond++) {
        sleep_micros(1000);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    double end = 0, came = 0;
    int got;
    if (world_rank == last) {
        unsigned char byte = (unsigned char)salt;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Put(&byte, 1, MPI_BYTE, 0, 0, 1, MPI_BYTE, window);
        MPI_Win_unlock(0, window);
        came = seconds();
    }
    for (int call = 0; call < CALLS; call++) {
        if (world_rank == 0) compute(2e-5);
        got = world_rank == 0 ? salt + call : -1;
        MPI_Bcast(&got, 1, MPI_INT, 0, MPI_COMM_WORLD);
        CHECK(got == salt + call);
    }
    if (world_rank == 0) end = seconds();
    MPI_Bcast(&end, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Bcast(&came, 1, MPI_DOUBLE, last, MPI_COMM_WORLD);
    return came < end;
}

// Some libraries make no progress in such calls natively. Where ranks share cores, the times tell about the cores.
static void reach_into_root(void) {
    enum { TIMES = 8 };
    int (*is_active)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "huddle_is_active");
    cpu_set_t cores;
    CHECK(sched_getaffinity(0, sizeof cores, &cores) == 0);
    int own = is_active != NULL && is_active() && world_size <= sysconf(_SC_NPROCESSORS_ONLN), all, came = 0;
    // A bound rank has a core of its own.
    own = own && (CPU_COUNT(&cores) == 1 || CPU_COUNT(&cores) >= world_size);
    MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!all) {
        if (world_rank == 0) printf("progress: memory of a root left out: native calls, or ranks share cores\n");
        return;
    }
    for (int i = 0; i < TIMES; i++) came += passive_target_of_root(i);
    if (world_rank == 0) printf("progress: %d of %d came into the memory of a root\n", came, TIMES);
    CHECK(came > TIMES / 2);
}

// Neighbours exchange numbers by nonblocking calls, some with MPI_PROC_NULL, and by persistent requests. They complete
// these in every way that there is. How the requests are counted must not hide the traffic of later scenes.
static void complete_in_all_ways(void) {
    enum { WAYS = 8, REQUESTS = 7, FIRST_PERSISTENT = 5 };
    int left = (world_rank + world_size - 1) % world_size, right = (world_rank + 1) % world_size;
    int sent, came[2], nothing = -1, done, index, indices[REQUESTS];
    MPI_Request requests[REQUESTS];
    MPI_Recv_init(&came[1], 1, MPI_INT, right, WAYS, wires, &requests[FIRST_PERSISTENT]);
    MPI_Send_init(&sent, 1, MPI_INT, left, WAYS, wires, &requests[FIRST_PERSISTENT + 1]);
    for (int way = 0; way < WAYS; way++) {
        sent = 10 * world_rank + way, came[0] = came[1] = -1, done = 0;
        requests[0] = MPI_REQUEST_NULL;
        MPI_Irecv(&came[0], 1, MPI_INT, left, way, wires, &requests[1]);
        MPI_Isend(&sent, 1, MPI_INT, right, way, wires, &requests[2]);
        MPI_Irecv(&nothing, 1, MPI_INT, MPI_PROC_NULL, way, wires, &requests[3]);
        MPI_Ibarrier(wires, &requests[4]);
        MPI_Start(&requests[FIRST_PERSISTENT]);
        MPI_Startall(1, &requests[FIRST_PERSISTENT + 1]);
        switch (way) {
        case 0:
            for (int i = 0; i < REQUESTS; i++) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
            break;
        case 1:
            for (int i = 0; i < REQUESTS; i++)
                for (done = 0; !done;) MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE);
            break;
        case 2: MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE); break;
        case 3:
            while (!done) MPI_Testall(REQUESTS, requests, &done, MPI_STATUSES_IGNORE);
            break;
        case 4:
            do MPI_Waitany(REQUESTS, requests, &index, MPI_STATUS_IGNORE);
            while (index != MPI_UNDEFINED);
            break;
        case 5:
            do MPI_Testany(REQUESTS, requests, &index, &done, MPI_STATUS_IGNORE);
            while (!done || index != MPI_UNDEFINED);
            break;
        case 6:
            do MPI_Waitsome(REQUESTS, requests, &done, indices, MPI_STATUSES_IGNORE);
            while (done != MPI_UNDEFINED);
            break;
        default:
            do MPI_Testsome(REQUESTS, requests, &done, indices, MPI_STATUSES_IGNORE);
            while (done != MPI_UNDEFINED);
        }
        CHECK(came[0] == 10 * left + way && came[1] == 10 * right + way && nothing == -1);
        for (int i = 0; i < FIRST_PERSISTENT; i++) CHECK(requests[i] == MPI_REQUEST_NULL);
    }
    sparse_collectives(102);
    for (int i = FIRST_PERSISTENT; i < REQUESTS; i++) MPI_Request_free(&requests[i]);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    CHECK(world_size >= 2);
    last = world_size - 1;
    int rounds = argument(argc, argv, 3);
    buffer = malloc(BYTES), exposed = calloc(1, WINDOW), counts = malloc((size_t)world_size * sizeof(int));
    CHECK(buffer != NULL && exposed != NULL && counts != NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &wires);
    // The first traffic of these processes.
    sparse_collectives(101);
    complete_in_all_ways();
    MPI_Win_create(exposed, WINDOW, 1, MPI_INFO_NULL, wires, &window);
    for (int round = 0; round < rounds; round++) {
        for (int which = 0; which < 6; which++) {
            int salt = 1 + (round * 6 + which) % 100;
            large_message(which, salt, false);
            large_message(which, salt, true);
            pending_collective(which, salt, false);
            pending_collective(which, salt, true);
            passive_target(which, salt, false);
            passive_target(which, salt, true);
        }
        int calls = sparse_collectives(1 + round);
        if (world_rank == 0) printf("progress: a message of %d MiB took %d collectives\n", BYTES >> 20, calls);
    }
    reach_into_root();
    MPI_Win_free(&window);
    MPI_Comm_free(&wires);
    free(buffer), free(exposed), free(counts);
    MPI_Finalize();
    say_ok("progress");
    return 0;
}
