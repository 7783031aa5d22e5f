// Errors of native libraries, found by this test itself. Calls that meet them are drawn only with --bold (a library in
// front must then not forward them).
#include "differential.h"

#include <stdlib.h>
#include <string.h>

static Quirks quirks;
static const Quirks none;

void quirks_look(void) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    const char *mpich = strstr(version, "MPICH Version:"), *openmpi = strstr(version, "Open MPI v");
    if (mpich != NULL) {
        quirks.reduce_in_place = strtod(mpich + strlen("MPICH Version:"), NULL) < 4.1;
        quirks.nested_limit = 8192;
        quirks.derived = strtod(mpich + strlen("MPICH Version:"), NULL) >= 5; // REAL16: 10 of the 16 bytes
    }
    if (strstr(version, "Intel(R) MPI") != NULL) {
        quirks.derived = true;      // Allgather, 64 INTs × 12 on one rank, 12 × 64 on the other
        quirks.empty_bottom = true; // Allreduce, an empty type with and without displacement: hangs
    }
    if (openmpi != NULL) {
        quirks.reduce_bottom = quirks.reduce_shifted = quirks.packed = true;
        quirks.wide_limit = 1024;
        quirks.derived = openmpi[strlen("Open MPI v")] == '5'; // Scatter of DOUBLE_COMPLEX in two layouts, 62464 bytes
    }
}

const Quirks *quirks_of(const Communicator *comm) {
    return settings.bold && comm->size > 1 ? &none : &quirks;
}
