// Counter-based random numbers: functions of (seed, stream, index) alone, without a state. So initial weights, data
// order and samples do not depend on ranks, threads, or on where a run was interrupted. (Salmon et al. 2011, "Parallel
// random numbers: as easy as 1, 2, 3"; the mixer is splitmix64's finalizer.)
#pragma once
#include "base.h"

// One stream for each purpose, so that no two purposes get related numbers.
enum { RNG_INIT = 1, RNG_SHUFFLE = 2, RNG_SAMPLE = 3, RNG_STORIES = 4, RNG_TEST = 5, RNG_ROUND = 6, RNG_DOCUMENTS = 7 };

// Uniform over all 64-bit integers.
static inline HOST_DEVICE uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index) {
    uint64_t key = mix64(seed + 0x9e3779b97f4a7c15ull * (stream + 1));
    return mix64(mix64(key ^ index) + key);
}

// Uniform in [0, 1), 53 bits.
static inline double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
    return (double)(rng_u64(seed, stream, index) >> 11) * 0x1p-53;
}

// Normal with mean 0 and standard deviation 1 (Box & Muller 1958). The 32 bits of u limit it to 6.7 in magnitude.
static inline float rng_normal(uint64_t seed, uint64_t stream, uint64_t index) {
    const uint64_t bits = rng_u64(seed, stream, index);
    const float u = ((float)(uint32_t)(bits >> 32) + 1.0f) * 0x1p-32f, v = (float)(uint32_t)bits * 0x1p-32f;
    return sqrtf(-2.0f * logf(u < 1.0f ? u : 1.0f)) * cosf(6.283185307f * v);
}
