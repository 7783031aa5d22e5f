/* What a loader tells an engine: src/abi.rs in C. */
#include <stddef.h>
#include <stdint.h>

enum { HUDDLE_LOADER_ABI = 4 };

struct huddle_traffic {
    int64_t open;
    unsigned char is_endless;
    unsigned char has_windows;
    uint32_t *notice;
};

struct huddle_loader {
    uint32_t abi;
    void *mpi;
    const char *mpi_path;
    const char *mpi_version;
    uint64_t (*calls)(const char *name);
    const char *(*counted)(size_t index);
    struct huddle_traffic *traffic;
};
