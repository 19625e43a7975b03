#include "python_random.h"

PythonRandom python_random(uint32_t seed) {
    PythonRandom r = {.at = MT_WORDS};
    uint32_t* s = r.state;
    s[0] = 19650218;
    for (uint32_t i = 1; i < MT_WORDS; i++) { s[i] = 1812433253u * (s[i - 1] ^ s[i - 1] >> 30) + i; }
    uint32_t i = 1;
    for (int k = 0; k < MT_WORDS; k++) {
        s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1664525u) + seed;
        if (++i == MT_WORDS) { s[0] = s[MT_WORDS - 1]; i = 1; }
    }
    for (int k = 0; k < MT_WORDS - 1; k++) {
        s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1566083941u) - i;
        if (++i == MT_WORDS) { s[0] = s[MT_WORDS - 1]; i = 1; }
    }
    s[0] = 0x80000000u;
    return r;
}

static void next_state(uint32_t* s) {
    for (int i = 0; i < MT_WORDS; i++) {
        const uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % MT_WORDS] & 0x7fffffffu);
        s[i] = s[(i + 397) % MT_WORDS] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
}

// Returns random.getrandbits(32).
static uint32_t random_bits(PythonRandom* r) {
    if (r->at == MT_WORDS) {
        next_state(r->state);
        r->at = 0;
    }
    uint32_t y = r->state[r->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

// Returns a number below n, 0 < n < 2^32.
static size_t number_below(PythonRandom* r, size_t n) {
    int bits = 0;
    while (n >> bits) { bits++; }
    for (;;) {
        const size_t number = random_bits(r) >> (32 - bits);
        if (number < n) { return number; }
    }
}

void python_shuffle(PythonRandom* r, size_t* order, size_t n) {
    for (size_t i = n; i-- > 1;) {
        const size_t j = number_below(r, i + 1), moved = order[i];
        order[i] = order[j];
        order[j] = moved;
    }
}

// Draws from a list out of which what was drawn is taken: its last element fills the gap.
static void sample_from_pool(PythonRandom* r, size_t* chosen, size_t n, size_t k) {
    size_t* pool = alloc_or_die(n, sizeof *pool, "a sample");
    for (size_t i = 0; i < n; i++) { pool[i] = i; }
    for (size_t i = 0; i < k; i++) {
        const size_t j = number_below(r, n - i);
        chosen[i] = pool[j];
        pool[j] = pool[n - i - 1];
    }
    free(pool);
}

static bool contains(const size_t* list, size_t n, size_t number) {
    for (size_t i = 0; i < n; i++) {
        if (list[i] == number) { return true; }
    }
    return false;
}

// Python draws from a pool where that takes less memory than a set of the numbers drawn: for n up to 21, or above k = 5
// up to 21 and the power of 4 that is not below 3k.
void python_sample(PythonRandom* r, size_t* chosen, size_t n, size_t k) {
    size_t most = 21, power = 1;
    while (power < 3 * k) { power *= 4; }
    if (k > 5) { most += power; }
    if (n <= most) { sample_from_pool(r, chosen, n, k); return; }
    for (size_t i = 0; i < k; i++) {
        do { chosen[i] = number_below(r, n); } while (contains(chosen, i, chosen[i]));
    }
}
