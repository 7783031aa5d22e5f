// Random streams (splitmix64). A stream is named by what it is for, so any step can be drawn again alone.
#include "differential.h"

#include <string.h>

static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

Random random_stream(uint64_t seed, uint64_t step, uint64_t call, uint64_t owner) {
    uint64_t state = mix(seed + 0x9e3779b97f4a7c15u);
    state = mix(state ^ (step + 0x632be59bd9b4e019u));
    state = mix(state ^ (call * 0xd1342543de82ef95u));
    return (Random){mix(state ^ (owner * 0xaf251af3b0f025b5u))};
}

uint64_t random_bits(Random *random) {
    random->state += 0x9e3779b97f4a7c15u;
    return mix(random->state);
}

int64_t random_below(Random *random, int64_t bound) {
    return bound <= 1 ? 0 : (int64_t)(random_bits(random) % (uint64_t)bound);
}

int64_t random_between(Random *random, int64_t first, int64_t last) {
    return first + random_below(random, last - first + 1);
}

bool random_chance(Random *random, int percent) { return random_below(random, 100) < percent; }

void random_fill(Random *random, void *bytes, size_t n) {
    unsigned char *to = bytes;
    uint64_t word = random_bits(random);
    for (; n >= 8; n -= 8, to += 8) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        uint64_t out = word ^ (word >> 29);
        memcpy(to, &out, 8);
    }
    word = mix(word);
    memcpy(to, &word, n);
}

int64_t random_divisor(Random *random, int64_t n) {
    int64_t divisors[256];
    int found = 0;
    for (int64_t d = 1; d * d <= n && found < 254; d++) {
        if (n % d != 0) continue;
        divisors[found++] = d;
        if (d != n / d) divisors[found++] = n / d;
    }
    return found == 0 ? 1 : divisors[random_below(random, found)];
}

void random_permutation(Random *random, int *order, int n) {
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)random_below(random, i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}
