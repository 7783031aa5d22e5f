/* An engine that serves MPI_Allreduce and MPI_Init. */
#include "fake.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct huddle_host {
    uint32_t abi;
    void *mpi;
    const char *mpi_path;
    const char *mpi_version;
    uint64_t (*calls)(const char *name);
    const char *(*counted)(size_t index);
};
static const struct huddle_host *host;

int huddle_engine_open(const struct huddle_host *h)
{
    if (getenv("FAKE_SLOW"))
        usleep(100000);
    if (host)
        puts("opened twice");
    host = h;
    return h->abi != 1 || getenv("FAKE_REFUSE") != NULL;
}

static struct big served(PARAMETERS) { return answer(ENGINE, ARGUMENTS); }

static long counters(const char *name)
{
    size_t n = 0;
    while (host->counted(n))
        n++;
    printf("%s of %s among %zu\n", host->mpi_version, strrchr(host->mpi_path, '/'), n);
    return host->calls(name);
}

const void *huddle_engine_entry(const char *name)
{
    if (!strcmp(name, "MPI_Bcast_c"))
        puts("asked for a name that the MPI lacks");
    return !strcmp(name, "MPI_Allreduce") || !strcmp(name, "MPI_Init") ? (const void *)served
           : !strcmp(name, "huddle_counters")                         ? (const void *)counters
                                                                       : NULL;
}
