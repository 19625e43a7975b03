// IEEE halves: 5 bits of exponent, 10 of mantissa.
#pragma once
#include "types.h"

namespace emu {

EMU_UNSEEN inline float fp16_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    const float magnitude = exponent == 31  ? (mantissa ? NAN : INFINITY)
                            : exponent == 0 ? (float)mantissa * 0x1p-24f
                                            : (float)(mantissa + 1024) * (float)(1u << exponent) * 0x1p-25f;
    return bits & 0x8000 ? -magnitude : magnitude;
}

// Rounds to the nearest half, ties to even: beyond the largest, 65504, as if there were more exponents, then to
// infinity. NaN becomes 0x7fff, as on a GPU.
EMU_UNSEEN inline uint16_t fp16_bits(float x) {
    if (x != x) { return 0x7fff; }
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const float magnitude = std::fabs(x);
    if (magnitude >= 65520.0f) { return sign | 0x7c00; }
    if (magnitude < 0x1p-14f) { return sign | (uint16_t)std::nearbyint(magnitude * 0x1p24f); } // subnormal
    bits &= 0x7fffffff;
    const uint32_t down = bits >> 13, rest = bits & 0x1fff;
    const uint32_t up = rest > 0x1000 || (rest == 0x1000 && down % 2);
    return sign | (uint16_t)(down + up - ((127 - 15) << 10));
}

} // namespace emu
