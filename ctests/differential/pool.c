// Communicators: always WORLD and SELF, and up to six others that are made and freed. All ranks of WORLD change the
// pool together; after a split each rank holds its own piece, or nothing.
#include "differential.h"

#include <stdio.h>

enum { POOL = 8, PERMANENT = 2 };
static Communicator pool[POOL];
static int members;

static void describe(Communicator *entry, const char *how, const char *parent) {
    entry->rank = entry->size = 0;
    snprintf(entry->text, sizeof entry->text, "%.24s of %.60s", how, parent);
    if (entry->comm == MPI_COMM_NULL) return;
    MPI_Comm_rank(entry->comm, &entry->rank);
    MPI_Comm_size(entry->comm, &entry->size);
}

static MPI_Comm create_from_group(const Communicator *parent, Random *random, bool by_members_only) {
    MPI_Group all, some;
    MPI_Comm comm = MPI_COMM_NULL;
    int order[1024], n = (int)random_between(random, 1, parent->size), rank;
    random_permutation(random, order, parent->size);
    MPI_Comm_group(parent->comm, &all);
    MPI_Group_incl(all, n, order, &some);
    MPI_Group_rank(some, &rank);
    if (!by_members_only) MPI_Comm_create(parent->comm, some, &comm);
    else if (rank != MPI_UNDEFINED) MPI_Comm_create_group(parent->comm, some, 7, &comm);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    return comm;
}

static void add(const Communicator *parent, int kind, uint64_t draw) {
    static const char *const names[] = {"dup", "split", "reversed", "shuffled", "part", "singles", "create", "create_group", "cart"};
    Communicator entry = {.comm = MPI_COMM_NULL};
    if (parent->comm != MPI_COMM_NULL) {
        Random mine = random_stream(draw, 1, 0, (uint64_t)parent->rank), all = random_stream(draw, 2, 0, 0);
        int colour = (int)random_below(&mine, 2), key = (int)random_below(&mine, 4), size = parent->size, round = 1;
        switch (kind) {
        case 0: MPI_Comm_dup(parent->comm, &entry.comm); break;
        case 1: MPI_Comm_split(parent->comm, colour, 0, &entry.comm); break;
        case 2: MPI_Comm_split(parent->comm, 0, -parent->rank, &entry.comm); break;
        case 3: MPI_Comm_split(parent->comm, 5, key, &entry.comm); break;
        case 4: MPI_Comm_split(parent->comm, colour == 0 ? MPI_UNDEFINED : 3, -key, &entry.comm); break;
        case 5: MPI_Comm_split(parent->comm, parent->rank, 0, &entry.comm); break;
        case 6: entry.comm = create_from_group(parent, &all, false); break;
        case 7: entry.comm = create_from_group(parent, &all, true); break;
        default: MPI_Cart_create(parent->comm, 1, &size, &round, 1, &entry.comm); break;
        }
    }
    describe(&entry, names[kind], parent->text);
    pool[members++] = entry;
}

static void drop(int index) {
    if (pool[index].comm != MPI_COMM_NULL) MPI_Comm_free(&pool[index].comm);
    pool[index] = pool[--members];
}

void pool_start(uint64_t seed) {
    pool[0].comm = MPI_COMM_WORLD;
    pool[1].comm = MPI_COMM_SELF;
    members = PERMANENT;
    for (int i = 0; i < PERMANENT; i++) {
        describe(&pool[i], "", "");
        snprintf(pool[i].text, sizeof pool[i].text, "%s", i == 0 ? "WORLD" : "SELF");
    }
    Random shared = random_stream(seed, 0, 0, 77);
    add(&pool[0], 0, random_bits(&shared));
    add(&pool[0], 2, random_bits(&shared));
    add(&pool[0], 1, random_bits(&shared));
}

// Adds a communicator, frees one, or makes and frees several so that handles are used again.
void pool_change(Random *shared) {
    int loops = random_chance(shared, 20) ? 3 : 1;
    for (int i = 0; i < loops; i++) {
        bool grow = members < POOL && (members == PERMANENT || loops > 1 || random_chance(shared, 50));
        int kind = (int)random_below(shared, 9), parent = random_chance(shared, 50) ? 0 : (int)random_below(shared, members);
        uint64_t draw = random_bits(shared);
        int victim = (int)random_between(shared, PERMANENT, members - 1);
        if (grow) add(&pool[parent], kind, draw);
        else drop(victim);
        if (grow && loops > 1) drop(members - 1);
    }
}

void pool_end(void) {
    while (members > PERMANENT) drop(members - 1);
}

Communicator *pool_choose(Random *shared) {
    bool world = random_chance(shared, 30), other = random_chance(shared, 95);
    int index = (int)random_below(shared, members);
    if (world) return &pool[0];
    return &pool[index == 1 && other ? members - 1 : index];  // SELF is dull
}
