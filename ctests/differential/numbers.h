// How this machine stores numbers in memory.
#ifndef NUMBERS_H
#define NUMBERS_H

#include "differential.h"

#include <float.h>

enum { LONG_DOUBLE_BYTES = LDBL_MANT_DIG == 64 ? 10 : (int)sizeof(long double) };

// Writes the number `value` to this field of the element; bytes that carry no value become zero.
void number_write(const Field *field, void *element, int64_t value);

#endif
