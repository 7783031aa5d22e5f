// The six collectives on doubles, as subjects of measure(): by huddle, by the native library, by a hand-written loop,
// or by one copy that the kernel makes.
#ifndef CALLS_H
#define CALLS_H

#include "measure.h"

typedef enum { ALLREDUCE, BCAST, REDUCE, ALLGATHER, SCATTER, BARRIER, COLLECTIVES } Collective;
typedef enum { HUDDLE, NATIVE, LOOP, KERNEL } By;
extern const char *const collective_names[COLLECTIVES];

typedef struct {
    Collective collective;
    By by;
    int n; // doubles: of the message, or of a rank's block (Allgather, Scatter)
    int root; // -1: it rotates
    MPI_Comm comm;
} Work;

// Allocates buffers for messages of `most` doubles, `offset` bytes after the start of a page.
void calls_start(int most, int offset);
// Runs a block of calls of a subject whose state is a Work.
double work_block(const void *work, int calls);
// Makes one call and ends the job if its result is wrong.
void work_check(const Work *work);

// loops.c: two ranks only. Whatever the way, messages of at most so many bytes go in the line that announces them.
enum { SHORT_BYTES = 64 };
void loops_start(void);
void loop(Collective collective, const double *in, double *out, int n, int root);
// How the loop passes data: in chunks of so many bytes, through a ring of so many bytes for each rank; and whether each
// rank combines all of an Allreduce.
typedef struct {
    int chunk, ring;
    bool whole;
} LoopWay;
// Sets the way of all later calls.
void loop_way(LoopWay way);

// kernel.c: two ranks only. Returns whether the kernel lets both ranks read each other's memory.
bool kernel_start(void);
// Makes a Bcast, Allgather or Scatter.
void kernel(Collective collective, double *in, double *out, int n, int root);

#endif
