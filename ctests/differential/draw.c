// Draws one call. What all ranks must agree on comes from the shared stream; the rest (layouts, in place at the root,
// places of buffers, rubbish in arguments that are not significant) comes from the local one.
#include "differential.h"

#include <stdio.h>

const char *const collective_names[COLLECTIVES] = {"Allreduce", "Bcast", "Reduce", "Allgather", "Barrier", "Scatter"};

static Collective draw_collective(Random *shared) {
    Collective pick = (Collective)random_below(shared, COLLECTIVES);
    bool barrier_too = random_chance(shared, 50);
    while (!settings.enabled[pick] || (pick == BARRIER && !barrier_too)) {
        pick = (pick + 1) % COLLECTIVES;
        barrier_too = true;
    }
    return pick;
}

// Bytes of one contribution: often nothing, one element, or a size around which algorithms change.
static int64_t draw_bytes(Random *shared, int64_t limit) {
    static const int64_t boundaries[] = {32, 48, 64, 96, 128, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 1048576};
    int64_t bytes, kind = random_below(shared, 100), shift = random_between(shared, -24, 24);
    int64_t boundary = boundaries[random_below(shared, 16)], power = random_below(shared, 40);
    if (kind < 6) return 0;
    if (kind < 16) return 1;  // one element
    if (kind < 40) bytes = random_between(shared, 1, 200);
    else if (kind < 50) bytes = random_between(shared, 36, 76);
    else if (kind < 80) bytes = boundary + shift;
    else bytes = random_below(shared, (int64_t)1 << (power / 2 + 3));
    return bytes > limit ? limit - limit * (power % 8) / 64 : bytes;
}

static bool is_simple(void) { return settings.contiguous || settings.predefined; }

static bool is_cut(int64_t limit, int64_t message_bytes) { return limit > 0 && message_bytes > limit; }

static bool is_allowed(const Quirks *quirks, const Basic *basic, bool plain, int64_t message_bytes) {
    if (quirks->packed && basic->type == MPI_PACKED) return false;
    bool whole = basic->size == basic->extent && (basic->size & (basic->size - 1)) == 0;
    if (is_cut(quirks->nested_limit, message_bytes)) return whole && (plain || basic->size <= 8);
    return plain || !is_cut(quirks->wide_limit, message_bytes) || basic->size <= 16;
}

static Signature draw_signature(Random *shared, const Quirks *quirks, bool plain, int64_t message_bytes) {
    Signature signature = {.alignment = 1, .shallow = is_cut(quirks->nested_limit, message_bytes)};
    bool mixed = !random_chance(shared, 60) && !plain && !signature.shallow;
    signature.period = mixed ? (int)random_between(shared, 2, 5) : 1;
    for (int i = 0; i < signature.period; i++) {
        do signature.pattern[i] = &basics[random_below(shared, basics_count)];
        while (!is_allowed(quirks, signature.pattern[i], plain, message_bytes));
        if (signature.pattern[i]->alignment > signature.alignment) signature.alignment = signature.pattern[i]->alignment;
    }
    return signature;
}

static int64_t unit_bytes(const Signature *signature) {
    int64_t sum = 0;
    for (int i = 0; i < signature->period; i++) sum += signature->pattern[i]->size;
    return sum;
}

static void draw_units(Random *shared, Signature *signature, int64_t bytes) {
    signature->units = bytes == 1 ? 1 : bytes / unit_bytes(signature);
    bool round = random_chance(shared, 40), empty = random_chance(shared, 30) && !is_simple();
    // All ranks draw the same, because Open MPI 4.1 hangs if one rank passes count 0 and another an empty datatype.
    signature->empty = signature->units == 0 && empty;
    if (round && signature->units > 12) signature->units -= signature->units % 12;
}

// ---- one buffer

static void place(Random *local, Side *side, int alignment, int blocks) {
    side->present = true;
    side->elements = side->count * blocks;
    size_t shift = (size_t)(random_below(local, 64 / alignment) * alignment);
    const Layout *layout = &side->layout;
    side->bytes = side->elements == 0 ? 0 : (size_t)(layout->true_ub - layout->true_lb + (side->elements - 1) * layout->extent);
    side->region = memory_place(side->bytes, 64, shift);
    side->origin = side->region - (size_t)layout->true_lb;
    memory_fill(local, side->region - 128, side->bytes + 256);  // the guard zones too
}

static void use_bottom(Random *local, Side *side) {
    if (!side->present || is_simple() || !random_chance(local, 10)) return;
    side->bottom = true;
    for (int i = 0; i < ARENAS; i++)
        side->absolute[i] = layout_at_address(local, &side->layout, arena[i] + side->origin);
}

static void draw_side(Random *random, Random *local, Side *side, const Signature *signature, int blocks) {
    side->layout = layout_random(random, signature, &side->count, blocks);
    place(local, side, signature->alignment, blocks);
}

// ---- the collectives

static void draw_reduction(Random *shared, Random *local, Call *call, int64_t bytes) {
    bool is_root = call->comm->rank == call->root, to_all = call->collective == ALLREDUCE;
    bool derived = random_chance(shared, 25) && !is_simple(), all_in_place = random_chance(shared, 25);
    const Quirks *quirks = quirks_of(call->comm);
    Signature signature = draw_signature(shared, quirks, !derived, bytes);
    signature.unshifted = quirks->reduce_shifted;
    // huddle reduces only elements that fit a slot, and bold calls must not become native.
    if (settings.bold) signature.most_units = 1024 / unit_bytes(&signature);
    draw_units(shared, &signature, bytes);
    call->packed = signature.units * unit_bytes(&signature);
    call->op = op_choose(shared, signature.pattern[0], derived);
    call->has_op = true;

    Side *send = &call->send, *recv = &call->recv;
    bool safe = !quirks->reduce_in_place || call->root == 0 || call->packed <= 2048;
    bool in_place = to_all ? all_in_place : is_root && safe && random_chance(local, 30);
    bool has_result = to_all || is_root;
    // One datatype describes both buffers, so it is drawn from the shared stream.
    recv->layout = send->layout = derived ? layout_random(shared, &signature, &send->count, 1) : layout_plain(signature.pattern[0]);
    if (!derived) send->count = signature.units;
    recv->count = send->count;
    recv->written = has_result;
    send->in_place = in_place;
    if (!in_place) place(local, send, signature.alignment, 1);
    if (has_result || random_chance(local, 50)) place(local, recv, signature.alignment, 1);
    bool bottom = !quirks->reduce_bottom && (!signature.empty || !quirks->empty_bottom);
    if (derived && in_place && bottom) use_bottom(local, recv);
    if (derived && !recv->present) use_bottom(local, send);

    Side *input = in_place ? recv : send;
    op_fill(local, &call->op, &input->layout, input->elements, call->comm->rank, call->comm->size, arena[ORIGINAL] + input->origin);
}

static void draw_movement(Random *shared, Random *local, Call *call, int64_t bytes) {
    bool is_root = call->comm->rank == call->root, all_in_place = random_chance(shared, 25);
    bool any_byte = random_chance(shared, 40);
    int blocks = call->collective == ALLGATHER ? call->comm->size : 1;
    Signature signature = draw_signature(shared, quirks_of(call->comm), is_simple(), bytes * blocks);
    draw_units(shared, &signature, bytes);
    call->packed = signature.units * unit_bytes(&signature);
    if (any_byte) signature.alignment = 1;

    Side *send = &call->send, *recv = &call->recv;
    int size = call->comm->size;
    recv->written = true;
    switch (call->collective) {
    case BCAST:
        recv->written = !is_root;
        draw_side(local, local, recv, &signature, 1);
        break;
    case ALLGATHER:
        send->in_place = all_in_place;
        if (!send->in_place) draw_side(local, local, send, &signature, 1);
        draw_side(local, local, recv, &signature, size);
        break;
    default:
        recv->in_place = is_root && random_chance(local, 35);
        if (is_root) draw_side(local, local, send, &signature, size);
        if (!recv->in_place) draw_side(local, local, recv, &signature, 1);
        break;
    }
    use_bottom(local, send);
    use_bottom(local, recv);
}

Call call_draw(Random *shared, Random *local, const Communicator *comm, int64_t limit) {
    Call call = {.collective = draw_collective(shared), .comm = comm, .root = (int)random_below(shared, comm->size)};
    settings.predefined = quirks_of(comm)->derived;
    call.large_count = random_chance(local, 25);
    call.junk = random_chance(local, 50);
    int64_t bytes = draw_bytes(shared, limit);
    if (bytes > 1 && (call.collective == ALLGATHER || call.collective == SCATTER)) bytes = bytes / comm->size + 1;
    if (call.collective == ALLREDUCE || call.collective == REDUCE) draw_reduction(shared, local, &call, bytes);
    else if (call.collective != BARRIER) draw_movement(shared, local, &call, bytes);
    return call;
}

static void release_side(Side *side) {
    for (int i = 0; i < ARENAS && side->bottom; i++) MPI_Type_free(&side->absolute[i]);
}

void call_release(Call *call) {
    release_side(&call->send);
    release_side(&call->recv);
    bool shared_type = call->has_op;
    if (call->recv.layout.entries > 0 || call->recv.layout.text[0] != '\0') layout_free(&call->recv.layout);
    if (!shared_type && call->send.layout.text[0] != '\0') layout_free(&call->send.layout);
    if (call->has_op) op_release(&call->op);
}
