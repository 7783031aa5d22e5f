/* A profiler: says its TAG for each call that it sees. With ONLY it defines MPI_Allreduce alone, with SENDS
   MPI_Isend and MPI_Irecv too; with HAND_ON its MPI_Allreduce ends in the next profiler's. */
#define _GNU_SOURCE
#include "fake.h"
#include <dlfcn.h>
#include <stdio.h>

#define WRAP(name)                                                                                                   \
    struct big PMPI_##name(PARAMETERS);                                                                              \
    struct big MPI_##name(PARAMETERS) { return fputs(TAG ": ", stdout), PMPI_##name(ARGUMENTS); }

#ifdef HAND_ON
struct big MPI_Allreduce(PARAMETERS)
{
    fputs(TAG ": ", stdout);
    return ((function *)dlsym(RTLD_NEXT, "MPI_Allreduce"))(ARGUMENTS);
}
#else
WRAP(Allreduce)
#endif

#ifdef SENDS
WRAP(Isend)
int PMPI_Irecv(void *, int, int, int, int, int, int *);
int MPI_Irecv(void *r, int n, int type, int from, int tag, int comm, int *request)
{
    return fputs(TAG ": ", stdout), PMPI_Irecv(r, n, type, from, tag, comm, request);
}
#endif

#ifndef ONLY
WRAP(Init)
WRAP(Gather)
int PMPI_Gatherv(void *, int, int, void *, int *, int *, int, int, int);
int MPI_Gatherv(void *s, int sn, int st, void *r, int *rn, int *d, int rt, int root, int comm)
{
    return fputs(TAG ": ", stdout), PMPI_Gatherv(s, sn, st, r, rn, d, rt, root, comm);
}
#endif
