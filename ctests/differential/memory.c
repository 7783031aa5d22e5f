// Three arenas of equal content, in which the same offsets are valid. Address space is reserved once and pages are
// kept, so buffers keep their addresses within a step and cost no page faults after the first steps.
#include "differential.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { GUARD = 192, SCRATCHES = 1 << 16 };
static const size_t ARENA_BYTES = (size_t)2 << 30;

unsigned char *arena[ARENAS];
static size_t used;
static void *scratch[SCRATCHES];
static int scratches;

void memory_start(void) {
    for (int i = 0; i < ARENAS; i++) {
        void *at = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) {
            perror("differential: mmap");
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        arena[i] = at;
    }
}

size_t memory_place(size_t bytes, size_t alignment, size_t shift) {
    size_t offset = (used + GUARD + alignment - 1) / alignment * alignment + shift;
    used = offset + bytes + GUARD;
    if (used > ARENA_BYTES) {
        fprintf(stderr, "differential: a step needs more than %zu bytes of buffers\n", ARENA_BYTES);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return offset;
}

void memory_fill(Random *random, size_t offset, size_t bytes) { random_fill(random, arena[ORIGINAL] + offset, bytes); }

void memory_distribute(void) {
    memcpy(arena[TESTED], arena[ORIGINAL], used);
    memcpy(arena[NATIVE], arena[ORIGINAL], used);
}

bool memory_is_equal(void) { return memcmp(arena[TESTED], arena[NATIVE], used) == 0; }

void memory_reset(void) {
    used = 0;
    while (scratches > 0) free(scratch[--scratches]);
}

void *memory_scratch(size_t bytes) {
    void *at = malloc(bytes == 0 ? 1 : bytes);
    if (at == NULL || scratches == SCRATCHES) {
        fprintf(stderr, "differential: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return scratch[scratches++] = at;
}
