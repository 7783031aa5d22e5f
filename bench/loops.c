// The hand-written loops: each collective between two ranks that have private buffers and share a segment, moving the
// least bytes. n bytes are a message, or a rank's block. On the rank that has most to do, in a call:
//
//   collective   what has to happen                                                             reads   writes
//   Bcast        the root copies n into the segment, the other rank out of it                    n       n
//   Reduce       the other rank copies n in; the root combines that with its own into the result  2 n     n
//   Allreduce    each copies in the half that the other combines, combines its own half, writes
//                it to its result and into the segment, and copies the other half out            2 n     2 n
//   Allgather    each copies its block in and to its own result, and the other's out              2 n     3 n
//   Scatter      the root copies the other's block in, and its own to its result                  2 n     2 n
//
// Reductions that combine everything on both ranks move 3 n + 2 n, a Reduce in halves 2 n + 1.5 n. Nothing less is
// possible: private memory can be read by its owner only, so what crosses is written into the segment once and read
// from there once, and each result is written once. (In Allgather the second reading of a chunk is from the cache.)
//
// Data pass in chunks through a ring per rank; a counter of chunks written and one of chunks read per rank.
#include "calls.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum { RING = 4 << 20, LINE = 128 };
typedef struct {
    _Alignas(LINE) _Atomic uint64_t written; // chunks in the owner's ring
    _Alignas(LINE) _Atomic uint64_t read;    // chunks of the other's ring
} Counters;
static Counters *counters;
static char *rings;
static uint64_t put_chunks, got_chunks; // by this rank, in all calls
static int chunk_bytes = 64 << 10;

void loops_start(void) {
    if (size != 2) fail("the loops are for two ranks");
    char *memory = shared_memory(4096 + 2 * (size_t)RING);
    counters = (Counters *)memory, rings = memory + 4096;
}

void loop_chunk(int bytes) {
    chunk_bytes = bytes;
    // Slots of another length begin where nobody reads.
    while (atomic_load_explicit(&counters[!rank].read, memory_order_acquire) < put_chunks) relax();
    PMPI_Barrier(MPI_COMM_WORLD);
}

static char *slot(int owner, uint64_t chunk) { return rings + (size_t)owner * RING + chunk % (uint64_t)(RING / chunk_bytes) * (uint64_t)chunk_bytes; }

// Where the next chunk goes, once the other rank has read what was there.
static char *room(void) {
    uint64_t depth = (uint64_t)(RING / chunk_bytes);
    while (put_chunks >= depth + atomic_load_explicit(&counters[!rank].read, memory_order_acquire)) relax();
    return slot(rank, put_chunks);
}

static void publish(void) { atomic_store_explicit(&counters[rank].written, ++put_chunks, memory_order_release); }

static void put(const double *from, size_t n) {
    memcpy(room(), from, n * sizeof *from);
    publish();
}

// The other rank's next chunk, once it is there; until done().
static const double *get(void) {
    while (atomic_load_explicit(&counters[!rank].written, memory_order_acquire) <= got_chunks) relax();
    return (const double *)slot(!rank, got_chunks);
}

static void done(void) { atomic_store_explicit(&counters[rank].read, ++got_chunks, memory_order_release); }

static void take(double *to, size_t n) {
    memcpy(to, get(), n * sizeof *to);
    done();
}

static void combine(double *restrict to, const double *restrict left, const double *restrict right, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = left[i] + right[i];
}

// to = also = left + right
static void combine_twice(double *restrict to, double *restrict also, const double *restrict left, const double *restrict right, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = also[i] = left[i] + right[i];
}

static size_t chunks_of(size_t n, size_t chunk) { return (n + chunk - 1) / chunk; }
static size_t length_of(size_t n, size_t chunk, size_t i) { return n - i * chunk < chunk ? n - i * chunk : chunk; }

// Chunk i of this rank's half is combined while chunk i + 1 of the other half is on its way.
static void allreduce(const double *in, double *out, size_t n, size_t chunk) {
    size_t half = n / 2, begin = rank ? half : 0, mine = rank ? n - half : half, other = rank ? 0 : half, theirs = n - mine;
    size_t puts = chunks_of(theirs, chunk), combines = chunks_of(mine, chunk), steps = (puts > combines ? puts : combines) + 2;
    for (size_t i = 0; i < steps; i++) {
        if (i < puts) put(in + other + i * chunk, length_of(theirs, chunk, i));
        if (i >= 1 && i - 1 < combines) {
            size_t at = begin + (i - 1) * chunk, length = length_of(mine, chunk, i - 1);
            combine_twice(out + at, (double *)room(), in + at, get(), length);
            done();
            publish();
        }
        if (i >= 2 && i - 2 < puts) take(out + other + (i - 2) * chunk, length_of(theirs, chunk, i - 2));
    }
}

static void allgather(const double *in, double *out, size_t n, size_t chunk) {
    for (size_t i = 0, chunks = chunks_of(n, chunk); i <= chunks; i++) {
        if (i < chunks) {
            put(in + i * chunk, length_of(n, chunk, i));
            memcpy(out + (size_t)rank * n + i * chunk, in + i * chunk, length_of(n, chunk, i) * sizeof *in);
        }
        if (i > 0) take(out + (size_t)!rank * n + (i - 1) * chunk, length_of(n, chunk, i - 1));
    }
}

static void one_way(Collective collective, const double *in, double *out, size_t n, int root, size_t chunk) {
    bool is_root = rank == root;
    for (size_t i = 0; i < chunks_of(n, chunk); i++) {
        size_t at = i * chunk, length = length_of(n, chunk, i);
        if (collective == REDUCE && !is_root) put(in + at, length);
        else if (collective == REDUCE) combine(out + at, in + at, get(), length), done();
        else if (collective == BCAST && is_root) put(in + at, length);
        else if (collective == BCAST) take((double *)in + at, length);
        else if (is_root) put(in + (size_t)!rank * n + at, length), memcpy(out + at, in + (size_t)rank * n + at, length * sizeof *in);
        else take(out + at, length);
    }
}

void loop(Collective collective, const double *in, double *out, int n, int root) {
    size_t chunk = (size_t)chunk_bytes / sizeof *in;
    if (collective == ALLREDUCE) allreduce(in, out, (size_t)n, chunk);
    else if (collective == ALLGATHER) allgather(in, out, (size_t)n, chunk);
    else one_way(collective, in, out, (size_t)n, root, chunk);
}
