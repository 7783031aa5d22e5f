// A program without MPI that loads a module which uses MPI, with RTLD_LOCAL, as Python loads mpi4py: the names of MPI
// are then not visible in the whole process. Argument: the module.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *module = argc < 2 ? NULL : dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (module == NULL) {
        fprintf(stderr, "local_load: %s\n", argc < 2 ? "which module?" : dlerror());
        return 1;
    }
    int (*run)(void);
    *(void **)&run = dlsym(module, "local_load_run");
    return run == NULL ? 1 : run();
}
