// Memory that stands in for a device's. At its address the program can neither read nor write. The library that
// allocated it uses a second mapping, and only those bytes that the test allows.
#ifndef MEMORY_H
#define MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { READ = 1, WRITE = 2 };

struct area {
    char *address, *contents;
    size_t size;
    unsigned char *allowed;  // by byte
    void *context;
    struct area *next;
};

static struct area *areas;

static struct area *area_of(const void *address) {
    struct area *area = areas;
    while (area != NULL && !((const char *)address >= area->address && (const char *)address < area->address + area->size))
        area = area->next;
    return area;
}

static void stop(const char *why) {
    fprintf(stderr, "device: %s\n", why);
    fflush(stderr);
    _Exit(1);
}

static void *allocate(size_t size, void *context) {
    int file = memfd_create("device", MFD_CLOEXEC);
    struct area *area = calloc(1, sizeof *area);
    if (file < 0 || ftruncate(file, (off_t)size) != 0) stop("no memory");
    area->address = mmap(NULL, size, PROT_NONE, MAP_SHARED, file, 0);
    area->contents = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    area->allowed = calloc(size, 1);
    close(file);
    *area = (struct area){area->address, area->contents, size, area->allowed, context, areas};
    areas = area;
    return area->address;
}

// The usable address of `n` bytes at `address`: in the second mapping for device memory, else `address`. All device
// bytes must allow `access`.
static char *reach(const void *address, size_t n, int access) {
    struct area *area = area_of(address);
    if (area == NULL) return (char *)address;
    size_t at = (size_t)((const char *)address - area->address);
    if (at + n > area->size) stop("beyond an allocation");
    for (size_t i = at; i < at + n; i++)
        if ((area->allowed[i] & access) != access) stop(access == READ ? "read what is no data" : "wrote what is no data");
    return area->contents + at;
}

// A copy that has begun. It happens when its stream is synchronised.
struct copy {
    char *to, *data;
    size_t n;
    bool from_device;
};
static struct copy *pending;  // only one thread copies
static size_t count, room;

static void begin_copy(void *to, const void *from, size_t n) {
    char *source = reach(from, n, READ), *target = reach(to, n, WRITE);
    if (source == from && target == to) stop("a copy that no device takes part in");
    if (count == room) pending = realloc(pending, (room = 2 * room + 64) * sizeof *pending);
    struct copy copy = {target, source, n, source != from};
    if (!copy.from_device) copy.data = memcpy(malloc(n), from, n);
    pending[count++] = copy;
}

static void end_copies(void) {
    for (size_t i = 0; i < count; i++) {
        memcpy(pending[i].to, pending[i].data, pending[i].n);
        if (!pending[i].from_device) free(pending[i].data);
    }
    count = 0;
}

// For the test, which is no user of the library: these functions wait for nothing and refuse no byte.

void device_put(void *to, const void *from, size_t n) { memcpy(reach(to, n, 0), from, n); }

void device_get(void *to, const void *from, size_t n) { memcpy(to, reach(from, n, 0), n); }

void device_allow(void *address, size_t n, int access) {
    struct area *area = area_of(address);
    memset(area->allowed + ((char *)address - area->address), access, n);
}

void device_free(void *address) {
    for (struct area **at = &areas; *at != NULL; at = &(*at)->next) {
        struct area *area = *at;
        if (area->address == address) {
            munmap(area->address, area->size), munmap(area->contents, area->size);
            *at = area->next;
            free(area->allowed), free(area);
            return;
        }
    }
}

#endif
