// The predefined datatypes: all of C and Fortran that the library has, with the fields inside one element. The library
// tells the sizes. This rank alone tries which operations the library accepts on each type.
#include "differential.h"
#include "numbers.h"

#include <stdbool.h>
#include <string.h>
#include <wchar.h>

#define ONE(handle, of, as) {.name = #handle, .type = handle, .class = of, .fields = 1, .field = {{.format = as}}}
#define TWO(handle, of, as) {.name = #handle, .type = handle, .class = of, .fields = 2, .field = {{.format = as}, {.format = as}}}
#define WITH_INT(handle, first, as)                                         \
    {.name = #handle, .type = handle, .class = PAIR, .fields = 2,           \
     .field = {{.size = sizeof(first), .format = as},                       \
               {.offset = offsetof(struct { first value; int index; }, index), .size = sizeof(int), .format = SIGNED}}}

Basic basics[96] = {
    ONE(MPI_CHAR, OPAQUE, BITS),
    ONE(MPI_WCHAR, OPAQUE, BITS),
    ONE(MPI_CHARACTER, OPAQUE, BITS),
    ONE(MPI_PACKED, OPAQUE, BITS),
    ONE(MPI_BYTE, BYTE, BITS),
    ONE(MPI_SIGNED_CHAR, C_INTEGER, SIGNED),
    ONE(MPI_UNSIGNED_CHAR, C_INTEGER, UNSIGNED),
    ONE(MPI_SHORT, C_INTEGER, SIGNED),
    ONE(MPI_UNSIGNED_SHORT, C_INTEGER, UNSIGNED),
    ONE(MPI_INT, C_INTEGER, SIGNED),
    ONE(MPI_UNSIGNED, C_INTEGER, UNSIGNED),
    ONE(MPI_LONG, C_INTEGER, SIGNED),
    ONE(MPI_UNSIGNED_LONG, C_INTEGER, UNSIGNED),
    ONE(MPI_LONG_LONG, C_INTEGER, SIGNED),
    ONE(MPI_UNSIGNED_LONG_LONG, C_INTEGER, UNSIGNED),
    ONE(MPI_INT8_T, C_INTEGER, SIGNED),
    ONE(MPI_INT16_T, C_INTEGER, SIGNED),
    ONE(MPI_INT32_T, C_INTEGER, SIGNED),
    ONE(MPI_INT64_T, C_INTEGER, SIGNED),
    ONE(MPI_UINT8_T, C_INTEGER, UNSIGNED),
    ONE(MPI_UINT16_T, C_INTEGER, UNSIGNED),
    ONE(MPI_UINT32_T, C_INTEGER, UNSIGNED),
    ONE(MPI_UINT64_T, C_INTEGER, UNSIGNED),
    ONE(MPI_AINT, ADDRESS, SIGNED),
    ONE(MPI_OFFSET, ADDRESS, SIGNED),
    ONE(MPI_COUNT, ADDRESS, SIGNED),
    ONE(MPI_INTEGER, FORTRAN_INTEGER, SIGNED),
#ifdef MPI_INTEGER1
    ONE(MPI_INTEGER1, FORTRAN_INTEGER, SIGNED),
    ONE(MPI_INTEGER2, FORTRAN_INTEGER, SIGNED),
    ONE(MPI_INTEGER4, FORTRAN_INTEGER, SIGNED),
    ONE(MPI_INTEGER8, FORTRAN_INTEGER, SIGNED),
#endif
    ONE(MPI_FLOAT, FLOATING, REAL),
    ONE(MPI_DOUBLE, FLOATING, REAL),
    ONE(MPI_LONG_DOUBLE, FLOATING, LONG_REAL),
    ONE(MPI_REAL, FLOATING, REAL),
    ONE(MPI_DOUBLE_PRECISION, FLOATING, REAL),
#ifdef MPI_REAL4
    ONE(MPI_REAL4, FLOATING, REAL),
    ONE(MPI_REAL8, FLOATING, REAL),
    ONE(MPI_REAL16, FLOATING, REAL),
#endif
    ONE(MPI_C_BOOL, LOGICAL, UNSIGNED),
    ONE(MPI_CXX_BOOL, LOGICAL, UNSIGNED),
    ONE(MPI_LOGICAL, LOGICAL, SIGNED),
    TWO(MPI_C_FLOAT_COMPLEX, COMPLEX, REAL),
    TWO(MPI_C_DOUBLE_COMPLEX, COMPLEX, REAL),
    TWO(MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX, LONG_REAL),
    TWO(MPI_CXX_FLOAT_COMPLEX, COMPLEX, REAL),
    TWO(MPI_CXX_DOUBLE_COMPLEX, COMPLEX, REAL),
    TWO(MPI_CXX_LONG_DOUBLE_COMPLEX, COMPLEX, LONG_REAL),
    TWO(MPI_COMPLEX, COMPLEX, REAL),
    TWO(MPI_DOUBLE_COMPLEX, COMPLEX, REAL),
#ifdef MPI_COMPLEX8
    TWO(MPI_COMPLEX8, COMPLEX, REAL),
    TWO(MPI_COMPLEX16, COMPLEX, REAL),
    TWO(MPI_COMPLEX32, COMPLEX, REAL),
#endif
    WITH_INT(MPI_FLOAT_INT, float, REAL),
    WITH_INT(MPI_DOUBLE_INT, double, REAL),
    WITH_INT(MPI_LONG_INT, long, SIGNED),
    WITH_INT(MPI_SHORT_INT, short, SIGNED),
    WITH_INT(MPI_LONG_DOUBLE_INT, long double, LONG_REAL),
    WITH_INT(MPI_2INT, int, SIGNED),
    TWO(MPI_2REAL, PAIR, REAL),
    TWO(MPI_2DOUBLE_PRECISION, PAIR, REAL),
    TWO(MPI_2INTEGER, PAIR, SIGNED),
};
int basics_count;

void number_write(const Field *field, void *element, int64_t value) {
    void *to = (char *)element + field->offset;
    memset(to, 0, (size_t)field->size);
    if (field->format == LONG_REAL) {
        long double number = (long double)value;
        memcpy(to, &number, LONG_DOUBLE_BYTES);  // its padding stays zero
    } else if (field->format != REAL) {
        memcpy(to, &value, (size_t)field->size < 8 ? (size_t)field->size : 8);
    } else if (field->size == 4) {
        float number = (float)value;
        memcpy(to, &number, 4);
    } else if (field->size == 8) {
        double number = (double)value;
        memcpy(to, &number, 8);
    } else if (field->size == 16) {
        _Float128 number = (_Float128)value;
        memcpy(to, &number, 16);
    }
}

// Sets sizes and offsets; false if the library lacks the type or gives it another size.
static bool measure(Basic *basic) {
    MPI_Aint lb, extent;
    if (basic->type == MPI_DATATYPE_NULL) return false;
    if (MPI_Type_size(basic->type, &basic->size) != MPI_SUCCESS || basic->size <= 0) return false;
    if (MPI_Type_get_extent(basic->type, &lb, &extent) != MPI_SUCCESS || lb != 0) return false;
    basic->extent = (int)extent;
    basic->alignment = 1;
    int sum = 0;
    for (int i = 0; i < basic->fields; i++) {
        Field *field = &basic->field[i];
        if (field->size == 0) field->size = basic->size / basic->fields;
        if (i > 0 && field->offset == 0) field->offset = field->size;
        field->significant = field->format == LONG_REAL ? LONG_DOUBLE_BYTES : field->size;
        while (basic->alignment < field->size && basic->alignment < 16) basic->alignment *= 2;
        sum += field->size;
    }
    return sum == basic->size;
}

static int64_t expected_value(const Basic *basic, MPI_Op op, int64_t left, int64_t right) {
    if (op == MPI_MAX && basic->field[0].format == UNSIGNED) return (uint64_t)left > (uint64_t)right ? left : right;
    if (op == MPI_MAX || op == MPI_MAXLOC) return left > right ? left : right;
    if (op == MPI_MIN || op == MPI_MINLOC) return left < right ? left : right;
    if (op == MPI_SUM) return left + right;
    if (op == MPI_PROD) return left * right;
    if (op == MPI_LAND) return left && right;
    if (op == MPI_LOR) return left || right;
    if (op == MPI_LXOR) return !left != !right;
    return op == MPI_BAND ? (left & right) : op == MPI_BOR ? (left | right) : (left ^ right);
}

// Tried on this rank alone. If the library takes a type for another one (MPI_REAL16 for a long double), the result is
// wrong.
static bool is_right(const Basic *basic, MPI_Op op, int64_t a, int64_t b) {
    _Alignas(16) unsigned char left[64] = {0}, right[64] = {0}, expected[64] = {0};
    number_write(&basic->field[0], left, a);
    number_write(&basic->field[0], right, b);
    number_write(&basic->field[0], expected, expected_value(basic, op, a, b));
    if (MPI_Reduce_local(left, right, 1, basic->type, op) != MPI_SUCCESS) return false;
    return memcmp(right, expected, (size_t)basic->field[0].significant) == 0;
}

static bool is_accepted(const Basic *basic, MPI_Op op) {
    Format format = basic->field[0].format;
    bool is_signed = basic->class != LOGICAL && (format == SIGNED || format == REAL || format == LONG_REAL);
    int64_t a = is_signed ? -3 : 1, b = basic->class == LOGICAL ? 1 : 2;
    return is_right(basic, op, a, b) && is_right(basic, op, b, a);
}

// MPICH 4.0 and, for unsigned long, Open MPI 4.1 take large unsigned numbers for negative ones in MPI_MAX.
static bool has_signed_order(const Basic *basic) {
    return basic->field[0].format == UNSIGNED && basic->class == C_INTEGER && !is_right(basic, MPI_MAX, -1, 1);
}

// Adds predefined datatypes that have no name.
static void add_parametrised(void) {
    MPI_Datatype real, wide, integer, complex;
    MPI_Type_create_f90_real(6, 30, &real);
    MPI_Type_create_f90_real(15, 300, &wide);
    MPI_Type_create_f90_integer(9, &integer);
    MPI_Type_create_f90_complex(15, 300, &complex);
    basics[basics_count++] = (Basic)ONE(real, FLOATING, REAL);
    basics[basics_count++] = (Basic)ONE(wide, FLOATING, REAL);
    basics[basics_count++] = (Basic)ONE(integer, FORTRAN_INTEGER, SIGNED);
    basics[basics_count++] = (Basic)TWO(complex, COMPLEX, REAL);
}

void basics_probe(void) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    while (basics[basics_count].name != NULL) basics_count++;
    add_parametrised();
    int kept = 0;
    for (int i = 0; i < basics_count; i++) {
        Basic *basic = &basics[i];
        if (!measure(basic)) continue;
        for (int j = 0; j < OPERATIONS; j++)
            if (operation_is_defined(j, basic->class) && is_accepted(basic, operations[j].op)) basic->operations |= 1u << j;
        basic->signed_order = has_signed_order(basic);
        basics[kept++] = *basic;
    }
    basics_count = kept;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

const Basic *basic_find(MPI_Datatype type) {
    for (int i = 0; i < basics_count; i++)
        if (basics[i].type == type) return &basics[i];
    return NULL;
}
