// What is chosen for the processor at hand, beside the level of instructions. No choice changes a bit of a result.
//
//   level           the best that CPUID names, but AVX512_BF16 only if its tiles are a fifth faster than fp32's: some
//                   processors run it at twice that speed, others at half (backends.c, by timing)
//   reads_columns   tiles read the columns of a transposed operand where they lie; otherwise these are packed. The 256
//                   columns of a block lie on a page each and are read again for each of 12 tiles. Measured for the
//                   gradient of the weight, reading over packing: Zen 4 1.01 to 1.03, Zen 5 1.08, Intel (Granite
//                   Rapids) 0.80 to 0.89. The vendor decides: Zen 5 and Intel have the same caches.
//   l1_ways         of the L1 cache for data: columns that crowd into fewer sets are packed on any processor
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
    const Choices c = {.reads_columns = !processor_is_intel(), .l1_ways = l1_data_ways()};
    return c;
}
