// Sums of random floating-point numbers: the order of the additions shows in the last bits, and all ranks must
// get the same ones, for every size, in place or not, also where ranks come late.
#include "check.h"

enum { MOST = 70000 };

static double random_double(unsigned *seed) {
    double mantissa = (double)next_number(seed) / 16777216.0 + (double)next_number(seed) * 1e-12;
    return (next_number(seed) % 2 ? mantissa : -mantissa) * (next_number(seed) % 5 == 0 ? 1e8 : 1.0);
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
    double *in = malloc(MOST * sizeof(double)), *out = malloc(MOST * sizeof(double));
    float *narrow = malloc(MOST * sizeof(float)), *sums = malloc(MOST * sizeof(float));
    CHECK(in != NULL && out != NULL && narrow != NULL && sums != NULL);
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
            late = (late + 1) % world_size;
        }
    free(in), free(out), free(narrow), free(sums);
    MPI_Finalize();
    say_ok("identical_bits");
    return 0;
}
