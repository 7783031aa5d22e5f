// The hand-written loops: each collective between two ranks that have private buffers and share a segment. They move
// the least bytes, or (Allreduce, where LoopWay says so) wait the least. n bytes are a message, or a rank's block. In a
// call, on the rank that has most to do:
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
// Data pass in chunks through a ring of each rank. Each rank counts the chunks that it has written and those that it
// has read. Messages of at most SHORT_BYTES pass in the line that announces them. The program that measures chooses
// (LoopWay) how long chunks and rings are, and whether a rank combines all of an Allreduce itself, which is less to
// wait for and more to do.
#include "calls.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum { MOST_RING = 4 << 20, LINE = 128, SHORTS = 64 };
typedef struct {
    _Alignas(LINE) _Atomic uint64_t written; // chunks in the owner's ring
    _Alignas(LINE) _Atomic uint64_t read;    // chunks of the other's ring
    _Alignas(LINE) _Atomic uint64_t read_shorts;
} Counters;
typedef struct {
    _Alignas(LINE) _Atomic uint64_t ordinal; // of the message, from 1 on
    double data[SHORT_BYTES / sizeof(double)];
} Short;
static Counters *counters;
static Short *shorts;
static char *rings;
static uint64_t put_chunks, got_chunks, put_shorts, got_shorts; // by this rank, in all calls
static uint64_t seen, seen_shorts;                              // what the other rank has read, as far as known
static LoopWay way = {64 << 10, MOST_RING, false};

void loops_start(void) {
    if (size != 2) fail("the loops are for two ranks");
    size_t before = sizeof(Counters) * 2 + sizeof(Short) * 2 * SHORTS, head = (before + 4095) / 4096 * 4096;
    char *memory = shared_memory(head + 2 * (size_t)MOST_RING);
    counters = (Counters *)memory, shorts = (Short *)(counters + 2), rings = memory + head;
}

void loop_way(LoopWay chosen) {
    way = chosen;
    // Slots of another length must not lie where the other rank still reads.
    while (atomic_load_explicit(&counters[!rank].read, memory_order_acquire) < put_chunks) relax();
    PMPI_Barrier(MPI_COMM_WORLD);
}

static char *slot(int owner, uint64_t chunk) {
    return rings + (size_t)owner * MOST_RING + chunk % (uint64_t)(way.ring / way.chunk) * (uint64_t)way.chunk;
}

// Waits until the other rank's counter has reached `wanted`; `known` is the value that was seen last.
static void await_read(_Atomic uint64_t *counter, uint64_t *known, uint64_t wanted) {
    while (*known < wanted) {
        *known = atomic_load_explicit(counter, memory_order_acquire);
        if (*known < wanted) relax();
    }
}

// The place of the next chunk, once the other rank has read what was there.
static char *room(void) {
    uint64_t depth = (uint64_t)(way.ring / way.chunk);
    if (put_chunks >= depth) await_read(&counters[!rank].read, &seen, put_chunks - depth + 1);
    return slot(rank, put_chunks);
}

static void publish(void) { atomic_store_explicit(&counters[rank].written, ++put_chunks, memory_order_release); }

static void put(const double *from, size_t n) {
    memcpy(room(), from, n * sizeof *from);
    publish();
}

// The other rank's next chunk, once it is written; valid until done().
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

// An Allreduce in which each rank combines everything.
static void exchange_whole(const double *in, double *out, size_t n, size_t chunk) {
    for (size_t i = 0, chunks = chunks_of(n, chunk); i <= chunks; i++) {
        if (i < chunks) put(in + i * chunk, length_of(n, chunk, i));
        if (i > 0) combine(out + (i - 1) * chunk, in + (i - 1) * chunk, get(), length_of(n, chunk, i - 1)), done();
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

// ---- messages that fit a line

static void copy_short(double *to, const double *from, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = from[i];
}

static void put_short(const double *from, size_t n) {
    if (put_shorts >= SHORTS) await_read(&counters[!rank].read_shorts, &seen_shorts, put_shorts - SHORTS + 1);
    Short *line = &shorts[rank * SHORTS + put_shorts % SHORTS];
    copy_short(line->data, from, n);
    atomic_store_explicit(&line->ordinal, ++put_shorts, memory_order_release);
}

// The other rank's next message, once it is written; valid until done_short().
static const double *get_short(void) {
    Short *line = &shorts[!rank * SHORTS + got_shorts % SHORTS];
    while (atomic_load_explicit(&line->ordinal, memory_order_acquire) <= got_shorts) relax();
    return line->data;
}

static void done_short(void) { atomic_store_explicit(&counters[rank].read_shorts, ++got_shorts, memory_order_release); }

static void take_short(double *to, size_t n) {
    copy_short(to, get_short(), n);
    done_short();
}

static void combine_short(double *out, const double *in, size_t n) {
    combine(out, in, get_short(), n);
    done_short();
}

static void short_call(Collective collective, const double *in, double *out, size_t n, int root) {
    size_t mine = (size_t)rank * n, other = (size_t)!rank * n;
    switch (collective) {
    case ALLREDUCE: put_short(in, n), combine_short(out, in, n); break;
    case BCAST: rank == root ? put_short(in, n) : take_short((double *)in, n); break;
    case REDUCE: rank == root ? combine_short(out, in, n) : put_short(in, n); break;
    case ALLGATHER: put_short(in, n), copy_short(out + mine, in, n), take_short(out + other, n); break;
    case SCATTER: rank == root ? put_short(in + other, n), copy_short(out, in + mine, n) : take_short(out, n); break;
    default: put_short(in, 0), take_short(out, 0);
    }
}

void loop(Collective collective, const double *in, double *out, int n, int root) {
    size_t chunk = (size_t)way.chunk / sizeof *in;
    if ((size_t)n * sizeof *in <= SHORT_BYTES) short_call(collective, in, out, (size_t)n, root);
    else if (collective == ALLREDUCE && way.whole) exchange_whole(in, out, (size_t)n, chunk);
    else if (collective == ALLREDUCE) allreduce(in, out, (size_t)n, chunk);
    else if (collective == ALLGATHER) allgather(in, out, (size_t)n, chunk);
    else one_way(collective, in, out, (size_t)n, root, chunk);
}
