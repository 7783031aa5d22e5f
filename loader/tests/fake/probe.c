/* Does what its arguments say, in order:
   open:FILE, call:NAME (with the sample of fake.h), threads:NAME, ask:NAME (an Api name), count:NAME, absent:NAME,
   narrow, ints:NAME=REQUESTS and longs:NAME=REQUESTS (a call that completes these: a digit for each). With OWN it has an MPI_Allreduce of its own, as a profiler that is linked statically. */
#include "fake.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef OWN
struct big PMPI_Allreduce(PARAMETERS);
struct big MPI_Allreduce(PARAMETERS) { return fputs("own: ", stdout), PMPI_Allreduce(ARGUMENTS); }
#endif

static pthread_barrier_t start;

static void *find(const char *name)
{
    void *address = dlsym(RTLD_DEFAULT, name);
    if (!address)
        printf("no %s\n", name), exit(1);
    return address;
}

static const char *call(function *f)
{
    static const char *who[] = {"", "native", "native profiling", "engine"};
    struct big got = f(SAMPLE), want = answer(got.v[0], SAMPLE);
    return memcmp(&got, &want, sizeof got) ? "damaged" : who[got.v[0]];
}

static void *call_at_once(void *f)
{
    pthread_barrier_wait(&start);
    return (void *)call((function *)f);
}

static void threads(const char *name)
{
    enum { THREADS = 16 };
    pthread_t thread[THREADS];
    void *who, *first = NULL;
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, call_at_once, find(name));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], &who);
        first = first ? first : who;
        if (who != first)
            puts("they differ");
    }
    printf("%s: %s\n", name, (char *)first);
}

static void narrow(void)
{
    long big = 1L << 40, counts[] = {5, 6, 7}, at[] = {0, 5, 11}, far[] = {0, big, 11}, more[] = {8, big, 9};
    int (*bcast)(void *, long, int, int, int) = find("MPI_Bcast_c");
    int (*ialltoall)(void *, long, int, void *, long, int, int, int *) = find("PMPI_Ialltoall_c");
    int (*gatherv)(void *, long, int, void *, long *, long *, int, int, int) = find("MPI_Gatherv_c");
    int (*alltoallv)(void *, long *, long *, int, void *, long *, long *, int, int) = find("MPI_Alltoallv_c");
    int (*reduce_scatter)(void *, void *, long *, int, int, int) = find("MPI_Reduce_scatter_c");
    int (*imrecv)(void *, long, int, int *, int *) = find("MPI_Imrecv_c");
    int (*irecv)(void *, long, int, int, int, int, int *) = find("MPI_Irecv_c");
    void *p = (void *)0x10, *q = (void *)0x20;
    printf("= %d\n", bcast(p, 3, 4, 5, 7));
    bcast(p, big, 4, 5, 7);
    printf("= %d\n", ialltoall(p, 1, 2, q, 3, 4, 7, (int *)0x30));
    printf("= %d\n", imrecv(p, 1, 2, (int *)0x20, (int *)0x30));
    printf("= %d\n", irecv(p, 1, 2, 3, 4, 7, (int *)0x30));
    irecv(p, big, 2, 3, 4, 7, (int *)0x30);
    printf("= %d\n", gatherv(p, 2, 3, q, counts, at, 4, 1, 7));
    gatherv(p, 2, 3, q, (long *)0x50, (long *)0x60, 4, 0, 7);
    gatherv(p, 2, 3, q, counts, far, 4, -4, 8);
    printf("= %d\n", alltoallv(p, counts, at, 2, q, more, at, 3, 7));
    alltoallv((void *)1, (long *)0x50, NULL, 2, q, counts, at, 3, 8);
    printf("= %d\n", reduce_scatter(p, q, counts, 2, 3, 8));
}

/* A call to a function with requests, of that many bytes each, between words that nobody writes to; 0 is MPI_REQUEST_NULL. */
static void complete(char *name, size_t bytes)
{
    enum { MOST = 100, GUARD = 7 };
    long room[MOST + 2];
    char *requests = strchr(name, '='), *at = (char *)(room + 1);
    *requests++ = 0;
    int n = (int)strlen(requests);
    memset(room, GUARD, sizeof room);
    for (int i = 0; i < n; i++) {
        long wide = requests[i] == '0' ? (long)dlsym(RTLD_DEFAULT, "ompi_request_null") : requests[i] - '0';
        int narrow = requests[i] == '0' ? 0x2c000000 : (int)wide;
        memcpy(at + (size_t)i * bytes, bytes == sizeof narrow ? (void *)&narrow : (void *)&wide, bytes);
    }
    int done, more[MOST];
    void *f = find(name), *status = (void *)0x20;
    int code = strstr(name, "Startall")   ? ((int (*)(int, void *))f)(n, at)
               : strstr(name, "Start")    ? ((int (*)(void *))f)(at)
               : strstr(name, "Waitall")  ? ((int (*)(int, void *, void *))f)(n, at, status)
               : strstr(name, "Wait")     ? ((int (*)(void *, void *))f)(at, status)
               : strstr(name, "Testany")  ? ((int (*)(int, void *, int *, int *, void *))f)(n, at, more, &done, status)
               : strstr(name, "Testsome") ? ((int (*)(int, void *, int *, int *, void *))f)(n, at, &done, more, status)
                                          : ((int (*)(void *, int *, void *))f)(at, &done, status);
    const char *guards[] = {(char *)room, at + (size_t)n * bytes};
    for (int i = 0; i < 2; i++)
        if (guards[i][0] != GUARD)
            puts("damaged");
    printf("= %d\n", code);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char *name = strchr(argv[i], ':');
        name = name ? name + 1 : "";
        if (!strncmp(argv[i], "open:", 5)) {
            if (!dlopen(name, RTLD_NOW | RTLD_LOCAL))
                puts(dlerror());
        } else if (!strncmp(argv[i], "call:", 5))
            printf("%s: %s\n", name, call((function *)find(name)));
        else if (!strncmp(argv[i], "threads:", 8))
            threads(name);
        else if (!strncmp(argv[i], "ask:", 4))
            printf("%s: %ld\n", name, ((long (*)(const char *))find(name))("MPI_Gather"));
        else if (!strncmp(argv[i], "count:", 6))
            printf("%s: %ld\n", name, ((long (*)(const char *))find("huddle_counters"))(name));
        else if (!strncmp(argv[i], "absent:", 7))
            printf("%s: %s\n", name, dlsym(RTLD_DEFAULT, name) ? "present" : "absent");
        else if (!strncmp(argv[i], "ints:", 5))
            complete(name, sizeof(int));
        else if (!strncmp(argv[i], "longs:", 6))
            complete(name, sizeof(long));
        else
            narrow();
        fflush(stdout);
    }
    return 0;
}
