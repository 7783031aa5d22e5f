// Calls that repeat earlier ones, and calls that only look like repetitions: a few counts in turn, datatypes of all
// kinds, one freed and another made under its handle, in place and not. Each result is that of the native library
// (HUDDLE_PMPI=0), to the last byte of the buffer, so bytes between elements stay as they were.
#include "check.h"

#include <stddef.h>

enum { ROOM = 1 << 18, MIDDLE = 8192, MOST = 12, MANY = 40, REPEATS = 3 };
// The part of the buffers that short calls use.
enum { FEW = 1 << 14 };

typedef struct {
    double x[3];
    int id;
} Point;

// ---- datatypes

typedef MPI_Datatype Maker(void);

static MPI_Datatype of_points(void) {
    int lengths[2] = {3, 1};
    MPI_Aint at[2] = {0, offsetof(Point, id)};
    MPI_Datatype types[2] = {MPI_DOUBLE, MPI_INT}, type;
    MPI_Type_create_struct(2, lengths, at, types, &type);
    return type;
}
static MPI_Datatype resized(MPI_Datatype old, MPI_Aint lb, MPI_Aint extent) {
    MPI_Datatype type;
    MPI_Type_create_resized(old, lb, extent, &type);
    MPI_Type_free(&old);
    return type;
}
static MPI_Datatype of_three(void) {
    MPI_Datatype type;
    MPI_Type_contiguous(3, MPI_DOUBLE, &type);
    return type;
}
static MPI_Datatype padded(void) { return resized(of_points(), 0, sizeof(Point)); }
static MPI_Datatype strided(void) {
    MPI_Datatype type;
    MPI_Type_vector(3, 2, 4, MPI_INT, &type);
    return type;
}
static MPI_Datatype backwards(void) {
    MPI_Datatype type;
    MPI_Type_vector(3, 1, -2, MPI_INT, &type);
    return resized(type, -16, 24);
}
static MPI_Datatype shifted(void) {
    MPI_Datatype type;
    int length = 4;
    MPI_Aint at = 24;
    MPI_Type_create_hindexed(1, &length, &at, MPI_INT, &type);
    return type;
}
static MPI_Datatype turned(void) {
    MPI_Datatype type;
    int lengths[2] = {1, 2}, at[2] = {4, 0};
    MPI_Type_indexed(2, lengths, at, MPI_INT, &type);
    return type;
}
static MPI_Datatype sparse(void) {
    MPI_Datatype type;
    MPI_Type_dup(MPI_INT, &type);
    return resized(type, 0, 12);
}
static Maker *const makers[] = {of_three, padded, strided, backwards, shifted, turned, sparse};
enum { MADE = sizeof makers / sizeof *makers };

// ---- two operations on any of these datatypes, which take turns under one handle

static void combine(void *in, void *inout, int n, MPI_Datatype type, bool adds) {
    static unsigned char left[64], right[64];
    int size;
    MPI_Aint lb, extent;
    MPI_Type_size(type, &size);
    MPI_Type_get_extent(type, &lb, &extent);
    CHECK(size <= (int)sizeof left);
    for (int i = 0; i < n; i++) {
        char *to = (char *)inout + i * extent;
        int ends[3] = {0};
        MPI_Pack((char *)in + i * extent, 1, type, left, size, &ends[0], MPI_COMM_SELF);
        MPI_Pack(to, 1, type, right, size, &ends[1], MPI_COMM_SELF);
        for (int at = 0; at < size; at++) right[at] = (unsigned char)(adds ? left[at] + right[at] : left[at] ^ right[at]);
        MPI_Unpack(right, size, &ends[2], to, 1, type, MPI_COMM_SELF);
    }
}
static void add(void *in, void *inout, int *n, MPI_Datatype *type) { combine(in, inout, *n, *type, true); }
static void differ(void *in, void *inout, int *n, MPI_Datatype *type) { combine(in, inout, *n, *type, false); }

// ---- calls, each by the native library and by huddle, on equal buffers

static unsigned char in[ROOM], out[2][ROOM];
static size_t used = FEW;

static void fill(unsigned seed) {
    for (size_t i = 0; i < used; i++) in[i] = (unsigned char)(next_number(&seed) & 63);
    for (size_t i = 0; i < used; i++) out[0][i] = out[1][i] = (unsigned char)(next_number(&seed) & 63);
}

static void call(int collective, bool native, int n, MPI_Datatype type, MPI_Op op, int root, bool in_place) {
    void *to = out[native] + MIDDLE, *at_root = in_place && world_rank == root ? MPI_IN_PLACE : in + MIDDLE;
    const void *from = in_place ? MPI_IN_PLACE : in + MIDDLE;
    switch (collective) {
    case 0: (native ? PMPI_Bcast : MPI_Bcast)(to, n, type, root, MPI_COMM_WORLD); break;
    case 1: (native ? PMPI_Allgather : MPI_Allgather)(from, n, type, to, n, type, MPI_COMM_WORLD); break;
    case 2:
        // In place, the root's blocks are in the buffer in which others receive.
        if (in_place && world_rank == root) (native ? PMPI_Scatter : MPI_Scatter)(to, n, type, MPI_IN_PLACE, n, type, root, MPI_COMM_WORLD);
        else (native ? PMPI_Scatter : MPI_Scatter)(in + MIDDLE, n, type, to, n, type, root, MPI_COMM_WORLD);
        break;
    case 3: (native ? PMPI_Allreduce : MPI_Allreduce)(from, to, n, type, op, MPI_COMM_WORLD); break;
    default: (native ? PMPI_Reduce : MPI_Reduce)(at_root, to, n, type, op, root, MPI_COMM_WORLD);
    }
}

static void compare(MPI_Datatype type, MPI_Op op, int count, int turn) {
    for (int collective = 0; collective < (op == MPI_OP_NULL ? 3 : 5); collective++)
        for (int repeat = 0; repeat < REPEATS; repeat++) {
            bool in_place = (turn + collective) % 3 == 0;
            int root = (turn + repeat) % world_size;
            fill((unsigned)(turn * 1000 + collective * 100 + repeat * 10 + world_rank));
            for (int native = 0; native < 2; native++) call(collective, native, count, type, op, root, in_place);
            CHECK(!memcmp(out[0], out[1], used));
        }
}

// Counts in no order, zero among them, with more types and operations than have stems, one operation user-defined.
static void call_with_any_counts(int turns) {
    MPI_Op own;
    MPI_Op_create(differ, 1, &own);
    const struct {
        MPI_Datatype type;
        MPI_Op op;
    } kinds[] = {{MPI_BYTE, MPI_BXOR}, {MPI_INT, MPI_SUM}, {MPI_2INT, MPI_MAXLOC}, {MPI_INT, own}, {MPI_UNSIGNED, MPI_BAND}, {MPI_SHORT, MPI_MAX}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    unsigned seed = 5;
    for (int turn = 0; turn < turns; turn++) {
        int kind = (int)next_number(&seed) % (turn / 100 % 2 ? KINDS : 2), collective = (int)next_number(&seed) % 5;
        // Now and then longer calls, for which memory is reserved, and which other algorithms serve.
        used = turn % 23 == 22 ? ROOM : FEW;
        int most = ((int)used - MIDDLE) / (8 * world_size), count = (int)next_number(&seed) % most * (turn % 29 != 28);
        int root = (int)next_number(&seed) % world_size;
        fill((unsigned)(turn * 100 + world_rank));
        // MPICH 4 itself crashes in longer Reduces in place.
        bool in_place = turn % 7 == 6 && used == FEW;
        for (int native = 0; native < 2; native++) call(collective, native, count, kinds[kind].type, kinds[kind].op, root, in_place);
        CHECK(!memcmp(out[0], out[1], used));
    }
    used = FEW;
    MPI_Op_free(&own);
}

// A new datatype for each call, freed after it: of the same kind some times in a row, or of a few kinds in turn. Now
// and then one stays for two calls.
static void call_with_new_ones(int turns) {
    for (int turn = 0; turn < turns; turn++) {
        int phase = turn / 40, collective = phase % 3, kind = phase + (phase % 2 ? turn % (1 + phase % 6) : 0);
        MPI_Datatype type = makers[kind % MADE]();
        MPI_Type_commit(&type);
        for (int again = 0; again <= (turn % 17 == 16); again++) {
            int count = 1 + (turn / 10 + again) % 3;
            fill((unsigned)(turn * 100 + again * 10 + world_rank));
            for (int native = 0; native < 2; native++)
                call(collective, native, count, type, MPI_OP_NULL, turn % world_size, turn % 5 == 4);
            CHECK(!memcmp(out[0], out[1], used));
        }
        MPI_Type_free(&type);
    }
}

// A datatype that is made like earlier ones, but not committed, is rejected on all ranks as if these had not been made.
// Open MPI accepts a datatype that is derived from a committed one.
static void call_with_one_not_committed(void) {
    MPI_Errhandler before;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int rejected = 0;
    for (int kind = 0; kind < MADE; kind++)
        for (int turn = 0; turn <= MANY; turn++) {
            MPI_Datatype type = makers[kind]();
            if (turn < MANY) MPI_Type_commit(&type);
            int classes[2];
            for (int native = 0; native < 2; native++)
                MPI_Error_class((native ? PMPI_Bcast : MPI_Bcast)(out[0] + MIDDLE, 2, type, turn % world_size, MPI_COMM_WORLD), &classes[native]);
            CHECK(classes[0] == classes[1] && (turn == MANY || classes[0] == MPI_SUCCESS));
            rejected += classes[0] == MPI_ERR_TYPE;
            MPI_Type_free(&type);
        }
    CHECK(rejected >= MADE - 1);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    look_around();
    int turns = argument(argc, argv, 60);
    for (int turn = 0; turn < turns; turn++) {
        // Most of the time one datatype replaces another that was freed; sometimes both exist at a time.
        MPI_Datatype first = makers[turn * 3 % MADE](), second = turn % 4 ? MPI_INT : makers[turn * 5 % MADE]();
        MPI_Op op;
        MPI_Type_commit(&first);
        if (turn % 4 == 0) MPI_Type_commit(&second);
        MPI_Op_create(turn % 2 ? add : differ, 1, &op);
        for (int i = 0; i < 3; i++) {
            int count = 1 + (turn * 5 + i * 7) % MOST;
            compare(first, op, count, turn + i);
            compare(second, op, count, turn + i);
            compare(first, op, 1, turn + i + 1);
        }
        MPI_Op_free(&op);
        MPI_Type_free(&first);
        if (turn % 4 == 0) MPI_Type_free(&second);
    }
    // Blocks longer than what is packed before a call. Natively Open MPI 4 can't reduce that much of some of these
    // datatypes, and MPICH 4 can't scatter it.
    used = ROOM;
    for (int turn = 0; turn < 2 && turn < turns; turn++) {
        MPI_Datatype type = turn ? strided() : of_three();
        MPI_Type_commit(&type);
        for (int i = 0; i < 3; i++) compare(type, MPI_OP_NULL, 1200 + 7 * (i % 2), turn);
        MPI_Type_free(&type);
    }
    used = FEW;
    // A datatype that stays while others are made and freed, and one of absolute addresses, which has no buffer.
    MPI_Datatype lasting = padded(), absolute;
    int lengths[2] = {3, 2};
    MPI_Aint at[2];
    MPI_Get_address(out[0], &at[0]), MPI_Get_address(out[0] + 100, &at[1]);
    MPI_Type_create_hindexed(2, lengths, at, MPI_INT, &absolute);
    MPI_Type_commit(&lasting), MPI_Type_commit(&absolute);
    for (int turn = 0; turn < 20; turn++) {
        for (int i = 0; i < 4; i++) compare(lasting, MPI_OP_NULL, 1 + i % 2, turn);
        MPI_Datatype other = makers[turn % MADE]();
        MPI_Type_commit(&other);
        compare(other, MPI_OP_NULL, 2, turn);
        MPI_Type_free(&other);
        fill((unsigned)(turn * 100 + world_rank));
        int seen[5], root = turn % world_size;
        for (int i = 0; i < 5; i++) memcpy(&seen[i], out[0] + (i < 3 ? i * 4 : 100 + (i - 3) * 4), sizeof(int));
        PMPI_Bcast(seen, 5, MPI_INT, root, MPI_COMM_WORLD);
        MPI_Bcast(MPI_BOTTOM, 1, absolute, root, MPI_COMM_WORLD);
        for (int i = 0; i < 5; i++) CHECK(!memcmp(&seen[i], out[0] + (i < 3 ? i * 4 : 100 + (i - 3) * 4), sizeof(int)));
    }
    MPI_Type_free(&lasting), MPI_Type_free(&absolute);
    call_with_new_ones(10 * turns);
    call_with_one_not_committed();
    // Many counts in turn, and a pair with a hole.
    for (int turn = 0; turn < 3 * MANY; turn++) {
        compare(MPI_BYTE, MPI_BXOR, 1 + turn % MANY, turn);
        fill((unsigned)(turn * 100 + world_rank));
        for (int native = 0; native < 2; native++) call(turn % 3, native, 1 + turn % 2, MPI_DOUBLE_INT, MPI_OP_NULL, turn % world_size, false);
        CHECK(!memcmp(out[0], out[1], used));
    }
    call_with_any_counts(20 * turns);
    MPI_Finalize();
    say_ok("repeated");
}
