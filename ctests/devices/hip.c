// Stands in for libamdhip64.so of version 5 or 6, which differ in the numbers of hipMemoryType.
#include "memory.h"

enum { SUCCESS = 0, INVALID_VALUE = 1, DEFAULT = 4 };

struct attributes {
    int type, device;
    void *device_pointer, *host_pointer;
    int is_managed;
    unsigned flags;
};

static int major = 6;
static int last_error;

static int failed(int code) {
    last_error = code;
    return code;
}

int hipRuntimeGetVersion(int *version) {
    *version = major * 10000000 + 2 * 100000 + 41133;
    return SUCCESS;
}

int hipPeekAtLastError(void) { return last_error; }

int hipGetLastError(void) {
    int code = last_error;
    last_error = SUCCESS;
    return code;
}

int hipPointerGetAttributes(struct attributes *attributes, const void *address) {
    if (area_of(address) == NULL) return failed(INVALID_VALUE);
    *attributes = (struct attributes){major >= 6 ? 2 : 1, 0, (void *)address, NULL, 0, 0};
    return SUCCESS;
}

int hipMemcpyAsync(void *to, const void *from, size_t n, int kind, void *stream) {
    if (kind != DEFAULT || stream != NULL) return failed(INVALID_VALUE);
    begin_copy(to, from, n);
    return SUCCESS;
}

int hipStreamSynchronize(void *stream) {
    if (stream != NULL) return failed(INVALID_VALUE);
    end_copies();
    return SUCCESS;
}

// For the test.

void device_begin(int version) { major = version; }

void *device_allocate(size_t size) { return allocate(size, NULL); }

bool device_is_untouched(void) { return last_error == SUCCESS && count == 0; }

void device_fail(void) { last_error = 700; }

// Whether the program still gets its own error.
bool device_has_failed(void) { return hipGetLastError() != SUCCESS; }
