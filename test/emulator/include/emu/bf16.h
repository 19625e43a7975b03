// bfloat16: the upper half of a float.
#pragma once
#include "types.h"

namespace emu {

EMU_UNSEEN inline float bf16_value(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Rounds to nearest, ties to even. NaN becomes 0x7fff, as on a GPU.
EMU_UNSEEN inline uint16_t bf16_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

} // namespace emu
