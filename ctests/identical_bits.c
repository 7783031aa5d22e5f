// Sums of random floating-point numbers. The order of the additions shows in the last bits, and all ranks must get the
// same bits: for every size, in place or not, also if ranks come late or their buffers lie at different offsets in
// cache lines. With a second argument also sums of NaNs, which differ between ranks. Which of two NaNs remains depends
// on the instructions that combine them, and in MPICH on the rank.
#include "check.h"

#include <stdint.h>

enum { MOST = 70000, LINE = 64 };

static double random_double(unsigned *seed) {
    double mantissa = (double)next_number(seed) / 16777216.0 + (double)next_number(seed) * 1e-12;
    return (next_number(seed) % 2 ? mantissa : -mantissa) * (next_number(seed) % 5 == 0 ? 1e8 : 1.0);
}

static double rank_nan(int j) {
    uint64_t word = UINT64_C(0x7ff8000000000001) + (uint64_t)(world_rank * 7 + j % 5) + ((uint64_t)(world_rank % 2) << 63);
    double nan;
    memcpy(&nan, &word, sizeof nan);
    return nan;
}

static float narrow_nan(int j) {
    uint32_t word = UINT32_C(0x7fc00001) + (uint32_t)(world_rank * 7 + j % 5) + ((uint32_t)(world_rank % 2) << 31);
    float nan;
    memcpy(&nan, &word, sizeof nan);
    return nan;
}

static void check_identical(const void *result, size_t bytes) {
    unsigned char *first = malloc(bytes);
    memcpy(first, result, bytes);
    MPI_Bcast(first, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    CHECK(memcmp(first, result, bytes) == 0);
    free(first);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int counts[] = {1, 2, 3, 6, 7, 8, 9, 63, 64, 65, 512, 1023, 1024, 1025, 4097, 8192, 8191, 30000, 65537, MOST};
    int rounds = argument(argc, argv, 3), late = world_size - 1;
    char *memory[4];
    for (int i = 0; i < 4; i++) {
        memory[i] = malloc(MOST * sizeof(double) + LINE);
        CHECK(memory[i] != NULL);
    }
    // Different offsets in a line on each of eight ranks.
    double *in = (double *)memory[0] + world_rank % 8, *out = (double *)memory[1] + world_rank * 3 % 8;
    float *narrow = (float *)memory[2] + world_rank % 16, *sums = (float *)memory[3] + world_rank * 5 % 16;
    bool has_nans = argc > 2;
    unsigned seed = 77u + (unsigned)world_rank * 1000u;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < 20; i++) {
            int n = counts[i];
            for (int j = 0; j < n; j++) in[j] = random_double(&seed), narrow[j] = (float)random_double(&seed);
            if (world_rank == late && i % 4 == round % 4) sleep_micros(500);
            MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            check_identical(out, (size_t)n * sizeof(double));
            MPI_Allreduce(narrow, sums, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            check_identical(sums, (size_t)n * sizeof(float));
            MPI_Allreduce(MPI_IN_PLACE, in, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            check_identical(in, (size_t)n * sizeof(double));
            for (int j = 0; has_nans && j < n; j++) {
                bool is_nan = (j + world_rank) % 3 > 0;
                in[j] = is_nan ? rank_nan(j) : random_double(&seed);
                narrow[j] = is_nan ? narrow_nan(j) : (float)random_double(&seed);
            }
            MPI_Allreduce(in, out, n, MPI_DOUBLE, i % 2 ? MPI_SUM : MPI_PROD, MPI_COMM_WORLD);
            check_identical(out, (size_t)n * sizeof(double));
            MPI_Allreduce(narrow, sums, n, MPI_FLOAT, i % 2 ? MPI_PROD : MPI_SUM, MPI_COMM_WORLD);
            check_identical(sums, (size_t)n * sizeof(float));
            // Libraries may fuse the products and sums of a complex product, each rank in its own order. So it is
            // tested only with the second argument, with which huddle serves it.
            if (has_nans && n % 2 == 0) {
                MPI_Allreduce(in, out, n / 2, MPI_C_DOUBLE_COMPLEX, MPI_PROD, MPI_COMM_WORLD);
                check_identical(out, (size_t)n * sizeof(double));
            }
            late = (late + 1) % world_size;
        }
    for (int i = 0; i < 4; i++) free(memory[i]);
    MPI_Finalize();
    say_ok("identical_bits");
    return 0;
}
