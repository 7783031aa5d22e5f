// System calls that containers forbid by seccomp. Copies between processes are not huddle's way, so without these everything is
// accelerated; without memory that has no name all stays native, with a line.
//
//   forbidden copies|memory     process_vm_readv, process_vm_writev and ptrace | memfd_create
#include "check.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// From now on these system calls fail with EPERM.
static void forbid(const int *calls, int n) {
    struct sock_filter program[16];
    int length = 0;
    program[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < n; i++) {
        program[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {(unsigned short)length, program};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

int main(int argc, char **argv) {
    static const int copies[] = {SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace}, memory[] = {SYS_memfd_create};
    static double in[100000], out[100000];
    CHECK(argc == 2);
    if (strcmp(argv[1], "copies") == 0) forbid(copies, 3);
    else forbid(memory, 1);
    CHECK(syscall(SYS_memfd_create, NULL, 0) == -1 && errno == (strcmp(argv[1], "copies") == 0 ? EFAULT : EPERM));
    MPI_Init(&argc, &argv);
    look_around();
    for (int n = 1; n <= 100000; n *= 10) {
        for (int i = 0; i < n; i++) in[i] = world_rank + i;
        MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++) CHECK(out[i] == world_size * (world_size - 1) / 2 + (double)world_size * i);
        MPI_Bcast(out, n, MPI_DOUBLE, world_size - 1, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    say_ok("forbidden");
    return 0;
}
