// Computes the expected result without native collectives on derived datatypes, for calls that the native library is
// known to do wrong. Contributions are gathered as plain bytes and combined here in rank order.
//
// Dense form: the basic types of a buffer one after the other, each with its extent.
#include "differential.h"

#include <stdio.h>
#include <string.h>

static int64_t dense_bytes(const Layout *layout, int64_t elements) {
    int64_t sum = 0;
    for (int i = 0; i < layout->entries; i++) sum += layout->map[i].basic->extent;
    return sum * elements;
}

// These copy between the dense form and the buffer at `base`. Copies to the buffer leave holes inside basic types
// alone.
static void gather_dense(const Side *side, const unsigned char *base, unsigned char *dense) {
    for (int64_t i = 0; i < side->elements; i++)
        for (int j = 0; j < side->layout.entries; j++) {
            const Entry *entry = &side->layout.map[j];
            memcpy(dense, base + i * side->layout.extent + entry->at, (size_t)entry->basic->extent);
            dense += entry->basic->extent;
        }
}

static void scatter_dense(const Side *side, unsigned char *base, const unsigned char *dense, int64_t elements) {
    for (int64_t i = 0; i < elements; i++)
        for (int j = 0; j < side->layout.entries; j++) {
            const Entry *entry = &side->layout.map[j];
            unsigned char *to = base + i * side->layout.extent + entry->at;
            for (int k = 0; k < entry->basic->fields; k++) {
                const Field *field = &entry->basic->field[k];
                memcpy(to + field->offset, dense + field->offset, (size_t)field->size);
            }
            dense += entry->basic->extent;
        }
}

static void expect_reduction(const Call *call) {
    const Side *input = call->send.in_place ? &call->recv : &call->send;
    int64_t bytes = dense_bytes(&input->layout, input->elements);
    int size = call->comm->size;
    unsigned char *mine = memory_scratch((size_t)bytes), *all = memory_scratch((size_t)(bytes * size));
    gather_dense(input, arena[ORIGINAL] + input->origin, mine);
    PMPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, call->comm->comm);
    unsigned char *result = all + (size - 1) * bytes;
    for (int i = size - 2; i >= 0; i--) op_combine(&call->op, &input->layout, input->elements, all + i * bytes, result);
    if (call->recv.written) scatter_dense(&call->recv, arena[NATIVE] + call->recv.origin, result, call->recv.elements);
}

static void expect_bcast(const Call *call) {
    int64_t bytes = dense_bytes(&call->recv.layout, call->recv.elements);
    unsigned char *dense = memory_scratch((size_t)bytes);
    gather_dense(&call->recv, arena[ORIGINAL] + call->recv.origin, dense);
    PMPI_Bcast(dense, (int)bytes, MPI_BYTE, call->root, call->comm->comm);
    if (call->recv.written) scatter_dense(&call->recv, arena[NATIVE] + call->recv.origin, dense, call->recv.elements);
}

static void expect_allgather(const Call *call) {
    int size = call->comm->size;
    int64_t all_bytes = dense_bytes(&call->recv.layout, call->recv.elements), bytes = all_bytes / size;
    unsigned char *mine = memory_scratch((size_t)all_bytes), *all = memory_scratch((size_t)all_bytes);
    if (call->send.in_place) {
        gather_dense(&call->recv, arena[ORIGINAL] + call->recv.origin, mine);
        mine += call->comm->rank * bytes;
    } else {
        gather_dense(&call->send, arena[ORIGINAL] + call->send.origin, mine);
    }
    PMPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, call->comm->comm);
    scatter_dense(&call->recv, arena[NATIVE] + call->recv.origin, all, call->recv.elements);
}

static void expect_scatter(const Call *call) {
    bool is_root = call->comm->rank == call->root;
    int64_t bytes = is_root ? dense_bytes(&call->send.layout, call->send.elements) / call->comm->size
                            : dense_bytes(&call->recv.layout, call->recv.elements);
    unsigned char *all = memory_scratch(is_root ? (size_t)(bytes * call->comm->size) : 0), *mine = memory_scratch((size_t)bytes);
    if (is_root) gather_dense(&call->send, arena[ORIGINAL] + call->send.origin, all);
    PMPI_Scatter(all, (int)bytes, MPI_BYTE, mine, (int)bytes, MPI_BYTE, call->root, call->comm->comm);
    if (!call->recv.in_place) scatter_dense(&call->recv, arena[NATIVE] + call->recv.origin, mine, call->recv.elements);
}

void oracle(const Call *call) {
    switch (call->collective) {
    case ALLREDUCE: case REDUCE: expect_reduction(call); break;
    case BCAST: expect_bcast(call); break;
    case ALLGATHER: expect_allgather(call); break;
    case SCATTER: expect_scatter(call); break;
    default: PMPI_Barrier(call->comm->comm); break;
    }
}
