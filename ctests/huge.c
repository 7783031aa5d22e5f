// Offsets, element counts (with --uneven also counts that only one rank has) and, with --big, bytes beyond 2^31.
// Without --big the memory is tiny: address space is reserved, and only a few pages of it are touched. --big needs
// about 3 GiB per rank. It is left out, with a line, on a node with less than 4 GiB per rank.
#include "check.h"

#include <limits.h>
#include <sys/mman.h>

static const size_t FAR = (size_t)1 << 30;

static void *reserve(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static int *far(char *base, int i) { return (int *)(base + (size_t)i * FAR); }

static void add_far(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++) *far(inout, i) += *far(in, i);
}

// One int in every GiB: displacements do not fit an int.
static void offsets(int root) {
    MPI_Datatype apart;
    MPI_Op op;
    size_t bytes = (size_t)(world_size > 4 ? world_size : 4) * FAR;
    char *area = reserve(bytes), *result = reserve(bytes);
    int got = -1, all[64];
    bool is_root = world_rank == root;
    CHECK(world_size <= 64);
    MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint)FAR, &apart);
    MPI_Type_commit(&apart);

    for (int i = 0; i < 4; i++) *far(area, i) = is_root ? 70 + i : -1;
    MPI_Bcast(area, 4, apart, root, MPI_COMM_WORLD);
    for (int i = 0; i < 4; i++) CHECK(*far(area, i) == 70 + i);

    int mine = world_rank * 5 + 1;
    MPI_Allgather(&mine, 1, MPI_INT, area, 1, apart, MPI_COMM_WORLD);
    for (int i = 0; i < world_size; i++) CHECK(*far(area, i) == i * 5 + 1);
    MPI_Allgather(far(area, world_rank), 1, apart, all, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < world_size; i++) CHECK(all[i] == i * 5 + 1);

    MPI_Scatter(area, 1, apart, &got, 1, MPI_INT, root, MPI_COMM_WORLD);
    CHECK(got == world_rank * 5 + 1);

    MPI_Op_create(add_far, 1, &op);
    for (int i = 0; i < 3; i++) *far(area, i) = world_rank + i, *far(result, i) = -1;
    MPI_Allreduce(area, result, 3, apart, op, MPI_COMM_WORLD);
    for (int i = 0; i < 3; i++) CHECK(*far(result, i) == world_size * (world_size - 1) / 2 + world_size * i);
    MPI_Op_free(&op);
    MPI_Type_free(&apart);
    munmap(area, bytes), munmap(result, bytes);
}

// As many elements as the count can express, all of them empty.
static void counts(int root, bool uneven) {
    MPI_Datatype empty;
    char byte = 3, other = 3;
    MPI_Type_contiguous(0, MPI_DOUBLE, &empty);
    MPI_Type_commit(&empty);
    MPI_Bcast(&byte, INT_MAX, empty, root, MPI_COMM_WORLD);
    // No MPI_Allgather: Open MPI 4.1 walks through all elements on 3 ranks.
    MPI_Scatter(&byte, INT_MAX, empty, &other, INT_MAX, empty, root, MPI_COMM_WORLD);
#if MPI_VERSION >= 4
    MPI_Count many = ((MPI_Count)1 << 31) + 5;
    MPI_Bcast_c(&byte, many, empty, root, MPI_COMM_WORLD);
    MPI_Bcast_c(&byte, many * 1024, empty, root, MPI_COMM_WORLD);
    MPI_Allgather_c(&byte, many, empty, &other, many, empty, MPI_COMM_WORLD);
    MPI_Scatter_c(&byte, many, empty, &other, many, empty, root, MPI_COMM_WORLD);
    int mine = world_rank, sum = -1;
    MPI_Allreduce_c(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == world_size * (world_size - 1) / 2);
    // On the root the elements of all blocks exceed MPI_Count; the other ranks pass count 0 for the same empty data.
    // MPICH 4.0 hangs natively.
    many = world_rank == root ? (MPI_Count)1 << 62 : 0;
    if (uneven) MPI_Allgather_c(&byte, many, empty, &other, many, empty, MPI_COMM_WORLD);
#else
    (void)uneven;
#endif
    CHECK(byte == 3 && other == 3);
    MPI_Type_free(&empty);
}

// Zero elements of a type whose elements are too long for some libraries to pack.
static void no_elements(int root) {
    MPI_Datatype part;
    CHECK(world_size <= 7);
    int elements = 300000000 * world_size, kind = MPI_DISTRIBUTE_BLOCK, argument = MPI_DISTRIBUTE_DFLT_DARG;
    char byte = 3;
    MPI_Type_create_darray(world_size, world_rank, 1, &elements, &kind, &argument, &world_size, MPI_ORDER_C, MPI_INT, &part);
    MPI_Type_commit(&part);
    MPI_Bcast(&byte, 0, part, root, MPI_COMM_WORLD);
    CHECK(byte == 3);
    MPI_Type_free(&part);
}

static unsigned char pattern(size_t i) { return (unsigned char)(i * 31 + (i >> 12) * 7); }

static void big_bcast(unsigned char *area, size_t n) {
    MPI_Datatype block, all;
    int lengths[2] = {(int)(n >> 16), (int)(n & 0xffff)};
    MPI_Aint at[2] = {0, (MPI_Aint)(n >> 16 << 16)};
    MPI_Type_contiguous(1 << 16, MPI_CHAR, &block);
    MPI_Datatype types[2] = {block, MPI_CHAR};
    MPI_Type_create_struct(2, lengths, at, types, &all);
    MPI_Type_commit(&all);
    for (size_t i = 0; i < n; i++) area[i] = world_rank == 0 ? pattern(i) : 0;
#if MPI_VERSION >= 4
    if (world_rank == 0) MPI_Bcast_c(area, (MPI_Count)n, MPI_CHAR, 0, MPI_COMM_WORLD);
    else MPI_Bcast(area, 1, all, 0, MPI_COMM_WORLD);
#else
    MPI_Bcast(area, 1, all, 0, MPI_COMM_WORLD);
#endif
    for (size_t i = 0; i < n; i++) CHECK(area[i] == pattern(i));
    MPI_Type_free(&all);
    MPI_Type_free(&block);
}

// The root sends the same 64 KiB 2^15 + 1 times.
static void big_bcast_from_little(unsigned char *area) {
    MPI_Datatype block, again;
    int times = (1 << 15) + 1, root = world_size - 1;
    MPI_Type_contiguous(1 << 16, MPI_CHAR, &block);
    MPI_Type_create_resized(block, 0, 0, &again);
    MPI_Type_commit(&block);
    MPI_Type_commit(&again);
    for (size_t i = 0; i < (size_t)1 << 16; i++) area[i] = world_rank == root ? pattern(i) : 0;
    MPI_Bcast(area, times, world_rank == root ? again : block, root, MPI_COMM_WORLD);
    for (size_t i = 0; i < (size_t)times << 16 && world_rank != root; i++) CHECK(area[i] == pattern(i & 0xffff));
    MPI_Type_free(&again);
    MPI_Type_free(&block);
}

static void big_allreduce(int *area) {
    int n = (1 << 29) + 3;
    for (int i = 0; i < n; i++) area[i] = world_rank + i % 1000;
    MPI_Allreduce(MPI_IN_PLACE, area, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    int ranks = world_size * (world_size - 1) / 2;
    for (int i = 0; i < n; i++) CHECK(area[i] == ranks + world_size * (i % 1000));
}

// Each block fits an int, but all blocks together do not.
static void big_blocks(unsigned char *area) {
    int n = (int)((((size_t)1 << 31) + 7) / (size_t)world_size) + 1;
    unsigned char *mine = area + (size_t)world_rank * (size_t)n, *got = reserve((size_t)n);
    for (int i = 0; i < n; i++) mine[i] = (unsigned char)(i + world_rank);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, area, n, MPI_CHAR, MPI_COMM_WORLD);
    for (int r = 0; r < world_size; r++)
        for (int i = 0; i < n; i++) CHECK(area[(size_t)r * (size_t)n + (size_t)i] == (unsigned char)(i + r));
    MPI_Scatter(area, n, MPI_CHAR, got, n, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(got[i] == (unsigned char)(i + world_rank));
    munmap(got, (size_t)n);
}

static bool has_room(void) {
    long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    for (char line[256]; file && fgets(line, sizeof line, file);) sscanf(line, "MemAvailable: %lld", &kib);
    if (file) fclose(file);
    int here = kib >> 20 >= 4 * world_size, everywhere;
    MPI_Allreduce(&here, &everywhere, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!everywhere && world_rank == 0) printf("huge: skipped --big: it takes %d GiB of memory\n", 4 * world_size);
    return everywhere;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    bool big = argc > 1 && strcmp(argv[1], "--big") == 0 && has_room();
    bool uneven = argc > 1 && strcmp(argv[1], "--uneven") == 0;
    for (int root = 0; root < world_size && root < 3; root++) {
        offsets(root);
        counts(root, uneven);
        no_elements(root);
    }
    if (big) {
        size_t bytes = ((size_t)1 << 31) + (1 << 20);
        unsigned char *area = reserve(bytes);
        big_bcast(area, ((size_t)1 << 31) + 5);
        big_bcast_from_little(area);
        big_allreduce((int *)area);
        big_blocks(area);
        munmap(area, bytes);
    }
    MPI_Finalize();
    say_ok("huge");
    return 0;
}
