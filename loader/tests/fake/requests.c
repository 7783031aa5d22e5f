/* A process that begins requests of all kinds and completes them in every way, under a real MPI library. After each it says what the engine sees:
   requests that are open, or -1 for traffic whose end nobody sees. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { REQUESTS = 4, MANY = 40 };

static void say(const char *what)
{
    long (*open)(void) = (long (*)(void))dlsym(RTLD_DEFAULT, "huddle_is_active");
    printf("%s %ld\n", what, open());
}

static int in[REQUESTS], out, nobody;
static MPI_Request requests[REQUESTS];

/* A message to itself, one from nobody, and an inactive request. */
static void begin(void)
{
    MPI_Irecv(&in[0], 1, MPI_INT, 0, 1, MPI_COMM_SELF, &requests[0]);
    MPI_Irecv(&nobody, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_SELF, &requests[1]);
    MPI_Isend(&out, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &requests[2]);
    requests[3] = MPI_REQUEST_NULL;
}

static void complete(int way)
{
    MPI_Status statuses[REQUESTS];
    int done = 0, index, indices[REQUESTS];
    switch (way) {
    case 0: for (int i = 0; i < REQUESTS; i++) MPI_Wait(&requests[i], &statuses[i]); break;
    case 1: for (int i = 0; i < REQUESTS; i++) for (done = 0; !done;) MPI_Test(&requests[i], &done, &statuses[i]); break;
    case 2: MPI_Waitall(REQUESTS, requests, statuses); break;
    case 3: while (!done) MPI_Testall(REQUESTS, requests, &done, statuses); break;
    case 4: do MPI_Waitany(REQUESTS, requests, &index, statuses); while (index != MPI_UNDEFINED); break;
    case 5: do MPI_Testany(REQUESTS, requests, &index, &done, statuses); while (!done || index != MPI_UNDEFINED); break;
    case 6: do MPI_Waitsome(REQUESTS, requests, &done, indices, statuses); while (done != MPI_UNDEFINED); break;
    default: do MPI_Testsome(REQUESTS, requests, &done, indices, statuses); while (done != MPI_UNDEFINED);
    }
}

/* A message of two ints is longer than what waits for it: an error for MPICH. */
static void fail(void)
{
    int two[2] = {0};
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Irecv(in, 1, MPI_INT, 0, 2, MPI_COMM_SELF, &requests[0]);
    MPI_Send(two, 2, MPI_INT, 0, 2, MPI_COMM_SELF);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    for (int way = 0; way < 8; way++) {
        begin();
        say("begun");
        complete(way);
        say("completed");
    }
    MPI_Recv_init(&in[0], 1, MPI_INT, 0, 1, MPI_COMM_SELF, &requests[0]);
    MPI_Send_init(&out, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_SELF, &requests[1]);
    MPI_Send_init(&out, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &requests[2]);
    for (int way = 0; way < 8; way++) {
        MPI_Start(&requests[0]);
        MPI_Startall(2, &requests[1]);
        say("started");
        complete(way);
        complete(0);
        say("completed");
    }
    for (int i = 0; i < 3; i++) MPI_Request_free(&requests[i]);
    say("freed");
    MPI_Request many[MANY];
    for (int i = 0; i < MANY; i++) MPI_Ibarrier(MPI_COMM_SELF, &many[i]);
    MPI_Waitall(MANY, many, MPI_STATUSES_IGNORE);
    say("completed");
    MPI_Irecv(in, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &requests[0]);
    MPI_Cancel(&requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    say("cancelled");
    fail();
    say("failed");
    MPI_Comm copy;
    MPI_Comm_idup(MPI_COMM_SELF, &copy, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    say("duplicated");
    MPI_Comm_free(&copy);
    int room[1000];
    MPI_Buffer_attach(room, sizeof room);
    say("attached");
    MPI_Finalize();
    return 0;
}
