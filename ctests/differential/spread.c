// The constructors that repeat one datatype. Each sets at[i], the offset of copy i in the order of sending, and creates
// the MPI datatype that describes the same.
#include "differential.h"

#include <stdio.h>

typedef struct {
    Random *random;
    const Layout *child;
    int copies;
    int alignment;
    MPI_Aint *at;
    char text[64];
} Spread;

static int *ints(int n) { return memory_scratch((size_t)n * sizeof(int)); }
static MPI_Aint *addresses(int n) { return memory_scratch((size_t)n * sizeof(MPI_Aint)); }

static MPI_Datatype contiguous(Spread *s) {
    MPI_Datatype type;
    for (int i = 0; i < s->copies; i++) s->at[i] = i * s->child->extent;
    snprintf(s->text, sizeof s->text, "contiguous(%d)", s->copies);
#if MPI_VERSION >= 4
    if (random_chance(s->random, 30)) {
        MPI_Type_contiguous_c(s->copies, s->child->type, &type);
        return type;
    }
#endif
    MPI_Type_contiguous(s->copies, s->child->type, &type);
    return type;
}

// Blocks at a constant distance, forwards or backwards; the distance in extents or in bytes.
static MPI_Datatype vector(Spread *s) {
    MPI_Datatype type;
    int length = random_chance(s->random, 40) ? 1 : (int)random_divisor(s->random, s->copies), blocks = s->copies / length;
    int stride = length + (int)random_below(s->random, 3);
    bool in_bytes = random_chance(s->random, 50), backwards = random_chance(s->random, 25);
    MPI_Aint step = stride * s->child->extent;
    if (in_bytes) step += random_below(s->random, 4) * s->alignment;
    if (step == 1) backwards = false;  // Open MPI mistakes a distance of -1 byte for the extent
    if (backwards) step = -step, stride = -stride;
    for (int i = 0; i < s->copies; i++) s->at[i] = i / length * step + i % length * s->child->extent;
    snprintf(s->text, sizeof s->text, "%svector(%d, %d, %ld)", in_bytes ? "h" : "", blocks, length, (long)(in_bytes ? step : stride));
    if (!in_bytes) MPI_Type_vector(blocks, length, stride, s->child->type, &type);
#if MPI_VERSION >= 4
    else if (random_chance(s->random, 30)) MPI_Type_create_hvector_c(blocks, length, step, s->child->type, &type);
#endif
    else MPI_Type_create_hvector(blocks, length, step, s->child->type, &type);
    return type;
}

// Blocks of different lengths, in memory in another order than they are sent.
static MPI_Datatype indexed(Spread *s) {
    MPI_Datatype type;
    enum { MOST = 8 };
    int lengths[MOST], places[MOST], order[MOST], blocks = 0, left = s->copies;
    while (left > 0 && blocks < MOST - 1) left -= lengths[blocks++] = (int)random_between(s->random, 1, left);
    if (left > 0) lengths[blocks++] = left;
    random_permutation(s->random, order, blocks);
    int cursor = (int)random_between(s->random, -3, 3);
    for (int i = 0; i < blocks; i++) {
        cursor += (int)random_below(s->random, 3);
        places[order[i]] = cursor;
        cursor += lengths[order[i]];
    }
    MPI_Aint *bytes = addresses(blocks), *next = s->at, extra = random_below(s->random, 4) * s->alignment;
    bool in_bytes = random_chance(s->random, 50);
    for (int i = 0; i < blocks; i++) {
        bytes[i] = places[i] * s->child->extent + (in_bytes ? extra : 0);
        for (int j = 0; j < lengths[i]; j++) *next++ = bytes[i] + j * s->child->extent;
    }
    snprintf(s->text, sizeof s->text, "%sindexed(%d blocks)", in_bytes ? "h" : "", blocks);
    if (in_bytes) MPI_Type_create_hindexed(blocks, lengths, bytes, s->child->type, &type);
    else MPI_Type_indexed(blocks, lengths, places, s->child->type, &type);
    return type;
}

// Many blocks of one length in any order.
static MPI_Datatype indexed_block(Spread *s) {
    MPI_Datatype type;
    int length = random_chance(s->random, 60) ? 1 : (int)random_divisor(s->random, s->copies), blocks = s->copies / length;
    int *places = ints(blocks), gap = (int)random_below(s->random, 2);
    MPI_Aint *bytes = addresses(blocks);
    bool in_bytes = random_chance(s->random, 50);
    random_permutation(s->random, places, blocks);
    for (int i = 0; i < blocks; i++) {
        places[i] *= length + gap;
        bytes[i] = places[i] * s->child->extent;
        for (int j = 0; j < length; j++) s->at[i * length + j] = bytes[i] + j * s->child->extent;
    }
    snprintf(s->text, sizeof s->text, "%sindexed_block(%d, %d)", in_bytes ? "h" : "", blocks, length);
    if (in_bytes) MPI_Type_create_hindexed_block(blocks, length, bytes, s->child->type, &type);
    else MPI_Type_create_indexed_block(blocks, length, places, s->child->type, &type);
    return type;
}

static MPI_Datatype subarray(Spread *s) {
    MPI_Datatype type;
    int part[3], full[3], start[3], order = random_chance(s->random, 50) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
    part[0] = (int)random_divisor(s->random, s->copies);
    part[1] = (int)random_divisor(s->random, s->copies / part[0]);
    part[2] = s->copies / part[0] / part[1];
    for (int i = 0; i < 3; i++) {
        full[i] = part[i] + (part[i] > 64 ? 0 : (int)random_below(s->random, 3));
        start[i] = (int)random_below(s->random, full[i] - part[i] + 1);
    }
    int fast = order == MPI_ORDER_C ? 2 : 0, slow = 2 - fast;
    for (int i = 0; i < s->copies; i++) {
        MPI_Aint x = start[fast] + i % part[fast], y = start[1] + i / part[fast] % part[1];
        MPI_Aint z = start[slow] + i / part[fast] / part[1];
        s->at[i] = ((z * full[1] + y) * full[fast] + x) * s->child->extent;
    }
    snprintf(s->text, sizeof s->text, "subarray(%d×%d×%d of %d×%d×%d)", part[0], part[1], part[2], full[0], full[1], full[2]);
    MPI_Type_create_subarray(3, full, part, start, order, s->child->type, &type);
    return type;
}

Layout layout_spread(Random *random, const Layout *child, int copies, int alignment) {
    static MPI_Datatype (*const constructors[])(Spread *) = {contiguous, vector, vector, indexed, indexed_block, subarray};
    Spread spread = {.random = random, .child = child, .copies = copies, .alignment = alignment, .at = addresses(copies)};
    MPI_Datatype type = constructors[random_below(random, 6)](&spread);
    return layout_compose(type, child, spread.at, copies, spread.text);
}

// A column of a matrix with `columns` columns, resized so that element i is column i: elements interleave.
Layout layout_column(const Layout *child, int rows, int columns) {
    MPI_Datatype vector_type, type;
    MPI_Aint *at = addresses(rows);
    char text[64];
    for (int i = 0; i < rows; i++) at[i] = (MPI_Aint)i * columns * child->extent;
    MPI_Type_vector(rows, 1, columns, child->type, &vector_type);
    MPI_Type_create_resized(vector_type, 0, child->extent, &type);
    MPI_Type_free(&vector_type);
    snprintf(text, sizeof text, "column(%d of a row of %d)", rows, columns);
    return layout_compose(type, child, at, rows, text);
}
