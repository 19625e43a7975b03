// Rounds floats to the two storage types of 16 bits, to the nearest or stochastically:
//   bf16   the upper half of a float: 8 bits of exponent, 7 of mantissa
//   fp16   an IEEE half: 5 bits of exponent, 10 of mantissa; normal from 2^-14 to 65504, subnormal down to 2^-24
#pragma once
#include "rng.h"

// ---------------------------------------------------------------------------------------------------------------------
// to the nearest, ties to even; NaN stays NaN. Values are given and returned as the bits of their type.

static inline uint16_t bf16_nearest(float x) {
    const uint32_t bits = bits_of_float(x);
    return (uint16_t)((x != x) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float bf16_value(uint16_t upper_half) { return float_of_bits((uint32_t)upper_half << 16); }

// The two conversions of halves have no branches, so that compilers vectorize loops over them, and are right where
// threads flush subnormal floats to zero (cpu_open).
//
// At x, between 2^e and 2^(e+1), halves are 2^(e-10) apart; below 2^-14 as at 2^-14. Floats are as far apart at
// 2^(e+13): adding that and taking it away again leaves x as a number of steps, rounded by the addition. Magnitudes
// from 65520 on become infinity, as if 2^16 were a half.
static inline uint16_t fp16_nearest(float x) {
    const int32_t exponent = 255 << 23, least = 113 << 23, beyond = 143 << 23; // of 2^-14, 2^16
    const int32_t bits = (int32_t)(bits_of_float(x) & 0x7fffffff), magnitude = bits < beyond ? bits : beyond;
    const int32_t at = (magnitude & exponent) > least ? magnitude & exponent : least, added = at + (13 << 23);
    const float sum = float_of_bits((uint32_t)magnitude) + float_of_bits((uint32_t)added);
    const int32_t rounded = ((at - least) >> 13) + ((int32_t)bits_of_float(sum) - added);
    const int32_t nan = bits > exponent ? 0x200 : 0;
    return (uint16_t)((bits_of_float(x) >> 16 & 0x8000) | (uint32_t)(rounded | nan));
}

// A subnormal half gets the exponent of 2^-14 and loses 2^-14 again.
static inline float fp16_value(uint16_t half) {
    const int32_t magnitude = half & 0x7fff, is_subnormal = magnitude < 0x0400, is_finite = magnitude < 0x7c00;
    const uint32_t rebias = (uint32_t)(is_subnormal ? 113 : is_finite ? 112 : 224) << 23;
    const float more = is_subnormal ? 0x1p-14f : 0.0f;
    const float value = float_of_bits(((uint32_t)magnitude << 13) + rebias) - more;
    return float_of_bits(bits_of_float(value) | (uint32_t)(half & 0x8000) << 16);
}

// ---------------------------------------------------------------------------------------------------------------------
// Stochastic rounding: up or down at random, so that the expected value is the float itself. An update too small for
// the type then changes a weight with a small probability instead of never (Gupta et al. 2015, "Deep learning with
// limited numerical precision"). The bits are the same on every device.

// Says how an update has rounded masters to weights.
typedef struct {
    uint64_t seed; // 0: to the nearest
    int step;      // the update, 1 for the first
} Rounding;

// Returns the random number for element i of the parameters in a step.
static inline HOST_DEVICE uint64_t rounding_random(uint64_t seed, int step, size_t i) {
    return rng_u64(seed, RNG_ROUND + ((uint64_t)step << 32), i);
}

// Return x rounded to a number of the type. Infinities and NaN are returned unchanged.

static inline HOST_DEVICE float fp32_stochastic(float x, uint64_t random) {
    (void)random;
    return x;
}

// Adding 16 random bits carries into the upper half with a probability of lower half / 65536.
static inline HOST_DEVICE float bf16_stochastic(float x, uint64_t random) {
    const uint32_t exponent = 0x7f800000, upper_half = 0xffff0000;
    const uint32_t bits = bits_of_float(x);
    if ((bits & exponent) == exponent) { return x; }
    return float_of_bits((bits + (uint32_t)(random & 0xffff)) & upper_half);
}

// The same with the 13 lower bits. Below 2^-14, where halves are multiples of 2^-24, 16 bits behind these are rounded.
// From 65504 on there is no larger half to choose: x is returned unchanged.
static inline HOST_DEVICE float fp16_stochastic(float x, uint64_t random) {
    const float magnitude = fabsf(x), least_normal = 0x1p-14f, largest = 65504.0f;
    if (!(magnitude < largest)) { return x; }
    if (magnitude < least_normal) {
        const uint32_t fixed = (uint32_t)(magnitude * 0x1p40f) + (uint32_t)(random & 0xffff);
        return copysignf((float)(fixed >> 16) * 0x1p-24f, x);
    }
    return float_of_bits((bits_of_float(x) + (uint32_t)(random & 0x1fff)) & ~0x1fffu);
}
