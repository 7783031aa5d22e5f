// Shared memory that huddle maps: as much as docs/LIMITS.md says per communicator, and however many communicators a program
// makes, uses and frees, no more than for those that it has and the last 8 that it freed. Argument: communicators freed.
#include "check.h"

enum { KEPT = 8, ALIVE = 5, MOST_SEGMENTS = 256 };

// Segments that this process maps, and their bytes.
static int segments(long *bytes) {
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    unsigned long begin, end;
    char line[4096];
    int n = 0;
    *bytes = 0;
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "/memfd:huddle") && sscanf(line, "%lx-%lx", &begin, &end) == 2 && end - begin > 65536) n++, *bytes += (long)(end - begin);
    fclose(maps);
    return n;
}

static void use(MPI_Comm comm) {
    int sum = -1;
    for (int call = 0; call < 4; call++) {
        MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, comm);
        CHECK(sum == world_size * (world_size - 1) / 2);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int freed = argument(argc, argv, 100);
    bool is_bare = getenv("HUDDLE_REPORT") == NULL;
    MPI_Comm alive[ALIVE], comm;
    long bytes;
    use(MPI_COMM_WORLD);
    for (int i = 0; i < ALIVE; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &alive[i]);
        use(alive[i]);
        CHECK(segments(&bytes) == (is_bare ? 0 : i + 2));
        CHECK(bytes <= (i + 2) * (9L << 20));
    }
    for (int i = 0; i < freed; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        use(comm);
        use(alive[i % ALIVE]);
        MPI_Comm_free(&comm);
        CHECK(segments(&bytes) <= ALIVE + 1 + KEPT);
    }
    for (int i = 0; i < ALIVE; i++) MPI_Comm_free(&alive[i]);
    CHECK(segments(&bytes) <= 1 + KEPT);
    MPI_Finalize();
    say_ok("memory");
    return 0;
}
