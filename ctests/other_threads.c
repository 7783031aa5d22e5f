// Threads that call MPI although MPI_Init did not grant MPI_THREAD_MULTIPLE. The thread that called MPI_Init and two
// others take turns, each on its own communicators. If an MPI grants a session more than MPI_Init did (Open MPI 5,
// Intel MPI), threads also call at the same time on communicators of such a session. Argument: calls of each thread in
// turn; at the same time they make a hundred times as many (with 2000 a third of the runs under Open MPI 5 failed when
// threads shared what calls remember).
#include "check.h"
#include <pthread.h>

#define THREADS 3
#define COMMS 3

static int calls;
static MPI_Comm comms[THREADS][COMMS];

static void call(int thread, int i) {
    int mine = i * THREADS + thread, sum = -1;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comms[thread][i % COMMS]);
    CHECK(sum == world_size * mine);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn;

// The threads take turns in the same order on all ranks.
static void *take_turns(void *argument) {
    int thread = (int)(long)argument;
    for (int i = 0; i < calls; i++) {
        pthread_mutex_lock(&lock);
        while (turn % THREADS != thread) pthread_cond_wait(&changed, &lock);
        call(thread, i);
        turn++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void run(void *(*body)(void *)) {
    pthread_t threads[THREADS];
    for (long k = 1; k < THREADS; k++) CHECK(pthread_create(&threads[k], NULL, body, (void *)k) == 0);
    body(NULL);
    for (int k = 1; k < THREADS; k++) pthread_join(threads[k], NULL);
}

static void in_turn(void) {
    for (int k = 0; k < THREADS; k++)
        for (int i = 0; i < COMMS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[k][i]);
    run(take_turns);
    for (int k = 0; k < THREADS; k++)
        for (int i = 0; i < COMMS; i++) MPI_Comm_free(&comms[k][i]);
}

#ifdef MPI_SESSION_NULL
static MPI_Comm alone[THREADS][COMMS];

// Calls on one rank alone wait for nobody, so many of them are under way at the same time.
static void *at_once(void *argument) {
    int thread = (int)(long)argument;
    for (int i = 0; i < 100 * calls; i++) {
        call(thread, i);
        for (int k = 0; k < 20; k++) {
            int sum = -1;
            MPI_Allreduce(&k, &sum, 1, MPI_INT, MPI_SUM, alone[thread][k % COMMS]);
            CHECK(sum == k);
        }
    }
    return NULL;
}

// MPICH 4.0.2 claims to grant more, but does not lock.
static int grants_more(MPI_Session *session) {
    char level[64] = "", version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length, found;
    MPI_Info info;
    MPI_Get_library_version(version, &length);
    if (!strstr(version, "Open MPI") && !strstr(version, "Intel")) return 0;
    MPI_Info_create(&info);
    MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE");
    CHECK(MPI_Session_init(info, MPI_ERRORS_ARE_FATAL, session) == MPI_SUCCESS);
    MPI_Info_free(&info);
    MPI_Session_get_info(*session, &info);
    MPI_Info_get(info, "thread_level", sizeof level - 1, level, &found);
    MPI_Info_free(&info);
    if (found && strcmp(level, "MPI_THREAD_MULTIPLE") == 0) return 1;
    MPI_Session_finalize(session);
    return 0;
}

static void make(MPI_Session session, const char *set, MPI_Comm made[THREADS][COMMS]) {
    MPI_Group group;
    MPI_Group_from_session_pset(session, set, &group);
    for (int k = 0; k < THREADS; k++)
        for (int i = 0; i < COMMS; i++) {
            char tag[64];
            snprintf(tag, sizeof tag, "ctests.other_threads.%s.%d.%d", set, k, i);
            MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &made[k][i]);
        }
    MPI_Group_free(&group);
}

static void in_a_session(void) {
    MPI_Session session;
    if (!grants_more(&session)) {
        if (world_rank == 0) printf("other_threads: no sessions, which are granted no more here\n");
        return;
    }
    make(session, "mpi://WORLD", comms);
    make(session, "mpi://SELF", alone);
    run(at_once);
    for (int k = 0; k < THREADS; k++)
        for (int i = 0; i < COMMS; i++) MPI_Comm_disconnect(&comms[k][i]), MPI_Comm_disconnect(&alone[k][i]);
    MPI_Session_finalize(&session);
}
#else
static void in_a_session(void) {
    if (world_rank == 0) printf("other_threads: no sessions, this MPI has none\n");
}
#endif

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    CHECK(provided >= MPI_THREAD_SERIALIZED);
    look_around();
    calls = argument(argc, argv, 0);
    in_turn();
    in_a_session();
    MPI_Finalize();
    say_ok("other_threads");
    return 0;
}
