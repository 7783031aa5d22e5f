// Too little shared memory: a rank can't create or map huddle's segment, or gets no memory for its slots when messages
// need it. All ranks agree to stay native on that communicator, or for such messages. One line says so, nothing is
// lost, and later communicators are served again.
//
//   shortage create|map|slots     the leader can't create the segment | another rank can't map it | the last rank gets no slots
//   shortage report               no file for the report
//   shortage old                  no shortage, but a kernel that can't reserve what is mapped (before Linux 5.14)
#include "check.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { POPULATE = 23, LONG = 1000 };

// From here on the kernel answers every request for pages of mapped memory (MADV_POPULATE_WRITE) with this error.
static void give_no_pages(int error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, POPULATE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

// Lowers a limit of this process to `most`, and returns what it was.
static rlim_t limit(int which, rlim_t most) {
    struct rlimit now;
    getrlimit(which, &now);
    rlim_t before = now.rlim_cur;
    now.rlim_cur = most;
    setrlimit(which, &now);
    return before;
}

// Bytes of address space that this process has.
static rlim_t mapped(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file) {
        if (fscanf(file, "%lu", &pages) != 1) pages = 0;
        fclose(file);
    }
    return (rlim_t)pages * 4096;
}

static void sums(MPI_Comm comm, int rank, int size) {
    for (int k = 0; k < 20; k++) {
        double x = rank + k, y = 0;
        MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, comm);
        CHECK(y == size * k + size * (size - 1) / 2);
    }
}

static void long_sums(MPI_Comm comm, int rank, int size) {
    double x[LONG], y[LONG];
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < LONG; i++) x[i] = rank + k + i, y[i] = -1;
        MPI_Allreduce(x, y, LONG, MPI_DOUBLE, MPI_SUM, comm);
        for (int i = 0; i < LONG; i++) CHECK(y[i] == size * (k + i) + size * (size - 1) / 2);
    }
}

// Short messages are served in any case; once the last rank gets no more pages, long ones are served on `roomy` alone.
static void without_slots(MPI_Comm tight, MPI_Comm roomy, int rank, int size) {
    sums(tight, rank, size);
    long_sums(roomy, rank, size);
    if (rank == size - 1) give_no_pages(ENOMEM);
    long_sums(tight, rank, size);
    sums(tight, rank, size);
    long_sums(roomy, rank, size);
    long_sums(tight, rank, size);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    bool is_map = !strcmp(what, "map"), is_create = !strcmp(what, "create");
    if (!strcmp(what, "old")) give_no_pages(EINVAL);
    MPI_Init(&argc, &argv);
    look_around();
    int rank = world_rank, size = world_size;
    MPI_Comm tight, roomy;
    MPI_Comm_dup(MPI_COMM_WORLD, &tight);
    MPI_Comm_dup(MPI_COMM_WORLD, &roomy);
    if (!strcmp(what, "slots")) without_slots(tight, roomy, rank, size);
    // The limit is so low that huddle's segment of some mebibytes does not fit, but all that the MPI library allocates
    // does.
    int which = is_map ? RLIMIT_AS : RLIMIT_FSIZE, victim = is_map ? size - 1 : 0;
    rlim_t before = 0;
    bool is_limited = (is_map || is_create) && rank == victim;
    if (is_limited) before = limit(which, is_map ? mapped() + (1 << 20) : 4096);
    sums(tight, rank, size);
    if (is_limited) limit(which, before);
    sums(roomy, rank, size);
    long_sums(roomy, rank, size);
    sums(tight, rank, size);
    MPI_Comm_free(&tight);
    MPI_Comm_free(&roomy);
    say_ok("shortage");
    if (!strcmp(what, "report")) limit(RLIMIT_FSIZE, 64);
    MPI_Finalize();
    return 0;
}
