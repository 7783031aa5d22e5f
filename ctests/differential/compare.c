// Compares what MPI_X and PMPI_X left in their arenas, byte by byte. Data must be equal. Holes, guard zones and send
// buffers must be unchanged, unless the native call changed them too. The padding inside a long double may differ.
#include "differential.h"

#include <stdio.h>
#include <string.h>

enum { HOLE, DATA, LOOSE };
enum { AROUND = 128 };

static void describe_side(const char *name, const Side *side) {
    if (side->in_place) printf("  %s: MPI_IN_PLACE\n", name);
    else if (side->present)
        printf("  %s: %ld (in all %ld) × %s, lb %ld, extent %ld%s%s\n", name, (long)side->count, (long)side->elements, side->layout.text,
               (long)side->layout.lb, (long)side->layout.extent, side->bottom ? ", MPI_BOTTOM" : "", side->written ? "" : ", not to be written");
}

void call_describe(const Call *call, int index, const char *title, const char *around) {
    int world;
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    printf("differential: %s at --seed %lu, step %ld, call %d, WORLD rank %d\n", title, (unsigned long)settings.seed, (long)settings.step, index, world);
    printf("  MPI_%s%s, communicator %s, rank %d of %d, root %d, %ld packed bytes, pending: %s\n", collective_names[call->collective],
           call->large_count && MPI_VERSION >= 4 ? "_c" : "", call->comm->text, call->comm->rank, call->comm->size, call->root, (long)call->packed, around);
    if (call->has_op) printf("  op: %s\n", op_name(&call->op));
    describe_side("send", &call->send);
    describe_side("recv", &call->recv);
    fflush(stdout);
}

static void mark_entry(unsigned char *kinds, const Basic *basic) {
    for (int i = 0; i < basic->fields; i++) {
        const Field *field = &basic->field[i];
        memset(kinds + field->offset, DATA, (size_t)field->size);
        memset(kinds + field->offset + field->significant, LOOSE, (size_t)(field->size - field->significant));
    }
}

// The kind of each byte of the region with its guard zones; the first AROUND bytes are the zone in front.
static unsigned char *classify(const Side *side, size_t bytes) {
    unsigned char *kinds = memory_scratch(bytes);
    memset(kinds, HOLE, bytes);
    if (!side->written) return kinds;
    for (int64_t i = 0; i < side->elements; i++)
        for (int j = 0; j < side->layout.entries; j++) {
            const Entry *entry = &side->layout.map[j];
            mark_entry(kinds + AROUND + i * side->layout.extent + entry->at - side->layout.true_lb, entry->basic);
        }
    return kinds;
}

static bool is_wrong(unsigned char kind, unsigned char tested, unsigned char native, unsigned char original) {
    if (kind == DATA) return tested != native;
    bool native_libraries_do_it = settings.oracle && !settings.bold;
    return kind == HOLE && tested != original && native == original && !native_libraries_do_it;
}

static long compare_side(const Call *call, const Side *side, const char *name, int index, const char *around) {
    if (!side->present) return 0;
    size_t first = side->region - AROUND, bytes = side->bytes + 2 * AROUND;
    if (memcmp(arena[TESTED] + first, arena[NATIVE] + first, bytes) == 0) return 0;
    const unsigned char *kinds = classify(side, bytes);
    long wrong = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char tested = arena[TESTED][first + i], native = arena[NATIVE][first + i], original = arena[ORIGINAL][first + i];
        if (!is_wrong(kinds[i], tested, native, original)) continue;
        if (wrong++ > 0) continue;
        call_describe(call, index, "DIFFERENCE", around);
        long at = (long)i - AROUND;
        printf("  first: %s byte %ld of %ld (%s): MPI %02x, PMPI %02x, before %02x\n", name, at, (long)side->bytes,
               kinds[i] == DATA ? "data" : at < 0 || at >= (long)side->bytes ? "guard zone" : "not to be touched", tested, native, original);
    }
    if (wrong > 0) printf("  %ld bytes of the %s buffer differ\n", wrong, name);
    return wrong;
}

void call_compare(const Call *call, int index, const char *around) {
    long wrong = compare_side(call, &call->send, "send", index, around) + compare_side(call, &call->recv, "receive", index, around);
    if (wrong == 0) return;
    if (!settings.oracle) printf("  which of the two is right: the same with --oracle\n");
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
