// Stands in for libcuda.so.1, as strict as the real one may be: a copy needs the context of its memory to be current,
// and happens when the caller waits for its stream.
#include "memory.h"

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_CONTEXT = 201 };
enum { CONTEXT = 1, MEMORY_TYPE = 2, HOST_POINTER = 4, DEVICE_ORDINAL = 9 };
enum { DEVICES = 2, PER_THREAD = 2 };

static bool is_initialised;
static char contexts[DEVICES];
static int retained[DEVICES];
static __thread void *stack[8];
static __thread int depth;

int cuInit(unsigned flags) {
    is_initialised = true;
    return flags == 0 ? SUCCESS : INVALID_VALUE;
}

int cuPointerGetAttributes(unsigned n, const int *names, void **values, uintptr_t address) {
    if (!is_initialised) return NOT_INITIALIZED;
    const struct area *area = area_of((void *)address);
    char *context = area == NULL ? NULL : area->context;
    for (unsigned i = 0; i < n; i++) {
        if (names[i] == CONTEXT) *(void **)values[i] = context;
        else if (names[i] == MEMORY_TYPE) *(unsigned *)values[i] = area == NULL ? 0 : 2;
        else if (names[i] == HOST_POINTER) *(void **)values[i] = NULL;
        else if (names[i] == DEVICE_ORDINAL) *(int *)values[i] = context == NULL ? 1 : (int)(context - contexts);
        else return INVALID_VALUE;
    }
    return SUCCESS;
}

int cuCtxGetCurrent(void **context) {
    *context = depth == 0 ? NULL : stack[depth - 1];
    return SUCCESS;
}

int cuCtxPushCurrent_v2(void *context) {
    if (context == NULL || depth == 8) return INVALID_CONTEXT;
    stack[depth++] = context;
    return SUCCESS;
}

int cuCtxPopCurrent_v2(void **context) {
    if (depth == 0) return INVALID_CONTEXT;
    *context = stack[--depth];
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &contexts[device];
    retained[device]++;
    return SUCCESS;
}

int cuDevicePrimaryCtxRelease(int device) { return retained[device]-- > 0 ? SUCCESS : INVALID_CONTEXT; }

int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t n, uintptr_t stream) {
    if (stream != PER_THREAD || depth == 0) return INVALID_CONTEXT;
    const struct area *sides[] = {area_of((void *)to), area_of((void *)from)};
    for (int i = 0; i < 2; i++)
        if (sides[i] != NULL && sides[i]->context != NULL && sides[i]->context != stack[depth - 1]) return INVALID_VALUE;
    begin_copy((void *)to, (void *)from, n);
    return SUCCESS;
}

int cuStreamSynchronize(uintptr_t stream) {
    if (stream != PER_THREAD || depth == 0) return INVALID_CONTEXT;
    end_copies();
    return SUCCESS;
}

// For the test: allocates on the first device, on the second, and from a pool, in turn.

void device_begin(int version) {
    (void)version;
    cuInit(0);
}

void *device_allocate(size_t size) {
    static int turn;
    void *places[] = {&contexts[0], &contexts[1], NULL};
    return allocate(size, places[turn++ % 3]);
}

// Whether the library is as the program left it.
bool device_is_untouched(void) { return depth == 0 && retained[0] == 0 && retained[1] == 0 && count == 0; }

// This library keeps no errors.

void device_fail(void) {}

bool device_has_failed(void) { return true; }
