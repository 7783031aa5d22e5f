// A seeded random differential test: each step calls MPI_X and PMPI_X on copies of one input and compares
// every byte. Run it with HUDDLE_PMPI=0, so that PMPI_X is the native library.
//
//   random.c   random streams: shared (equal on all ranks) and local
//   basic.c    the predefined datatypes, their fields, and which operations the library accepts on them
//   op.c       operations, user-defined ones included, and values whose results are exact
//   layout.c   random derived datatypes with a given signature, and their type maps
//   spread.c   the constructors that repeat one datatype
//   pool.c     the changing pool of communicators
//   traffic.c  pending traffic and skew around the calls
//   memory.c   three equal arenas: MPI_X works in one, PMPI_X in the second, the third stays as it was
//   draw.c     draws one call
//   quirks.c   known errors of the native library
//   call.c     makes the call, by MPI_X or PMPI_X
//   oracle.c   the expected result, without native collectives on derived datatypes
//   compare.c  compares what the two calls left in memory
//   main.c     options and the loop
//
// Agreement: whatever must be equal on all ranks is drawn from a stream that depends only on (seed, step, call). Each
// call has its own streams, so ranks that draw more often than others do not drift apart.
#ifndef DIFFERENTIAL_H
#define DIFFERENTIAL_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- random.c
typedef struct {
    uint64_t state;
} Random;

Random random_stream(uint64_t seed, uint64_t step, uint64_t call, uint64_t owner);
uint64_t random_bits(Random *random);
int64_t random_below(Random *random, int64_t bound);                  // 0 … bound - 1
int64_t random_between(Random *random, int64_t first, int64_t last);  // both included
bool random_chance(Random *random, int percent);
void random_fill(Random *random, void *bytes, size_t n);
int64_t random_divisor(Random *random, int64_t n);
void random_permutation(Random *random, int *order, int n);

// ---- basic.c
typedef enum { C_INTEGER, FORTRAN_INTEGER, ADDRESS, FLOATING, LOGICAL, COMPLEX, BYTE, PAIR, OPAQUE } Class;
typedef enum { SIGNED, UNSIGNED, REAL, LONG_REAL, BITS } Format;
typedef struct {
    int offset, size, significant;  // significant: the bytes that carry the value (10 of the 16 of a long double)
    Format format;
} Field;
typedef struct {
    const char *name;
    MPI_Datatype type;
    Class class;
    int size, extent, alignment;
    int fields;
    Field field[2];
    unsigned operations;  // bit i: the library accepts the predefined operation i
    bool signed_order;    // unsigned, but the library compares it as signed
} Basic;

extern Basic basics[];
extern int basics_count;
void basics_probe(void);
const Basic *basic_find(MPI_Datatype type);

// ---- layout.c
typedef struct {
    const Basic *basic;
    MPI_Aint at;
} Entry;
typedef struct {
    MPI_Datatype type;
    bool predefined;
    int entries;
    Entry *map;  // in the order of the signature
    MPI_Aint lb, extent, true_lb, true_ub;
    MPI_Aint shift;  // added to all entries: the absolute address, for MPI_BOTTOM
    char text[400];
} Layout;
typedef struct {
    int64_t units;  // the signature: `period` basic types, `units` times
    bool empty;     // zero units as a count above 0 of an empty datatype
    int period;
    const Basic *pattern[6];
    int alignment;  // 1: any address will do
    bool shallow;        // at most one constructor
    bool unshifted;      // the data begins at 0
    int64_t most_units;  // in one element; 0: no limit
} Signature;

void layouts_start(void);
Layout layout_plain(const Basic *basic);
Layout layout_random(Random *random, const Signature *signature, int64_t *count, int blocks);
MPI_Datatype layout_at_address(Random *random, const Layout *layout, void *address);  // for MPI_BOTTOM
void layout_free(Layout *layout);
const Layout *layout_of(MPI_Datatype type);  // for user operations

// For the constructors: the layout of `type`, in which copy i of `child` is at offset at[i]. The layout owns `type`.
Layout layout_compose(MPI_Datatype type, const Layout *child, const MPI_Aint *at, int copies, const char *text);

// ---- spread.c
Layout layout_spread(Random *random, const Layout *child, int copies, int alignment);
Layout layout_column(const Layout *child, int rows, int columns);  // elements interleave like columns of a matrix

// ---- op.c
enum { OPERATIONS = 12, USER_OPERATIONS = 4 };
typedef struct {
    const char *name;
    MPI_Op op;
} Operation;
typedef struct {
    int predefined;  // index in operations[], or -1
    int user;        // index of the user-defined one
    bool fresh;      // created for this call
    MPI_Op op;
} ChosenOp;

extern const Operation operations[OPERATIONS];
bool operation_is_defined(int operation, Class class);
void user_operations_start(void);
void user_operations_end(void);
ChosenOp op_choose(Random *random, const Basic *basic, bool derived);
const char *op_name(const ChosenOp *chosen);
void op_release(ChosenOp *chosen);
void op_combine(const ChosenOp *chosen, const Layout *layout, int64_t count, const unsigned char *left, unsigned char *right);
void op_fill(Random *random, const ChosenOp *chosen, const Layout *layout, int64_t count, int rank, int size, void *buffer);

// ---- memory.c
enum { TESTED, NATIVE, ORIGINAL, ARENAS };
extern unsigned char *arena[ARENAS];
void memory_start(void);
size_t memory_place(size_t bytes, size_t alignment, size_t shift);  // the offset in every arena
void memory_fill(Random *random, size_t offset, size_t bytes);      // in ORIGINAL
void memory_distribute(void);                                       // copies ORIGINAL to the others
bool memory_is_equal(void);                                         // compares TESTED and NATIVE
void memory_reset(void);
void *memory_scratch(size_t bytes);  // valid until the reset

// ---- pool.c
typedef struct {
    MPI_Comm comm;  // MPI_COMM_NULL: this rank is not in it
    int rank, size;
    char text[96];
} Communicator;

void pool_start(uint64_t seed);
void pool_change(Random *shared);
void pool_end(void);
Communicator *pool_choose(Random *shared);

// ---- traffic.c
void traffic_start(void);
void traffic_end(void);
int traffic_begin(Random *shared);  // returns the kind that is pending
void traffic_complete(int pending);
const char *traffic_name(int pending);
void skew(Random *local);

// ---- draw.c, call.c, compare.c
typedef enum { ALLREDUCE, BCAST, REDUCE, ALLGATHER, BARRIER, SCATTER, COLLECTIVES } Collective;
extern const char *const collective_names[COLLECTIVES];

typedef struct {
    bool present;  // false: not significant on this rank, and without memory
    bool in_place;
    bool bottom;
    bool written;  // receives the result
    Layout layout;
    int64_t count;                  // as passed to MPI
    int64_t elements;               // elements in the buffer: count, or count × size of the communicator
    size_t region, bytes;           // offset in the arenas and length, without guard zones
    size_t origin;                  // offset of element 0
    MPI_Datatype absolute[ARENAS];  // for MPI_BOTTOM
} Side;
typedef struct {
    Collective collective;
    const Communicator *comm;
    int root;
    bool large_count;  // the _c form
    bool junk;         // arguments that are not significant here hold rubbish
    bool has_op;
    ChosenOp op;
    int64_t packed;  // bytes of one contribution
    Side send, recv;
} Call;
typedef struct {
    uint64_t seed;
    int64_t max_bytes;
    int64_t step;
    bool enabled[COLLECTIVES];
    bool contiguous;  // no derived datatypes but contiguous ones
    bool predefined;  // for the call that is being drawn, no derived datatypes
    bool oracle;  // expected results are computed, not taken from PMPI_X
    bool bold;    // calls that the native library does wrong are drawn too
} Settings;
extern Settings settings;

Call call_draw(Random *shared, Random *local, const Communicator *comm, int64_t limit);
void call_make(Call *call, int which);  // in arena TESTED by MPI_X, in NATIVE by PMPI_X
void call_describe(const Call *call, int index, const char *title, const char *around);
void call_compare(const Call *call, int index, const char *around);
void call_release(Call *call);

// ---- oracle.c
void oracle(const Call *call);  // leaves the expected result in arena NATIVE

// ---- quirks.c
typedef struct {
    bool reduce_in_place;  // MPI_Reduce(MPI_IN_PLACE) crashes above 2 KiB where root ≠ 0
    bool reduce_bottom;    // a reduction takes a null receive buffer for no buffer
    bool reduce_shifted;   // temporary buffers of reductions ignore a lower bound that isn't 0
    int64_t nested_limit;  // bytes of a message above which it is cut inside elements and then truncated; 0: no limit
    int64_t wide_limit;    // bytes of a message above which basic types of more than 16 bytes overrun a buffer
    bool derived;          // collectives on derived datatypes are wrong, in more ways than could be told apart
    bool empty_bottom;     // an empty type at MPI_BOTTOM on one rank only: a reduction in place hangs
    bool packed;           // MPI_PACKED inside a derived datatype is unpacked without its holes
} Quirks;
void quirks_look(void);
// The quirks to avoid on this communicator. With --bold there are none, unless it has one rank: its calls may all be
// native.
const Quirks *quirks_of(const Communicator *comm);

#endif
