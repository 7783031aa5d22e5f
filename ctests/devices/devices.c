// Buffers in device memory, which the program itself can't access: the six collectives with such buffers on some ranks,
// of types with and without holes, in place, and given by absolute addresses. Nothing between the data may be read or
// written. The MPI libraries of the test know no devices, so they would crash on a call with such a buffer.
//
//   devices DIRECTORY cuda|hip5|hip6|unknown early|late|threads|passing
//
// DIRECTORY has the libraries. "early" loads them before MPI_Init and "late" when all contexts exist; with "passing" a
// library is unloaded before a new communicator is made.
#include "../check.h"

#include <dlfcn.h>

enum { READ = 1, WRITE = 2 };

static void *(*device_allocate)(size_t);
static void (*device_put)(void *, const void *, size_t), (*device_get)(void *, const void *, size_t);
static void (*device_allow)(void *, size_t, int), (*device_free)(void *), (*device_begin)(int);
static bool (*device_is_untouched)(void), (*device_has_failed)(void);
static void (*device_fail)(void);

static unsigned state;

static void *find(void *library, const char *name) {
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    return found;
}

static void load(const char *directory, const char *vendor) {
    char path[4096];
    const char *name = strcmp(vendor, "cuda") == 0 ? "libcuda.so.1" : "libamdhip64.so.6";
    snprintf(path, sizeof path, "%s/%s", directory, name);
    void *library = dlopen(path, RTLD_NOW);
    CHECK(library != NULL);
    device_allocate = find(library, "device_allocate"), device_free = find(library, "device_free");
    device_put = find(library, "device_put"), device_get = find(library, "device_get");
    device_allow = find(library, "device_allow"), device_begin = find(library, "device_begin");
    device_is_untouched = find(library, "device_is_untouched"), device_has_failed = find(library, "device_has_failed");
    device_fail = find(library, "device_fail");
    device_begin(strcmp(vendor, "hip5") == 0 ? 5 : 6);
}

// The number of calls that were left to the native library.
static unsigned long long declined(void) {
    size_t (*counters)(unsigned long long *, size_t) = find(RTLD_DEFAULT, "huddle_counters");
    size_t (*name)(size_t, char *, size_t) = find(RTLD_DEFAULT, "huddle_counter_name");
    size_t n = counters(NULL, 0);
    unsigned long long *values = malloc(n * sizeof *values), sum = 0;
    counters(values, n);
    for (size_t i = 0; i < n; i++) {
        char text[200];
        name(i, text, sizeof text);
        if (strstr(text, ".declined.") != NULL && strstr(text, ".calls") != NULL) sum += values[i];
    }
    free(values);
    return sum;
}

// ---- buffers: `blocks` blocks of n ints each

enum layout { CONTIGUOUS, STRIDED, CYCLIC, ABSOLUTE, LAYOUTS };

struct buffer {
    void *at, *other;  // ABSOLUTE: `other` has the second half
    bool is_device, is_other_device;
    size_t size;
    enum layout layout;
    int n, total;
    MPI_Datatype type;
    int count;  // per block
};

static char *place(const struct buffer *b, int i) {
    switch (b->layout) {
        case CONTIGUOUS: return (char *)b->at + (size_t)i * 4;
        case STRIDED: return (char *)b->at + (size_t)i * 12;
        case CYCLIC: return (char *)b->at + (size_t)i * 8;
        default: return i < b->n / 2 ? (char *)b->at + (size_t)i * 4 : (char *)b->other + (size_t)i * 4;
    }
}

static bool is_on_device(const struct buffer *b, int i) {
    return b->layout == ABSOLUTE && i >= b->n / 2 ? b->is_other_device : b->is_device;
}

static void put(const struct buffer *b, int i, int value) {
    if (is_on_device(b, i)) device_put(place(b, i), &value, 4);
    else memcpy(place(b, i), &value, 4);
}

static int get(const struct buffer *b, int i) {
    int value;
    if (is_on_device(b, i)) device_get(&value, place(b, i), 4);
    else memcpy(&value, place(b, i), 4);
    return value;
}

static void *area(bool is_device, size_t size) {
    void *at = is_device ? device_allocate(size) : malloc(size);
    char *guard = memset(malloc(size), 0x5a, size);
    if (is_device) device_put(at, guard, size);
    else memcpy(at, guard, size);
    free(guard);
    return at;
}

static MPI_Datatype type_of(const struct buffer *b) {
    MPI_Datatype type = MPI_INT, plain;
    int n = b->n, twice = 2 * n, cyclic = MPI_DISTRIBUTE_CYCLIC, one = 1, two = 2, half = n / 2, rest = n - n / 2;
    if (b->layout == STRIDED) {
        MPI_Type_vector(n, 1, 3, MPI_INT, &plain);
        MPI_Type_create_resized(plain, 0, 12 * n, &type);
        MPI_Type_free(&plain);
    } else if (b->layout == CYCLIC) {
        MPI_Type_create_darray(2, 0, 1, &twice, &cyclic, &one, &two, MPI_ORDER_C, MPI_INT, &type);
    } else if (b->layout == ABSOLUTE) {
        MPI_Aint places[2];
        MPI_Get_address(b->at, &places[0]);
        MPI_Get_address((char *)b->other + (size_t)half * 4, &places[1]);
        MPI_Type_create_hindexed(2, (int[]){half, rest}, places, MPI_INT, &type);
    }
    if (type != MPI_INT) MPI_Type_commit(&type);
    return type;
}

// Draws whether the buffer is on a device. Its data are value(i), and only `access` is allowed to them.
static struct buffer make(enum layout layout, int n, int blocks, int access, int (*value)(int)) {
    if (layout == ABSOLUTE && blocks != 1) layout = STRIDED;
    struct buffer b = {.layout = layout, .n = n, .total = n * blocks, .size = (size_t)n * (size_t)blocks * 12 + 64};
    b.is_device = device_allocate != NULL && next_number(&state) % 4 != 0;
    b.is_other_device = device_allocate != NULL && next_number(&state) % 2 == 0;
    b.at = area(b.is_device, b.size);
    if (layout == ABSOLUTE) b.other = area(b.is_other_device, b.size);
    for (int i = 0; i < b.total; i++) {
        put(&b, i, value(i));
        if (is_on_device(&b, i)) device_allow(place(&b, i), 4, access);
    }
    b.type = type_of(&b);
    b.count = layout == CONTIGUOUS ? n : 1;
    return b;
}

static void *address(const struct buffer *b) { return b->layout == ABSOLUTE ? MPI_BOTTOM : b->at; }

static void drop(struct buffer *b) {
    if (b->type != MPI_INT) MPI_Type_free(&b->type);
    if (b->is_device) device_free(b->at);
    else free(b->at);
    if (b->layout != ABSOLUTE) return;
    if (b->is_other_device) device_free(b->other);
    else free(b->other);
}

// ---- the collectives

static int mine(int i) { return world_rank * 7 + i; }
static int nothing(int i) { return -i - 1; }
static int root_of_all, block;
static int by_root(int i) { return root_of_all * 100 + i; }
static int own_block(int i) { return i / block == world_rank ? mine(i % block) : nothing(i); }
static int sum(int i) { return world_size * (world_size - 1) / 2 * 7 + world_size * i; }

static void reductions(int n, int root) {
    bool is_root = world_rank == root;
    struct buffer in = make(CONTIGUOUS, n, 1, READ, mine), out = make(CONTIGUOUS, n, 1, WRITE, nothing);
    struct buffer both = make(CONTIGUOUS, n, 1, READ | WRITE, mine);
    MPI_Allreduce(in.at, out.at, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, both.at, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(get(&in, i) == mine(i) && get(&out, i) == sum(i) && get(&both, i) == sum(i));
    drop(&out), drop(&both);
    out = make(CONTIGUOUS, n, 1, is_root ? WRITE : 0, nothing), both = make(CONTIGUOUS, n, 1, READ | WRITE, mine);
    MPI_Reduce(in.at, out.at, n, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    MPI_Reduce(is_root ? MPI_IN_PLACE : both.at, is_root ? both.at : NULL, n, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(get(&out, i) == (is_root ? sum(i) : nothing(i)));
    for (int i = 0; i < n; i++) CHECK(get(&both, i) == (is_root ? sum(i) : mine(i)));
    drop(&in), drop(&out), drop(&both);
}

static void add(void *in, void *inout, int *count, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *count; i++) ((int *)inout)[3 * i] += ((int *)in)[3 * i];
}

// Types with holes, predefined and not, and a user-defined operation.
static void reductions_with_holes(int n) {
    MPI_Datatype apart;
    MPI_Op op;
    MPI_Type_create_resized(MPI_INT, 0, 12, &apart);
    MPI_Type_commit(&apart);
    MPI_Op_create(add, 1, &op);
    struct buffer in = make(STRIDED, n, 1, READ, mine), out = make(STRIDED, n, 1, WRITE, nothing);
    MPI_Allreduce(in.at, out.at, n, apart, op, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(get(&out, i) == sum(i));
    MPI_Op_free(&op);
    MPI_Type_free(&apart);
    drop(&in), drop(&out);

    struct pair { double value; int rank; } pair = {0}, *pairs = area(device_allocate != NULL, (size_t)n * sizeof pair);
    for (int i = 0; i < n; i++) {
        pair.value = (world_rank + i) % world_size, pair.rank = world_rank;
        if (device_allocate == NULL) memcpy(&pairs[i], &pair, 12);
        else device_put(&pairs[i], &pair, 12), device_allow(&pairs[i], 12, READ | WRITE);
    }
    MPI_Allreduce(MPI_IN_PLACE, pairs, n, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) {
        if (device_allocate == NULL) pair = pairs[i];
        else device_get(&pair, &pairs[i], 12);
        CHECK(pair.value == world_size - 1 && (pair.rank + i) % world_size == world_size - 1);
    }
    if (device_allocate == NULL) free(pairs);
    else device_free(pairs);
}

static void moves(enum layout layout, enum layout other, int n, int root) {
    bool is_root = world_rank == root;
    root_of_all = root, block = n;
    struct buffer one = make(layout, n, 1, is_root ? READ : WRITE, is_root ? by_root : nothing);
    MPI_Bcast(address(&one), one.count, one.type, root, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(get(&one, i) == by_root(i));
    drop(&one);

    struct buffer all = make(other, n, world_size, WRITE, nothing);
    one = make(layout, n, 1, READ, mine);
    MPI_Allgather(address(&one), one.count, one.type, all.at, all.count, all.type, MPI_COMM_WORLD);
    for (int i = 0; i < all.total; i++) CHECK(get(&all, i) == i / n * 7 + i % n);
    drop(&one), drop(&all);
    all = make(other, n, world_size, READ | WRITE, own_block);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.at, all.count, all.type, MPI_COMM_WORLD);
    for (int i = 0; i < all.total; i++) CHECK(get(&all, i) == i / n * 7 + i % n);
    drop(&all);

    for (int in_place = 0; in_place < 2; in_place++) {
        all = make(other, n, world_size, is_root ? READ : 0, by_root);
        one = make(layout, n, 1, is_root && in_place ? 0 : WRITE, nothing);
        void *to = is_root && in_place ? MPI_IN_PLACE : address(&one);
        MPI_Scatter(all.at, all.count, all.type, to, one.count, one.type, root, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++) CHECK(get(&one, i) == (to == MPI_IN_PLACE ? nothing(i) : by_root(world_rank * n + i)));
        drop(&one), drop(&all);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void everything(int salt) {
    static const int sizes[] = {1, 5, 12, 300, 5000, 20000};
    for (int i = 0; i < 6; i++) {
        reductions(sizes[i], (i + salt) % world_size);
        if (sizes[i] <= 300) reductions_with_holes(sizes[i]);
        for (int other = 0; other < ABSOLUTE; other++) {
            int n = other == CONTIGUOUS || sizes[i] <= 300 ? sizes[i] : 2000;
            moves((salt + i + other) % LAYOUTS, other, n, (i + other) % world_size);
        }
    }
}

// The program can unload what it has loaded, although huddle watches for new libraries.
static void come_and_go(void) {
    for (int i = 0; i < 3; i++) {
        void *object = dlopen("libBrokenLocale.so.1", RTLD_NOW);
        CHECK(object != NULL);
        MPI_Barrier(MPI_COMM_WORLD);
        dlclose(object);
        CHECK(dlopen("libBrokenLocale.so.1", RTLD_NOW | RTLD_NOLOAD) == NULL);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

// A communicator is native while a library is loaded whose memory can't be copied. Once that library is unloaded and
// another one loaded, a new communicator is served.
static void pass(const char *path) {
    const char *loaded[] = {path, "libBrokenLocale.so.1"};
    for (int i = 0; i < 2; i++) {
        void *object = dlopen(loaded[i], RTLD_NOW);
        CHECK(object != NULL);
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        unsigned long long before = declined();
        for (int call = 0; call < 20; call++) MPI_Barrier(comm);
        CHECK((declined() - before == 20) == (i == 0));
        MPI_Comm_free(&comm);
        CHECK(dlclose(object) == 0 && dlopen(loaded[i], RTLD_NOW | RTLD_NOLOAD) == NULL);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    bool passes = strcmp(argv[3], "passing") == 0, is_early = !passes && strcmp(argv[3], "late") != 0, is_known = strcmp(argv[2], "unknown") != 0;
    // Rank 1 has no devices.
    bool has_devices = launched_rank() != 1;
    char path[4096];
    snprintf(path, sizeof path, "%s/libhsa-runtime64.so.1", argv[1]);
    if (is_early && has_devices) {
        if (is_known) load(argv[1], argv[2]);
        else CHECK(dlopen(path, RTLD_NOW) != NULL);
    }
    int threads = strcmp(argv[3], "threads") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, provided;
    MPI_Init_thread(&argc, &argv, threads, &provided);
    look_around();
    state = 17u * (unsigned)world_rank + 5;
    come_and_go();
    if (!is_early) everything(1);
    if (passes) pass(path);
    if (!is_early && !passes && has_devices) {
        if (is_known) load(argv[1], argv[2]);
        else CHECK(dlopen(path, RTLD_NOW) != NULL);
    }
    unsigned long long before = declined();
    for (int salt = 0; salt < 4; salt++) everything(salt);
    CHECK(declined() == before || (is_early && !is_known));
    CHECK(device_allocate == NULL || device_is_untouched());
    if (device_allocate != NULL) device_fail();
    int one = 1, all = 0;
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(all == world_size && (device_allocate == NULL || device_has_failed()));
    come_and_go();
    MPI_Finalize();
    say_ok("devices");
    return 0;
}
