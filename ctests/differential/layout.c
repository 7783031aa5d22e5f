// Random derived datatypes. The signature (some basic types, repeated) is given, and equal on all ranks that must
// agree. The layout in memory is drawn here: nested constructors, holes, negative lower bounds, pieces that lie in
// another order than they are sent. Every layout knows its own type map, so a test can tell data from holes. Invariant
// until the last step: [lb, lb + extent) encloses the data, so copies at multiples of the extent don't overlap.
#include "differential.h"

#include <stdio.h>
#include <string.h>

enum { MOST_ENTRIES = 32768, PIECES = 6 };
static int layout_key = MPI_KEYVAL_INVALID;

void layouts_start(void) { MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &layout_key, NULL); }

const Layout *layout_of(MPI_Datatype type) {
    void *value = NULL;
    int found = 0;
    MPI_Type_get_attr(type, layout_key, &value, &found);
    if (found) return value;
    fprintf(stderr, "differential: a user operation was called with a datatype that is not the caller's\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
    return NULL;
}

static void attach(const Layout *layout, MPI_Datatype type, MPI_Aint shift) {
    Layout *kept = memory_scratch(sizeof *kept);
    *kept = *layout;
    kept->shift = shift;
    MPI_Type_set_attr(type, layout_key, kept);
}

void layout_free(Layout *layout) {
    if (!layout->predefined) MPI_Type_free(&layout->type);
}

// Takes the bounds from MPI and the true bounds from the type map; MPI's true bounds must lie within those.
static void measure(Layout *layout) {
    MPI_Aint true_lb = 0, true_extent = 0;
    MPI_Type_get_extent(layout->type, &layout->lb, &layout->extent);
    layout->true_lb = layout->true_ub = 0;
    for (int i = 0; i < layout->entries; i++) {
        MPI_Aint first = layout->map[i].at, end = first + layout->map[i].basic->extent;
        if (i == 0 || first < layout->true_lb) layout->true_lb = first;
        if (i == 0 || end > layout->true_ub) layout->true_ub = end;
    }
    MPI_Type_get_true_extent(layout->type, &true_lb, &true_extent);
    if (layout->entries > 0 && (true_lb < layout->true_lb || true_lb + true_extent > layout->true_ub)) {
        fprintf(stderr, "differential: the type map of %s is wrong: %ld…%ld, MPI says %ld…%ld\n", layout->text,
                (long)layout->true_lb, (long)layout->true_ub, (long)true_lb, (long)(true_lb + true_extent));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

Layout layout_plain(const Basic *basic) {
    Layout layout = {.type = basic->type, .predefined = true, .entries = 1, .map = memory_scratch(sizeof(Entry))};
    layout.map[0] = (Entry){basic, 0};
    layout.extent = layout.true_ub = basic->extent;
    snprintf(layout.text, sizeof layout.text, "%s", basic->name);
    return layout;
}

Layout layout_compose(MPI_Datatype type, const Layout *child, const MPI_Aint *at, int copies, const char *text) {
    Layout layout = {.type = type, .entries = copies * child->entries};
    layout.map = memory_scratch((size_t)layout.entries * sizeof(Entry));
    for (int i = 0; i < copies; i++)
        for (int j = 0; j < child->entries; j++)
            layout.map[i * child->entries + j] = (Entry){child->map[j].basic, at[i] + child->map[j].at};
    snprintf(layout.text, sizeof layout.text, "%.60s of %.330s", text, child->text);
    measure(&layout);
    return layout;
}

static MPI_Aint round_up(MPI_Aint value, MPI_Aint unit) {
    MPI_Aint rest = value % unit;
    return rest == 0 ? value : value + (rest < 0 ? -rest : unit - rest);
}

// Explicit bounds of one piece of a struct override the others' bounds, and a subarray begins at 0. In these cases the
// invariant needs new bounds.
static Layout enclose(Layout layout) {
    MPI_Aint low = layout.true_lb < layout.lb ? layout.true_lb : layout.lb;
    MPI_Aint high = layout.true_ub > layout.lb + layout.extent ? layout.true_ub : layout.lb + layout.extent;
    if (low == layout.lb && high - low == layout.extent) return layout;
    Layout resized = layout;
    MPI_Type_create_resized(layout.type, low, high - low, &resized.type);
    layout_free(&layout);
    measure(&resized);
    return resized;
}

// Makes a struct of the pieces, with gaps, and in memory in another order than they are sent.
static Layout join(Random *random, Layout *pieces, int n, int alignment) {
    int order[PIECES], lengths[PIECES], entries = 0;
    MPI_Aint at[PIECES], cursor = random_between(random, -4, 4) * 16;
    MPI_Datatype types[PIECES];
    random_permutation(random, order, n);
    for (int i = 0; i < n; i++) {
        const Layout *piece = &pieces[order[i]];
        at[order[i]] = round_up(cursor - piece->lb, alignment);
        cursor = at[order[i]] + piece->lb + piece->extent + random_below(random, 3) * alignment;
    }
    for (int i = 0; i < n; i++) lengths[i] = 1, types[i] = pieces[i].type, entries += pieces[i].entries;

    Layout layout = {.entries = entries, .map = memory_scratch((size_t)entries * sizeof(Entry))};
    MPI_Type_create_struct(n, lengths, at, types, &layout.type);
    Entry *next = layout.map;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < pieces[i].entries; j++)
            *next++ = (Entry){pieces[i].map[j].basic, at[i] + pieces[i].map[j].at};
    snprintf(layout.text, sizeof layout.text, "struct(%.160s, %.160s, %.60s)", pieces[0].text, n > 1 ? pieces[1].text : "", n > 2 ? pieces[2].text : "");
    for (int i = 0; i < n; i++) layout_free(&pieces[i]);
    measure(&layout);
    return enclose(layout);
}

static Layout duplicate(Layout layout) {
    Layout copy = layout;
    copy.predefined = false;
    MPI_Type_dup(layout.type, &copy.type);
    snprintf(copy.text, sizeof copy.text, "dup of %.100s", layout.text);
    layout_free(&layout);
    return copy;
}

// Moves the bounds outwards: holes at both ends, lower bound below zero.
static Layout resize(Random *random, Layout layout, int alignment) {
    MPI_Aint unit = alignment > 1 ? alignment : random_between(random, 1, 8);
    MPI_Aint low = layout.true_lb < layout.lb ? layout.true_lb : layout.lb;
    MPI_Aint high = layout.true_ub > layout.lb + layout.extent ? layout.true_ub : layout.lb + layout.extent;
    low = -round_up(-low + random_below(random, 3) * unit, unit);
    MPI_Aint extent = round_up(high - low + random_below(random, 3) * unit, unit);
    Layout resized = layout;
    resized.predefined = false;
    MPI_Type_create_resized(layout.type, low, extent, &resized.type);
    snprintf(resized.text, sizeof resized.text, "resized(%ld, %ld) of %.100s", (long)low, (long)extent, layout.text);
    layout_free(&layout);
    measure(&resized);
    return resized;
}

static Layout build_unit(Random *random, const Signature *signature) {
    Layout pieces[PIECES];
    for (int i = 0; i < signature->period; i++) {
        pieces[i] = layout_plain(signature->pattern[i]);
        if (random_chance(random, 10)) pieces[i] = duplicate(pieces[i]);
    }
    return signature->period == 1 ? pieces[0] : join(random, pieces, signature->period, signature->alignment);
}

static Layout build(Random *random, const Signature *signature, int units) {
    Layout layout;
    if (units == 1) {
        layout = build_unit(random, signature);
    } else if (units >= 4 && !signature->shallow && random_chance(random, 15)) {
        Layout pieces[2];
        int cut = (int)random_between(random, 1, units - 1);
        pieces[0] = build(random, signature, cut);
        pieces[1] = build(random, signature, units - cut);
        layout = join(random, pieces, 2, signature->alignment);
    } else {
        int inner = signature->shallow || random_chance(random, 50) ? 1 : (int)random_divisor(random, units);
        if (inner == units) inner = 1;
        Layout child = build(random, signature, inner);
        layout = enclose(layout_spread(random, &child, units / inner, signature->alignment));
        layout_free(&child);
    }
    if (!signature->shallow && random_chance(random, 8)) layout = resize(random, layout, signature->alignment);
    return layout;
}

// Moves the data so that its lower bound is 0.
static Layout unshift(Layout layout) {
    if (layout.true_lb == 0) return layout;
    int one = 1;
    MPI_Aint at = -layout.true_lb;
    MPI_Datatype type;
    MPI_Type_create_hindexed(1, &one, &at, layout.type, &type);
    Layout moved = layout_compose(type, &layout, &at, 1, "moved");
    layout_free(&layout);
    return moved;
}

static Layout build_empty(Random *random) {
    Layout layout = {.map = memory_scratch(0)};
    if (random_chance(random, 50)) MPI_Type_contiguous(0, MPI_DOUBLE, &layout.type);
    else MPI_Type_create_struct(0, NULL, NULL, NULL, &layout.type);
    snprintf(layout.text, sizeof layout.text, "empty");
    measure(&layout);
    return layout;
}

static Layout build_column(Random *random, const Signature *signature, int rows, int columns) {
    Layout child = build_unit(random, signature);
    Layout layout = layout_column(&child, rows, columns);
    layout_free(&child);
    return layout;
}

static bool is_bloated(const Layout *layout, int64_t elements) {
    int64_t packed = 0;
    for (int i = 0; i < layout->entries; i++) packed += layout->map[i].basic->size;
    MPI_Aint span = layout->true_ub - layout->true_lb;
    return elements * layout->extent + span > 6 * elements * packed + 65536;
}

static int choose_units(Random *random, const Signature *signature) {
    int64_t units = random_divisor(random, signature->units);
    int64_t most = signature->most_units > 0 ? signature->most_units : MOST_ENTRIES / signature->period;
    while (units > most) units = random_divisor(random, units);
    return signature->units % units == 0 ? (int)units : 1;
}

// Returns a committed datatype, `count` of which make up the signature. The buffer will hold `blocks` times as many.
Layout layout_random(Random *random, const Signature *signature, int64_t *count, int blocks) {
    *count = signature->units;
    bool plain = settings.predefined || random_chance(random, settings.contiguous ? 70 : 35);
    if (!signature->empty && signature->period == 1 && plain) return layout_plain(signature->pattern[0]);

    int units = signature->units == 0 ? (int)random_between(random, 1, 3) : choose_units(random, signature);
    *count = signature->units / units;
    Layout layout;
    if (settings.contiguous) {
        Layout child = build_unit(random, signature);
        MPI_Aint *at = memory_scratch((size_t)units * sizeof *at);
        for (int i = 0; i < units; i++) at[i] = i * child.extent;
        MPI_Datatype type;
        MPI_Type_contiguous(units, child.type, &type);
        layout = layout_compose(type, &child, at, units, "contiguous");
        layout_free(&child);
    } else if (signature->empty) {
        layout = build_empty(random);
        *count = random_between(random, 1, 3);
    } else if (*count > 1 && *count * blocks < MOST_ENTRIES && random_chance(random, 12)) {
        layout = build_column(random, signature, units, (int)(*count * blocks));
    } else {
        layout = build(random, signature, units);
        if (is_bloated(&layout, *count * blocks)) {
            layout_free(&layout);
            *count = signature->units;
            layout = build(random, signature, 1);
        }
        if (layout.predefined) return layout;
    }
    if (signature->unshifted) layout = unshift(layout);
    if (random_chance(random, 10)) layout = duplicate(layout);
    MPI_Type_commit(&layout.type);
    attach(&layout, layout.type, 0);
    return layout;
}

MPI_Datatype layout_at_address(Random *random, const Layout *layout, void *address) {
    MPI_Datatype type;
    MPI_Aint at, lb, extent;
    int one = 1;
    MPI_Get_address(address, &at);
    if (random_chance(random, 50)) MPI_Type_create_hindexed(1, &one, &at, layout->type, &type);
    else MPI_Type_create_struct(1, &one, &at, &layout->type, &type);
    MPI_Type_get_extent(type, &lb, &extent);
    if (extent != layout->extent) { // libraries differ in which structs they round up for alignment
        MPI_Datatype rounded = type;
        MPI_Type_create_resized(rounded, at + layout->lb, layout->extent, &type);
        MPI_Type_free(&rounded);
    }
    MPI_Type_commit(&type);
    attach(layout, type, at);
    return type;
}
