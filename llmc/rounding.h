// Rounding of a float to the 8 significant bits of a bf16, up or down at random, with probabilities such that the mean
// is the float itself. So an update too small for bf16 is not lost but comes through now and then (Gupta et al. 2015,
// "Deep learning with limited numerical precision"). The same bits on every device.
#pragma once
#include "rng.h"

// The random number for element i of the parameters in a step.
static inline HOST_DEVICE uint64_t rounding_random(uint64_t seed, int step, size_t i) {
    return rng_u64(seed, RNG_ROUND + ((uint64_t)step << 32), i);
}

// A bf16 is the upper half of a float: adding 16 random bits carries into it as often as the lower half is large. The
// result is a float whose lower half is zero. Infinities and NaN stay what they are.
static inline HOST_DEVICE float round_stochastically(float x, uint64_t random) {
    const uint32_t exponent = 0x7f800000, upper_half = 0xffff0000;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & exponent) == exponent) { return x; }
    bits = (bits + (uint32_t)(random & 0xffff)) & upper_half;
    memcpy(&x, &bits, sizeof bits);
    return x;
}
