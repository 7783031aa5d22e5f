// What native libraries do wrong, found by this test itself: such calls are not drawn, unless --bold asks for
// them (then a library in front must not hand them on).
#include "differential.h"

#include <stdlib.h>
#include <string.h>

static Quirks quirks;

void quirks_look(void) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    const char *mpich = strstr(version, "MPICH Version:"), *openmpi = strstr(version, "Open MPI v");
    if (mpich != NULL) {
        quirks.reduce_in_place = strtod(mpich + strlen("MPICH Version:"), NULL) < 4.1;
        quirks.nested_limit = 8192;
    }
    if (openmpi != NULL) {
        quirks.reduce_bottom = quirks.reduce_shifted = quirks.packed = true;
        quirks.wide_limit = 1024;
    }
}

const Quirks *quirks_of(const Communicator *comm) {
    static const Quirks none;
    return settings.bold && comm->size > 1 ? &none : &quirks;
}
