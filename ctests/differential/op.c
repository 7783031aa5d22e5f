// Operations, and operands on which every order of evaluation gives the same bits: small integers, also as
// floating-point numbers; for products ±1 and 2; complex products with at most one factor off the real axis
// (otherwise the sign of a zero depends on the order).
//
// User-defined operations work on the bytes of the fields, so they are associative on any datatype:
// xor (commutative), the left operand, the right operand, and the product of 2×2 matrices of bytes.
#include "differential.h"
#include "numbers.h"

#include <stdio.h>
#include <string.h>

#define NAMED(op) {#op, op}
const Operation operations[OPERATIONS] = {NAMED(MPI_MAX), NAMED(MPI_MIN), NAMED(MPI_SUM), NAMED(MPI_PROD),
                                          NAMED(MPI_LAND), NAMED(MPI_LOR), NAMED(MPI_LXOR), NAMED(MPI_BAND),
                                          NAMED(MPI_BOR), NAMED(MPI_BXOR), NAMED(MPI_MAXLOC), NAMED(MPI_MINLOC)};
enum { MAX, MIN, SUM, PROD, LAND, LOR, LXOR, BAND, BOR, BXOR, MAXLOC, MINLOC };

bool operation_is_defined(int operation, Class class) {
    switch (operation) {
    case MAX: case MIN: return class <= FLOATING;
    case SUM: case PROD: return class <= FLOATING || class == COMPLEX;
    case LAND: case LOR: case LXOR: return class == C_INTEGER || class == LOGICAL;
    case BAND: case BOR: case BXOR: return class <= ADDRESS || class == BYTE;
    default: return class == PAIR;
    }
}

// ---- user-defined operations

static void apply_xor(unsigned char *right, const unsigned char *left, int n) {
    for (int i = 0; i < n; i++) right[i] ^= left[i];
}

static void apply_left(unsigned char *right, const unsigned char *left, int n) { memcpy(right, left, (size_t)n); }

static void apply_right(unsigned char *right, const unsigned char *left, int n) { (void)right, (void)left, (void)n; }

// Multiplies four bytes at a time as matrices, two remaining ones as the affine map a·x + b; a last byte takes the left
// operand.
static void apply_matrix(unsigned char *right, const unsigned char *left, int n) {
    for (; n >= 4; n -= 4, right += 4, left += 4) {
        unsigned a = right[0], b = right[1], c = right[2], d = right[3];
        right[0] = (unsigned char)(left[0] * a + left[1] * c);
        right[1] = (unsigned char)(left[0] * b + left[1] * d);
        right[2] = (unsigned char)(left[2] * a + left[3] * c);
        right[3] = (unsigned char)(left[2] * b + left[3] * d);
    }
    for (; n >= 2; n -= 2, right += 2, left += 2) {
        right[1] = (unsigned char)(left[0] * right[1] + left[1]);
        right[0] = (unsigned char)(left[0] * right[0]);
    }
    if (n == 1) *right = *left;
}

typedef void Apply(unsigned char *right, const unsigned char *left, int n);

static void apply_fields(Apply *apply, const Basic *basic, unsigned char *right, const unsigned char *left) {
    for (int i = 0; i < basic->fields; i++) {
        const Field *field = &basic->field[i];
        apply(right + field->offset, left + field->offset, field->significant);
    }
}

static void apply_all(Apply *apply, const void *in, void *inout, int count, MPI_Datatype type) {
    const unsigned char *left = in;
    unsigned char *right = inout;
    const Basic *basic = basic_find(type);
    if (basic != NULL) {
        for (int i = 0; i < count; i++, left += basic->extent, right += basic->extent) apply_fields(apply, basic, right, left);
        return;
    }
    const Layout *layout = layout_of(type);
    left += layout->shift, right += layout->shift;
    for (int i = 0; i < count; i++, left += layout->extent, right += layout->extent)
        for (int j = 0; j < layout->entries; j++)
            apply_fields(apply, layout->map[j].basic, right + layout->map[j].at, left + layout->map[j].at);
}

static void user_xor(void *in, void *inout, int *n, MPI_Datatype *type) { apply_all(apply_xor, in, inout, *n, *type); }
static void user_left(void *in, void *inout, int *n, MPI_Datatype *type) { apply_all(apply_left, in, inout, *n, *type); }
static void user_right(void *in, void *inout, int *n, MPI_Datatype *type) { apply_all(apply_right, in, inout, *n, *type); }
static void user_matrix(void *in, void *inout, int *n, MPI_Datatype *type) { apply_all(apply_matrix, in, inout, *n, *type); }

static const struct {
    const char *name;
    MPI_User_function *function;
    int commutes;
} user_functions[USER_OPERATIONS] = {{"user xor (commutative)", user_xor, 1},
                                     {"user left operand", user_left, 0},
                                     {"user right operand", user_right, 0},
                                     {"user matrix product", user_matrix, 0}};
static MPI_Op user_operations[USER_OPERATIONS];

void user_operations_start(void) {
    for (int i = 0; i < USER_OPERATIONS; i++)
        MPI_Op_create(user_functions[i].function, user_functions[i].commutes, &user_operations[i]);
}

void user_operations_end(void) {
    for (int i = 0; i < USER_OPERATIONS; i++) MPI_Op_free(&user_operations[i]);
}

// MPI_MAX or MPI_MIN of unsigned integers, which native libraries get wrong.
static void combine_unsigned(bool is_max, const Basic *basic, const unsigned char *left, unsigned char *right) {
    uint64_t a = 0, b = 0;
    memcpy(&a, left, (size_t)basic->size);
    memcpy(&b, right, (size_t)basic->size);
    if (is_max ? a > b : a < b) memcpy(right, left, (size_t)basic->size);
}

// Both operands are in dense form (oracle.c); right becomes left op right.
void op_combine(const ChosenOp *chosen, const Layout *layout, int64_t count, const unsigned char *left, unsigned char *right) {
    static Apply *const apply[USER_OPERATIONS] = {apply_xor, apply_left, apply_right, apply_matrix};
    if (chosen->predefined >= 0 && chosen->predefined <= MIN && layout->map[0].basic->signed_order) {
        const Basic *basic = layout->map[0].basic;
        for (int64_t i = 0; i < count * basic->size; i += basic->size) combine_unsigned(chosen->predefined == MAX, basic, left + i, right + i);
        return;
    }
    if (chosen->predefined >= 0) {
        PMPI_Reduce_local(left, right, (int)count, layout->map[0].basic->type, chosen->op);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        for (int j = 0; j < layout->entries; j++) {
            const Basic *basic = layout->map[j].basic;
            apply_fields(apply[chosen->user], basic, right, left);
            left += basic->extent, right += basic->extent;
        }
}

// ---- choice

ChosenOp op_choose(Random *random, const Basic *basic, bool derived) {
    ChosenOp chosen = {.predefined = -1, .user = (int)random_below(random, USER_OPERATIONS), .fresh = random_chance(random, 30)};
    bool own = random_chance(random, 30), matrix = random_chance(random, 40);
    int pick = (int)random_below(random, OPERATIONS);
    for (int i = 0; i < OPERATIONS && !derived && !own && basic->operations != 0; i++) {
        int operation = (pick + i) % OPERATIONS;
        if ((basic->operations >> operation & 1) == 0) continue;
        chosen = (ChosenOp){.predefined = operation, .op = operations[operation].op};
        return chosen;
    }
    if (matrix) chosen.user = 3;
    chosen.op = user_operations[chosen.user];
    if (chosen.fresh) MPI_Op_create(user_functions[chosen.user].function, user_functions[chosen.user].commutes, &chosen.op);
    return chosen;
}

const char *op_name(const ChosenOp *chosen) {
    return chosen->predefined >= 0 ? operations[chosen->predefined].name : user_functions[chosen->user].name;
}

void op_release(ChosenOp *chosen) {
    if (chosen->fresh) MPI_Op_free(&chosen->op);
}

// ---- operands

static int64_t small_integer(Random *random, Format format) {
    return format == UNSIGNED ? random_below(random, 9) : random_between(random, -4, 4);
}

static int64_t factor(Random *random, Format format) {
    static const int64_t factors[] = {1, 2, 1, -1, 1, 1};
    int64_t chosen = factors[random_below(random, 6)];
    return format == UNSIGNED && chosen < 0 ? 1 : chosen;
}

static void write_operand(Random *random, int operation, const Basic *basic, int64_t index, int rank, int size, void *element) {
    const Field *first = &basic->field[0];
    bool is_integer = first->format == SIGNED || first->format == UNSIGNED || first->format == BITS;
    switch (operation) {
    case MAX: case MIN:
        if (is_integer && random_chance(random, 50)) random_fill(random, element, (size_t)basic->size);
        else number_write(first, element, small_integer(random, first->format));
        // (Little endian: the last byte has the highest bit.)
        if (basic->signed_order && !settings.bold) ((unsigned char *)element)[basic->size - 1] &= 0x7f;
        return;
    case SUM:
        for (int i = 0; i < basic->fields; i++) number_write(&basic->field[i], element, small_integer(random, first->format));
        return;
    case PROD:
        number_write(first, element, basic->class == COMPLEX ? random_between(random, 1, 2) : factor(random, first->format));
        if (basic->class == COMPLEX) number_write(&basic->field[1], element, index % size == rank ? random_between(random, 1, 3) : 0);
        return;
    case LAND: case LOR: case LXOR: {
        int64_t yes = basic->class == LOGICAL ? 1 : random_between(random, 1, 2);
        bool rare = random_below(random, 2 * size) == 0, often = random_chance(random, 50);
        bool truth = operation == LAND ? !rare : operation == LOR ? rare : often;
        number_write(first, element, truth ? yes : 0);
        return;
    }
    case BAND: case BOR: case BXOR:
        random_fill(random, element, (size_t)basic->size);
        return;
    default:
        number_write(first, element, random_between(random, -2, 2));
        number_write(&basic->field[1], element, random_below(random, 12));
    }
}

void op_fill(Random *random, const ChosenOp *chosen, const Layout *layout, int64_t count, int rank, int size, void *buffer) {
    if (chosen->predefined < 0) return;  // any bytes will do
    unsigned char *element = buffer;
    for (int64_t i = 0; i < count; i++, element += layout->extent)
        write_operand(random, chosen->predefined, layout->map[0].basic, i, rank, size, element);
}
