// Rounds floats to bf16, the upper half of a float (8 bits of exponent, 7 of mantissa): to the nearest, or
// stochastically.
#pragma once
#include "rng.h"

// Returns the bits of the bf16 nearest to x, ties to even; NaN stays NaN.
static inline uint16_t bf16_nearest(float x) {
    const uint32_t bits = bits_of_float(x);
    return (uint16_t)((x != x) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Returns the value of a bf16.
static inline float bf16_value(uint16_t upper_half) { return float_of_bits((uint32_t)upper_half << 16); }

// ---------------------------------------------------------------------------------------------------------------------
// Stochastic rounding: up or down at random, so that the expected value is the float itself. An update too small for
// bf16 then changes a weight with a small probability instead of never (Gupta et al. 2015, "Deep learning with limited
// numerical precision"). The bits are the same on every device.

// Returns the random number for element i of the parameters in a step.
static inline HOST_DEVICE uint64_t rounding_random(uint64_t seed, int step, size_t i) {
    return rng_u64(seed, RNG_ROUND + ((uint64_t)step << 32), i);
}

// Returns x rounded to a float whose lower half is zero: adding 16 random bits carries into the upper half with a
// probability of lower half / 65536. Infinities and NaN are returned unchanged.
static inline HOST_DEVICE float round_stochastically(float x, uint64_t random) {
    const uint32_t exponent = 0x7f800000, upper_half = 0xffff0000;
    const uint32_t bits = bits_of_float(x);
    if ((bits & exponent) == exponent) { return x; }
    return float_of_bits((bits + (uint32_t)(random & 0xffff)) & upper_half);
}
