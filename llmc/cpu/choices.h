// Chooses what suits the processor at hand within a level of instructions. No choice changes a bit of a result. (The
// level is the best that CPUID names, but AVX512_BF16 only if its tiles are a fifth faster than fp32's: some processors
// run it at twice that speed, others at half. backends.c times both.)
//
//   reads_columns   in fp32, tiles read the columns of a transposed operand where they lie; otherwise these are packed.
//                   The 256 steps of a block lie on a page each and are read again for each of 12 tiles. AMD gains by
//                   it with AVX-512, whose tiles use 12 elements of a line; with AVX2, which uses 6, it loses up to a
//                   tenth, Intel a tenth to a fifth. The vendor decides, since both have the same caches. Others pack.
//   l1_ways         of the L1 cache for data: columns that crowd into fewer are packed on any processor
//
// The headers of tile.h have constants for each level. Measured: dev/cpu.md.
#pragma once
#include "processor.h"
#include <unistd.h>

typedef struct {
    bool reads_columns;
    int l1_ways;
} Choices;

// Returns the ways of the L1 cache for data; 8 if the system does not say.
static inline int l1_data_ways(void) {
#ifdef _SC_LEVEL1_DCACHE_ASSOC
    const long ways = sysconf(_SC_LEVEL1_DCACHE_ASSOC);
    if (ways > 0) { return (int)ways; }
#endif
    return 8;
}

static inline Choices choices_here(void) {
    const Choices c = {.reads_columns = processor_has("avx512") && !processor_is_intel(), .l1_ways = l1_data_ways()};
    return c;
}
