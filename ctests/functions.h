// The six collectives as two tables of functions: MPI_X, which huddle serves, and PMPI_X, which is native with HUDDLE_PMPI=0.
#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#include <mpi.h>

typedef struct {
    int (*allreduce)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
    int (*bcast)(void *, int, MPI_Datatype, int, MPI_Comm);
    int (*reduce)(const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm);
    int (*allgather)(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);
    int (*scatter)(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm);
    int (*barrier)(MPI_Comm);
} Functions;
static const Functions tested = {MPI_Allreduce, MPI_Bcast, MPI_Reduce, MPI_Allgather, MPI_Scatter, MPI_Barrier};
static const Functions native = {PMPI_Allreduce, PMPI_Bcast, PMPI_Reduce, PMPI_Allgather, PMPI_Scatter, PMPI_Barrier};

#endif
