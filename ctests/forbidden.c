// System calls that containers forbid by seccomp. Without copies between processes everything is accelerated in another
// way, also if they are forbidden only later, and to some ranks. Without memfd_create everything stays native, with a
// line.
//
//   forbidden copies    process_vm_readv, process_vm_writev and ptrace fail
//   forbidden later     they fail on every second rank, after calls that made them
//   forbidden fatal     they end the process
//   forbidden memory    memfd_create fails
#include "check.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// From now on these system calls fail with EPERM, or end the process.
static void forbid(const int *calls, int n, unsigned action) {
    struct sock_filter program[16];
    int length = 0;
    program[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < n; i++) {
        program[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    }
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {(unsigned short)length, program};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

enum { MOST = 100000, MOST_RANKS = 4 };
static double in[MOST], out[MOST], blocks[MOST_RANKS * MOST];

static void scatter(int n, int root) {
    for (int i = 0; i < n * world_size; i++) blocks[i] = world_rank == root ? root + 3.0 * i : -1;
    for (int i = 0; i < n; i++) out[i] = -1;
    MPI_Scatter(blocks, n, MPI_DOUBLE, out, n, MPI_DOUBLE, root, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(out[i] == root + 3.0 * (world_rank * n + i));
}

static void bcast(int n, int root) {
    for (int i = 0; i < n; i++) out[i] = world_rank == root ? root + 2.0 * i : -1;
    MPI_Bcast(out, n, MPI_DOUBLE, root, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(out[i] == root + 2.0 * i);
}

static void allgather(int n) {
    for (int i = 0; i < n; i++) in[i] = world_rank + 4.0 * i;
    for (int i = 0; i < n * world_size; i++) blocks[i] = -1;
    MPI_Allgather(in, n, MPI_DOUBLE, blocks, n, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int i = 0; i < n * world_size; i++) CHECK(blocks[i] == i / n + 4.0 * (i % n));
}

int main(int argc, char **argv) {
    static const int copies[] = {SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace}, memory[] = {SYS_memfd_create};
    CHECK(argc == 2);
    bool is_later = strcmp(argv[1], "later") == 0, has_memory = strcmp(argv[1], "memory") != 0;
    const unsigned refuse = SECCOMP_RET_ERRNO | EPERM, action = strcmp(argv[1], "fatal") == 0 ? SECCOMP_RET_KILL_PROCESS : refuse;
    if (!is_later) has_memory ? forbid(copies, 3, action) : forbid(memory, 1, refuse);
    CHECK(syscall(SYS_memfd_create, NULL, 0) == -1 && errno == (has_memory ? EFAULT : EPERM));
    MPI_Init(&argc, &argv);
    look_around();
    CHECK(world_size <= MOST_RANKS);
    for (int n = 1; n <= MOST; n *= 10) {
        if (is_later && n == 1000 && world_rank % 2 == 1) forbid(copies, 3, refuse);
        for (int root = 0; root < world_size; root++) scatter(n, root), bcast(n, root);
        allgather(n), allgather(n);
        for (int i = 0; i < n; i++) in[i] = world_rank + i;
        MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++) CHECK(out[i] == world_size * (world_size - 1) / 2 + (double)world_size * i);
    }
    MPI_Finalize();
    say_ok("forbidden");
    return 0;
}
