// BLAKE2b with 512 bits (RFC 7693): a hash that no accident and no adversary deceives, against damage of files.
//
// Chosen because `b2sum` (GNU coreutils) computes the same, and because portable C reaches about a gigabyte a second on
// every 64-bit processor; SHA-256 reaches that only where the processor has instructions for it.
#pragma once
#include "base.h"

enum { BLAKE2B_BLOCK = 128, BLAKE2B_HEX = 128 }; // bytes of a block; digits of the result

typedef struct {
    uint64_t h[8];     // the state after the blocks so far
    uint64_t bytes[2]; // added, a 128-bit number; those in `block` not included
    unsigned char block[BLAKE2B_BLOCK];
    size_t filled;     // bytes in `block`: the last block must be known as the last, so a full one waits
} Blake2b;

// Begins a hash, adds bytes, and writes the result as hexadecimal digits and a 0.
void blake2b_begin(Blake2b* b);
void blake2b_add(Blake2b* b, const void* data, size_t size);
void blake2b_end(Blake2b* b, char hex[BLAKE2B_HEX + 1]);
