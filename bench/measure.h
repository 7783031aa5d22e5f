// Compares ways of doing the same thing, in turn within one process, because machines change their speed.
//
// Each round times a block of calls of every subject, one after the other, in an order that changes from round to
// round. It also times the bare exchange: every rank writes a cache line of shared memory and waits for the lines of
// all others. A block's time is that of the slowest rank, plus how much later than the first rank it began: where ranks
// share cores, one may wait for its core while others make their calls. Output is a line of JSON per case, with the
// nanoseconds per call of every round. Only bench/results.py computes medians, ratios and their intervals.
//
// Programs run with huddle preloaded and HUDDLE_PMPI=0: then MPI_X is huddle and PMPI_X the native library.
#ifndef MEASURE_H
#define MEASURE_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

enum { MOST_SUBJECTS = 4, MOST_CALLS = 20000 }; // calls of a block, before rounding up to as many of each root
enum { WARM_UP = 4 }; // calls after which huddle has a communicator's context: the third one (HUDDLE_WARMUP) builds it

typedef struct {
    const char *name;
    // Makes so many calls on every rank. Returns the nanoseconds on this rank.
    double (*block)(const void *state, int calls);
    const void *state;
    bool is_of_all; // the time is the same on all ranks, from a moment that all know: how late each began doesn't count
} Subject;

extern int rank, size;
extern bool crowded; // more ranks than cores

// After MPI_Init, on all ranks. Removes --rounds R and --block MS from the arguments, and returns how many are left.
int measure_start(int argc, char **argv);
// Measures and prints; `members` are members of a JSON object that say which case this is.
void measure(const char *members, const Subject *subjects, int n);
// The value of an option such as "--only", or `otherwise`.
const char *option(int argc, char **argv, const char *name, const char *otherwise);
// Whether `name` is in a list with commas; true if there is no list (NULL).
bool is_listed(const char *list, const char *name);
// Ends the job with a line.
void fail(const char *what);

// Nanoseconds since some moment, read within a few nanoseconds; after measure_start.
double now(void);
// Nanoseconds by the system's clock, at any time.
double monotonic(void);
// Memory shared by all ranks, zero at first. Collective.
void *shared_memory(size_t bytes);
// Lets a peer on the same core run.
void relax(void);

#endif
