#include "blake2b.h"

// The fractions of the square roots of the first eight primes, as in SHA-512.
static const uint64_t INITIAL[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

// The order in which each of the ten different rounds takes the 16 words of a block.
static const unsigned char ORDER[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static inline uint64_t rotate_right(uint64_t x, int n) { return x >> n | x << (64 - n); }

// Mixes two words of the block into a column or diagonal of the state (section 3.1).
#define MIX(a, b, c, d, x, y)            \
    do {                                 \
        a += b + (x);                    \
        d = rotate_right(d ^ a, 32);     \
        c += d;                          \
        b = rotate_right(b ^ c, 24);     \
        a += b + (y);                    \
        d = rotate_right(d ^ a, 16);     \
        c += d;                          \
        b = rotate_right(b ^ c, 63);     \
    } while (0)

// One of the 12 rounds. A macro with a constant number, so that ORDER needs no loads.
#define ROUND(r)                                                                          \
    do {                                                                                  \
        const unsigned char* const o = ORDER[(r) % 10];                                   \
        MIX(v[0], v[4], v[8], v[12], m[o[0]], m[o[1]]);                                   \
        MIX(v[1], v[5], v[9], v[13], m[o[2]], m[o[3]]);                                   \
        MIX(v[2], v[6], v[10], v[14], m[o[4]], m[o[5]]);                                  \
        MIX(v[3], v[7], v[11], v[15], m[o[6]], m[o[7]]);                                  \
        MIX(v[0], v[5], v[10], v[15], m[o[8]], m[o[9]]);                                  \
        MIX(v[1], v[6], v[11], v[12], m[o[10]], m[o[11]]);                                \
        MIX(v[2], v[7], v[8], v[13], m[o[12]], m[o[13]]);                                 \
        MIX(v[3], v[4], v[9], v[14], m[o[14]], m[o[15]]);                                 \
    } while (0)

// Mixes a block into the state (section 3.2), of which `bytes` count. Words are little-endian, as is the processor.
static void compress(Blake2b* b, const unsigned char* block, size_t bytes, bool is_last) {
    uint64_t v[16], m[16];
    b->bytes[0] += bytes;
    b->bytes[1] += b->bytes[0] < bytes;
    memcpy(m, block, sizeof m);
    memcpy(v, b->h, sizeof b->h);
    memcpy(v + 8, INITIAL, sizeof INITIAL);
    v[12] ^= b->bytes[0];
    v[13] ^= b->bytes[1];
    if (is_last) { v[14] = ~v[14]; }
    ROUND(0); ROUND(1); ROUND(2); ROUND(3); ROUND(4); ROUND(5);
    ROUND(6); ROUND(7); ROUND(8); ROUND(9); ROUND(10); ROUND(11);
    for (int i = 0; i < 8; i++) { b->h[i] ^= v[i] ^ v[i + 8]; }
}

void blake2b_begin(Blake2b* b) {
    memset(b, 0, sizeof *b);
    memcpy(b->h, INITIAL, sizeof INITIAL);
    b->h[0] ^= 0x01010000 ^ 64; // no key, a result of 64 bytes
}

void blake2b_add(Blake2b* b, const void* data, size_t size) {
    const unsigned char* p = data;
    while (size > 0) {
        if (b->filled == BLAKE2B_BLOCK) {
            compress(b, b->block, BLAKE2B_BLOCK, false);
            b->filled = 0;
        }
        for (; b->filled == 0 && size > BLAKE2B_BLOCK; p += BLAKE2B_BLOCK, size -= BLAKE2B_BLOCK) {
            compress(b, p, BLAKE2B_BLOCK, false); // whole blocks that are not the last need no copy
        }
        const size_t n = min_size(size, BLAKE2B_BLOCK - b->filled);
        memcpy(b->block + b->filled, p, n);
        b->filled += n;
        p += n;
        size -= n;
    }
}

void blake2b_end(Blake2b* b, char hex[BLAKE2B_HEX + 1]) {
    unsigned char result[64];
    memset(b->block + b->filled, 0, BLAKE2B_BLOCK - b->filled);
    compress(b, b->block, b->filled, true);
    memcpy(result, b->h, sizeof result);
    for (size_t i = 0; i < sizeof result; i++) { snprintf(hex + 2 * i, 3, "%02x", result[i]); }
}
