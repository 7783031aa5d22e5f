// A program that is linked with huddle, by the flags of pkg-config, and reads its counters through the C API.
#include <huddle.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The sum of this rank's counters with this begin and end of their names, without those of declined calls.
static uint64_t count(const char *begin, const char *end) {
    size_t n = huddle_counters(NULL, 0);
    uint64_t *values = calloc(n, sizeof *values), sum = 0;
    huddle_counters(values, n);
    for (size_t i = 0; i < n; i++) {
        char name[128];
        size_t length = huddle_counter_name(i, name, sizeof name);
        int matches = strncmp(name, begin, strlen(begin)) == 0 && length >= strlen(end) &&
                      strcmp(name + length - strlen(end), end) == 0;
        if (matches && !strstr(name, "declined")) sum += values[i];
    }
    free(values);
    return sum;
}

int main(int argc, char **argv) {
    int is_active_before = huddle_is_active(), rank, size;
    MPI_Init(&argc, &argv);
    if (chdir("/") != 0) return 1; // the report goes to the initial directory
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double x = rank, y = 0;
    for (int k = 0; k < 10; k++) MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    int is_active = huddle_is_active();
    uint64_t calls = count("Allreduce.", ".calls"), bytes = count("Allreduce.", ".bytes");
    MPI_Finalize();
    // The first two calls are native (HUDDLE_WARMUP).
    int ok = !is_active_before && is_active && !huddle_is_active() && calls == 8 && bytes == 64 &&
             y == size * (size - 1) / 2.0 && strlen(huddle_version()) > 0;
    if (rank == 0 || !ok) printf("linked: %s\n", ok ? "ok" : "wrong");
    return !ok;
}
