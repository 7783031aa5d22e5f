// The shared memory that huddle maps: per communicator as much as docs/LIMITS.md says. However many communicators a
// program makes, uses and frees, huddle maps no more than for the existing ones, the last 8 freed ones, and one ahead
// on their first rank. On one node no more of a communicator's memory is reserved than its messages need. Argument:
// communicators freed. "nodes": a communicator on several nodes that takes over the segments of smaller ones has all
// its memory from the start. "much": a communicator with many calls of some kibibytes gets all its memory, and pieces
// go round in it.
#include "check.h"
#include <stdint.h>
#include <sys/mman.h>

enum { KEPT = 8, ALIVE = 5, PAGE = 4096, MOST_PAGES = 1 << 14 };

// Bytes of a mapping that are in memory.
static long reserved(unsigned long begin, unsigned long end) {
    static unsigned char pages[MOST_PAGES];
    long count = (long)(end - begin) / PAGE, n = 0;
    CHECK(count <= MOST_PAGES && mincore((void *)(uintptr_t)begin, end - begin, pages) == 0);
    for (long i = 0; i < count; i++) n += pages[i] & 1;
    return n * PAGE;
}

// The number of segments that this process maps, their bytes, and how many of the bytes are reserved.
static int segments(long *bytes, long *there) {
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    unsigned long begin, end;
    char line[4096];
    int n = 0;
    *bytes = *there = 0;
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "/memfd:huddle") && sscanf(line, "%lx-%lx", &begin, &end) == 2 && end - begin > 65536)
            n++, *bytes += (long)(end - begin), *there += reserved(begin, end);
    fclose(maps);
    return n;
}

static void use(MPI_Comm comm) {
    int one = 1, sum = -1, size;
    MPI_Comm_size(comm, &size);
    for (int call = 0; call < 4; call++) {
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
        CHECK(sum == size);
    }
}

// Many messages of some kibibytes: after the first ones the whole segment is reserved, and all messages are right.
static void use_much(MPI_Comm comm) {
    enum { WORDS = 2048, CALLS = 600, ENOUGH = 300 };
    static int words[WORDS];
    int me, size;
    long bytes, there;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &size);
    // Two ranks need their rings only if one of them writes for longer than the passed cells last. These cells are a
    // third of the segment, or half of it where cells are short.
    int in_a_row = size == 2 ? 100 : 7, most = size == 2 ? 5 : 9;
    use(comm);
    for (int call = 0; call < CALLS; call++) {
        int root = call / in_a_row % size;
        for (int i = 0; i < WORDS; i++) words[i] = me == root ? call * WORDS + i : -1;
        MPI_Bcast(words, WORDS, MPI_INT, root, comm);
        for (int i = 0; i < WORDS; i++) CHECK(words[i] == call * WORDS + i);
        CHECK(segments(&bytes, &there) == 1);
        if (call < 200) CHECK(there <= bytes / 2);
        if (call == ENOUGH) CHECK(there > bytes / 10 * most); // all but lines that nobody has used
    }
}

// Ranks 2k and 2k + 1 are on a node.
static void on_nodes(void) {
    MPI_Comm node, all;
    long bytes, there;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank / 2, world_rank, &node);
    use(node);
    CHECK(segments(&bytes, &there) == 1 && there < bytes / 4);
    MPI_Comm_free(&node);
    MPI_Comm_dup(MPI_COMM_WORLD, &all);
    use(all);
    CHECK(segments(&bytes, &there) == 1 && there >= bytes);
    MPI_Comm_free(&all);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    if (argc > 1 && (!strcmp(argv[1], "nodes") || !strcmp(argv[1], "much"))) {
        if (argv[1][0] == 'n') on_nodes();
        else use_much(MPI_COMM_WORLD);
        say_ok("memory");
        MPI_Finalize();
        return 0;
    }
    int freed = argument(argc, argv, 100);
    bool is_bare = getenv("HUDDLE_REPORT") == NULL;
    MPI_Comm alive[ALIVE], comm;
    long bytes, there;
    int ahead = !is_bare && world_rank == 0;
    use(MPI_COMM_WORLD);
    CHECK(segments(&bytes, &there) == (is_bare ? 0 : 1)); // none made ahead: most programs have one communicator
    for (int i = 0; i < ALIVE; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &alive[i]);
        use(alive[i]);
        int n = segments(&bytes, &there), own = is_bare ? 0 : i + 2;
        CHECK(n == own + ahead || (world_size > 2 && n == own)); // none ahead where it would be too long: many ranks share cores
        CHECK(bytes <= (i + 2 + ahead) * (9L << 20) && there <= bytes / 8);
    }
    for (int i = 0; i < freed; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        use(comm);
        use(alive[i % ALIVE]);
        MPI_Comm_free(&comm);
        CHECK(segments(&bytes, &there) <= ALIVE + 1 + KEPT + ahead && there <= bytes / 8);
    }
    for (int i = 0; i < ALIVE; i++) MPI_Comm_free(&alive[i]);
    CHECK(segments(&bytes, &there) <= 1 + KEPT + ahead);
    MPI_Finalize();
    say_ok("memory");
    return 0;
}
