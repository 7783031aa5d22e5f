// The six collectives, huddle against the native library.
//
//   collectives [--only Bcast,…] [--sizes 8,64,…] [--offset 16] [--rounds R] [--block MS]
//
// Buffers begin OFFSET bytes after the start of a page; long buffers of malloc begin 16 bytes after it.
// Sizes are bytes of the message, or of one rank's block (Allgather, Scatter). Roots rotate, data are modified between calls.
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIZES = 64 };

static int parse_sizes(const char *text, int *sizes) {
    int n = 0;
    for (const char *at = text; at != NULL && n < MOST_SIZES; at = strchr(at, ',')) sizes[n++] = atoi(at += *at == ',');
    return n;
}

static void compare(Collective collective, int bytes) {
    Work works[2];
    Subject subjects[2];
    for (int i = 0; i < 2; i++) {
        works[i] = (Work){collective, i == 0 ? HUDDLE : NATIVE, bytes / 8, -1, MPI_COMM_WORLD};
        subjects[i] = (Subject){i == 0 ? "huddle" : "native", work_block, &works[i], false};
        for (int k = 0; k < WARM_UP; k++) work_check(&works[i]);
    }
    char members[128];
    snprintf(members, sizeof members, "\"collective\": \"%s\", \"bytes\": %d", collective_names[collective], bytes);
    measure(members, subjects, 2);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    argc = measure_start(argc, argv);
    const char *only = option(argc, argv, "--only", NULL);
    int sizes[MOST_SIZES], most = 8;
    int n = parse_sizes(option(argc, argv, "--sizes", "8,64,512,4096,32768,262144,1048576,4194304"), sizes);
    for (int i = 0; i < n; i++) most = sizes[i] > most ? sizes[i] : most;
    int offset = atoi(option(argc, argv, "--offset", "0"));
    if (offset < 0 || offset % 8 != 0) fail("--offset is in whole doubles");
    calls_start(most / 8, offset);
    for (int which = 0; which < COLLECTIVES; which++) {
        if (!is_listed(only, collective_names[which])) continue;
        if (which == BARRIER) compare(BARRIER, 0);
        for (int i = 0; i < n && which != BARRIER; i++) compare(which, sizes[i]);
    }
    MPI_Finalize();
    return 0;
}
