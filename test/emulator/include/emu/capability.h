// The emulated device's compute capability (EMU_CC) and its limits, from the CUDA Programming Guide, "Technical
// Specifications per Compute Capability".
#pragma once
#include "error.h"

namespace emu {

struct Capability {
    int number;              // without the point
    int threads, blocks;     // of a multiprocessor
    size_t shared, reserved; // bytes of shared memory: of a multiprocessor; that CUDA takes from each block
    size_t block_shared() const { return shared - reserved; } // the most that a block can have, static included
};

inline const Capability CAPABILITIES[] = {
    {70, 2048, 32, 96 << 10, 0},      {75, 1024, 16, 64 << 10, 0},      {80, 2048, 32, 164 << 10, 1024},
    {86, 1536, 16, 100 << 10, 1024},  {89, 1536, 24, 100 << 10, 1024},  {90, 2048, 32, 228 << 10, 1024},
    {100, 2048, 32, 228 << 10, 1024}, {120, 1536, 24, 100 << 10, 1024},
};

inline int compute_capability() { return (int)option("EMU_CC", 80); }

inline const Capability& capability() {
    for (const Capability& c : CAPABILITIES) {
        if (c.number == compute_capability()) { return c; }
    }
    die("EMU_CC=%d: only 70, 75, 80, 86, 89, 90, 100 and 120 are emulated", compute_capability());
}

// The compute capability, for code that runs in each thread of a kernel: the environment is read once.
inline int target_capability() {
    static const int number = capability().number;
    return number;
}

} // namespace emu
