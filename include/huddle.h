/* huddle: makes the collectives of unmodified MPI programs faster.
 * SPDX-License-Identifier: BSD-3-Clause */

#ifndef HUDDLE_H
#define HUDDLE_H

/* Made by cbindgen from src/capi/mod.rs: do not edit. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The version of huddle, such as "0.1.0". The string lives as long as the process.
 */
const char *huddle_version(void);

/**
 * 1 between MPI_Init and MPI_Finalize, but where huddle does nothing in the whole job, as its report says with a
 * reason; else 0.
 */
int huddle_is_active(void);

/**
 * Copies the counters of this rank to `values`, as many as `capacity` allows, and returns how many there are.
 *
 * With `capacity` 0 `values` may be NULL. Their number and order are those of this build: use
 * huddle_counter_name() to find one.
 *
 * # Safety
 * `values` points to room for `capacity` values, unless `capacity` is 0.
 */
size_t huddle_counters(uint64_t *values,
                       size_t capacity);

/**
 * Writes the name of the counter at `index` to `name`, such as "Allreduce.flat.<=64.calls" or
 * "Allreduce.declined.warm-up.<=64.bytes", and returns its length without the zero that ends it; 0 past the last
 * counter.
 *
 * The part before the last is a range of sizes, in packed bytes as in HUDDLE_ALLREDUCE and its like, or "unread" for
 * calls that were left to the MPI library before their size was known: because MPI may reject the arguments, or with a
 * datatype that is not predefined early on a communicator, on one that stays native, or where nothing (HUDDLE_DISABLE)
 * or nothing of the collective (HUDDLE_BCAST=native and its like) is served. Their bytes are not counted.
 *
 * Where the length is not less than `capacity` the name was cut to fit. With `capacity` 0 `name` may be NULL.
 *
 * # Safety
 * `name` points to room for `capacity` characters, unless `capacity` is 0.
 */
size_t huddle_counter_name(size_t index,
                           char *name,
                           size_t capacity);

#ifdef __cplusplus
}
#endif

#endif /* HUDDLE_H */
