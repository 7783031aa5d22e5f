// One signature, but another datatype and count on every rank (this corrupted segmented algorithms); MPI_BOTTOM with
// absolute addresses, one element that is much larger than any slot, lower bounds below zero.
#include "check.h"

enum { N = 30000 };  // numbers in a message
typedef struct {
    MPI_Datatype type;
    int count;
    int stride;  // between numbers, in doubles
    bool backwards;
} Layout;

static Layout layout_for(int kind) {
    Layout layout = {.type = MPI_DOUBLE, .count = N, .stride = 1};
    MPI_Datatype inner;
    switch (kind % 5) {
    case 0: return layout;
    case 1:  // all in one element
        MPI_Type_vector(N, 1, 2, MPI_DOUBLE, &layout.type);
        layout.count = 1, layout.stride = 2;
        break;
    case 2:  // nested, elements of 3000 numbers
        MPI_Type_contiguous(30, MPI_DOUBLE, &inner);
        MPI_Type_contiguous(100, inner, &layout.type);
        MPI_Type_free(&inner);
        layout.count = N / 3000;
        break;
    case 3:  // holes by resizing
        MPI_Type_create_resized(MPI_DOUBLE, -8, 24, &layout.type);
        layout.stride = 3;
        break;
    default:  // from the last number to the first one
        MPI_Type_create_hvector(N, 1, -8, MPI_DOUBLE, &layout.type);
        layout.count = 1, layout.backwards = true;
    }
    MPI_Type_commit(&layout.type);
    return layout;
}

// The address of number i, and the address that is passed to MPI.
static double *at(double *area, const Layout *layout, int i) { return area + (layout->backwards ? N - 1 - i : i * layout->stride); }
static double *start(double *area, const Layout *layout) { return area + (layout->backwards ? N - 1 : 0); }

static void clear(double *area) {
    for (int i = 0; i < 3 * N; i++) area[i] = -1;
}

static void check(double *area, const Layout *layout, double base) {
    for (int i = 0; i < N; i++) CHECK(*at(area, layout, i) == base + i);
    if (layout->stride > 1)
        for (int i = 0; i < N; i++) CHECK(area[i * layout->stride + 1] == -1);
}

static void try_kinds(double *area, int round) {
    int root = round % world_size;
    Layout layout = layout_for(round + world_rank);
    clear(area);
    for (int i = 0; i < N && world_rank == root; i++) *at(area, &layout, i) = round + i;
    if (round % 2 == 0) {
        MPI_Bcast(start(area, &layout), layout.count, layout.type, root, MPI_COMM_WORLD);
    } else {
        MPI_Datatype absolute;
        MPI_Aint address;
        int one = 1;
        MPI_Get_address(start(area, &layout), &address);
        MPI_Type_create_hindexed(1, &one, &address, layout.type, &absolute);
        MPI_Type_commit(&absolute);
        MPI_Bcast(MPI_BOTTOM, layout.count, absolute, root, MPI_COMM_WORLD);
        MPI_Type_free(&absolute);
    }
    check(area, &layout, round);
    if (layout.type != MPI_DOUBLE) MPI_Type_free(&layout.type);
}

// Sends blocks of plain numbers and receives blocks of another layout, and the other way round.
static void gather_and_scatter(double *area, int round) {
    Layout layout = layout_for(round + world_rank);
    int root = round % world_size;
    double *plain = malloc((size_t)N * (size_t)world_size * sizeof(double));
    for (int i = 0; i < N * world_size; i++) plain[i] = round + i;
    clear(area);
    MPI_Scatter(plain, N, MPI_DOUBLE, start(area, &layout), layout.count, layout.type, root, MPI_COMM_WORLD);
    check(area, &layout, round + (double)world_rank * N);
    for (int i = 0; i < N * world_size; i++) plain[i] = -1;
    MPI_Allgather(start(area, &layout), layout.count, layout.type, plain, N, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int i = 0; i < N * world_size; i++) CHECK(plain[i] == round + i);
    if (layout.type != MPI_DOUBLE) MPI_Type_free(&layout.type);
    free(plain);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int rounds = argument(argc, argv, 10);
    double *area = malloc((3 * N + 8) * sizeof(double));
    CHECK(area != NULL);
    for (int round = 0; round < rounds; round++) {
        try_kinds(area + 4, round);
        gather_and_scatter(area + 4, round);
    }
    free(area);
    MPI_Finalize();
    say_ok("signatures");
    return 0;
}
