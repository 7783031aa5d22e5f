/* An MPI library of three ranks: names that answer as fake.h says, and some with MPI's prototypes, whose `_c` forms
   it lacks. */
#include "fake.h"
#include <stdio.h>

#ifdef OPENMPI
int ompi_mpi_comm_world;
#define VERSION "Open MPI v4.0, a fake"
#else
#define VERSION "MPICH Version: 3.0, a fake\nof two lines"
#endif

#define BOTH(name)                                                                                                   \
    struct big MPI_##name(PARAMETERS) { return answer(NATIVE, ARGUMENTS); }                                          \
    struct big PMPI_##name(PARAMETERS) { return answer(NATIVE_PROFILING, ARGUMENTS); }
BOTH(Init)
BOTH(Allreduce)
BOTH(Barrier)
BOTH(Gather)
BOTH(Isend)
BOTH(Ibarrier)
BOTH(Win_fence)
BOTH(Win_create)
BOTH(Win_lock)
BOTH(Win_flush)
BOTH(Rget)
BOTH(Bsend)

int PMPI_Get_library_version(char *text, int *length)
{
    strcpy(text, VERSION);
    *length = sizeof VERSION - 1;
    return 0;
}
/* communicator 7: this is rank 1 of 3; communicator 8: two groups, 2 ranks here and 3 there */
int PMPI_Comm_rank(int comm, int *rank) { return *rank = 1, comm * 0; }
int PMPI_Comm_size(int comm, int *size) { return *size = comm == 8 ? 2 : 3, 0; }
int PMPI_Comm_remote_size(int comm, int *size) { return *size = 3, comm * 0; }
int PMPI_Comm_test_inter(int comm, int *flag) { return *flag = comm == 8, 0; }

static void print(const char *what, const int *list, int length)
{
    printf(" %s", what);
    for (int i = 0; list && i < length; i++)
        printf(" %d", list[i]);
}

#define NAMED(name, parameters, ...)                                                                                 \
    int MPI_##name parameters { __VA_ARGS__; }                                                                       \
    int PMPI_##name parameters { __VA_ARGS__; }
NAMED(Bcast, (void *p, int count, int type, int root, int comm),
      return printf("Bcast %p %d %d %d %d\n", p, count, type, root, comm), 21)
NAMED(Ialltoall, (void *s, int sn, int st, void *r, int rn, int rt, int comm, int *request),
      return printf("Ialltoall %p %d %d %p %d %d %d %p\n", s, sn, st, r, rn, rt, comm, (void *)request), 22)
NAMED(Imrecv, (void *r, int count, int type, int *message, int *request),
      return printf("Imrecv %p %d %d %p %p\n", r, count, type, (void *)message, (void *)request), 26)
NAMED(Irecv, (void *r, int count, int type, int from, int tag, int comm, int *request),
      return printf("Irecv %p %d %d %d %d %d %p\n", r, count, type, from, tag, comm, (void *)request), 27)
NAMED(Gatherv, (void *s, int sn, int st, void *r, int *rn, int *d, int rt, int root, int comm),
      printf("Gatherv %p %d %d %p", s, sn, st, r);
      if (root == 1 || root == -4) print("counts", rn, 3), print("at", d, 3); else printf(" %p", (void *)rn);
      return printf(" %d %d %d\n", rt, root, comm), 23)
NAMED(Alltoallv, (void *s, int *sn, int *sd, int st, void *r, int *rn, int *rd, int rt, int comm),
      printf("Alltoallv %d", st);
      if (s != (void *)1) print("send", sn, 3), print("at", sd, 3);
      print("receive", rn, 3); print("at", rd, 3);
      return printf(" %p %d %d\n", r, rt, comm), 24)
NAMED(Reduce_scatter, (void *s, void *r, int *n, int type, int op, int comm),
      printf("Reduce_scatter %p %p", s, r); print("counts", n, comm == 8 ? 2 : 3);
      return printf(" %d %d %d\n", type, op, comm), 25)

/* Requests: 1 completes in the next call, 2 does not; from 3 on they are persistent and complete as 1 does. A Testany looks at the first one alone,
   and if the last one is null says that none is active. */
#ifdef OPENMPI
typedef long request;
long ompi_request_null;
#define REQUEST_NULL ((request)&ompi_request_null)
#else
typedef int request;
#define REQUEST_NULL 0x2c000000
#endif
static int complete(request *requests, int n, int *indices)
{
    int completed = 0;
    for (int i = 0; i < n; i++)
        if (requests[i] != REQUEST_NULL && requests[i] != 2) {
            if (indices) indices[completed] = i;
            if (requests[i] == 1) requests[i] = REQUEST_NULL;
            completed++;
        }
    return completed;
}
NAMED(Start, (request *r), return printf("Start %d\n", (int)*r), 30)
NAMED(Startall, (int n, request *r), return printf("Startall %d\n", n), 0)
NAMED(Wait, (request *r, void *status), return printf("Wait %p completes %d\n", status, complete(r, 1, NULL)), 0)
NAMED(Test, (request *r, int *flag, void *status),
      return *flag = complete(r, 1, NULL), printf("Test %p completes %d\n", status, *flag), 0)
NAMED(Waitall, (int n, request *r, void *statuses), /* an error */
      return printf("Waitall %d %p completes %d\n", n, statuses, complete(r, n, NULL)), n > 20 ? 33 : 0)
NAMED(Testany, (int n, request *r, int *index, int *flag, void *status),
      int all[100], done = complete(r, n > 0, all); *index = done ? all[0] : -1; *flag = done || n == 0 || r[n - 1] == REQUEST_NULL;
      return printf("Testany %d %p completes %d\n", n, status, done), 0)
NAMED(Testsome, (int n, request *r, int *done, int *indices, void *statuses),
      return *done = complete(r, n, indices), printf("Testsome %d %p completes %d\n", n, statuses, *done), 0)
