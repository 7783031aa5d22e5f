/* The constants of this MPI's mpi.h, as data: mpi-sys translates types and signatures, but not the handles, which are
 * macros. Compiled with the mpicc of the build. There is no code here and no reference to a function of the MPI library;
 * the data of the MPICH family are plain numbers, those of Open MPI addresses of objects in libmpi.
 *
 * The layouts are repeated in handles.rs; a test compares the sizes. */
#include <mpi.h>
#include <stddef.h>

/* Classes of predefined datatypes: `Class` in handles.rs, in the same order. */
enum { C_SIGNED, C_UNSIGNED, C_FORTRAN_INTEGER, C_ADDRESS, C_FLOAT, C_COMPLEX, C_BOOL, C_LOGICAL, C_BYTE, C_CHARACTER, C_PAIR, C_PACKED };

/* One predefined datatype. For pairs the second member's place and size, as the compiler lays out the C struct, zero where
 * the members are equal and adjacent; and the class of the first member. */
struct predefined {
    MPI_Datatype handle;
    int class;
    int second_at;
    int second_size;
    int first_class;
};

#define PLAIN(type, class) { type, class, 0, 0, class }
#define PAIR(type, first, class) { type, C_PAIR, offsetof(struct { first value; int index; }, index), sizeof(int), class }
#define TWO(type, class) { type, C_PAIR, 0, 0, class }

#ifndef MPI_LONG_LONG
#define MPI_LONG_LONG MPI_LONG_LONG_INT
#endif
#ifndef MPI_WCHAR
#define MPI_WCHAR MPI_DATATYPE_NULL
#endif
#ifndef MPI_C_COMPLEX
#define MPI_C_COMPLEX MPI_DATATYPE_NULL
#endif
#ifndef MPI_C_FLOAT_COMPLEX
#define MPI_C_FLOAT_COMPLEX MPI_DATATYPE_NULL
#endif
#ifndef MPI_C_DOUBLE_COMPLEX
#define MPI_C_DOUBLE_COMPLEX MPI_DATATYPE_NULL
#endif
#ifndef MPI_C_LONG_DOUBLE_COMPLEX
#define MPI_C_LONG_DOUBLE_COMPLEX MPI_DATATYPE_NULL
#endif
#ifndef MPI_CXX_BOOL
#define MPI_CXX_BOOL MPI_DATATYPE_NULL
#endif
#ifndef MPI_CXX_FLOAT_COMPLEX
#define MPI_CXX_FLOAT_COMPLEX MPI_DATATYPE_NULL
#endif
#ifndef MPI_CXX_DOUBLE_COMPLEX
#define MPI_CXX_DOUBLE_COMPLEX MPI_DATATYPE_NULL
#endif
#ifndef MPI_CXX_LONG_DOUBLE_COMPLEX
#define MPI_CXX_LONG_DOUBLE_COMPLEX MPI_DATATYPE_NULL
#endif
#ifndef MPI_COUNT
#define MPI_COUNT MPI_DATATYPE_NULL
#endif
#ifndef MPI_INTEGER
#define MPI_INTEGER MPI_DATATYPE_NULL
#endif
#ifndef MPI_REAL
#define MPI_REAL MPI_DATATYPE_NULL
#endif
#ifndef MPI_DOUBLE_PRECISION
#define MPI_DOUBLE_PRECISION MPI_DATATYPE_NULL
#endif
#ifndef MPI_COMPLEX
#define MPI_COMPLEX MPI_DATATYPE_NULL
#endif
#ifndef MPI_DOUBLE_COMPLEX
#define MPI_DOUBLE_COMPLEX MPI_DATATYPE_NULL
#endif
#ifndef MPI_LOGICAL
#define MPI_LOGICAL MPI_DATATYPE_NULL
#endif
#ifndef MPI_CHARACTER
#define MPI_CHARACTER MPI_DATATYPE_NULL
#endif
#ifndef MPI_2REAL
#define MPI_2REAL MPI_DATATYPE_NULL
#endif
#ifndef MPI_2DOUBLE_PRECISION
#define MPI_2DOUBLE_PRECISION MPI_DATATYPE_NULL
#endif
#ifndef MPI_2INTEGER
#define MPI_2INTEGER MPI_DATATYPE_NULL
#endif
#ifndef MPI_INTEGER1
#define MPI_INTEGER1 MPI_DATATYPE_NULL
#endif
#ifndef MPI_INTEGER2
#define MPI_INTEGER2 MPI_DATATYPE_NULL
#endif
#ifndef MPI_INTEGER4
#define MPI_INTEGER4 MPI_DATATYPE_NULL
#endif
#ifndef MPI_INTEGER8
#define MPI_INTEGER8 MPI_DATATYPE_NULL
#endif
#ifndef MPI_INTEGER16
#define MPI_INTEGER16 MPI_DATATYPE_NULL
#endif
#ifndef MPI_REAL2
#define MPI_REAL2 MPI_DATATYPE_NULL
#endif
#ifndef MPI_REAL4
#define MPI_REAL4 MPI_DATATYPE_NULL
#endif
#ifndef MPI_REAL8
#define MPI_REAL8 MPI_DATATYPE_NULL
#endif
#ifndef MPI_REAL16
#define MPI_REAL16 MPI_DATATYPE_NULL
#endif
#ifndef MPI_COMPLEX4
#define MPI_COMPLEX4 MPI_DATATYPE_NULL
#endif
#ifndef MPI_COMPLEX8
#define MPI_COMPLEX8 MPI_DATATYPE_NULL
#endif
#ifndef MPI_COMPLEX16
#define MPI_COMPLEX16 MPI_DATATYPE_NULL
#endif
#ifndef MPI_COMPLEX32
#define MPI_COMPLEX32 MPI_DATATYPE_NULL
#endif
#ifndef MPI_LOGICAL1
#define MPI_LOGICAL1 MPI_DATATYPE_NULL
#endif
#ifndef MPI_LOGICAL2
#define MPI_LOGICAL2 MPI_DATATYPE_NULL
#endif
#ifndef MPI_LOGICAL4
#define MPI_LOGICAL4 MPI_DATATYPE_NULL
#endif
#ifndef MPI_LOGICAL8
#define MPI_LOGICAL8 MPI_DATATYPE_NULL
#endif
#ifndef MPI_LOGICAL16
#define MPI_LOGICAL16 MPI_DATATYPE_NULL
#endif

const struct predefined huddle_predefined[] = {
    PLAIN(MPI_BYTE, C_BYTE),
    PLAIN(MPI_CHAR, C_CHARACTER),
    PLAIN(MPI_WCHAR, C_CHARACTER),
    PLAIN(MPI_CHARACTER, C_CHARACTER),
    PLAIN(MPI_PACKED, C_PACKED),
    PLAIN(MPI_SIGNED_CHAR, C_SIGNED),
    PLAIN(MPI_SHORT, C_SIGNED),
    PLAIN(MPI_INT, C_SIGNED),
    PLAIN(MPI_LONG, C_SIGNED),
    PLAIN(MPI_LONG_LONG_INT, C_SIGNED),
    PLAIN(MPI_LONG_LONG, C_SIGNED),
    PLAIN(MPI_INT8_T, C_SIGNED),
    PLAIN(MPI_INT16_T, C_SIGNED),
    PLAIN(MPI_INT32_T, C_SIGNED),
    PLAIN(MPI_INT64_T, C_SIGNED),
    PLAIN(MPI_UNSIGNED_CHAR, C_UNSIGNED),
    PLAIN(MPI_UNSIGNED_SHORT, C_UNSIGNED),
    PLAIN(MPI_UNSIGNED, C_UNSIGNED),
    PLAIN(MPI_UNSIGNED_LONG, C_UNSIGNED),
    PLAIN(MPI_UNSIGNED_LONG_LONG, C_UNSIGNED),
    PLAIN(MPI_UINT8_T, C_UNSIGNED),
    PLAIN(MPI_UINT16_T, C_UNSIGNED),
    PLAIN(MPI_UINT32_T, C_UNSIGNED),
    PLAIN(MPI_UINT64_T, C_UNSIGNED),
    PLAIN(MPI_AINT, C_ADDRESS),
    PLAIN(MPI_OFFSET, C_ADDRESS),
    PLAIN(MPI_COUNT, C_ADDRESS),
    PLAIN(MPI_FLOAT, C_FLOAT),
    PLAIN(MPI_DOUBLE, C_FLOAT),
    PLAIN(MPI_LONG_DOUBLE, C_FLOAT),
    PLAIN(MPI_C_COMPLEX, C_COMPLEX),
    PLAIN(MPI_C_FLOAT_COMPLEX, C_COMPLEX),
    PLAIN(MPI_C_DOUBLE_COMPLEX, C_COMPLEX),
    PLAIN(MPI_C_LONG_DOUBLE_COMPLEX, C_COMPLEX),
    PLAIN(MPI_CXX_FLOAT_COMPLEX, C_COMPLEX),
    PLAIN(MPI_CXX_DOUBLE_COMPLEX, C_COMPLEX),
    PLAIN(MPI_CXX_LONG_DOUBLE_COMPLEX, C_COMPLEX),
    PLAIN(MPI_C_BOOL, C_BOOL),
    PLAIN(MPI_CXX_BOOL, C_BOOL),
    PLAIN(MPI_INTEGER, C_FORTRAN_INTEGER),
    PLAIN(MPI_INTEGER1, C_FORTRAN_INTEGER),
    PLAIN(MPI_INTEGER2, C_FORTRAN_INTEGER),
    PLAIN(MPI_INTEGER4, C_FORTRAN_INTEGER),
    PLAIN(MPI_INTEGER8, C_FORTRAN_INTEGER),
    PLAIN(MPI_INTEGER16, C_FORTRAN_INTEGER),
    PLAIN(MPI_REAL, C_FLOAT),
    PLAIN(MPI_DOUBLE_PRECISION, C_FLOAT),
    PLAIN(MPI_REAL2, C_FLOAT),
    PLAIN(MPI_REAL4, C_FLOAT),
    PLAIN(MPI_REAL8, C_FLOAT),
    PLAIN(MPI_REAL16, C_FLOAT),
    PLAIN(MPI_COMPLEX, C_COMPLEX),
    PLAIN(MPI_DOUBLE_COMPLEX, C_COMPLEX),
    PLAIN(MPI_COMPLEX4, C_COMPLEX),
    PLAIN(MPI_COMPLEX8, C_COMPLEX),
    PLAIN(MPI_COMPLEX16, C_COMPLEX),
    PLAIN(MPI_COMPLEX32, C_COMPLEX),
    PLAIN(MPI_LOGICAL, C_LOGICAL),
    PLAIN(MPI_LOGICAL1, C_LOGICAL),
    PLAIN(MPI_LOGICAL2, C_LOGICAL),
    PLAIN(MPI_LOGICAL4, C_LOGICAL),
    PLAIN(MPI_LOGICAL8, C_LOGICAL),
    PLAIN(MPI_LOGICAL16, C_LOGICAL),
    PAIR(MPI_FLOAT_INT, float, C_FLOAT),
    PAIR(MPI_DOUBLE_INT, double, C_FLOAT),
    PAIR(MPI_LONG_INT, long, C_SIGNED),
    PAIR(MPI_SHORT_INT, short, C_SIGNED),
    PAIR(MPI_LONG_DOUBLE_INT, long double, C_FLOAT),
    TWO(MPI_2INT, C_SIGNED),
    TWO(MPI_2REAL, C_FLOAT),
    TWO(MPI_2DOUBLE_PRECISION, C_FLOAT),
    TWO(MPI_2INTEGER, C_FORTRAN_INTEGER),
};
const int huddle_predefined_count = sizeof huddle_predefined / sizeof huddle_predefined[0];

/* `PredefinedOp` in handles.rs, in the same order. */
const MPI_Op huddle_ops[] = {
    MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD, MPI_LAND, MPI_BAND, MPI_LOR, MPI_BOR, MPI_LXOR, MPI_BXOR,
    MPI_MINLOC, MPI_MAXLOC, MPI_REPLACE, MPI_NO_OP,
};
const int huddle_op_count = sizeof huddle_ops / sizeof huddle_ops[0];

/* `Constants` in handles.rs, member by member. */
struct constants {
    int bytes;
    MPI_Comm comm_world, comm_self, comm_null;
    MPI_Datatype datatype_null, byte, int_, uint64, double_;
    MPI_Op op_null, sum, min, band, bor;
    MPI_Errhandler errors_return;
    MPI_Group group_null;
    MPI_Request request_null;
    MPI_Info info_null;
    void *in_place, *bottom;
    MPI_Status *status_ignore;
    int any_source, keyval_invalid, comm_type_shared, thread_multiple;
    int max_error_string, order_c, order_fortran;
    int success, err_truncate, err_other;
    int combiner_named, combiner_dup, combiner_contiguous, combiner_vector, combiner_hvector, combiner_indexed,
        combiner_hindexed, combiner_indexed_block, combiner_hindexed_block, combiner_struct, combiner_subarray,
        combiner_f90_real, combiner_f90_complex, combiner_f90_integer, combiner_resized;
};

const struct constants huddle_constants = {
    .bytes = sizeof(struct constants),
    .comm_world = MPI_COMM_WORLD, .comm_self = MPI_COMM_SELF, .comm_null = MPI_COMM_NULL,
    .datatype_null = MPI_DATATYPE_NULL, .byte = MPI_BYTE, .int_ = MPI_INT, .uint64 = MPI_UINT64_T, .double_ = MPI_DOUBLE,
    .op_null = MPI_OP_NULL, .sum = MPI_SUM, .min = MPI_MIN, .band = MPI_BAND, .bor = MPI_BOR,
    .errors_return = MPI_ERRORS_RETURN,
    .group_null = MPI_GROUP_NULL,
    .request_null = MPI_REQUEST_NULL, .info_null = MPI_INFO_NULL,
    .in_place = MPI_IN_PLACE, .bottom = MPI_BOTTOM, .status_ignore = MPI_STATUS_IGNORE,
    .any_source = MPI_ANY_SOURCE, .keyval_invalid = MPI_KEYVAL_INVALID,
    .comm_type_shared = MPI_COMM_TYPE_SHARED, .thread_multiple = MPI_THREAD_MULTIPLE,
    .max_error_string = MPI_MAX_ERROR_STRING, .order_c = MPI_ORDER_C, .order_fortran = MPI_ORDER_FORTRAN,
    .success = MPI_SUCCESS, .err_truncate = MPI_ERR_TRUNCATE, .err_other = MPI_ERR_OTHER,
    .combiner_named = MPI_COMBINER_NAMED, .combiner_dup = MPI_COMBINER_DUP,
    .combiner_contiguous = MPI_COMBINER_CONTIGUOUS, .combiner_vector = MPI_COMBINER_VECTOR,
    .combiner_hvector = MPI_COMBINER_HVECTOR, .combiner_indexed = MPI_COMBINER_INDEXED,
    .combiner_hindexed = MPI_COMBINER_HINDEXED, .combiner_indexed_block = MPI_COMBINER_INDEXED_BLOCK,
    .combiner_hindexed_block = MPI_COMBINER_HINDEXED_BLOCK, .combiner_struct = MPI_COMBINER_STRUCT,
    .combiner_subarray = MPI_COMBINER_SUBARRAY,
    .combiner_f90_real = MPI_COMBINER_F90_REAL, .combiner_f90_complex = MPI_COMBINER_F90_COMPLEX,
    .combiner_f90_integer = MPI_COMBINER_F90_INTEGER, .combiner_resized = MPI_COMBINER_RESIZED,
};
