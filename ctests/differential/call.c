// Makes a drawn call through one of two tables of functions, MPI_X or PMPI_X.
#include "differential.h"
#include "../functions.h"

#include <stdio.h>

static const Functions *const functions[2] = {[TESTED] = &tested, [NATIVE] = &native};

#if MPI_VERSION >= 4
typedef struct {
    int (*allreduce)(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm);
    int (*bcast)(void *, MPI_Count, MPI_Datatype, int, MPI_Comm);
    int (*reduce)(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm);
    int (*allgather)(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, MPI_Comm);
    int (*scatter)(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int, MPI_Comm);
} LargeFunctions;
static const LargeFunctions large_functions[2] = {
    [TESTED] = {MPI_Allreduce_c, MPI_Bcast_c, MPI_Reduce_c, MPI_Allgather_c, MPI_Scatter_c},
    [NATIVE] = {PMPI_Allreduce_c, PMPI_Bcast_c, PMPI_Reduce_c, PMPI_Allgather_c, PMPI_Scatter_c}};
#endif

typedef struct {
    void *buffer;
    int count;
    MPI_Datatype type;
} Arguments;

// Arguments of an absent side are not significant on this rank, so they may hold anything.
static Arguments arguments(const Call *call, const Side *side, int which) {
    if (side->in_place && call->has_op) return (Arguments){MPI_IN_PLACE, (int)side->count, side->layout.type};
    if (side->in_place) return (Arguments){MPI_IN_PLACE, call->junk ? -7 : 0, call->junk ? MPI_DATATYPE_NULL : MPI_BYTE};
    if (!side->present && !call->has_op) return (Arguments){NULL, call->junk ? -9 : 0, call->junk ? MPI_DATATYPE_NULL : MPI_BYTE};
    Arguments found = {side->present ? arena[which] + side->origin : NULL, (int)side->count, side->layout.type};
    if (side->present && side->elements == 0 && call->junk) found.buffer = NULL;
    if (side->bottom) found.buffer = MPI_BOTTOM, found.type = side->absolute[which];
    return found;
}

static int make(const Call *call, int which, Arguments send, Arguments recv) {
    MPI_Comm comm = call->comm->comm;
    const Functions *f = functions[which];
    MPI_Op op = call->has_op ? call->op.op : MPI_OP_NULL;
    MPI_Datatype reduced = call->send.in_place ? recv.type : send.type;
#if MPI_VERSION >= 4
    const LargeFunctions *g = &large_functions[which];
    if (call->large_count) switch (call->collective) {
    case ALLREDUCE: return g->allreduce(send.buffer, recv.buffer, send.count, reduced, op, comm);
    case REDUCE: return g->reduce(send.buffer, recv.buffer, send.count, reduced, op, call->root, comm);
    case BCAST: return g->bcast(recv.buffer, recv.count, recv.type, call->root, comm);
    case ALLGATHER: return g->allgather(send.buffer, send.count, send.type, recv.buffer, recv.count, recv.type, comm);
    case SCATTER: return g->scatter(send.buffer, send.count, send.type, recv.buffer, recv.count, recv.type, call->root, comm);
    default: break;
    }
#endif
    switch (call->collective) {
    case ALLREDUCE: return f->allreduce(send.buffer, recv.buffer, send.count, reduced, op, comm);
    case REDUCE: return f->reduce(send.buffer, recv.buffer, send.count, reduced, op, call->root, comm);
    case BCAST: return f->bcast(recv.buffer, recv.count, recv.type, call->root, comm);
    case ALLGATHER: return f->allgather(send.buffer, send.count, send.type, recv.buffer, recv.count, recv.type, comm);
    case SCATTER: return f->scatter(send.buffer, send.count, send.type, recv.buffer, recv.count, recv.type, call->root, comm);
    default: return f->barrier(comm);
    }
}

void call_make(Call *call, int which) {
    Arguments send = arguments(call, &call->send, which), recv = arguments(call, &call->recv, which);
    int code = make(call, which, send, recv);
    if (code == MPI_SUCCESS) return;
    fprintf(stderr, "differential: seed %lu, step %ld: %sMPI_%s returned %d\n", (unsigned long)settings.seed, (long)settings.step,
            which == NATIVE ? "P" : "", collective_names[call->collective], code);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
