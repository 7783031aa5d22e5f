/* An engine that serves MPI_Allreduce and MPI_Init, or with SERVES_NOTHING none. */
#include "fake.h"
#include "loader.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct huddle_loader *loader;

int huddle_engine_open(const struct huddle_loader *h)
{
    if (getenv("FAKE_SLOW"))
        usleep(100000);
    if (loader)
        puts("opened twice");
    loader = h;
    return h->abi != HUDDLE_LOADER_ABI || getenv("FAKE_REFUSE") != NULL;
}

static struct big served(PARAMETERS) { return answer(ENGINE, ARGUMENTS); }

static long counters(const char *name)
{
    size_t n = 0;
    while (loader->counted(n))
        n++;
    printf("%s of %s among %zu\n", loader->mpi_version, strrchr(loader->mpi_path, '/'), n);
    return loader->calls(name);
}

/* Under a name of the C interface, by which the probe can ask: requests that are open, 100 more if there are windows, 1000 if others are
   reached into; or -1 for traffic whose end nobody sees. With FAKE_SHARED the engine's own word has the notice, which is lowered once it was told. */
static long traffic(void)
{
    static uint32_t shared;
    const struct huddle_traffic seen = *loader->traffic;
    const int is_reached = *seen.notice != 0;
    if (getenv("FAKE_SHARED"))
        loader->traffic->notice = &shared, shared = 0;
    return seen.is_endless ? -1 : seen.open + 100 * seen.has_windows + 1000 * is_reached;
}

const void *huddle_engine_entry(const char *name)
{
    if (!strcmp(name, "MPI_Bcast_c"))
        puts("asked for a name that the MPI lacks");
#ifndef SERVES_NOTHING
    if (!strcmp(name, "MPI_Allreduce") || !strcmp(name, "MPI_Init"))
        return (const void *)served;
#endif
    return !strcmp(name, "huddle_counters")                         ? (const void *)counters
           : !strcmp(name, "huddle_is_active")                        ? (const void *)traffic
                                                                       : NULL;
}
